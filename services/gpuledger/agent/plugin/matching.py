"""Which pod an Allocate request is for, which does not say so, and what its container gets. Pure.

The kubelet admits one pod at a time. It lists every pod that it has, also the one that it is about to admit; so the
request is for a container that requests as many units, of a pod that the kubelet lists without them. It also lists pods
that have ended or that it rejected: those were answered, or leave open which pod it is. What remains open gets nothing:
a container must never see a GPU of another pod.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from gpuledger.agent.kubelet.podresources_pb2 import ListPodResourcesResponse
from gpuledger.api.sharing import GPU, SharingNames
from gpuledger.domain.sharing.container_env import HIDDEN, VISIBLE_DEVICES, UnnamedGpuError, container_environment
from gpuledger.domain.sharing.container_parts import part_of
from gpuledger.domain.sharing.model import Allocated, Allocation
from gpuledger.events.shares import PodShare
from gpuledger.events.sharing import ContainerShare

NAMED_MAX: Final = 5
"""How many pods a message names."""


class ShareCall(NamedTuple):
    """A request for so many units of a resource, without its domain."""

    resource: str
    number: int


class Answered(NamedTuple):
    """A container that got its units of a resource."""

    uid: str
    container: str
    resource: str


ListedPods = Mapping[tuple[str, str], Mapping[str, frozenset[str]]]
"""The kubelet's pods, by namespace and name: the resources that each of their containers has, without the domain."""


class ShareMatch(NamedTuple):
    """The container that a request is for, and the variables that it gets."""

    pod: PodShare
    container: ContainerShare
    environment: Mapping[str, str]

    def answered(self, call: ShareCall) -> Answered:
        """The container, as one that has got what the request asks for."""
        return Answered(self.pod.uid, self.container.name, call.resource)


class NoMatch(NamedTuple):
    """Why nobody can tell which container a request is for. `passing`: a moment later somebody may."""

    reason: str
    passing: bool = True


def listed_pods(response: ListPodResourcesResponse, names: SharingNames) -> ListedPods:
    """The kubelet's pods; resources that are none of ours are left out."""
    return {
        (pod.namespace, pod.name): {
            container.name: frozenset(
                short for entry in container.devices if (short := names.short(entry.resource_name)) is not None
            )
            for container in pod.containers
        }
        for pod in response.pod_resources
    }


def match(
    call: ShareCall, pods: Iterable[PodShare], listed: ListedPods, answered: frozenset[Answered]
) -> ShareMatch | NoMatch:
    """The container that a request is for; not one that was answered before, whose pod has ended or was rejected.

    Of two pods of one name the later one in the list counts.
    """
    by_name = {(pod.namespace, pod.pod): pod for pod in pods}
    asking = [(pod, one) for pod in by_name.values() if (one := _container(call, pod, listed, answered)) is not None]
    if not asking:
        return _nobody(call, by_name.values())
    try:
        found = [ShareMatch(pod, one, environment_of(pod, one)) for pod, one in asking]
    except UnnamedGpuError as error:
        return NoMatch(str(error), passing=False)
    if any(each.environment != found[0].environment for each in found):
        return NoMatch(
            f"{_named(each.pod for each in found)} all wait for {call.number} of {call.resource} on different devices, "
            "and the kubelet does not say for which of them it asks. This passes when one of them is gone."
        )
    return found[0]


def environment_of(pod: PodShare, container: ContainerShare) -> dict[str, str]:
    """The variables that a container of a pod gets; one without GPUs in a pod with some sees none of the node's.

    Raises:
        UnnamedGpuError: the allocation leaves open which GPU it means, or how much of it.
    """
    found = container_environment(allocation_of(pod), part=part_of(pod, container))
    return {VISIBLE_DEVICES: HIDDEN} if pod.allocation.get(GPU) and not found else found


def allocation_of(pod: PodShare) -> Allocation:
    """What the pod gets, without virtual functions."""
    return {
        kind: tuple(Allocated(one.minor, one.resources, id=one.id) for one in devices)
        for kind, devices in pod.allocation.items()
    }


def devices_of(found: ShareMatch, kind: str) -> tuple[str, ...]:
    """The ids of the devices of one type that the container gets, in the order of the minors."""
    devices = sorted(found.pod.allocation.get(kind, ()), key=lambda one: one.minor)
    ids = tuple(one.id for one in devices if one.id is not None)
    if kind != GPU:
        return ids
    visible = frozenset(",".join(found.environment.values()).split(","))
    return tuple(each for each in ids if each in visible)


def _container(
    call: ShareCall, pod: PodShare, listed: ListedPods, answered: frozenset[Answered]
) -> ContainerShare | None:
    """The next container of a pod that the kubelet may ask for; it takes init containers first, each in order.

    Its list leaves out init containers that end; as soon as another container of the pod has units, those have theirs.
    """
    has = listed.get((pod.namespace, pod.pod))
    if has is None:
        return None
    is_past_init = any(has.get(one.name) for one in pod.containers if not one.init)
    asking = (
        one
        for one in _in_order(pod.containers)
        if one.requests.get(call.resource) == call.number
        and call.resource not in has.get(one.name, ())
        and not (one.init and is_past_init)
        and Answered(pod.uid, one.name, call.resource) not in answered
    )
    return next(asking, None)


def _in_order(containers: Sequence[ContainerShare]) -> Sequence[ContainerShare]:
    return sorted(containers, key=lambda one: not one.init)


def _nobody(call: ShareCall, pods: Iterable[PodShare]) -> NoMatch:
    waiting = [pod for pod in pods if any(one.requests.get(call.resource) == call.number for one in pod.containers)]
    if not waiting:
        return NoMatch(
            f"No pod on this node has {call.number} of {call.resource} reserved for a container. The extender reserves "
            "devices when it binds a pod: see `gpuledger why pod`, whether another scheduler bound it, and whether the "
            "agent reaches the ledger."
        )
    return NoMatch(
        f"{_named(waiting)} have {call.number} of {call.resource} reserved for a container, and the kubelet lists none "
        "of them as one that waits for it."
    )


def _named(pods: Iterable[PodShare]) -> str:
    names = sorted(f"{pod.namespace}/{pod.pod}" for pod in pods)
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more
