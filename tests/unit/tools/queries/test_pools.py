"""Pools and the pods that request their units, in the past and now."""

from collections.abc import AsyncIterator

import pytest

from gpuledger.events.pod import PodGone, PodObserved
from gpuledger.ledger.api import Outgoing
from gpuledger.tools.explain.pools import PodUse, uses_of
from gpuledger.tools.queries.backend import Backend
from gpuledger.tools.queries.pools import pools_as_of, requesting_pods
from support.events import event, hour, outgoing
from support.fold_snapshots import CountingLedger
from support.ledgers import memory_ledger
from support.pool_explanations import POOL, UNITS, cards
from support.pools import PoolsLog, marked

WATCHERS = "/watchers/pods"
LAST = 7
"""The hour of the latest fact."""


def observed(node: str | None = None, units: int = 1, uid: str = "u") -> PodObserved:
    return PodObserved(uid=uid, node=node, requests={UNITS: units})


def recorded_history() -> list[Outgoing]:
    """Pods, in the order in which they were learnt of."""
    facts = [
        ("team-a/p", 1, observed()),
        ("team-a/p", 3, observed("w1")),
        ("team-a/p", 5, observed("w1", units=2)),
        ("team-a/p", 7, observed("w1", uid="anew")),
        ("team-a/late", 6, observed("w2")),
        ("team-a/late", 4, observed()),
        ("team-a/gone", 2, observed("w1")),
        ("team-a/gone", 6, PodGone(uid="u")),
        ("team-b/other", 2, observed("w1")),
    ]
    return [
        outgoing(event(data, pod, number=number, at=at, source=WATCHERS))
        for number, (pod, at, data) in enumerate(facts, 1)
    ]


@pytest.fixture
async def backend() -> AsyncIterator[Backend]:
    async with memory_ledger() as ledger:
        await ledger.publish_many(recorded_history())
        yield Backend(ledger, "", "", None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (0, []),
        (1, [PodUse("team-a/p", None, 1)]),
        (3, [PodUse("team-a/gone", "w1", 1), PodUse("team-a/p", "w1", 1)]),
        (4, [PodUse("team-a/gone", "w1", 1), PodUse("team-a/late", None, 1), PodUse("team-a/p", "w1", 1)]),
        (6, [PodUse("team-a/late", "w2", 1), PodUse("team-a/p", "w1", 2)]),
        (None, [PodUse("team-a/late", "w2", 1), PodUse("team-a/p", "w1", 1)]),
    ],
)
async def test_pods_that_requested_units_of_a_pool(backend: Backend, at: float | None, expected: list[PodUse]) -> None:
    pods = await requesting_pods(backend, None if at is None else hour(at))
    assert uses_of(pods, POOL) == expected
    assert uses_of(pods, "a") == []
    assert (await pools_as_of(backend, hour(LAST if at is None else at))).pod.rows == pods


async def test_since_when_a_pod_is_on_its_node(backend: Backend) -> None:
    assert (await requesting_pods(backend, hour(2), "team-a/p"))["team-a/p"].bound_at is None
    for at in (3, 6):
        assert (await requesting_pods(backend, hour(at), "team-a/p"))["team-a/p"].bound_at == hour(3)
    (pod,) = (await requesting_pods(backend, None, "team-a/p")).values()
    assert pod.bound_at == hour(7)


async def test_pools_of_the_past_have_the_decisions_of_then() -> None:
    pools = cards(w1=2)
    before = pools.clock
    pools.record("w1-0", marked())
    await _compare(pools, before)


async def _compare(pools: PoolsLog, before: float) -> None:
    backend = Backend(CountingLedger(pools.log), "", "", None)  # type: ignore[arg-type]
    then = await pools_as_of(backend, hour(before))
    assert then.total.rows[POOL].total == 2
    assert then.offered("w1-0") == (1, 0)
    now = await pools_as_of(backend, hour(pools.clock))
    for name, table in pools.state.tables().items():
        assert now.tables()[name].rows == table.rows
    assert now.offered("w1-0") == (0, 0)
    assert (await pools_as_of(backend, hour(0))).pool.rows == {}
