"""Which nodes are judged for a waiting pod, how many are read from Kubernetes, and the notes about the others."""

import asyncio
from typing import Any

import pytest

from gpuledger.tools.explain.pod_units import explain_units
from gpuledger.tools.explain.pools import NODES_READ_MAX, PodState, UnitRequest, answer, checked_notes, judged_nodes
from gpuledger.tools.explain.pools_wording import NOT_PLACED, SEVERAL_POOLS
from gpuledger.tools.explain.query import QueriedPod, WhyQuery
from support.pool_explanations import POOL, UNITS, cards, explained_pool, pod_on
from support.pools import PoolsLog, pool

CLUSTER_UNITS = "cluster.gpu.deckhouse.io/c"
ALONE = WhyQuery("team-a/p", None, "now", None, None)
CAP_NOTE = (
    "Only 100 of 101 nodes that offer units were checked for taints and a cordon; the others were judged by "
    "their labels alone."
)


def test_nodes_with_room_come_first_then_those_that_are_large_enough() -> None:
    pools = cards(a1=1, b2=2, c3=3, d2=2, e0=0)
    found = explained_pool(pools, 2, pod_on("b2", 1), pod_on("gone", 1))
    assert judged_nodes([found]) == ["c3", "d2", "b2", "a1"]


def test_a_node_has_the_best_place_that_any_of_several_pools_gives_it() -> None:
    pools = cards(w1=1, w2=2)
    assert judged_nodes([explained_pool(pools, 2)]) == ["w2", "w1"]
    assert judged_nodes([explained_pool(pools, 2), explained_pool(pools, 1)]) == ["w1", "w2"]
    assert judged_nodes([explained_pool(pools, 1), explained_pool(pools, 2)]) == ["w1", "w2"]


@pytest.mark.parametrize("pod", [PodState("w1"), PodState("w1", ended="Failed")])
def test_no_node_is_judged_for_a_pod_that_waits_for_none(pod: PodState) -> None:
    assert judged_nodes([explained_pool(cards(w1=1), 1, pod=pod)]) == []


def test_from_one_node_no_other_is_judged() -> None:
    assert judged_nodes([explained_pool(cards(w1=1, w2=1), 1, only="w2")]) == ["w2"]
    assert judged_nodes([explained_pool(cards(w1=1), 1, only="w2")]) == []


@pytest.mark.parametrize(
    ("judged", "problem", "notes"),
    [
        (0, "", []),
        (NODES_READ_MAX, "", []),
        (NODES_READ_MAX + 1, "", [CAP_NOTE]),
        (1, "forbidden", ["Not every node was checked for taints and a cordon: forbidden"]),
        (0, "forbidden", []),
    ],
)
def test_unchecked_nodes_have_a_note(judged: int, problem: str, notes: list[str]) -> None:
    assert list(checked_notes(judged, problem)) == notes


def both() -> PoolsLog:
    """A GPUPool with a unit on w1, and a ClusterGPUPool with none."""
    pools = cards(w1=1)
    pools.record("c", pool())
    return pools


@pytest.mark.parametrize(
    ("units", "notes"),
    [
        ({UNITS: 1, CLUSTER_UNITS: 1}, (SEVERAL_POOLS, NOT_PLACED)),
        ({UNITS: 1, "cpu": 1}, (NOT_PLACED,)),
        ({UNITS: 2}, (NOT_PLACED,)),
        ({CLUSTER_UNITS: 1}, ()),
    ],
)
def test_notes_on_several_pools_and_on_nodes_without_kubernetes(units: dict[str, Any], notes: tuple[str, ...]) -> None:
    found = asyncio.run(explain_units(both().state, ALONE, QueriedPod(units=units)))
    assert found.notes == notes


def test_a_pool_that_is_not_there_has_no_nodes() -> None:
    assert judged_nodes([answer(cards(w1=1).state, UnitRequest(UNITS, "team-b/a", 1), (), PodState())]) == []
    assert judged_nodes([answer(cards(w1=1).state, UnitRequest(UNITS, POOL, 1), (), PodState())]) == ["w1"]
