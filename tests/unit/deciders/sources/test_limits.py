"""Sources over their limits: one event for each source and hour, bounded rows, and the same rows in every fold."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.domain.sources.deduplication import EPOCHS_MAX, Seen
from gpuledger.domain.sources.fold import NO_EPOCH
from gpuledger.domain.sources.limits import HASH_LENGTH, LIMITS
from gpuledger.events.device import DeviceFailed
from gpuledger.events.envelope import Decoded
from gpuledger.events.source import SourceLimited, SourceRejected
from gpuledger.ledger.api import Message
from gpuledger.projection.definition import Numbering
from gpuledger.projection.fold import Fold
from support.events import AGENT, EPOCH, GENERATION, IMPORT, START, event, message, rows_of

SIZE = 64 * 1024
"""How large a large event is."""

SECOND_NS = 1_000_000_000
START_NS = int(START.timestamp()) * SECOND_NS


def failure(number: int, *, device: str = "d1", epoch: str = EPOCH, source: str = AGENT) -> Decoded:
    return event(DeviceFailed(kind="DBE"), device, number=number, source=source, epoch=epoch)


def recorded(messages: Iterator[Message], seconds_apart: float = 0.01) -> Iterator[Message]:
    """The messages in the order of a log, recorded so far apart."""
    for sequence, one in enumerate(messages, 1):
        yield one._replace(sequence=sequence, recorded_ns=START_NS + int(sequence * seconds_apart * SECOND_NS))


def garbage(number: int) -> Message:
    return message(failure(1), number, data=b"{")


def unfit(number: int) -> Message:
    good = message(failure(number), number)
    return good._replace(data=good.data.replace(b'"DBE"', b'""'))


def large(number: int) -> Message:
    one = message(failure(number), number)
    return one._replace(data=one.data + b" " * SIZE)


def under_n1(number: int) -> str:
    return f"ledger.node.n1.device.d{number}.failed"


HOSTILE: dict[str, tuple[Callable[[int], Message], str]] = {
    "garbage": (garbage, "rejected"),
    "data that does not fit": (unfit, "rejected"),
    "another's name": (lambda n: message(failure(n, source="/nodes/n2/agent"), n, subject=under_n1(n)), "rejected"),
    "epochs": (lambda n: message(failure(1, epoch=f"e{n}"), n), "epochs"),
    "aggregates": (lambda n: message(failure(n, device=f"d{n}"), n), "aggregates"),
    "bytes": (large, "bytes"),
    "repeats": (lambda _: large(1), "bytes"),
}


def folding() -> Fold:
    return Fold(SourcesProjection(), GENERATION, numbering=Numbering("own", 1))


def take(fold: Fold, makers: Sequence[Callable[[int], Message]], events: int) -> None:
    """Fold so many hostile events of one agent, in turns of these kinds, within an hour."""
    makes = itertools.cycle(makers)
    for one in recorded(next(makes)(number) for number in range(1, events + 1)):
        fold.apply(one)


@pytest.mark.parametrize(("make", "limit"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_agent_goes_over_one_limit(make: Callable[[int], Message], limit: str) -> None:
    fold = folding()
    take(fold, [make], 2_100)
    (limited,) = [one.data for one in fold.take_decided() if isinstance(one.data, SourceLimited)]
    assert limited.limits == (limit,)


@pytest.mark.parametrize("events", [3_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_a_hostile_agent_costs_one_event_an_hour_and_bounded_rows(events: int) -> None:
    fold = folding()
    take(fold, [make for make, _ in HOSTILE.values()], events)
    decided = Counter(type(one.data) for one in fold.take_decided())
    assert decided[SourceLimited] == 1
    assert decided[SourceRejected] <= LIMITS.rejected
    (hour,) = fold.state.tables()["source_hour"].rows.values()
    assert (hour.events, hour.limited_at is not None) == (events, True)
    assert len(hour.hashes) <= LIMITS.aggregates * HASH_LENGTH
    assert len(fold.state.tables()["source"].rows) <= EPOCHS_MAX + 1
    assert len(fold.seen.numbers) <= EPOCHS_MAX
    assert len(fold.state.tables()["rejection"].rows) <= LIMITS.rejected


def test_a_source_over_its_limits_is_told_apart() -> None:
    fold = folding()
    log = [*(garbage(n) for n in range(1, LIMITS.rejected + 2)), message(failure(1), 0), message(failure(1), 0)]
    log.append(message(failure(1, source="/nodes/n2/agent"), 0))
    fold.apply_all(list(recorded(iter(log))))
    rows = fold.state.tables()["source"].rows
    assert {key: (row.rejected, row.limited_at is not None) for key, row in rows.items()} == {
        (AGENT, NO_EPOCH): (LIMITS.rejected + 1, True),
        (AGENT, EPOCH): (0, False),
        ("/nodes/n2/agent", EPOCH): (0, False),
    }
    (limited,) = [one for one in fold.take_decided() if isinstance(one.data, SourceLimited)]
    assert limited.subject == AGENT
    assert limited.data.limits == ("rejected",)  # type: ignore[attr-defined]
    assert limited.data.rejected == LIMITS.rejected + 1  # type: ignore[attr-defined]


def test_the_next_hour_is_recorded_again_until_its_own_limit() -> None:
    fold = folding()
    fold.apply_all(list(recorded((garbage(n) for n in range(1, 720)), seconds_apart=10)))
    decided = Counter(type(one.data) for one in fold.take_decided())
    assert decided == {SourceLimited: 2, SourceRejected: 2 * LIMITS.rejected}


def test_an_import_may_be_as_large_as_it_is() -> None:
    fold = folding()
    numbers = range(1, 2 * LIMITS.aggregates)
    fold.apply_all(list(recorded(message(failure(n, device=f"d{n}", source=IMPORT), n) for n in numbers)))
    assert fold.take_decided() == []


@pytest.mark.parametrize(
    "subject", ["ledger.node", "ledger.node.%2e%2e.x", "ledger.node.n.1.2.3", f"ledger.node.{'n' * 900}.a.b.c"]
)
def test_a_subject_that_names_no_source_counts_all_the_same(subject: str) -> None:
    fold = folding()
    fold.apply_all(list(recorded(garbage(n)._replace(subject=subject) for n in range(1, LIMITS.rejected + 10))))
    assert Counter(type(one.data) for one in fold.take_decided()) == {SourceLimited: 1, SourceRejected: LIMITS.rejected}


def test_a_gap_of_a_forgotten_epoch_stays_forgotten_however_late_it_was_recorded() -> None:
    """A rebuild meets the decision behind the events that made the epoch leave."""
    log = [message(failure(3, epoch="e0"), 0)]
    fold = folding()
    fold.apply_all(list(recorded(iter(log))))
    fold.due(START.replace(hour=1))
    (gap,) = fold.take_decided()
    log += [message(failure(1, epoch=f"e{n}"), 0) for n in range(1, EPOCHS_MAX + 1)] + [message(gap, 0)]
    fold.apply_all(list(recorded(iter(log)))[1:])
    again = Fold(SourcesProjection(), GENERATION)
    again.apply_all(list(recorded(iter(log))))
    assert rows_of(again) == rows_of(fold)
    assert not fold.state.tables()["gap"].rows
    assert not fold.state.tables()["missing"].rows


def test_gaps_of_one_source_are_recorded_so_many_an_hour_and_keep_no_other_waiting() -> None:
    fold = folding()
    log = [message(failure(2 * number), 0) for number in range(1, LIMITS.gaps + 51)]
    log.append(message(failure(2, source="/nodes/n2/agent"), 0))
    fold.apply_all(list(recorded(iter(log))))
    recorded_gaps = []
    for minute in (*range(1, 15), 59, 61, 62):
        fold.due(START + timedelta(minutes=minute))
        recorded_gaps.append(Counter(one.subject for one in fold.take_decided()))
    assert sum(recorded_gaps[:15], Counter()) == {AGENT: LIMITS.gaps, "/nodes/n2/agent": 1}
    assert sum(recorded_gaps[15:], Counter()) == {AGENT: 50}


_messages = st.one_of(
    st.just(garbage(1)),
    st.builds(unfit, st.integers(1, 5)),
    st.builds(lambda number, epoch: message(failure(number, epoch=epoch), 0), st.integers(1, 9), st.sampled_from("ab")),
    st.builds(lambda device: message(failure(1, device=device), 0), st.sampled_from(["d1", "d2"])),
)


@given(st.lists(_messages, max_size=40), st.integers(0, 40), st.sampled_from([1.0, 900.0]))
def test_a_restart_between_two_events_changes_nothing(log: list[Message], at: int, seconds_apart: float) -> None:
    messages = list(recorded(iter(log), seconds_apart))
    whole = folding()
    whole.apply_all(messages)
    first = folding()
    first.apply_all(messages[:at])
    second = restarted(first)
    second.apply_all(messages[at:])
    assert rows_of(second)["source_hour"] == rows_of(whole)["source_hour"]
    assert rows_of(second)["source"] == rows_of(whole)["source"]


def restarted(fold: Fold) -> Fold:
    """The same fold, its state read back from its rows."""
    state = SourcesProjection().new_state()
    for name, table in fold.state.tables().items():
        state.tables()[name].load(table.rows.values())
    seen = Seen(fold.seen.numbers)
    expected = fold.outstanding()
    return Fold(SourcesProjection(), GENERATION, state=state, seen=seen, expected=expected, numbering=fold.numbering)


def test_an_unknown_type_of_the_edge_is_kept_counted_and_marked() -> None:
    log = [message(failure(number), number) for number in (1, 2, 3)]
    for at, later in ((0, b"device.melted.v1"), (2, b"device.failed.v9")):
        word = later.split(b".")[1]
        log[at] = log[at]._replace(
            subject=log[at].subject.replace("failed", word.decode()),
            data=log[at].data.replace(b"device.failed.v1", later),
        )
    fold = folding()
    fold.apply_all(list(recorded(iter(log))))
    (row,) = fold.state.tables()["source"].rows.values()
    assert (row.events, row.unknown, row.rejected, row.missing) == (3, 2, 0, 0)
    assert fold.take_decided() == []
    assert fold.events == 3


def test_hostile_types_are_not_remembered_each() -> None:
    fold = folding()
    before = len(fold.checker._routes) + len(fold._hearing._by_type)
    words = ("".join(letters) for letters in itertools.product("abcdefghij", repeat=3))
    for number, word in enumerate(words, 1):
        one = message(failure(number), number, subject=f"ledger.node.n1.device.d1.{word}")
        fold.apply(one._replace(data=one.data.replace(b"device.failed", f"device.{word}".encode())))
    assert len(fold.checker._routes) + len(fold._hearing._by_type) == before
