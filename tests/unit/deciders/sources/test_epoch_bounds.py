"""What a hostile agent's ends of epochs cost is bounded where `Rule.BOUNDS` is enforced."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from gpuledger.deciders.sources.decide import GAP_GRACE_S
from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.domain.sources.deduplication import HOLES_MAX, HOLES_OF_SOURCE_MAX
from gpuledger.domain.sources.limits import LIMITS
from gpuledger.domain.sources.missing import Missing, MissingIndex
from gpuledger.events.device import DeviceFailed
from gpuledger.events.envelope import Decoded
from gpuledger.events.node import ENDED_EPOCHS_MAX, EndedEpoch, NodeAgentStarted
from gpuledger.events.publishing import RULE_VERSIONS, Rule
from gpuledger.events.source import SourceGapClosed, SourceGapDetected, SourceLimited
from gpuledger.projection.definition import Numbering
from gpuledger.projection.enforced import EnforcedRule, EnforcedRules
from gpuledger.projection.fold import Fold
from support.events import AGENT, GENERATION, START, event, log_of, message, rows_of

GRACE = timedelta(seconds=GAP_GRACE_S + 60)
BOUNDED = {rule: RULE_VERSIONS[rule] for rule in Rule}
UNBOUNDED = {Rule.EPOCH_ENDS: 1}


def failed(epoch: str, number: int) -> Decoded:
    return event(DeviceFailed(kind="DBE"), "d1", number=number, source=AGENT, epoch=epoch)


def started(epoch: str, number: int = 1, ended: Iterable[tuple[str, int]] = ()) -> Decoded:
    ends = tuple(EndedEpoch(epoch=name, last=last) for name, last in ended)
    data = NodeAgentStarted(version="1", hardware="nvml", clean=True, durable=True, ended=ends)
    return event(data, "n1", number=number, source=AGENT, epoch=epoch)


def fold_of(events: Iterable[Decoded], versions: Mapping[Rule, int] = BOUNDED) -> Fold:
    enforced = EnforcedRules([EnforcedRule(rule, version, 1) for rule, version in versions.items()])
    fold = Fold(SourcesProjection(), GENERATION, numbering=Numbering("own", 1), enforced=enforced)
    fold.apply_all(log_of(events))
    return fold


def missing(fold: Fold) -> list[tuple[str, int, int, int]]:
    rows = fold.state.tables()["missing"].rows.values()
    return [(row.epoch, row.first, row.last, row.left) for row in rows]


def detected(fold: Fold) -> int:
    """How many gaps were detected."""
    return Counter(type(one.data) for one in fold.take_decided())[SourceGapDetected]


def rising(starts: int) -> list[Decoded]:
    """Starts that each name an epoch many times, which ends a number later each time."""
    most = ENDED_EPOCHS_MAX
    return [started("e", 1 + at, [("x", at * most + n) for n in range(1, most + 1)]) for at in range(starts)]


def test_each_later_end_of_an_epoch_is_missing_from_the_one_before_on() -> None:
    fold = fold_of(rising(3))
    assert missing(fold) == missing(fold_of(rising(3), UNBOUNDED)) == [("x", n, n, 1) for n in range(1, 49)]
    (row,) = [row for row in fold.state.tables()["source"].rows.values() if row.epoch == "x"]
    assert (row.last_number, row.missing) == (48, 48)


def test_an_end_between_a_gap_and_its_position_leaves_the_rows_of_the_log() -> None:
    """The leader folds the gap when it detects it, and everybody else where it is recorded, behind the end."""
    log = log_of([failed("x", 1), started("e", 1, [("x", 10)])])
    live = fold_of([])
    live.apply_all(log)
    live.due(START + GRACE)
    (gap,) = live.take_decided()
    assert gap.data == SourceGapDetected(epoch="x", first=2, last=10)
    log += log_of([started("e", 2, [("x", 20)]), gap], 3)
    live.apply_all(log[2:])
    recorded = fold_of([])
    recorded.apply_all(log)
    assert rows_of(recorded) == rows_of(live)
    assert missing(live) == [("x", 2, 10, 9), ("x", 11, 20, 10)]
    for fold in (live, recorded):
        fold.due(START + 2 * GRACE)
        assert [one.data for one in fold.take_decided()] == [SourceGapDetected(epoch="x", first=11, last=20)]


def test_a_range_is_complete_with_its_last_number_whatever_ended_later() -> None:
    fold = fold_of([failed("x", 1), started("e", 1, [("x", 3)])])
    fold.due(START + GRACE)
    fold.apply(message(started("e", 2, [("x", 5), ("x", 6)]), 3))
    assert missing(fold) == [("x", 2, 3, 2), ("x", 4, 5, 2), ("x", 6, 6, 1)]
    fold.apply_all(log_of([failed("x", 3), failed("x", 2)], 4))
    assert [one.data for one in fold.take_decided()] == [
        SourceGapDetected(epoch="x", first=2, last=3),
        SourceGapClosed(epoch="x", first=2, last=3),
    ]


def test_ends_open_no_more_ranges_than_may_be_missing() -> None:
    of_epoch = [Missing(AGENT, "x", 2 * number, 2 * number, START, 1) for number in range(1, HOLES_MAX + 1)]
    of_others = [one._replace(epoch=f"y{number}") for number, one in enumerate(of_epoch)]
    full, source_full = MissingIndex(of_epoch, ()), MissingIndex([*of_epoch[1:], *of_others, of_others[0]], ())
    assert (full.has_room(AGENT, "x"), full.has_room(AGENT, "z")) == (False, True)
    assert len(of_epoch) + len(of_others) == HOLES_OF_SOURCE_MAX
    assert not source_full.has_room(AGENT, "z")
    source_full.remove(of_epoch[-1])
    assert source_full.has_room(AGENT, "z")


def test_an_end_that_finds_no_room_changes_nothing() -> None:
    skipping = [failed("x", 2 * number) for number in range(1, HOLES_MAX + 1)]
    fold, end = fold_of(skipping), started("e", 1, [("x", 3 * HOLES_MAX)])
    before = rows_of(fold)["source"][AGENT, "x"]
    fold.apply(message(end, HOLES_MAX + 1))
    assert rows_of(fold)["source"][AGENT, "x"] == before
    assert len(missing(fold)) == HOLES_MAX
    assert len(missing(fold_of([*skipping, end], UNBOUNDED))) == HOLES_MAX + 1


def test_gaps_of_unknown_length_are_not_recorded_beyond_the_limit_of_epochs() -> None:
    starts = [started(f"e{number}") for number in range(2 * LIMITS.epochs)]
    decided = [one.data for one in fold_of(starts).take_decided()]
    assert Counter(map(type, decided)) == {SourceGapDetected: LIMITS.epochs - 1, SourceLimited: 1}
    assert detected(fold_of(starts, UNBOUNDED)) == 2 * LIMITS.epochs - 1


def test_an_epoch_that_was_named_before_begins_with_its_first_event() -> None:
    """Else an agent would name epochs, and begin them uncounted."""
    names = [f"x{number}" for number in range(2 * LIMITS.epochs)]
    naming = [
        started("e", 1 + at, [(one, 9) for one in names[at * ENDED_EPOCHS_MAX : (at + 1) * ENDED_EPOCHS_MAX]])
        for at in range(len(names) // ENDED_EPOCHS_MAX + 1)
    ]
    log = [*naming, *(started(one) for one in names)]
    fold = fold_of(log)
    assert detected(fold) < LIMITS.epochs
    (hour,) = fold.state.tables()["source_hour"].rows.values()
    assert hour.epochs == len(names) + 1
    assert detected(fold_of(log, UNBOUNDED)) == len(names)


def test_an_agent_that_goes_to_and_fro_between_epochs_leaves_a_gap_for_each() -> None:
    log = [started(epoch, number) for number in range(1, 50) for epoch in ("a", "b")]
    assert detected(fold_of(log)) == 2
    assert detected(fold_of(log, UNBOUNDED)) == len(log) - 1


def test_a_gap_of_unknown_length_is_found_again_after_a_restart() -> None:
    log = [started(epoch, number) for number in range(1, 5) for epoch in ("a", "b")]
    first = fold_of(log)
    state: Any = SourcesProjection().new_state()
    for name, table in first.state.tables().items():
        state.tables()[name].load(table.rows.values())
    assert state.open_ended_gaps == first.state.open_ended_gaps == {(AGENT, "a"): 2, (AGENT, "b"): 2}  # type: ignore[attr-defined]
