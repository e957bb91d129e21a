"""Placements: no device is oversold by any strategy, and what is remembered is what would be computed anew."""

from collections.abc import Mapping
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.api.sharing import Strategy
from gpuledger.domain.sharing.allocation import allocate
from gpuledger.domain.sharing.fragmentation import Fragmentation, TaskClass
from gpuledger.domain.sharing.machines import Machine, Needs
from gpuledger.domain.sharing.mix import ExpectedPods
from gpuledger.domain.sharing.model import PodRequest, Refusal
from gpuledger.domain.sharing.placement import Placement
from gpuledger.domain.sharing.scores import Scoring
from gpuledger.tools.scheduling.strategies import STRATEGIES, Largest, Scheduler
from gpuledger.tools.scheduling.workload import SimulatedPod, counts
from support.sharing_nodes import machines, memory, share, whole
from support.thoroughness import examples

REQUESTS = st.one_of(st.integers(1, 100).map(share), st.integers(1, 4).map(whole), st.integers(1, 16).map(memory))
TASKS = st.builds(TaskClass, st.integers(0, 4), st.integers(1, 100), st.integers(0, 10))
MIXES = st.dictionaries(TASKS, st.integers(1, 9), max_size=6)
SHARES = st.lists(st.integers(0, 100), max_size=8)


@given(MIXES, SHARES, st.none() | st.integers(0, 10))
def test_a_fragment_is_the_sum_of_its_causes(mix: dict[TaskClass, int], free: list[int], cpu_milli: int | None) -> None:
    fragmentation = Fragmentation(mix)
    fragment = fragmentation.of(free, cpu_milli)
    assert fragment == sum(fragmentation.causes(free, cpu_milli).values())
    assert 0 <= fragment <= fragmentation.pods * sum(free)


@given(MIXES, SHARES, st.integers(0, 10))
def test_more_cpu_never_makes_a_fragment(mix: dict[TaskClass, int], free: list[int], cpu_milli: int) -> None:
    fragmentation = Fragmentation(mix)
    assert fragmentation.of(free, cpu_milli + 1) <= fragmentation.of(free, cpu_milli)


@examples(0.5)
@given(
    st.sampled_from(list(Strategy)),
    st.lists(st.tuples(REQUESTS, st.integers(0, 4_000), st.booleans()), max_size=40),
    st.randoms(use_true_random=False),
)
def test_no_strategy_oversells_and_memory_changes_nothing(
    strategy: Strategy, pods: list[tuple[PodRequest, int, bool]], random: Random
) -> None:
    nodes = machines(1, 2, 2, 4, cpu_milli=16_000)
    placing = Placement(nodes)
    running: list[tuple[str, str]] = []
    for at, (request, cpu_milli, ends) in enumerate(pods):
        needs = Needs(cpu_milli, 100)
        placing.note(request, needs)
        anew = Placement(nodes, expected=placing.expected)
        choice = placing.choose(request, strategy, needs=needs)
        assert choice == anew.choose(request, strategy, needs=needs)
        assert placing.scores(request, nodes, strategy) == anew.scores(request, nodes, strategy)
        _assert_fits_as_decided(placing, nodes, request)
        if choice is not None:
            nodes[choice.node].occupy(f"pod-{at}", needs, choice.allocation)
            running.append((choice.node, f"pod-{at}"))
        _assert_nothing_is_oversold(nodes)
        if ends and running:
            node, pod = running.pop(random.randrange(len(running)))
            nodes[node].vacate(pod)


@examples(0.5)
@given(st.sampled_from(STRATEGIES), st.lists(st.tuples(REQUESTS, st.integers(0, 4_000)), max_size=60), st.integers())
def test_no_simulation_oversells(strategy: str, asked: list[tuple[PodRequest, int]], seed: int) -> None:
    nodes = machines(1, 2, 2, 4, cpu_milli=16_000)
    pods = [SimulatedPod(f"pod-{at}", request, Needs(cpu, 100)) for at, (request, cpu) in enumerate(asked)]
    scheduler = Scheduler(strategy, nodes, ExpectedPods(counts(pods)), Random(seed), Largest(16_000, 400))
    for pod in pods:
        choice = scheduler.choose(pod.request, pod.needs)
        if choice is None:
            assert not any(_has_room(node, pod) for node in nodes.values())
        else:
            nodes[choice.node].occupy(pod.name, pod.needs, choice.allocation)
        _assert_nothing_is_oversold(nodes)


def _has_room(node: Machine, pod: SimulatedPod) -> bool:
    devices = allocate(node, pod.request, Scoring(Strategy.MINOR_ORDER))
    return node.has_room(pod.needs) and not isinstance(devices, Refusal)


def _assert_fits_as_decided(placing: Placement, nodes: Mapping[str, Machine], request: PodRequest) -> None:
    for name, refusal in placing.fits(request, nodes).items():
        decided = allocate(nodes[name], request, Scoring(Strategy.MINOR_ORDER))
        assert refusal == (decided if isinstance(decided, Refusal) else None)


def _assert_nothing_is_oversold(nodes: Mapping[str, Machine]) -> None:
    for node in nodes.values():
        assert node.cpu_milli >= 0
        assert node.memory_mib >= 0
        for kind, used in node.used.items():
            for minor, amounts in used.items():
                total = node.devices[kind][minor].resources
                assert all(0 <= amount <= total[name] for name, amount in amounts.items())
