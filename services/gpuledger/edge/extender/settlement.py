"""Decides what becomes of a reservation, from what Kubernetes says of its pod. Pure.

It is the one rule for an attempt that failed, for one whose end nobody has seen, and for those that a restart finds.
"""

from typing import Final, NamedTuple

from gpuledger.api.sharing import SharingNames
from gpuledger.domain.sharing.annotation import read_allocation
from gpuledger.domain.sharing.model import Allocation
from gpuledger.edge.extender.pods import SchedulablePod

POD_GONE: Final = "PodGone"
BOUND_ELSEWHERE: Final = "BoundElsewhere"
BOUND_BY_OTHERS: Final = "BoundByOthers"
NOT_BOUND: Final = "NotBound"


class Settlement(NamedTuple):
    """Whether the pod is bound with what was reserved; else why not.

    `removes`: the annotation is ours, and is to be removed.
    """

    is_bound: bool
    reason: str = ""
    message: str = ""
    removes: bool = False


def settlement(
    uid: str, node: str, reserved: Allocation, pod: SchedulablePod | None, names: SharingNames
) -> Settlement:
    """What becomes of a reservation on a node for the pod of a UID; `pod` is the one of its name, None: there is none.

    The annotation counts as ours where it gives the same amounts of the same devices.
    """
    if pod is None or pod.uid != uid:
        return Settlement(False, POD_GONE, "The pod is gone.")
    is_ours = has_allocation(pod, reserved, names)
    if pod.node is None:
        if pod.is_over:
            return Settlement(False, POD_GONE, "The pod is being deleted, or has ended.", is_ours)
        return Settlement(False, NOT_BOUND, "The pod is not bound to the node.", is_ours)
    if pod.node != node:
        return Settlement(False, BOUND_ELSEWHERE, f"The pod is bound to the node {pod.node}.", is_ours)
    if not is_ours:
        message = "Somebody else has bound the pod to the node, without the devices that were reserved."
        return Settlement(False, BOUND_BY_OTHERS, message)
    return Settlement(True)


def has_allocation(pod: SchedulablePod, reserved: Allocation, names: SharingNames) -> bool:
    """Whether the pod's annotation gives what was reserved."""
    if pod.allocated is None:
        return False
    try:
        return amounts_in(read_allocation(pod.allocated, names)) == amounts_in(reserved)
    except ValueError:
        return False


def amounts_in(allocation: Allocation) -> dict[tuple[str, int], dict[str, int]]:
    """The amounts by type and minor; what is 0 is left out."""
    return {
        (kind, one.minor): {resource: amount for resource, amount in one.resources.items() if amount}
        for kind, devices in allocation.items()
        for one in devices
    }
