"""Pods that request units of pools, as rows: which are there, on which node, and since when."""

from datetime import datetime

import pytest

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.domain.fact import Fact
from gpuledger.domain.pools.pods import POD_HANDLERS, units_by_resource
from gpuledger.domain.pools.rows import PoolPod
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.events.payload import Payload
from gpuledger.events.pod import PodGone, PodObserved
from support.events import event, hour
from support.pool_explanations import POOL, UNITS, cards
from support.pools import MET, PoolsLog

POD = "team-a/p"
TimedFact = tuple[float, Payload]


def observed(node: str | None = None, units: int = 1, uid: str = "u") -> PodObserved:
    return PodObserved(uid=uid, node=node, requests={UNITS: units})


def pod_after(*facts: TimedFact) -> PoolPod | None:
    """The pod's row after these facts, in the order of the log."""
    pools = PoolsLog()
    for at, data in facts:
        assert pools.record(POD, data, at=at) == []
    return pools.state.pod.get(POD)


def row(changed_at: float, node: str | None = None, bound_at: float | None = None, units: int = 1) -> PoolPod:
    since: datetime | None = None if bound_at is None else hour(bound_at)
    return PoolPod(POD, "u", node, f'{{"{UNITS}":{units}}}', hour(changed_at), since)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ([(1, observed())], row(1)),
        ([(1, observed()), (2, observed("w1"))], row(2, "w1", 2)),
        ([(1, observed("w1")), (2, observed("w1", 3))], row(2, "w1", 1, 3)),
        ([(1, observed("w1")), (2, observed("w2"))], row(2, "w2", 2)),
        ([(1, observed("w1")), (2, observed()), (3, observed("w1"))], row(3, "w1", 3)),
        ([(1, observed("w1", uid="before")), (2, observed("w1"))], row(2, "w1", 2)),
        ([(2, observed("w1")), (1, observed(units=5))], row(2, "w1", 2)),
        ([(1, observed("w1")), (1, observed("w1", 2))], row(1, "w1", 1, 2)),
        ([(1, observed("w1")), (2, PodGone(uid="u"))], None),
        ([(1, observed("w1")), (1, PodGone())], None),
        ([(2, observed("w1")), (1, PodGone(uid="u"))], row(2, "w1", 2)),
        ([(1, PodGone(uid="u"))], None),
        ([(1, observed("w1")), (2, PodGone(uid="u")), (3, observed("w1"))], row(3, "w1", 3)),
    ],
    ids=[
        "asks", "is bound", "asks for more", "is elsewhere", "was off its node", "another one of its name",
        "said late", "said at one time", "goes", "goes at once", "went before it came", "was never there",
        "comes again",
    ],
)  # fmt: skip
def test_pods_become_rows(facts: list[TimedFact], expected: PoolPod | None) -> None:
    assert pod_after(*facts) == expected


def test_pods_that_are_gone_leave_nothing_behind() -> None:
    pools = PoolsLog()
    for number in range(3):
        pools.record(f"team-a/{number}", observed())
        pools.record(f"team-a/{number}", PodGone())
    assert not any(len(table) for table in pools.state.tables().values())


def test_equal_requests_are_one_text() -> None:
    one = pod_after((1, PodObserved(uid="u", requests={"b": 2, "a": 1})))
    other = pod_after((1, PodObserved(uid="v", requests={"a": 1, "b": 2})))
    assert one is not None
    assert other is not None
    assert one.requests is other.requests
    assert units_by_resource(one) == {"a": 1, "b": 2}


@pytest.mark.parametrize("data", [observed("w1"), PodGone(uid="u")], ids=["observed", "gone"])
def test_a_pod_touches_no_device_and_no_pool(data: Payload) -> None:
    state = cards(w1=2).state
    assert POOL in state.pool.rows
    _fold(state, observed())
    _fold(state, data)
    assert (state.take_devices(), state.take_pools()) == ([], [])


def test_nothing_is_decided_upon_pods() -> None:
    pools = cards(w1=2)
    assert pools.record(POD, observed("w1", 9)) == []
    assert pools.record(POD, PodGone()) == []
    assert pools.record(MODULE_CONFIG, MET) == []


def _fold(state: PoolFacts, data: Payload) -> None:
    POD_HANDLERS[type(data)](state, Fact(event(data, POD), 1, 0), data)
