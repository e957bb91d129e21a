"""Devices are never oversold, and what a pod gets depends on nothing but the node's state and the request."""

from collections.abc import Sequence
from itertools import combinations
from random import Random
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.api.sharing import GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, RDMA, Strategy
from gpuledger.domain.sharing.allocation import allocate
from gpuledger.domain.sharing.model import (
    Allocated,
    Allocation,
    Amounts,
    Device,
    Hint,
    JointAllocate,
    LabelSelector,
    NodeState,
    PodRequest,
    Refusal,
    Scope,
    Topology,
    TypeRequest,
)
from gpuledger.domain.sharing.partition_tables import HONOR, LINKED_EIGHT, PREFER
from gpuledger.domain.sharing.scores import Scoring, node_score
from support.shared_nodes import eight, gpu, nic, node
from support.thoroughness import examples

SCORINGS = st.sampled_from(Strategy).map(Scoring)
SHARES = st.one_of(
    st.builds(lambda core, ratio: {GPU_CORE: core, GPU_MEMORY_RATIO: ratio}, st.integers(1, 100), st.integers(1, 100)),
    st.builds(lambda core, memory: {GPU_CORE: core, GPU_MEMORY: memory}, st.integers(1, 100), st.integers(1, 1200)),
    st.integers(1, 100).map(lambda ratio: {GPU_MEMORY_RATIO: ratio}),
    st.integers(1, 1200).map(lambda memory: {GPU_MEMORY: memory}),
    st.just({GPU_CORE: 100, GPU_MEMORY_RATIO: 100}),
)
PLACES = st.integers(0, 3).map(lambda switch: Topology(switch // 2, switch // 2, str(switch)))
SMALL_GPUS = st.lists(
    st.builds(
        lambda memory, place, healthy: gpu(0, memory, place, healthy=healthy),
        st.sampled_from([7, 99, 1000, 1024]),
        st.none() | PLACES,
        st.sampled_from([True, True, True, False]),
    ),
    min_size=1,
    max_size=5,
)
NICS = st.lists(
    st.builds(lambda place, count: nic(0, place, "abc"[:count]), st.none() | PLACES, st.integers(0, 3)), max_size=3
)


class Release(NamedTuple):
    """A pod gives back what it holds."""

    pod: int


class Health(NamedTuple):
    """A GPU that is healthy is so no more, or the other way round."""

    minor: int


class Withdrawal(NamedTuple):
    """A GPU is not reported any more, or again."""

    minor: int


def is_shared(amounts: Amounts) -> bool:
    return GPU_MEMORY in amounts or amounts[GPU_MEMORY_RATIO] < 100


@st.composite
def requests(draw: st.DrawFn) -> PodRequest:
    types = []
    if draw(st.booleans()):
        amounts = draw(SHARES)
        hint = Hint(required_scope=draw(st.none() | st.sampled_from(Scope)))
        types.append(TypeRequest(GPU, draw(st.integers(1, 4)), amounts, is_shared(amounts), hint))
    if not types or draw(st.booleans()):
        hint = Hint(
            vf_selector=draw(st.none() | st.just(LabelSelector())),
            allocate_strategy=draw(st.sampled_from([None, None, "ApplyForAll"])),
        )
        types.append(
            TypeRequest(RDMA, draw(st.integers(1, 2)), {RDMA: draw(st.integers(1, 100))}, shared=False, hint=hint)
        )
    joint = draw(st.none() | st.builds(JointAllocate, st.just((GPU, RDMA)), st.booleans()))
    return PodRequest(tuple(types), joint, numa_nodes=draw(st.none() | st.just(frozenset({0}))))


def numbered(devices: Sequence[Device]) -> list[Device]:
    """The same devices with minors of their own: the NICs of a node may have those of its GPUs."""
    return [
        one._replace(
            minor=number,
            id=None,
            function_groups=tuple(
                group._replace(functions=tuple(vf._replace(bus_id=f"{number}{vf.bus_id}") for vf in group.functions))
                for group in one.function_groups
            ),
        )
        for number, one in enumerate(devices)
    ]


@st.composite
def nodes(draw: st.DrawFn) -> NodeState:
    state = node(*numbered(draw(SMALL_GPUS)), *numbered(draw(NICS)))
    state.partition_policy = draw(st.sampled_from([None, None, HONOR, PREFER]))
    state.partitions = LINKED_EIGHT
    return state


OPERATIONS = st.lists(
    st.one_of(
        requests(),
        st.builds(Release, st.integers(0, 9)),
        st.builds(Health, st.integers(0, 4)),
        st.builds(Withdrawal, st.integers(0, 4)),
    ),
    min_size=1,
    max_size=15,
)


def assert_nothing_is_oversold(devices: Sequence[Device], held: dict[str, Allocation]) -> None:
    """By adding up what every pod was given, without the node's own accounts."""
    for device in devices:
        given = [
            one for allocation in held.values() for one in allocation.get(device.type, ()) if one.minor == device.minor
        ]
        for resource, total in device.resources.items():
            assert sum(one.resources.get(resource, 0) for one in given) <= total, (device, resource)
        functions = [vf.bus_id for one in given for vf in one.functions]
        assert len(functions) == len(set(functions))
        there = {vf.bus_id for group in device.function_groups for vf in group.functions}
        assert there.issuperset(functions)


@given(nodes(), OPERATIONS, SCORINGS)
def test_no_order_of_events_oversells_a_device(
    state: NodeState, operations: list[PodRequest | Release | Health | Withdrawal], scoring: Scoring
) -> None:
    devices = [one for of_type in state.devices.values() for one in of_type.values()]
    gpus = dict(state.devices[GPU])
    held: dict[str, Allocation] = {}
    for number, operation in enumerate(operations):
        match operation:
            case PodRequest():
                found = allocate(state, operation, scoring)
                if not isinstance(found, Refusal):
                    held[f"pod-{number}"] = found
                    state.hold(f"pod-{number}", found)
            case Release(pod):
                held.pop(f"pod-{pod}", None)
                state.release(f"pod-{pod}")
            case Health(minor) if minor in gpus:
                gpus[minor] = gpus[minor]._replace(healthy=not gpus[minor].healthy)
                state.set_devices({**state.devices, GPU: gpus})
            case Withdrawal(minor):
                shown = {one: device for one, device in gpus.items() if one != minor or one not in state.devices[GPU]}
                state.set_devices({**state.devices, GPU: shown})
        assert_nothing_is_oversold(devices, held)
    assert state.holders == held


def filled(state: NodeState, asked: Sequence[PodRequest]) -> NodeState:
    """The node with some pods on it."""
    for number, one in enumerate(asked):
        found = allocate(state, one, Scoring())
        if not isinstance(found, Refusal):
            state.hold(f"pod-{number}", found)
    return state


BUSY = st.builds(filled, nodes(), st.lists(requests(), max_size=4))


@given(BUSY, requests(), SCORINGS, st.randoms(use_true_random=False))
def test_order_of_devices_and_holders_does_not_matter(
    state: NodeState, asked: PodRequest, scoring: Scoring, random: Random
) -> None:
    devices = [one for of_type in state.devices.values() for one in of_type.values()]
    holders = list(state.holders.items())
    random.shuffle(devices)
    random.shuffle(holders)
    again = node(*devices, held=dict(holders))
    again.partitions, again.partition_policy = state.partitions, state.partition_policy
    assert allocate(again, asked, scoring) == allocate(state, asked, scoring)
    assert node_score(again, asked, scoring) == node_score(state, asked, scoring)


@given(BUSY, requests(), SCORINGS)
def test_strategy_decides_which_devices_but_not_whether_the_pod_fits(
    state: NodeState, asked: PodRequest, scoring: Scoring
) -> None:
    found, in_minor_order = allocate(state, asked, scoring), allocate(state, asked, Scoring(Strategy.MINOR_ORDER))
    assert isinstance(found, Refusal) == isinstance(in_minor_order, Refusal)


@given(BUSY, requests(), SCORINGS)
def test_released_pod_leaves_no_trace(state: NodeState, asked: PodRequest, scoring: Scoring) -> None:
    def trace() -> tuple[object, ...]:
        used = {kind: {minor: dict(one) for minor, one in of_type.items()} for kind, of_type in state.used.items()}
        functions = {key: set(one) for key, one in state.functions_held.items()}
        return used, functions, dict(state.holders), allocate(state, asked, scoring), node_score(state, asked, scoring)

    before, found = trace(), allocate(state, asked, scoring)
    if not isinstance(found, Refusal):
        state.hold("new", found)
        assert trace() != before
        state.release("new")
    assert trace() == before


@given(BUSY, requests(), SCORINGS, st.sets(st.sampled_from([f"pod-{number}" for number in range(4)])))
def test_preempting_is_as_if_the_pods_were_gone(
    state: NodeState, asked: PodRequest, scoring: Scoring, preempted: set[str]
) -> None:
    found = allocate(state, asked, scoring, preempted=frozenset(preempted))
    points = node_score(state, asked, scoring, preempted=frozenset(preempted))
    for pod in preempted:
        state.release(pod)
    assert allocate(state, asked, scoring) == found
    assert node_score(state, asked, scoring) == points


def could_take(device: Device, amounts: Amounts, given: Sequence[Allocated]) -> bool:
    """By the words of the rule, in exact numbers: what is asked for fits, and so does what follows from it."""
    left = {
        resource: total - sum(one.resources.get(resource, 0) for one in given)
        for resource, total in device.resources.items()
    }
    memory = device.resources[GPU_MEMORY]
    wants = dict(amounts)
    if GPU_MEMORY not in wants:
        wants[GPU_MEMORY] = wants[GPU_MEMORY_RATIO] * memory // 100
    elif GPU_MEMORY_RATIO not in wants:
        wants[GPU_MEMORY_RATIO] = 100 * wants[GPU_MEMORY] // memory
    return device.healthy and all(left[resource] >= amount for resource, amount in wants.items())


@examples(2)
@given(
    st.builds(numbered, SMALL_GPUS),
    st.lists(st.tuples(SHARES, st.integers(1, 3)), max_size=6),
    SHARES,
    st.integers(1, 5),
    SCORINGS,
)
def test_pod_is_placed_iff_some_choice_of_devices_can_take_it(
    devices: list[Device], before: list[tuple[Amounts, int]], amounts: Amounts, number: int, scoring: Scoring
) -> None:
    state = filled(
        node(*devices),
        [PodRequest((TypeRequest(GPU, many, one, is_shared(one)),)) for one, many in before],
    )
    given_of = {
        one.minor: [held for pod in state.holders.values() for held in pod[GPU] if held.minor == one.minor]
        for one in devices
    }
    possible = any(
        all(could_take(one, amounts, given_of[one.minor]) for one in choice) for choice in combinations(devices, number)
    )
    found = allocate(state, PodRequest((TypeRequest(GPU, number, amounts, is_shared(amounts)),)), scoring)
    assert isinstance(found, Refusal) != possible
    if not isinstance(found, Refusal):
        assert len({one.minor for one in found[GPU]}) == number
        assert all(could_take(devices[one.minor], amounts, given_of[one.minor]) for one in found[GPU])


def nearness(minors: tuple[int, ...]) -> int:
    """2: all at one switch of the node of eight, 1: at one NUMA node."""
    return (len({minor // 2 for minor in minors}) == 1) + (len({minor // 4 for minor in minors}) == 1)


@given(
    st.sets(st.integers(0, 7), max_size=7),
    st.integers(1, 5),
    st.none() | st.sampled_from([Scope.PCIE, Scope.NUMA, Scope.NODE]),
)
def test_whole_gpus_are_as_near_each_other_as_can_be(busy: set[int], number: int, scope: Scope | None) -> None:
    full = {GPU_CORE: 100, GPU_MEMORY_RATIO: 100}
    state = node(*eight())
    if busy:
        state.hold("a", {GPU: tuple(Allocated(minor, full) for minor in busy)})
    least = {Scope.PCIE: 2, Scope.NUMA: 1}.get(scope or Scope.NODE, 0)
    choices = [nearness(one) for one in combinations(sorted(set(range(8)) - busy), number)]
    found = allocate(
        state, PodRequest((TypeRequest(GPU, number, full, shared=False, hint=Hint(required_scope=scope)),)), Scoring()
    )
    if max(choices, default=-1) < least:
        assert isinstance(found, Refusal)
    else:
        assert not isinstance(found, Refusal)
        assert nearness(tuple(one.minor for one in found[GPU])) == max(choices)
