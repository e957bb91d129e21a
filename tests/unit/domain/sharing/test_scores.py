"""Scores of devices and nodes."""

import pytest

from gpuledger.api.sharing import GPU_CORE, GPU_MEMORY_RATIO, RDMA, Strategy
from gpuledger.domain.sharing.model import PodRequest
from gpuledger.domain.sharing.scores import Scoring, node_score, normalized, score
from support.shared_nodes import LEAST, MINOR_ORDER, MOST, gpu, gpus, nic, node, request

HALF = request({GPU_CORE: 50, GPU_MEMORY_RATIO: 50})


@pytest.mark.parametrize(
    ("scoring", "used", "asked", "points"),
    [
        (LEAST, 50, 30, 20),
        (MOST, 50, 30, 80),
        (LEAST, 50, 50, 0),
        (LEAST, 100, 50, 0),
        (MOST, 100, 50, 100),
        (LEAST, 0, 33, 67),
        (MINOR_ORDER, 0, 33, 0),
        (Scoring(Strategy.FRAGMENTATION), 50, 30, 80),
    ],
)
def test_one_resource(scoring: Scoring, used: int, asked: int, points: int) -> None:
    total = {GPU_MEMORY_RATIO: 100}
    assert score(total, {GPU_MEMORY_RATIO: used}, {GPU_MEMORY_RATIO: asked}, scoring) == points


def test_resources_count_by_their_weights_and_only_where_they_are() -> None:
    total, asked = {GPU_CORE: 100, GPU_MEMORY_RATIO: 100}, {GPU_CORE: 50, GPU_MEMORY_RATIO: 25}
    assert score(total, {}, asked, LEAST) == 75
    assert score(total, {}, asked, LEAST._replace(weights={GPU_CORE: 2, GPU_MEMORY_RATIO: 1, RDMA: 5})) == 58
    assert score(total, {}, asked, LEAST._replace(weights={RDMA: 1})) == 0


@pytest.mark.parametrize(("scoring", "points"), [(LEAST, 62), (MOST, 37), (MINOR_ORDER, 0)])
def test_node_is_scored_by_the_sums_of_its_devices(scoring: Scoring, points: int) -> None:
    state = node(gpu(0), gpu(1), held={"a": gpus(0, percent=50)})
    assert node_score(state, HALF, scoring) == points


def test_unhealthy_devices_do_not_count() -> None:
    state = node(gpu(0), gpu(1, healthy=False), held={"a": gpus(1)})
    assert node_score(state, HALF, LEAST) == 75


def test_what_preempted_pods_hold_is_free() -> None:
    state = node(gpu(0), held={"a": gpus(0)})
    assert node_score(state, HALF, LEAST) == 0
    assert node_score(state, HALF, LEAST, preempted=frozenset({"a"})) == 75


def test_scores_of_types_add_up() -> None:
    both = request({GPU_CORE: 50, GPU_MEMORY_RATIO: 50, RDMA: 10})
    assert node_score(node(gpu(0), nic(0)), both, LEAST) == 75 + 90
    assert node_score(node(gpu(0)), both, LEAST) == 75


def test_nothing_asked_scores_nothing() -> None:
    assert node_score(node(gpu(0)), PodRequest(()), LEAST) == 0


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ({}, {}),
        ({"a": 0}, {"a": 0}),
        ({"a": 200, "b": 10}, {"a": 100, "b": 5}),
        ({"a": 7, "b": 7}, {"a": 100, "b": 100}),
    ],
)
def test_best_node_becomes_100(scores: dict[str, int], expected: dict[str, int]) -> None:
    assert normalized(scores) == expected
