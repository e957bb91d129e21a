"""Who holds what of shared devices agrees with a reading of all facts at once, however these were recorded."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.fact import Fact
from gpuledger.domain.sharing.folds import HANDLERS
from gpuledger.domain.sharing.model import Allocation
from gpuledger.domain.sharing.node_states import NodeStates
from gpuledger.domain.sharing.state import Sharing, SharingInMemory
from gpuledger.events.envelope import Decoded
from gpuledger.events.node import NodeGone
from gpuledger.events.payload import Payload
from gpuledger.events.runtime import NodeGpuCheckpointsObserved
from gpuledger.events.sharing import Allocation as RecordedAllocation
from gpuledger.events.sharing import (
    NodeDevicesShared,
    PodDevicesReleased,
    PodDevicesReserved,
    PodSharingGone,
    PodSharingObserved,
)
from support.events import RecordedFact, numbered
from support.sharing import sharings, uids

Held = dict[str, dict[str, dict[int, int]]]
"""The percentage of cores by node, pod and minor."""


def state_of(events: Sequence[Decoded], state: Sharing | None = None) -> Sharing:
    found = state or Sharing()
    for position, one in enumerate(events, 1):
        HANDLERS[type(one.data)](found, Fact(one, position, 0), one.data)
    return found


def held_in(state: Sharing) -> Held:
    nodes = NodeStates(state).nodes
    return {name: {uid: cores_of(one) for uid, one in node.holders.items()} for name, node in nodes.items()}


def cores_of(allocation: Allocation) -> dict[int, int]:
    return {one.minor: one.resources["gpu-core"] for ones in allocation.values() for one in ones}


def read_at_once(events: Sequence[Decoded]) -> Held:
    """By the words of the rule: the last facts in the order of time, one pod after the other."""
    ordered = sorted(events, key=lambda one: one.time)
    held: Held = {}
    cards: dict[str, dict[str | None, int]] = {}
    for node in {one.subject for one in ordered if isinstance(one.data, NodeDevicesShared | NodeGone)}:
        of_node = [one.data for one in ordered if one.subject == node]
        data = [one for one in of_node if isinstance(one, NodeDevicesShared | NodeGone)][-1]
        if isinstance(data, NodeDevicesShared) and data.enabled:
            held[node], cards[node] = {}, {one.id: one.minor for one in data.devices}
    for uid in uids(events):
        where, allocation = held_by([one.data for one in ordered if getattr(one.data, "uid", None) == uid])
        if where in held and allocation:
            held[where][uid] = {one.minor: one.resources["gpu-core"] for one in allocation["gpu"]}
    for node, pods in held.items():
        seen = [one.data for one in ordered if one.subject == node]
        checkpoints = [one for one in seen if isinstance(one, NodeGpuCheckpointsObserved)]
        for one in checkpoints[-1].checkpoints if checkpoints else ():
            whole = {cards[node][id_]: 100 for id_ in one.devices if id_ in cards[node]}
            if whole:
                pods.setdefault(one.uid, whole)
    return held


def held_by(facts: Sequence[Payload]) -> tuple[str | None, RecordedAllocation | None]:
    """On which node a pod holds what, after facts about it in the order of time."""
    runs, reservation = None, None
    for data in facts:
        if isinstance(data, PodSharingObserved):
            is_bound = data.node is not None and data.allocation is not None
            runs = (data.node, data.allocation) if is_bound else None
        elif isinstance(data, PodSharingGone):
            runs = reservation = None
        elif isinstance(data, PodDevicesReserved):
            reservation = (data.node, data.allocation)
        elif isinstance(data, PodDevicesReleased):
            reservation = None
    return runs or reservation or (None, None)


@given(recorded=sharings)
def test_who_holds_what_is_what_all_facts_at_once_say(recorded: list[RecordedFact]) -> None:
    events = numbered(recorded)
    assert held_in(state_of(events)) == read_at_once(events)


@given(recorded=sharings, data=st.data())
def test_neither_the_order_of_recording_nor_repeats_matter(recorded: list[RecordedFact], data: st.DataObject) -> None:
    events = numbered(recorded)
    repeated = data.draw(st.lists(st.sampled_from(events), max_size=8)) if events else []
    shuffled = data.draw(st.permutations([*events, *repeated]))
    assert held_in(state_of(shuffled)) == held_in(state_of(events))


@given(recorded=sharings)
def test_node_states_are_the_same_followed_and_built_at_once(recorded: list[RecordedFact]) -> None:
    events, state = numbered(recorded), SharingInMemory()
    nodes = NodeStates(state)
    for position, one in enumerate(events, 1):
        HANDLERS[type(one.data)](state, Fact(one, position, 0), one.data)
        before = {name: node.version for name, node in nodes.nodes.items()}
        touched = nodes.refresh()
        changed = {name for name, node in nodes.nodes.items() if before.get(name) != node.version}
        assert changed <= set(touched.nodes)
    built = NodeStates(state_of(events)).nodes
    for name, node in nodes.nodes.items():
        other = built.pop(name)
        assert (node.devices, node.holders, node.partition_policy) == (
            other.devices,
            other.holders,
            other.partition_policy,
        )
        for kind, of_type in node.devices.items():
            assert all(node.free(kind, minor) == other.free(kind, minor) for minor in of_type)
    assert not built
