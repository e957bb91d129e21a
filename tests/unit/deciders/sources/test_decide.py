"""Sources: what is missing, what becomes a gap, what closes it, and how rejected events are reported."""

from datetime import timedelta

from gpuledger.deciders.sources.decide import GAP_GRACE_S
from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.events.device import DeviceFailed
from gpuledger.events.envelope import Decoded
from gpuledger.events.source import SourceCompleted, SourceGapClosed, SourceGapDetected
from gpuledger.ledger.api import Message
from gpuledger.projection.definition import Numbering
from gpuledger.projection.fold import Fold
from support.events import AGENT, EPOCH, GENERATION, START, event, message

GRACE = timedelta(seconds=GAP_GRACE_S)


def numbered_event(number: int, epoch: str = EPOCH) -> Decoded:
    return event(DeviceFailed(kind="DBE"), "d1", number=number, at=number, source=AGENT, epoch=epoch)


def log(*numbers: int) -> list[Message]:
    """Recorded a second apart, from the start of all tests on."""
    return [message(numbered_event(number), sequence) for sequence, number in enumerate(numbers, 1)]


def following(*numbers: int) -> Fold:
    fold = Fold(SourcesProjection(), GENERATION, numbering=Numbering("own", 1))
    fold.apply_all(log(*numbers))
    return fold


def ranges(fold: Fold, table: str) -> list[tuple[int, int]]:
    return [(row.first, row.last) for row in fold.state.tables()[table].rows.values()]


def test_a_source_is_counted() -> None:
    (row,) = following(1, 2, 2, 5, 4).state.tables()["source"].rows.values()
    assert (row.events, row.duplicates, row.last_number, row.missing) == (4, 1, 5, 1)


def test_epochs_are_followed_apart() -> None:
    fold = following(1, 2)
    fold.apply(message(numbered_event(1, "another"), 3))
    assert [row.missing for row in fold.state.tables()["source"].rows.values()] == [0, 0]


def test_an_epoch_that_does_not_begin_with_its_first_number_misses_it() -> None:
    assert ranges(following(4), "missing") == [(1, 3)]


def test_what_is_missing_becomes_a_gap_behind_its_grace() -> None:
    fold = following(1, 3)
    noticed = START + timedelta(seconds=2)
    fold.due(noticed + GRACE)
    assert fold.take_decided() == []
    fold.due(noticed + GRACE + timedelta(seconds=1))
    fold.due(noticed + 2 * GRACE)
    (decision,) = fold.take_decided()
    assert (decision.subject, decision.data) == (AGENT, SourceGapDetected(epoch=EPOCH, first=2, last=2))
    assert ranges(fold, "gap") == [(2, 2)]


def test_an_event_within_its_grace_leaves_no_gap() -> None:
    fold = following(1, 3, 2)
    fold.due(START + 2 * GRACE)
    assert (fold.take_decided(), ranges(fold, "missing")) == ([], [])


def test_a_gap_closes_with_its_last_number() -> None:
    fold = following(1, 5)
    fold.due(START + 2 * GRACE)
    fold.take_decided()
    for sequence, number in enumerate((3, 2), 3):
        fold.apply(message(numbered_event(number), sequence))
    assert fold.take_decided() == []
    fold.apply(message(numbered_event(4), 5))
    (decision,) = fold.take_decided()
    assert decision.data == SourceGapClosed(epoch=EPOCH, first=2, last=4)
    assert decision.causation_id == numbered_event(4).id
    (gap,) = fold.state.tables()["gap"].rows.values()
    assert gap.closed_at == START + timedelta(seconds=5)


def test_a_rejected_event_is_reported_once() -> None:
    bad = message(numbered_event(1), 1, data=b"{")
    fold = Fold(SourcesProjection(), GENERATION, numbering=Numbering("own", 1))
    fold.apply(bad)
    (decision,) = fold.take_decided()
    fold.apply(message(decision, 2))
    assert fold.outstanding() == []
    assert [row.position for row in fold.state.tables()["rejection"].rows.values()] == [1]
    assert fold.take_decided() == []


def test_a_long_reason_is_cut() -> None:
    fold = Fold(SourcesProjection(), GENERATION)
    subject = f"ledger.node.{'n' * 3000}.device.d1.failed"
    fold.apply(message(numbered_event(1), 1, subject=subject))
    (row,) = fold.state.tables()["rejection"].rows.values()
    assert len(row.reason) == 1000
    assert row.nats_subject == subject[:1000]


def test_a_subject_that_no_table_can_keep_is_reported_all_the_same() -> None:
    fold = Fold(SourcesProjection(), GENERATION)
    fold.apply(message(numbered_event(1), 1, subject="ledger.node.n1.device.a\0b.failed"))
    (row,) = fold.state.tables()["rejection"].rows.values()
    assert row.nats_subject == "ledger.node.n1.device.a\\0b.failed"
    assert "\0" not in row.reason


def test_the_end_of_a_sources_data_is_kept() -> None:
    fold = following(1)
    completed = [
        event(SourceCompleted(events=1), "agent", number=number, at=at, source=AGENT) for number, at in ((2, 9), (3, 8))
    ]
    fold.apply_all([message(one, sequence) for sequence, one in enumerate(completed, 2)])
    (row,) = fold.state.tables()["source"].rows.values()
    assert row.completed_at == completed[0].time
