"""Recorded arrivals, placed again by a strategy: what the log says, and what would have been."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from gpuledger.api.sharing import Strategy
from gpuledger.domain.fact import Fact
from gpuledger.domain.sharing.fragmentation import Fragmentation
from gpuledger.domain.sharing.model import PodRequest
from gpuledger.events.envelope import Decoded
from gpuledger.events.node import NodeGone
from gpuledger.events.payload import Payload
from gpuledger.events.sharing import NodeDevicesShared, PodSharingObserved
from gpuledger.tools.scheduling.strategies import STRATEGIES
from gpuledger.tools.whatif.arrivals import HANDLERS, NodeShares, PodArrives, RecordedArrivals, Step, request_of_milli
from gpuledger.tools.whatif.replayed_cluster import Measured
from gpuledger.tools.whatif.strategy_replay import AsRecorded, ByStrategy, largest_of, mix_of
from support.imports import NODE_HEADER, POD_HEADER, openb, write
from support.sharing import asked, bound, gone, gpu, observed, of_gpus, released, reserved, share, shared, story
from support.sharing_nodes import share as share_of_gpu
from support.sharing_nodes import whole

TWO_CARDS = ("n1", 0.0, shared(gpu(0), gpu(1)))
SPREAD: tuple[tuple[str, float, Payload], ...] = (
    ("ml/a", 1, observed("a")),
    ("ml/a", 1, reserved("a", share(0))),
    ("ml/b", 2, observed("b")),
    ("ml/b", 2, reserved("b", share(1))),
    ("ml/c", 3, observed("c", requests=asked(100))),
    ("ml/b", 5, gone("b")),
    ("ml/c", 5, reserved("c", share(1, 100))),
    ("ml/a", 7, gone("a")),
    ("ml/c", 9, gone("c")),
)
"""Two halves on two cards, so that a pod that needs a whole one waits for two hours."""


def _steps(events: Sequence[Decoded], begins_after: int = 0) -> tuple[list[Step], RecordedArrivals]:
    """What leads to the position, and what came after it."""
    state, present = RecordedArrivals(), list[Step]()
    for position, one in enumerate(events, 1):
        if position == begins_after + 1:
            present = state.begin()
        HANDLERS[type(one.data)](state, Fact(one, position, 0), one.data)
    return present, state


def _replayed(events: Sequence[Decoded], strategy: str | None, begins_after: int = 0) -> Measured:
    present, state = _steps(events, begins_after)
    measured = Fragmentation(mix_of(present, state.steps))
    if strategy is None:
        return AsRecorded(measured).run(present, state.steps)
    largest = largest_of(present, state.steps)
    return ByStrategy(measured, strategy, largest, Random(1)).run(present, state.steps)


def test_as_recorded() -> None:
    was = _replayed(story(TWO_CARDS, *SPREAD), None)
    assert (was.pods, was.placed, was.waited) == (3, 3, timedelta(hours=2))
    # Half a card in the second hour, one until 5, one and a half until 7, one until 9, of nine hours.
    assert was.gpus == 2
    assert was.allocated == pytest.approx((0.5 * 1 + 1 * 3 + 1.5 * 2 + 1 * 2) / 9)
    assert was.rate == pytest.approx(was.allocated / 2)
    assert was.fragment is not None
    assert was.fragment > 0
    assert was.fragment_at_end == 0


@pytest.mark.parametrize("strategy", [Strategy.MOST_ALLOCATED, Strategy.FRAGMENTATION, "BestFit", Strategy.MINOR_ORDER])
def test_pods_that_are_packed_leave_room_for_a_whole_card(strategy: str) -> None:
    would = _replayed(story(TWO_CARDS, *SPREAD), strategy)
    assert (would.placed, would.waited) == (3, timedelta())
    assert would.allocated == pytest.approx((0.5 * 1 + 1 * 1 + 2 * 2 + 1.5 * 2 + 1 * 2) / 9)
    assert would.fragment == pytest.approx(_of_third(would))


def _of_third(would: Measured) -> float:
    """Half a card is free in the second hour and from 5 to 7, which is too little for one of three pods."""
    assert would.fragment is not None
    return (1 / 3) * 0.5 * 3 / 9


def test_pods_that_are_spread_make_the_third_wait() -> None:
    would = _replayed(story(TWO_CARDS, *SPREAD), Strategy.LEAST_ALLOCATED)
    assert (would.placed, would.waited) == (3, timedelta(hours=2))


def test_pods_that_were_there_keep_their_devices() -> None:
    events = story(TWO_CARDS, *SPREAD)
    present, state = _steps(events, begins_after=5)
    assert [type(one.what).__name__ for one in present] == ["NodeShares", *["PodArrives", "PodHolds"] * 2]
    assert len(state.steps) == 5
    would = _replayed(events, Strategy.MOST_ALLOCATED, begins_after=5)
    assert (would.pods, would.placed, would.waited) == (3, 3, timedelta(hours=2))


def test_a_pod_that_waited_at_the_beginning_is_placed_there() -> None:
    events = story(TWO_CARDS, ("ml/a", 1, observed("a")), ("ml/b", 3, observed("b")), ("ml/b", 4, gone("b")))
    would = _replayed(events, Strategy.MOST_ALLOCATED, begins_after=2)
    assert (would.placed, would.waited, would.allocated) == (2, timedelta(), 1.0)
    was = _replayed(events, None, begins_after=2)
    assert (was.placed, was.waited, was.allocated) == (0, timedelta(hours=2), 0.0)


def test_a_reservation_that_came_to_nothing_and_one_that_an_annotation_replaced() -> None:
    events = story(
        TWO_CARDS,
        ("ml/a", 1, reserved("a", share(0))),
        ("ml/a", 2, released("a")),
        ("ml/a", 4, reserved("a", share(1))),
        ("ml/a", 5, bound("a")),
        ("ml/a", 6, observed("a", node="n1", allocation=of_gpus(share(0)))),
        ("ml/a", 8, gone("a")),
        ("ml/a", 8.5, gone(None)),
    )
    present, state = _steps(events)
    kinds = [type(one.what).__name__ for one in state.steps]
    assert kinds == ["NodeShares", "PodArrives", "PodHolds", "PodLetsGo", "PodHolds", "PodHolds", "PodEnds"]
    was = AsRecorded(Fragmentation(mix_of(present, state.steps))).run(present, state.steps)
    assert (was.placed, was.waited) == (2, timedelta(hours=2))


def test_a_node_that_leaves_takes_what_its_pods_had() -> None:
    events = story(
        TWO_CARDS,
        ("ml/a", 0, reserved("a", share(0))),
        ("n1", 4, NodeGone()),
        ("n2", 8, shared(gpu(0))),
        ("ml/a", 8, gone("a")),
    )
    for strategy in (None, *STRATEGIES):
        replayed = _replayed(events, strategy)
        assert (replayed.allocated, replayed.gpus) == (0.25, 1.0)


def test_devices_that_are_not_shared_any_more_and_requests_that_nobody_can_meet() -> None:
    invalid = PodSharingObserved(uid="x", requests={"gpu-core": 50})
    events = story(TWO_CARDS, ("ml/x", 1, invalid), ("ml/x", 2, invalid), ("n1", 3, NodeDevicesShared(enabled=False)))
    _, state = _steps(events)
    assert state.refused == {"x"}
    assert [type(one.what).__name__ for one in state.steps] == ["NodeShares", "NodeLeaves"]


def test_without_steps_nothing_is_measured() -> None:
    would = _replayed([], Strategy.MOST_ALLOCATED)
    assert would == Measured(0, 0, timedelta(), 0.0, 0.0, None, None)
    assert would.rate is None


@pytest.mark.parametrize(
    ("milli", "request_"),
    [(0, PodRequest(())), (455, share_of_gpu(46)), (1_000, whole(1)), (1_001, whole(2)), (8_000, whole(8))],
)
def test_what_thousandths_of_a_gpu_are(milli: int, request_: PodRequest) -> None:
    assert request_of_milli(milli) == request_


async def test_workloads_of_an_import_are_placed_though_nobody_knows_where_they_were(tmp_path: Path) -> None:
    nodes = write(tmp_path / "nodes.csv", NODE_HEADER, "n1,8000,16384,2,T4")
    rows = (
        "p1,4000,64,1,500,,LS,Succeeded,0,7200,0",
        "p2,4000,64,1,1000,,LS,Succeeded,0,7200,3600",
        "p3,9000,64,1,10,,LS,Failed,0,3600,",
    )
    imported = await openb(nodes, write(tmp_path / "pods.csv", POD_HEADER, *rows))
    events = [one for one in imported.events if type(one.data) in HANDLERS]
    _, state = _steps(events)
    assert [one.what.cpu_milli for one in state.steps if isinstance(one.what, NodeShares)] == [8_000]
    assert sum(isinstance(one.what, PodArrives) for one in state.steps) == 3
    was = _replayed(events, None)
    assert (was.pods, was.placed, was.waited, was.allocated) == (3, 2, timedelta(hours=2), 1.0)
    assert was.fragment is None
    would = _replayed(events, Strategy.FRAGMENTATION)
    # The third pod asks for more CPU than there is, and ends after an hour.
    assert (would.placed, would.waited, would.allocated) == (2, timedelta(hours=1), 1.5)
    assert would.fragment is not None
