"""Strategies on the same nodes and pods: what comes of each, always the same for one seed."""

from random import Random

import pytest

from gpuledger.api.sharing import Strategy
from gpuledger.domain.sharing.fragmentation import Cause
from gpuledger.domain.sharing.machines import Needs
from gpuledger.domain.sharing.model import PodRequest
from gpuledger.tools.scheduling.comparison import Comparison
from gpuledger.tools.scheduling.strategies import BEST_FIT, RANDOM, STRATEGIES
from gpuledger.tools.scheduling.workload import SimulatedNode, SimulatedPod, capacity_of, inflated
from support.sharing_nodes import share, whole

NODES = [SimulatedNode("large", 4, 32_000, 65_536, "A"), SimulatedNode("small", 2, 16_000, 32_768, "B")]
ASKED = [share(60), share(60), whole(1), share(40), whole(2), share(30), share(30)]
PODS = [SimulatedPod(f"pod-{at}", request, Needs(2_000, 1_024)) for at, request in enumerate(ASKED)]


def _comparison(pods: list[SimulatedPod] = PODS, *, seed: int = 1, learn: bool = False) -> Comparison:
    return Comparison(NODES, PODS, pods, seed, learn, ())


@pytest.mark.parametrize(
    ("strategy", "placed", "unallocated"),
    [
        (Strategy.MINOR_ORDER, 7, 80),
        (Strategy.LEAST_ALLOCATED, 6, 280),
        (Strategy.MOST_ALLOCATED, 7, 80),
        (Strategy.FRAGMENTATION, 7, 80),
        (BEST_FIT, 7, 80),
        (RANDOM, 7, 80),
    ],
)
def test_what_comes_of_a_strategy(strategy: str, placed: int, unallocated: int) -> None:
    outcome = _comparison().outcome(strategy)
    assert (outcome.pods, outcome.capacity, outcome.requested) == (7, 600, 520)
    assert (outcome.placed, outcome.unallocated) == (placed, unallocated)


def test_pods_without_gpus_take_cpu_and_what_is_lost_has_a_cause() -> None:
    hungry = SimulatedPod("hungry", PodRequest(()), Needs(31_000, 0))
    outcome = _comparison([hungry]).outcome(Strategy.MINOR_ORDER)
    assert (outcome.placed, outcome.allocated) == (1, 0)
    # No pod of the list finds CPU on the node of four GPUs any more; the other node has room for all.
    assert outcome.fragment == {**dict.fromkeys(Cause, 0.0), Cause.LACKS_CPU: 4.0}


def test_a_row_has_gpus_in_numbers() -> None:
    row = _comparison().row(_comparison().outcome(BEST_FIT), 2.0)
    assert row == {
        "strategy": "BestFit",
        "pods": 7,
        "placed": 7,
        "gpus": 6,
        "asked": 5.2,
        "allocated": 5.2,
        "rate": 0.8667,
        "unallocated": 0.8,
        "fragment": row["lacks_gpu"],
        "lacks_gpu": row["fragment"],
        "lacks_cpu": 0.0,
        "lacks_both": 0.0,
        "no_gpu": 0.0,
        "seconds": 2.0,
        "pods_per_second": 4,
    }


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("learn", [False, True])
def test_one_seed_gives_one_outcome(strategy: str, learn: bool) -> None:
    drawn = [inflated(PODS, 3 * capacity_of(NODES), Random(5)) for _ in range(2)]
    outcomes = [_comparison(pods, seed=5, learn=learn).outcome(strategy) for pods in drawn]
    assert outcomes[0] == outcomes[1]


def test_pods_are_drawn_until_they_ask_for_enough() -> None:
    pods = inflated(PODS, 600, Random(1))
    asked = sum(pod.gpu_percent for pod in pods)
    assert asked - pods[-1].gpu_percent < 600 <= asked
    assert len({pod.name for pod in pods}) == len(pods)
    assert pods != inflated(PODS, 600, Random(2))
