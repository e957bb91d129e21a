"""What the log says about nodes that share GPUs and about pods that ask for them, step by step. Pure.

Two kinds of history have the same steps: pods of a cluster with their reservations and annotations, and workloads of
imports, of which the log knows amounts alone.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

import orjson

from gpuledger.api.sharing import GPU, GPU_CORE, GPU_MEMORY_RATIO, WHOLE
from gpuledger.domain.fact import Fact, Handlers
from gpuledger.domain.sharing.folds import HANDLERS as SHARING_HANDLERS
from gpuledger.domain.sharing.hints import hints_of
from gpuledger.domain.sharing.machines import NO_NEEDS, Needs
from gpuledger.domain.sharing.model import Allocation, Device, PodRequest, Refusal
from gpuledger.domain.sharing.requests import request_of
from gpuledger.domain.sharing.rows import NO_ALLOCATION, SharedPod
from gpuledger.domain.sharing.state import SharingInMemory
from gpuledger.domain.sharing.texts import Devices, allocation_of, devices_of, text_of_devices
from gpuledger.events.node import NodeDecommissioned, NodeGone, NodeRegistered
from gpuledger.events.payload import Payload
from gpuledger.events.sharing import (
    NodeDevicesShared,
    PodDevicesBound,
    PodDevicesReleased,
    PodDevicesReserved,
    PodSharingGone,
    PodSharingObserved,
)
from gpuledger.events.workload import WorkloadEnded, WorkloadScheduled, WorkloadSubmitted

MILLI: Final = 1000
"""Thousandths of a GPU that are a whole one."""


class NodeShares(NamedTuple):
    """The node shares these devices from now on; of one that was imported, CPU and memory are known too."""

    devices: Devices
    cpu_milli: int = 0
    memory_mib: int = 0


class NodeLeaves(NamedTuple):
    """The node shares nothing any more, and its pods have nothing."""


class PodArrives(NamedTuple):
    """The pod asks for devices."""

    request: PodRequest
    needs: Needs = NO_NEEDS


class PodHolds(NamedTuple):
    """The pod got these devices of a node, or, without them, so many percent of a GPU somewhere."""

    node: str | None
    allocation: Allocation
    percent: int = 0


class PodLetsGo(NamedTuple):
    """The pod has no devices any more, and waits."""


class PodEnds(NamedTuple):
    """The pod is gone."""


What = NodeShares | NodeLeaves | PodArrives | PodHolds | PodLetsGo | PodEnds


class Step(NamedTuple):
    """Something that happened to a node or a pod. A pod's `name` is its UID, or the name of its workload."""

    time: datetime
    name: str
    what: What


class _Pod(NamedTuple):
    arrived: Step
    holds: Step | None = None


class RecordedArrivals:
    """Folds the log into steps. Those after `begin` are in `steps`; of those before, only what they led to is kept."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.refused: set[str] = set()
        """Pods whose requests cannot be placed by anybody."""

        self.sharing = SharingInMemory()
        self._has_begun = False
        self._nodes: dict[str, Step] = {}
        self._pods: dict[str, _Pod] = {}

    def tables(self) -> Mapping[str, Any]:
        """No rows are kept of it."""
        return {}

    def begin(self) -> list[Step]:
        """The steps that lead to the present position: its nodes, and the pods that are there, in their order."""
        present = list(self._nodes.values())
        for pod in self._pods.values():
            present += [pod.arrived] if pod.holds is None else [pod.arrived, pod.holds]
        self._has_begun = True
        return present

    def add(self, step: Step) -> None:
        """Take a step."""
        match step.what:
            case NodeShares():
                self._nodes[step.name] = step
            case NodeLeaves():
                self._nodes.pop(step.name, None)
            case PodArrives():
                self._pods[step.name] = _Pod(step)
            case PodHolds():
                self._pods[step.name] = self._pods[step.name]._replace(holds=step)
            case PodLetsGo():
                self._pods[step.name] = self._pods[step.name]._replace(holds=None)
            case PodEnds():
                self._pods.pop(step.name, None)
        if self._has_begun:
            self.steps.append(step)

    def has(self, pod: str) -> bool:
        """Whether the pod has arrived, and not ended."""
        return pod in self._pods


def _node_registered(state: RecordedArrivals, fact: Fact, data: NodeRegistered) -> None:
    whole = {GPU_CORE: WHOLE, GPU_MEMORY_RATIO: WHOLE}
    gpus = {minor: Device(GPU, minor, True, whole) for minor in range(data.gpu_count or 0)}
    shares = NodeShares({GPU: gpus}, data.cpu_milli or 0, data.memory_mib or 0)
    state.add(Step(fact.event.time, fact.event.subject, shares))


def _node_leaves(state: RecordedArrivals, fact: Fact, data: Payload) -> None:
    handler = SHARING_HANDLERS.get(type(data))
    if handler is not None:
        handler(state.sharing, fact, data)
    state.add(Step(fact.event.time, fact.event.subject, NodeLeaves()))


def _devices_shared(state: RecordedArrivals, fact: Fact, data: NodeDevicesShared) -> None:
    SHARING_HANDLERS[NodeDevicesShared](state.sharing, fact, data)
    what = NodeShares(devices_of(text_of_devices(data))) if data.enabled else NodeLeaves()
    state.add(Step(fact.event.time, fact.event.subject, what))


def _pod(state: RecordedArrivals, fact: Fact, data: Any) -> None:  # noqa: ANN401 - any payload about a pod
    """Fold the fact by the one rule of who holds what, and take the steps that follow."""
    if data.uid is None:
        return
    pods = state.sharing.shared_pod
    before = pods.get(data.uid)
    SHARING_HANDLERS[type(data)](state.sharing, fact, data)
    after = pods.get(data.uid)
    if after is None or after.over_at is not None:
        if state.has(data.uid):
            state.add(Step(fact.event.time, data.uid, PodEnds()))
        return
    if not state.has(data.uid) and not _arrives(state, fact, after):
        return
    for what in _held(before, after):
        state.add(Step(fact.event.time, data.uid, what))


def _arrives(state: RecordedArrivals, fact: Fact, row: SharedPod) -> bool:
    hints = hints_of(row.hint, row.joint, row.partition_spec)
    requests = row.requests if row.requests != NO_ALLOCATION else row.reserved_requests or NO_ALLOCATION
    request = hints if isinstance(hints, Refusal) else request_of(orjson.loads(requests), hints)
    if request is None or isinstance(request, Refusal):
        if isinstance(request, Refusal):
            state.refused.add(row.uid)
        return False
    state.add(Step(row.first_at or fact.event.time, row.uid, PodArrives(request)))
    return True


def _held(before: SharedPod | None, after: SharedPod) -> Iterator[What]:
    was = (None, NO_ALLOCATION) if before is None else (before.node, before.allocation)
    if was == (after.node, after.allocation):
        return
    if after.node is not None and after.allocation != NO_ALLOCATION:
        yield PodHolds(after.node, allocation_of(after.allocation))
    elif was[1] != NO_ALLOCATION:
        yield PodLetsGo()


def _submitted(state: RecordedArrivals, fact: Fact, data: WorkloadSubmitted) -> None:
    request = request_of_milli(data.gpu_milli)
    needs = Needs(data.cpu_milli or 0, data.memory_mib or 0)
    state.add(Step(fact.event.time, fact.event.subject, PodArrives(request, needs)))


def request_of_milli(milli: int) -> PodRequest:
    """What so many thousandths of a GPU are: a share of one in whole percent, rounded up, or whole ones, rounded up."""
    percent = -(-milli * WHOLE // MILLI)
    if percent > WHOLE:
        percent = -(-percent // WHOLE) * WHOLE
    request = request_of({GPU_CORE: percent, GPU_MEMORY_RATIO: percent})
    assert not isinstance(request, Refusal), "a share of one GPU, or whole ones"
    return request or PodRequest(())


def _scheduled(state: RecordedArrivals, fact: Fact, data: WorkloadScheduled) -> None:
    name = fact.event.subject
    if not state.has(name):
        state.add(Step(fact.event.time, name, PodArrives(request_of_milli(data.gpu_milli))))
    state.add(Step(fact.event.time, name, PodHolds(None, {}, -(-data.gpu_milli * WHOLE // MILLI))))


def _ended(state: RecordedArrivals, fact: Fact, _data: WorkloadEnded) -> None:
    if state.has(fact.event.subject):
        state.add(Step(fact.event.time, fact.event.subject, PodEnds()))


_POD_HANDLERS: Final[dict[type[Payload], Callable[..., None]]] = dict.fromkeys(
    (PodSharingObserved, PodSharingGone, PodDevicesReserved, PodDevicesBound, PodDevicesReleased), _pod
)

HANDLERS: Final[Handlers] = {
    NodeRegistered: _node_registered,
    NodeDecommissioned: _node_leaves,
    NodeGone: _node_leaves,
    NodeDevicesShared: _devices_shared,
    **_POD_HANDLERS,
    WorkloadSubmitted: _submitted,
    WorkloadScheduled: _scheduled,
    WorkloadEnded: _ended,
}
