"""What a source lost with an epoch that it does not continue: as far as it says, and where it does not know."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from gpuledger.deciders.sources.decide import GAP_GRACE_S
from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.events.device import DeviceFailed
from gpuledger.events.envelope import Decoded
from gpuledger.events.node import EndedEpoch, NodeAgentStarted
from gpuledger.events.payload import BIGINT_MAX
from gpuledger.events.publishing import RULE_VERSIONS, Rule
from gpuledger.events.source import SourceGapClosed, SourceGapDetected
from gpuledger.projection.definition import Numbering
from gpuledger.projection.enforced import EnforcedRule, EnforcedRules
from gpuledger.projection.fold import Fold
from support.events import AGENT, GENERATION, START, event, log_of

GRACE = timedelta(seconds=GAP_GRACE_S + 60)
ALL_RULES = {rule: RULE_VERSIONS[rule] for rule in Rule}
UNBOUNDED = {Rule.EPOCH_ENDS: 1}
"""The rules of earlier builds."""


def failed(epoch: str, number: int, source: str = AGENT) -> Decoded:
    return event(DeviceFailed(kind="DBE"), "d1", number=number, source=source, epoch=epoch)


def started(epoch: str, number: int = 1, ended: Sequence[tuple[str, int]] = ()) -> Decoded:
    ends = tuple(EndedEpoch(epoch=name, last=last) for name, last in ended)
    data = NodeAgentStarted(version="1", hardware="nvml", clean=True, durable=True, ended=ends)
    return event(data, "n1", number=number, source=AGENT, epoch=epoch)


def fold_of(*events: Decoded, versions: Mapping[Rule, int] = ALL_RULES) -> Fold:
    """A fold of the log; what follows from time is due as well."""
    enforced = EnforcedRules([EnforcedRule(rule, version, 1) for rule, version in versions.items()])
    fold = Fold(SourcesProjection(), GENERATION, numbering=Numbering("own", 1), enforced=enforced)
    fold.apply_all(log_of(events))
    fold.due(START + GRACE)
    return fold


def decided(*events: Decoded, versions: Mapping[Rule, int] = ALL_RULES) -> list[object]:
    return [one.data for one in fold_of(*events, versions=versions).take_decided()]


def unknown(epoch: str, first: int) -> SourceGapDetected:
    return SourceGapDetected(epoch=epoch, first=first, last=first, unknown_length=True)


def test_the_last_events_of_an_epoch_are_missing_where_its_source_says_that_there_were_more() -> None:
    fold = fold_of(failed("e1", 1), failed("e1", 2), started("e2", ended=[("e1", 5)]))
    assert [one.data for one in fold.take_decided()] == [SourceGapDetected(epoch="e1", first=3, last=5)]
    row = fold.state.tables()["source"].rows[AGENT, "e1"]
    assert (row.events, row.last_number, row.missing) == (2, 5, 3)


def test_they_close_the_gap_when_they_come_after_all() -> None:
    fold = fold_of(failed("e1", 1), started("e2", ended=[("e1", 3)]))
    fold.apply_all(log_of([failed("e1", 3), failed("e1", 2)], 9))
    assert [one.data for one in fold.take_decided()] == [
        SourceGapDetected(epoch="e1", first=2, last=3),
        SourceGapClosed(epoch="e1", first=2, last=3),
    ]
    assert fold.state.tables()["source"].rows[AGENT, "e1"].missing == 0


def test_an_epoch_of_which_nothing_was_recorded_is_missing_as_a_whole() -> None:
    assert decided(started("e2", ended=[("e1", 2)])) == [SourceGapDetected(epoch="e1", first=1, last=2)]
    assert decided(started("e2", ended=[("e1", 0)])) == []


def test_nothing_is_missing_of_an_epoch_that_arrived_whole() -> None:
    assert decided(failed("e1", 1), failed("e1", 2), started("e2", ended=[("e1", 2)])) == []


def test_several_epochs_may_have_ended() -> None:
    found = decided(failed("e1", 1), failed("e2", 1), started("e3", ended=[("e1", 2), ("e2", 2)]))
    assert found == [SourceGapDetected(epoch=epoch, first=2, last=2) for epoch in ("e1", "e2")]


def test_an_agent_that_says_nothing_leaves_a_gap_of_unknown_length() -> None:
    """An earlier build's, or one whose state folder was lost."""
    fold = fold_of(failed("e1", 1), failed("e1", 2), started("e2"))
    assert [one.data for one in fold.take_decided()] == [unknown("e1", 3)]
    (gap,) = fold.state.tables()["gap"].rows.values()
    assert gap.unknown_length
    assert fold.state.tables()["missing"].rows == {}
    assert decided(started("e1")) == [], "there was no epoch before"


def test_a_restart_that_goes_on_with_its_epoch_loses_nothing() -> None:
    assert decided(started("e1"), failed("e1", 2), started("e1", 3)) == []


def test_an_epoch_in_memory_that_was_lost_with_the_process_is_unknown() -> None:
    """The disk took no writes, so the next run goes on with the epoch on disk and knows of no other."""
    found = decided(started("e1"), started("e2", ended=[("e1", 1)]), failed("e2", 2), started("e1", 2))
    assert found == [unknown("e2", 3)]


def test_an_epoch_is_unknown_once_and_one_that_is_named_later_is_known_after_all() -> None:
    log = [failed("e1", 1), started("e2"), started("e1", 2), started("e2", 2)]
    assert decided(*log) == [unknown("e1", 2), unknown("e2", 2)], "the first gap covers what follows it"
    assert decided(*log, versions=UNBOUNDED) == [unknown("e1", 2), unknown("e2", 2), unknown("e1", 3)]
    named = [failed("e1", 1), started("e2"), started("e3", ended=[("e1", 1), ("e2", 1)])]
    assert decided(*named) == [unknown("e1", 2), SourceGapClosed(epoch="e1", first=2, last=2)]


def test_only_the_sources_own_epochs_end() -> None:
    other = "/nodes/n2/agent"
    fold = fold_of(failed("e1", 1, other), started("e2", ended=[("e1", 3)]))
    assert [one.subject for one in fold.take_decided()] == [AGENT]
    assert fold.state.tables()["source"].rows[other, "e1"].missing == 0


def test_numbers_as_high_as_they_get_stop_nobody() -> None:
    assert decided(failed("e1", BIGINT_MAX), started("e2"))[:1] == [
        SourceGapDetected(epoch="e1", first=1, last=BIGINT_MAX - 1)
    ]
    assert decided(failed("e1", 1), started("e2", ended=[("e1", BIGINT_MAX)])) == [
        SourceGapDetected(epoch="e1", first=2, last=BIGINT_MAX)
    ]


def test_an_epoch_that_claims_to_have_ended_itself_is_not_followed() -> None:
    assert decided(started("e1", ended=[("e1", 9)])) == []


def test_a_log_from_before_the_rule_is_folded_as_earlier_builds_did() -> None:
    fold = fold_of(failed("e1", 1), started("e2"), started("e3", ended=[("e1", 9)]), versions={})
    assert fold.take_decided() == []
    assert [row.last_number for row in fold.state.tables()["source"].rows.values()] == [1, 1, 1]


def test_an_end_before_what_the_ledger_has_leaves_open_what_followed_that() -> None:
    """A disk that forgot what it had synced: nobody knows what the agent recorded after its last event here."""
    log = [failed("e1", 1), failed("e1", 2), failed("e1", 3), started("e2", ended=[("e1", 2)])]
    assert decided(*log) == [unknown("e1", 4)]
    assert decided(*log, started("e3", ended=[("e1", 1), ("e2", 1)])) == [unknown("e1", 4)], "once"
    assert decided(*log, versions=UNBOUNDED) == []


def test_a_gap_of_unknown_length_closes_with_the_end_of_its_epoch_whatever_came_meanwhile() -> None:
    gap, closed = unknown("e1", 2), SourceGapClosed(epoch="e1", first=2, last=2)
    log = [failed("e1", 1), started("e2"), failed("e1", 2)]
    assert decided(*log, started("e3", ended=[("e1", 2), ("e2", 1)])) == [gap, closed]
    longer = started("e3", ended=[("e1", 4), ("e2", 1)])
    assert decided(*log, longer) == [gap, closed, SourceGapDetected(epoch="e1", first=3, last=4)]
    assert decided(*log, longer, versions=UNBOUNDED) == [gap, SourceGapDetected(epoch="e1", first=3, last=4)]
    again = [failed("e1", 1), started("e2", ended=[("e1", 3)]), started("e3", ended=[("e2", 1)]), failed("e1", 2)]
    assert decided(*again, started("e4"), started("e5", ended=[("e1", 6), ("e4", 1)])) == [
        unknown("e1", 4),
        SourceGapDetected(epoch="e1", first=2, last=3),
    ]
    covered = started("e3", ended=[("e1", 4), ("e2", 1)])
    assert decided(failed("e1", 1), started("e2"), covered) == [gap], "it closes with the last of its numbers"


def test_an_early_end_does_not_close_the_gap_that_an_unexplained_one_left() -> None:
    log = [failed("e1", 1), failed("e1", 2), started("e2"), started("e3", ended=[("e1", 1), ("e2", 1)])]
    closed = SourceGapClosed(epoch="e1", first=3, last=3)
    assert decided(*log) == [unknown("e1", 3)]
    assert decided(*log, versions=UNBOUNDED) == [unknown("e1", 3), closed]
    assert decided(*log, started("e4", ended=[("e1", 2), ("e3", 1)])) == [unknown("e1", 3), closed]


def test_an_epoch_of_which_nothing_was_recorded_ends_early_without_a_gap() -> None:
    log = [started("e2", ended=[("e1", 5), ("e1", 3)])]
    assert decided(*log) == [SourceGapDetected(epoch="e1", first=1, last=5)]
