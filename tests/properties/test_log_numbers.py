"""Folds that share the numbers seen get what each would find alone, wherever it begins and whenever it is killed."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.sources import deduplication
from gpuledger.domain.sources.deduplication import HolesError, Numbers, Seen
from gpuledger.domain.sources.leader_epochs import leader_epoch
from gpuledger.events.device import DeviceFailed
from gpuledger.events.envelope import Decoded
from gpuledger.events.position import ORIGIN, Offset, Position
from gpuledger.ledger.api import Message
from gpuledger.projection import log_numbers
from gpuledger.projection.checker import numbered_event
from gpuledger.projection.errors import NumbersChangedError
from gpuledger.projection.fold import Fold
from gpuledger.projection.log_numbers import LogNumbers, NumbersChange
from gpuledger.readmodels.projections import DevicesProjection
from support.events import AGENT, GENERATION, IMPORT, event, folded, log_of, message, rows_of

DECIDER = "/services/pools"
EPOCHS = {
    IMPORT: ("e1", "e2"),
    AGENT: ("a", "b", "c"),
    DECIDER: tuple(leader_epoch(Position(GENERATION, head), f"id-{head}") for head in (1, 2, 3)),
}
"""Of each source; of the edge fewer are kept than there are, and a decider's later leader closes the earlier ones."""

epochs = st.sampled_from([(source, epoch) for source, of_source in EPOCHS.items() for epoch in of_source])
numbers_told = st.lists(st.tuples(epochs, st.integers(1, 9)), min_size=1, max_size=40)
Told = list[tuple[tuple[str, str], int]]


@pytest.fixture(autouse=True, scope="module")
def _small_bounds() -> Iterable[None]:
    with patch.object(deduplication, "EPOCHS_MAX", 2), patch.object(deduplication, "HOLES_MAX", 2):
        yield


def _log(told: Told) -> list[Message]:
    """What was told, in this order, with something in between that is no event."""
    events: list[Decoded] = [
        event(DeviceFailed(kind="DBE"), "d1", number=number, at=at, source=source, epoch=epoch, event_id=f"f{at}")
        for at, ((source, epoch), number) in enumerate(told)
    ]
    log = log_of(events)
    return [one._replace(data=b"{") if index % 11 == 10 else one for index, one in enumerate(log)]


def _outcome(numbers: LogNumbers, one: Message) -> bool | str:
    try:
        return numbers.is_new(one, numbered_event(one))
    except HolesError as error:
        return str(error)


def _alone(log: Sequence[Message]) -> list[bool | str]:
    """What a fold finds that has read everything itself, without the positions."""
    seen, found = Seen(), list[bool | str]()
    for one in log:
        told = numbered_event(one)
        try:
            found.append(told is not None and seen.add(told.source, told.epoch, told.number))
        except HolesError as error:
            found.append(str(error))
    return found


class Stored:
    """The tables: several processes write them, and each loads what the last one has written."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], tuple[Numbers, int]] = {}
        self.refused: dict[Offset, str | None] = {}
        self.position: Offset = ORIGIN

    def write(self, change: NumbersChange) -> None:
        for key in change.forgotten:
            self.rows.pop(key, None)
        for one in change.changes:
            key = (one.source, one.epoch)
            began = one.began or self.rows[key][1]
            self.rows[key] = (Numbers(one.last, one.holes), began)
        self.refused |= dict(change.refused)
        self.position = change.position

    def load(self) -> LogNumbers:
        ordered = sorted(self.rows.items(), key=lambda row: (row[1][1], row[0]))
        numbers = {key: Numbers(one.last, one.holes) for key, (one, _) in ordered}
        last = ordered[-1][1][1] if ordered else 0
        return LogNumbers(Seen(numbers, last), self.position, refused=dict(sorted(self.refused.items())))


@given(numbers_told, st.data())
def test_a_fold_that_begins_anywhere_finds_what_it_would_find_alone(told: Told, data: st.DataObject) -> None:
    log, stored = _log(told), Stored()
    expected = _alone(log)
    written = data.draw(st.integers(0, len(log)), label="written up to")
    numbers = LogNumbers()
    for one in log[:written]:
        _outcome(numbers, one)
    stored.write(numbers.take_changes())
    loaded = stored.load()
    begins = data.draw(st.lists(st.integers(0, len(log)), min_size=1, max_size=3), label="folds begin at")
    for one in log[written : max(begins)]:
        _outcome(loaded, one)
    for begin in begins:
        assert [_outcome(loaded, one) for one in log[begin:]] == expected[begin:]


@given(numbers_told, st.data())
def test_processes_that_write_in_turns_leave_what_one_would(told: Told, data: st.DataObject) -> None:
    log, stored = _log(told), Stored()
    processes = [(LogNumbers(), 0), (LogNumbers(), 0)]
    for _ in range(data.draw(st.integers(1, 6))):
        turn = data.draw(st.integers(0, 1), label="process")
        numbers, at = processes[turn]
        until = data.draw(st.integers(at, len(log)), label="reads up to")
        for one in log[at:until]:
            _outcome(numbers, one)
        processes[turn] = numbers, until
        change = numbers.take_changes()
        if until > int(stored.position):
            stored.write(change)
        else:
            numbers.put_back(change)
    loaded, seen = stored.load(), Seen()
    for one in log[: int(stored.position)]:
        told_here = numbered_event(one)
        with suppress(HolesError):
            assert told_here is None or seen.add(told_here.source, told_here.epoch, told_here.number) is not None
    assert loaded.seen.numbers == seen.numbers
    assert [_outcome(loaded, one) for one in log] == _alone(log)


@given(numbers_told, st.data())
def test_its_rows_are_those_of_a_fold_alone(told: Told, data: st.DataObject) -> None:
    log, numbers = _log([one for one in told if one[0][0] == AGENT]), LogNumbers()
    folds = [Fold(DevicesProjection(), GENERATION, numbers=numbers) for _ in range(2)]
    ahead = data.draw(st.integers(0, len(log)))
    folds[0].apply_all(log[:ahead])
    folds[1].apply_all(log)
    folds[0].apply_all(log[ahead:])
    alone = folded(DevicesProjection(), log)
    assert [rows_of(fold) for fold in folds] == [rows_of(alone)] * 2
    assert [fold.events for fold in folds] == [alone.events] * 2


def test_another_event_in_the_place_of_one_that_was_read_is_found() -> None:
    log = _log([((AGENT, "a"), number) for number in range(1, 5)])
    numbers = LogNumbers()
    for one in log:
        numbers.is_new(one, numbered_event(one))
    other = message(event(DeviceFailed(kind="SBE"), "d2", source=AGENT, epoch="a", number=3), 3)
    with pytest.raises(NumbersChangedError):
        numbers.is_new(other, numbered_event(other))
    with pytest.raises(NumbersChangedError):
        numbers.is_new(log[0], numbered_event(log[0]))


def test_who_leaves_out_a_part_of_the_log_is_stopped() -> None:
    log = _log([((AGENT, "a"), number) for number in range(1, 5)])
    with pytest.raises(NumbersChangedError):
        LogNumbers().is_new(log[2], numbered_event(log[2]))


def test_events_that_do_not_count_are_remembered_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_numbers, "REFUSED_MAX", 20)
    log = _log([((IMPORT, "e1"), 1)] * 60)
    numbers = LogNumbers()
    for one in log:
        _outcome(numbers, one)
    refused = numbers.refused_behind(ORIGIN)
    assert len(refused) <= 20
    assert not any(_outcome(numbers, one) for one in log[int(numbers.complete_from) :])
    assert dict(numbers.take_changes().refused) == refused
