"""What all pods hold of a node's shared devices, as the node's agent reads it. Pure.

What a pod's containers ask for is in what kube-scheduler sent of it, and later in what watchers record; a pod may be
bound before they see it.
"""

from collections import OrderedDict
from typing import Final

import orjson

from gpuledger.domain.sharing.model import Allocated, Allocation, NodeState
from gpuledger.edge.extender.pods import SchedulablePod
from gpuledger.edge.extender.state import ExtenderState
from gpuledger.events.shares import PODS_MAX, NodeDevicesAllocated, PodShare
from gpuledger.events.sharing import CONTAINERS_MAX, AllocatedDevice, ContainerShare, SharedFunction

REMEMBERED_MAX: Final = 4096
"""How many pods are remembered that were bound last; watchers have seen all others."""


class NodeShares:
    """Makes the list of a node."""

    def __init__(self, state: ExtenderState) -> None:
        self._state = state
        self._remembered: OrderedDict[str, SchedulablePod] = OrderedDict()

    def of(self, node: NodeState, pod: SchedulablePod) -> NodeDevicesAllocated:
        """All pods that hold something of a node, those that began last at the end; the pod that is bound now is one.

        Of more than an event may have, the last ones.
        """
        self._remembered[pod.uid] = pod
        if len(self._remembered) > REMEMBERED_MAX:
            self._remembered.popitem(last=False)
        shares = (self._share(uid, allocation) for uid, allocation in node.holders.items())
        return NodeDevicesAllocated(pods=tuple(one for one in shares if one is not None)[-PODS_MAX:])

    def _share(self, uid: str, allocation: Allocation) -> PodShare | None:
        row, pod = self._state.pod(uid), self._remembered.get(uid)
        if pod is not None:
            return _share_of(pod, allocation)
        if row is None:
            return None
        namespace, _, name = row.pod.partition("/")
        return PodShare(
            uid=uid,
            namespace=namespace,
            pod=name,
            requests=orjson.loads(row.requests),
            containers=tuple(ContainerShare.model_validate(one) for one in orjson.loads(row.containers)),
            allocation=recorded(allocation),
        )


def _share_of(pod: SchedulablePod, allocation: Allocation) -> PodShare:
    containers = tuple(
        ContainerShare(name=one.name, requests=dict(one.amounts), init=one.is_init, sidecar=one.is_sidecar)
        for one in pod.containers
        if one.name
    )
    return PodShare(
        uid=pod.uid,
        namespace=pod.namespace,
        pod=pod.name,
        requests=dict(pod.amounts),
        containers=containers[:CONTAINERS_MAX],
        allocation=recorded(allocation),
    )


def recorded(allocation: Allocation) -> dict[str, tuple[AllocatedDevice, ...]]:
    """An allocation as events have it."""
    return {kind: tuple(map(_device, devices)) for kind, devices in allocation.items()}


def _device(one: Allocated) -> AllocatedDevice:
    functions = tuple(SharedFunction(minor=each.minor, bus_id=each.bus_id) for each in one.functions)
    return AllocatedDevice(minor=one.minor, id=one.id, resources=dict(one.resources), functions=functions)
