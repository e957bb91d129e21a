"""Strategies on the openb trace, where it is there: fragmentation gradient descent leaves the fewest GPUs unallocated.

So say Weng et al., USENIX ATC 2023. A twelfth of the cluster is brought to saturation; all of it in long runs.
"""

from pathlib import Path
from random import Random

import pytest

from gpuledger.api.sharing import Strategy
from gpuledger.tools.scheduling.comparison import Comparison
from gpuledger.tools.scheduling.strategies import BEST_FIT, RANDOM, STRATEGIES
from gpuledger.tools.scheduling.trace import read_nodes, read_pods
from gpuledger.tools.scheduling.workload import capacity_of, inflated
from support.imports import DATA

NODES, PODS = DATA / "openb_node_list_gpu_node.csv", DATA / "openb_pod_list_default.csv"

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not (NODES.is_file() and PODS.is_file()), reason=f"no openb trace in {DATA}"),
]


@pytest.mark.parametrize(
    ("every", "learn"),
    [
        (12, False),
        (12, True),
        pytest.param(1, False, marks=[pytest.mark.long, pytest.mark.timeout(600)]),
    ],
)
def test_gradient_descent_leaves_fewer_gpus_than_best_fit_and_random(every: int, learn: bool) -> None:
    nodes, (pods, rounded) = read_nodes(Path(NODES))[::every], read_pods(Path(PODS))
    assert rounded == 0
    arrivals = inflated(pods, 1.3 * capacity_of(nodes), Random(1))
    comparison = Comparison(nodes, pods, arrivals, 1, learn, ())
    outcomes = {strategy: comparison.outcome(strategy) for strategy in STRATEGIES}
    unallocated = {strategy: outcome.unallocated for strategy, outcome in outcomes.items()}
    assert all(outcome.allocated <= outcome.capacity for outcome in outcomes.values())
    assert unallocated[Strategy.FRAGMENTATION] < unallocated[BEST_FIT] < unallocated[RANDOM]


def test_the_trace_has_the_pods_and_gpus_of_the_paper() -> None:
    nodes, (pods, _) = read_nodes(Path(NODES)), read_pods(Path(PODS))
    assert (len(nodes), capacity_of(nodes)) == (1_213, 621_200)
    assert (len(pods), sum(0 < pod.gpu_percent < 100 for pod in pods)) == (8_152, 3_078)
