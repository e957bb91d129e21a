"""What a broken edge source costs: work grows with what it records, and not with a power of it."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from gpuledger.deciders.sources.decide import GAPS_PER_ASK_MAX
from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.domain.devices.contradictions import TWO_DEVICES, TWO_SLOTS
from gpuledger.domain.devices.fold import Devices
from gpuledger.domain.sources.deduplication import HOLES_MAX
from gpuledger.domain.table import Table
from gpuledger.events.device import DeviceFailed, DeviceInserted, DeviceRemoved
from gpuledger.events.payload import Payload
from gpuledger.ledger.api import Message
from gpuledger.projection.definition import Decisions, Numbering, RefusalKind, RefusedEvent
from gpuledger.projection.errors import BadEventError
from gpuledger.projection.fold import Fold
from gpuledger.readmodels.projections import DevicesProjection
from support.events import AGENT, GENERATION, IMPORT, SERVICE, START, event, folded, log_of, message

FEW, MANY = 30, 120
LATER = START + timedelta(days=300)


class Counted(DevicesProjection):
    """The devices projection, counting what is put into and deleted from its contradictions."""

    def __init__(self) -> None:
        self.puts = self.deletes = 0

    def new_state(self) -> Devices:
        state = Devices()
        table: Table[Any] = state.contradiction
        put, delete = table.put, table.delete

        def counted_put(row: Any) -> None:
            self.puts += 1
            put(row)

        def counted_delete(key: Any) -> None:
            self.deletes += 1
            delete(key)

        table.put, table.delete = counted_put, counted_delete  # type: ignore[method-assign] # only counted
        return state


def in_one_slot(count: int) -> list[tuple[str, Payload]]:
    return [(f"d{number:03}", DeviceInserted(slot="s1")) for number in range(count)]


def in_many_slots(count: int) -> list[tuple[str, Payload]]:
    return [("d1", DeviceInserted(slot=f"s{number:03}")) for number in range(count)]


def counted(facts: list[tuple[str, Payload]]) -> tuple[Counted, Fold]:
    projection = Counted()
    events = [event(data, device, number=number, at=number) for number, (device, data) in enumerate(facts, 1)]
    return projection, folded(projection, log_of(events))


@pytest.mark.parametrize(("crowd", "kind"), [(in_one_slot, TWO_DEVICES), (in_many_slots, TWO_SLOTS)])
def test_every_pair_of_a_crowd_is_put_once(crowd: Callable[[int], Any], kind: str) -> None:
    for count in (FEW, MANY):
        projection, fold = counted(crowd(count))
        rows = fold.state.tables()["contradiction"].rows.values()
        assert (len(rows), {row.kind for row in rows}) == (count * (count - 1) // 2, {kind})
        assert (projection.puts, projection.deletes) == (len(rows), 0)


def test_an_end_touches_only_the_pairs_that_end_with_it() -> None:
    crowd = in_one_slot(MANY)
    gone: list[tuple[str, Payload]] = [(device, DeviceRemoved(slot="s1")) for device, _ in crowd]
    alone, _ = counted(crowd)
    projection, fold = counted([*crowd, *gone])
    rows = fold.state.tables()["contradiction"].rows.values()
    assert all(row.valid_to is not None for row in rows)
    assert (projection.puts, projection.deletes) == (2 * alone.puts, 0)


def test_what_the_crowd_contradicts_is_the_same_in_any_order_of_recording() -> None:
    crowd = in_one_slot(FEW)
    events = [event(data, device, number=number, at=number) for number, (device, data) in enumerate(crowd, 1)]
    forth, back = (folded(DevicesProjection(), log_of(order)) for order in (events, events[::-1]))
    assert forth.state.tables()["contradiction"].rows == back.state.tables()["contradiction"].rows


def failure(number: int, sequence: int, source: str = AGENT) -> Message:
    return message(event(DeviceFailed(kind="DBE"), "d1", number=number, source=source), sequence)


def with_holes(count: int, source: str = AGENT) -> list[Message]:
    """Every other number, from 2 on."""
    return [failure(2 * nth, nth, source) for nth in range(1, count + 1)]


def following(messages: list[Message]) -> Fold:
    fold = Fold(SourcesProjection(), GENERATION, numbering=Numbering("own", 1))
    fold.apply_all(messages)
    return fold


def gaps_of(fold: Fold) -> list[int]:
    return [decision.data.first for decision in fold.take_decided() if hasattr(decision.data, "first")]


def test_gaps_are_reported_some_at_a_time_the_oldest_first() -> None:
    count = 2 * GAPS_PER_ASK_MAX + 1
    fold = following(with_holes(count))
    answers = []
    for expected in (GAPS_PER_ASK_MAX, GAPS_PER_ASK_MAX, 1, 0):
        fold.due(LATER)
        answers.append(gaps_of(fold))
        assert len(answers[-1]) == expected
    assert [first for answer in answers for first in answer] == list(range(1, 2 * count, 2))


def test_gaps_read_back_in_disorder_are_reported_the_oldest_first() -> None:
    live = following(with_holes(GAPS_PER_ASK_MAX + 5))
    fold = Fold(SourcesProjection(), GENERATION, seen=live.seen, numbering=Numbering("own", 1))
    for name, table in fold.state.tables().items():
        table.load(reversed(live.state.tables()[name].rows.values()))
    fold.due(LATER)
    assert gaps_of(fold) == list(range(1, 2 * GAPS_PER_ASK_MAX, 2))
    fold.apply(failure(2 * GAPS_PER_ASK_MAX + 1, 900))
    fold.apply(failure(1, 901))
    assert [decision.data.TYPE for decision in fold.take_decided()] == ["io.gpuledger.source.gap-closed.v1"]
    fold.due(LATER)
    assert gaps_of(fold) == [2 * number + 1 for number in range(GAPS_PER_ASK_MAX + 1, GAPS_PER_ASK_MAX + 5)]


def test_late_numbers_find_their_range_wherever_it_is() -> None:
    count = 500
    fold = following(with_holes(count))
    fold.apply_all([failure(number, sequence) for sequence, number in enumerate(range(2 * count - 1, 0, -2), 1000)])
    (source,) = fold.state.tables()["source"].rows.values()
    assert (source.missing, source.events, len(fold.state.tables()["missing"])) == (0, 2 * count, 0)
    fold.due(LATER)
    assert fold.take_decided() == []


class Listening(DevicesProjection):
    """The devices projection, remembering what is turned down."""

    observes = True

    def __init__(self) -> None:
        self.turned_down: list[RefusedEvent] = []

    def refused(self, state: object, refusal: RefusedEvent) -> Decisions:
        self.turned_down.append(refusal)
        return ()


def test_an_edge_source_cannot_leave_more_holes_than_there_may_be() -> None:
    projection = Listening()
    fold = folded(projection, with_holes(HOLES_MAX))
    last = 2 * HOLES_MAX
    fold.apply(failure(last + 2, last))
    (refusal,) = projection.turned_down
    assert (refusal.kind, refusal.event) == (RefusalKind.REJECTED, None)
    assert "Let the source begin a new epoch." in refusal.reason
    for number in (last + 1, 1, last + 3):
        fold.apply(failure(number, last + number))
    assert len(projection.turned_down) == 1
    fold.apply(failure(last + 5, 4 * last))
    assert len(projection.turned_down) == 2
    assert fold.seen.numbers[AGENT, "e1"].last == last + 3


def test_no_number_splits_a_hole_when_there_are_as_many_as_there_may_be() -> None:
    projection = Listening()
    fold = folded(projection, [failure(5, 1), *(failure(5 + 2 * nth, 1 + nth) for nth in range(1, HOLES_MAX))])
    for sequence, number in enumerate((2, 1, 5), 3 * HOLES_MAX):
        fold.apply(failure(number, sequence))
    kinds = [refusal.kind for refusal in projection.turned_down]
    assert kinds == [RefusalKind.REJECTED, RefusalKind.DUPLICATE]
    assert fold.seen.numbers[AGENT, "e1"].holes[0] == (2, 4)


def test_all_projections_turn_the_same_down() -> None:
    messages = [*with_holes(HOLES_MAX), failure(3 * HOLES_MAX, HOLES_MAX + 1)]
    devices, sources = folded(DevicesProjection(), messages), following(messages)
    assert devices.seen.numbers == sources.seen.numbers
    (rejection,) = sources.state.tables()["rejection"].rows.values()
    assert rejection.position == HOLES_MAX + 1
    source = sources.state.tables()["source"].rows[AGENT, "e1"]
    assert (source.missing, source.last_number) == (HOLES_MAX, 2 * HOLES_MAX)


def test_holes_of_our_own_stop() -> None:
    fold = folded(DevicesProjection(), with_holes(HOLES_MAX, SERVICE))
    with pytest.raises(BadEventError, match="ranges of numbers would be missing"):
        fold.apply(failure(3 * HOLES_MAX, 3 * HOLES_MAX, SERVICE))


def test_imports_are_bounded_as_agents_are() -> None:
    fold = folded(DevicesProjection(), with_holes(HOLES_MAX + 3, IMPORT))
    assert len(fold.seen.numbers[IMPORT, "e1"].holes) == HOLES_MAX
