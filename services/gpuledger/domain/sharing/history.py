"""Who held what of shared devices, now and at any time: the rows that people read. Pure.

Of each pod all facts are kept until it is gone, and then leave memory together; a late fact reads them back. What it
held follows from them by the rule of `holding`, which is evaluated behind each. Where the history was shortened, facts
of before count no more.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from gpuledger.api.sharing import GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from gpuledger.domain.fact import Fact, Handlers, Touched
from gpuledger.domain.sharing import folds
from gpuledger.domain.sharing.checkpoints import checkpoints_of, held_text
from gpuledger.domain.sharing.folds import PodPayload, is_news
from gpuledger.domain.sharing.holding import settled
from gpuledger.domain.sharing.model import Amounts, NodeState
from gpuledger.domain.sharing.node_states import NodeStates
from gpuledger.domain.sharing.rows import (
    NO_ALLOCATION,
    SHARED_ALLOCATION,
    SHARED_CHECKPOINTS_HISTORY,
    SHARED_DEVICE,
    SHARED_NODE_HISTORY,
    SHARED_POD,
    SHARED_POD_FACT,
    SharedAllocation,
    SharedCheckpointsVersion,
    SharedDeviceUse,
    SharedNodeVersion,
    SharedPod,
    SharedPodFact,
)
from gpuledger.domain.sharing.state import Sharing
from gpuledger.domain.sharing.texts import allocation_of, text_of_allocation
from gpuledger.domain.table import Table
from gpuledger.domain.versions import put_version
from gpuledger.events.node import NodeGone
from gpuledger.events.runtime import NodeGpuCheckpointsObserved
from gpuledger.events.sharing import (
    NodeDevicesShared,
    PodDevicesBound,
    PodDevicesReleased,
    PodDevicesReserved,
    PodSharingGone,
    PodSharingObserved,
)

_happened_at = attrgetter("happened_at")


class SharingHistory(Sharing):
    """The state of the read model: who holds what, how much of each device is used, and all of that in the past."""

    def __init__(self) -> None:
        super().__init__()
        self.device: Table[SharedDeviceUse] = Table(SHARED_DEVICE, "node")
        self.node_history: Table[SharedNodeVersion] = Table(SHARED_NODE_HISTORY, "node")
        self.pod_fact: Table[SharedPodFact] = Table(SHARED_POD_FACT, "uid")
        self.allocation: Table[SharedAllocation] = Table(SHARED_ALLOCATION, "uid")
        self.checkpoints_history: Table[SharedCheckpointsVersion] = Table(SHARED_CHECKPOINTS_HISTORY, "node")
        self._node_states: NodeStates | None = None

    @property
    def node_states(self) -> NodeStates:
        """The nodes that share devices, as of the rows; made when a fact first needs them, behind the rows' loading."""
        if self._node_states is None:
            self._node_states = NodeStates(self)
        return self._node_states


def touched(state: SharingHistory, fact: Fact) -> Touched:
    """The past of a node where the fact is late, and of a pod that is not in memory."""
    data = fact.event.data
    if isinstance(data, NodeDevicesShared | NodeGone):
        return _versions_of(state.node_history, fact)
    if isinstance(data, NodeGpuCheckpointsObserved):
        return _versions_of(state.checkpoints_history, fact)
    uid = getattr(data, "uid", None)
    if uid is None or uid in state.shared_pod.rows:
        return ()
    return [(spec.name, "uid", uid) for spec in (SHARED_POD, SHARED_POD_FACT, SHARED_ALLOCATION)]


def _versions_of(history: Table[SharedNodeVersion] | Table[SharedCheckpointsVersion], fact: Fact) -> Touched:
    """The versions of a node, where a fact is of a time before the latest."""
    node = fact.event.subject
    is_latest = all(version.valid_from <= fact.event.time for version in history.where("node", node))
    return () if is_latest else [(history.spec.name, "node", node)]


def _node_changed(state: SharingHistory, fact: Fact, data: NodeDevicesShared | NodeGone) -> None:
    states, row = state.node_states, folds.node_row(fact, data)
    version = SharedNodeVersion(
        row.node,
        row.shared_at,
        None,
        row.position,
        row.present,
        row.model,
        row.partition_policy,
        row.devices,
        row.not_shared,
    )
    put_version(state.node_history, state.node_history.where("node", row.node), version)
    folds.HANDLERS[type(data)](state, fact, data)
    _account(state, states)


def _checkpoints_observed(state: SharingHistory, fact: Fact, data: NodeGpuCheckpointsObserved) -> None:
    states, node = state.node_states, fact.event.subject
    text = held_text(checkpoints_of(data))
    version = SharedCheckpointsVersion(node, fact.event.time, None, fact.sequence, text)
    put_version(state.checkpoints_history, state.checkpoints_history.where("node", node), version)
    folds.HANDLERS[NodeGpuCheckpointsObserved](state, fact, data)
    _account(state, states)


def _pod_changed(state: SharingHistory, fact: Fact, data: PodPayload) -> None:
    begins = state.shared_pod.begins
    if data.uid is None or (begins is not None and fact.event.time < begins):
        return
    states = state.node_states
    folds.HANDLERS[type(data)](state, fact, data)
    row = state.shared_pod.get(data.uid)
    _keep_fact(state, fact, data, data.uid)
    if row is not None:
        _put_past(state, row)
    _account(state, states)


def _keep_fact(state: SharingHistory, fact: Fact, data: PodPayload, uid: str) -> None:
    kept = SharedPodFact(uid, fact.event.time, data.EVENT, fact.sequence, *_held_by(data), None)
    before = state.pod_fact.get((uid, kept.happened_at, kept.kind))
    if before is None or is_news(before.happened_at, before.position, fact):
        state.pod_fact.put(kept)


def _held_by(data: PodPayload) -> tuple[str | None, str, bool]:
    """The node, the allocation, and whether the pod has run, of a fact."""
    match data:
        case PodSharingObserved():
            return data.node, text_of_allocation(data.allocation or {}), data.started
        case PodDevicesReserved():
            return data.node, text_of_allocation(data.allocation), False
        case PodDevicesBound() | PodDevicesReleased():
            return data.node, NO_ALLOCATION, False
        case PodSharingGone():
            return None, NO_ALLOCATION, False


def _put_past(state: SharingHistory, row: SharedPod) -> None:
    """Put what a pod held by all its facts, and say of all its rows when it was over."""
    facts = state.pod_fact.where("uid", row.uid)
    for one in facts:
        if one.over_at != row.over_at:
            state.pod_fact.put(one._replace(over_at=row.over_at))
    ranges = {state.allocation.key_of(one): one for one in allocations_of(row, facts)}
    for before in state.allocation.where("uid", row.uid):
        key = state.allocation.key_of(before)
        if key not in ranges:
            state.allocation.delete(key)
    for key, held in ranges.items():
        if state.allocation.get(key) != held:
            state.allocation.put(held)


class _Held(NamedTuple):
    """What a pod held of a device."""

    node: str
    type: str
    minor: int
    id: str | None
    core: int | None
    memory: int | None
    ratio: int


def allocations_of(row: SharedPod, facts: Iterable[SharedPodFact]) -> Iterator[SharedAllocation]:
    """What a pod held from when to when, by all facts about it."""
    since: dict[_Held, datetime] = {}
    for at, held in _steps(row, facts):
        for gone in since.keys() - held:
            yield _range(row, gone, since.pop(gone), at)
        for new in held - since.keys():
            since[new] = at
    for one, at in since.items():
        yield _range(row, one, at, None)


def pod_at(row: SharedPod, facts: Iterable[SharedPodFact]) -> SharedPod:
    """A pod as these facts alone have it; what it asks for is as in the row, which has the latest of it."""
    bare = row._replace(
        observed_node=None, annotation=NO_ALLOCATION, started=False, observed_at=None, reserved_node=None,
        reservation=NO_ALLOCATION, reserved_at=None, bound_at=None, released_at=None, gone_at=None, over_at=None,
    )  # fmt: skip
    for one in facts:
        bare = _with_fact(bare, one)
    return settled(bare)


def _steps(row: SharedPod, facts: Iterable[SharedPodFact]) -> Iterator[tuple[datetime, frozenset[_Held]]]:
    """What a pod held from each time on."""
    now = pod_at(row, ())
    for at, together in groupby(sorted(facts, key=_happened_at), _happened_at):
        for one in together:
            now = _with_fact(now, one)
        now = settled(now)
        yield at, frozenset() if now.node is None else frozenset(_held_in(now.node, now.allocation))


def _with_fact(row: SharedPod, one: SharedPodFact) -> SharedPod:
    """A pod with a fact that is not earlier than those before it; those of one time are of several kinds."""
    at, position = one.happened_at, one.position
    match one.kind:
        case PodSharingObserved.EVENT:
            return row._replace(
                observed_node=one.node, annotation=one.allocation, started=one.started, observed_at=at,
                observed_position=position,
            )  # fmt: skip
        case PodDevicesReserved.EVENT:
            return row._replace(
                reserved_node=one.node, reservation=one.allocation, reserved_at=at, reserved_position=position
            )
        case PodDevicesBound.EVENT:
            return row._replace(bound_at=at, bound_position=position)
        case PodDevicesReleased.EVENT:
            return row._replace(released_at=at, released_position=position)
        case _:
            return row._replace(gone_at=at, gone_position=position)


def _held_in(node: str, allocation: str) -> Iterator[_Held]:
    """What is held of each device; one that is named twice is held twice, as whoever writes annotations may have it."""
    for kind, devices in allocation_of(allocation).items():
        for minor in {one.minor for one in devices}:
            named = [one for one in devices if one.minor == minor]
            total: Counter[str] = Counter()
            for one in named:
                total.update(one.resources)
            core, memory, ratio = amounts_of(kind, total)
            yield _Held(node, kind, minor, named[-1].id, core, memory, ratio or 0)


def amounts_of(kind: str, resources: Amounts) -> tuple[int | None, int | None, int | None]:
    """The core, memory and ratio in amounts of a device of a type; core and memory are of GPUs alone."""
    if kind != GPU:
        return None, None, resources.get(kind)
    return resources.get(GPU_CORE, 0), resources.get(GPU_MEMORY, 0), resources.get(GPU_MEMORY_RATIO, 0)


def _range(row: SharedPod, held: _Held, since: datetime, until: datetime | None) -> SharedAllocation:
    node, kind, minor, id_, core, memory, ratio = held
    return SharedAllocation(
        row.uid, node, kind, minor, since, until, row.pod, row.namespace, id_, core, memory, ratio, row.over_at
    )


def _account(state: SharingHistory, states: NodeStates) -> None:
    """Put how much of each device of the nodes that changed is used."""
    for name in states.refresh().nodes:
        row, node = state.shared_node.get(name), states.nodes.get(name)
        uses = (
            {}
            if node is None or row is None
            else {(one.type, one.minor): one for one in _uses(state, states, node, row.model)}
        )
        for before in state.device.where("node", name):
            if (before.type, before.minor) not in uses:
                state.device.delete(state.device.key_of(before))
        for one in uses.values():
            if state.device.get(state.device.key_of(one)) != one:
                state.device.put(one)


def _uses(state: SharingHistory, states: NodeStates, node: NodeState, model: str | None) -> Iterator[SharedDeviceUse]:
    holders = _holders(state, node, states)
    for kind, devices in node.devices.items():
        for minor, device in devices.items():
            core, memory, ratio = amounts_of(kind, device.resources)
            core_used, memory_used, ratio_used = amounts_of(kind, node.used.get(kind, {}).get(minor, {}))
            pods = sorted(holders.get((kind, minor), ()))
            yield SharedDeviceUse(
                node.name, kind, minor, device.id, model if kind == GPU else None, device.healthy, core, core_used,
                memory, memory_used, ratio, ratio_used or 0, len(pods), ",".join(pods),
            )  # fmt: skip


def _holders(state: SharingHistory, node: NodeState, states: NodeStates) -> Mapping[tuple[str, int], list[str]]:
    """The names of the pods that hold something of each device."""
    found: dict[tuple[str, int], list[str]] = {}
    for uid, allocation in node.holders.items():
        row = None if states.has_without_allocation(node.name, uid) else state.shared_pod.get(uid)
        holder = uid if row is None else row.pod
        for kind, devices in allocation.items():
            for minor in {one.minor for one in devices}:
                found.setdefault((kind, minor), []).append(holder)
    return found


HANDLERS: Final[Handlers] = {
    NodeDevicesShared: _node_changed,
    NodeGone: _node_changed,
    PodSharingObserved: _pod_changed,
    PodSharingGone: _pod_changed,
    PodDevicesReserved: _pod_changed,
    PodDevicesBound: _pod_changed,
    PodDevicesReleased: _pod_changed,
    NodeGpuCheckpointsObserved: _checkpoints_observed,
}
"""Who holds and held what of which node."""
