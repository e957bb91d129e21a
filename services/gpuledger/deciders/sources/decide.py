"""Decides for the `sources` service: which numbers are lost, which came late, and which events are rejected. Pure.

It follows the numbering of every source in the order of the log; only the time comes from outside.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import chain
from typing import Final

from gpuledger.domain.fact import time_of_ns
from gpuledger.domain.sources.epochs import EndRules, GapChange, begins, end_epoch, unexplained_end
from gpuledger.domain.sources.fold import NO_EPOCH, Source, Sources, follow, overdue, rejected, repeated
from gpuledger.domain.sources.limits import LIMITS, CountedMessage, SourceHour, aggregates_of, exceeded, is_limited
from gpuledger.domain.sources.missing import Missing
from gpuledger.events.envelope import Undecoded, with_payload
from gpuledger.events.node import NodeAgentStarted
from gpuledger.events.position import number_of
from gpuledger.events.publishing import Rule
from gpuledger.events.rule import RuleEnforced
from gpuledger.events.source import SourceGapClosed, SourceGapDetected, SourceLimited, SourceRejected
from gpuledger.events.subjects import source_under
from gpuledger.projection.definition import Decision, Observed, RefusalKind, RefusedEvent
from gpuledger.projection.enforced import EnforcedRule

_BOUNDS: Final = Rule.BOUNDS  # Every event asks, and an enumeration takes long to find its member.
_AGENT_STARTED: Final = NodeAgentStarted.TYPE

GAP_GRACE_S = 30.0
"""How long a number may be late before its absence is called a gap."""

GAPS_PER_ASK_MAX = 100
"""How many gaps are recorded at a time, the oldest first; the others follow at the next check."""

REASON_LENGTH_MAX = 1000
"""How much of a reason and of a subject is recorded. The server lets a subject hold NUL, which no table can store."""


def on_observed(state: Sources, observed: Observed) -> Iterable[Decision]:
    """Follow the numbering; a gap that was detected closes with its last number."""
    event, recorded_at = observed.event, time_of_ns(observed.recorded_ns)
    bounded = _BOUNDS in observed.rules
    row = state.source.get((event.source, event.epoch))
    begins_epoch = begins(row, bounded=bounded)
    decisions: Iterable[Decision] = _follow(state, row, event, recorded_at, is_known=observed.is_known)
    if event.type == _AGENT_STARTED and Rule.EPOCH_ENDS in observed.rules:
        decisions = chain(decisions, _on_agent_started(state, observed))
    if is_limited(event.source):
        aggregates = aggregates_of(event, bounded=bounded)
        counted = CountedMessage._make((event.source, recorded_at, observed.size, aggregates, begins_epoch, False))
        limited = _over_limits(state.hours.count(counted), recorded_at)
        return chain(decisions, limited) if limited else decisions
    return decisions


def on_refused(state: Sources, refusal: RefusedEvent) -> Iterable[Decision]:
    """Count a repeat; count the rejection of an event, and record it unless its source is over its limits."""
    event, recorded_at = refusal.event, time_of_ns(refusal.recorded_ns)
    source = source_under(refusal.nats_subject) if event is None else event.source
    epoch = NO_EPOCH if event is None else event.epoch
    counted = CountedMessage(source, recorded_at, refusal.size, (), begins_epoch=False, is_rejected=False)
    if refusal.kind is RefusalKind.DUPLICATE:
        repeated(state, source, epoch)
        if is_limited(source):
            yield from _over_limits(state.hours.count(counted), recorded_at)
        return
    if event is not None:
        row = state.source.get((source, epoch))
        counted = counted._replace(begins_epoch=row is None)
        yield from _follow(state, row, event, recorded_at)
    rejected(state, source, epoch, recorded_at)
    hour = state.hours.count(counted._replace(is_rejected=True))
    if hour.rejected <= LIMITS.rejected:
        yield _rejection(refusal, recorded_at)
    yield from _over_limits(hour, recorded_at)


def _follow(
    state: Sources, row: Source | None, event: Undecoded, recorded_at: datetime, *, is_known: bool = True
) -> Sequence[Decision]:
    """Follow the numbering from the row of the event's epoch; closes the gaps that this completes."""
    completed = follow(state, row, event, recorded_at, is_known=is_known)
    if not completed:
        return ()
    decisions = []
    for filled in completed:
        if (filled.source, filled.epoch, filled.first) in state.gap.rows:
            data = SourceGapClosed(epoch=filled.epoch, first=filled.first, last=filled.last)
            decisions.append(Decision(event.id, event.correlation_id, filled.source, recorded_at, data))
    return decisions


def _over_limits(row: SourceHour, recorded_at: datetime) -> Sequence[Decision]:
    """The one event of a source's hour that says that it is over its limits."""
    limits = exceeded(row) if row.limited_at is None else ()
    if not limits:
        return ()
    data = SourceLimited(
        hour=row.hour,
        limits=limits,
        events=row.events,
        rejected=row.rejected,
        epochs=row.epochs,
        aggregates=row.aggregates,
        bytes=row.bytes,
    )
    return (Decision(f"limited/{row.source}/{row.hour.isoformat()}", None, row.source, recorded_at, data),)


def _rejection(refusal: RefusedEvent, recorded_at: datetime) -> Decision:
    data = SourceRejected(
        generation=refusal.position.generation,
        sequence=number_of(refusal.position.sequence),
        nats_subject=refusal.nats_subject.replace("\0", "\\0")[:REASON_LENGTH_MAX],
        reason=refusal.reason[:REASON_LENGTH_MAX],
    )
    # A restored log has the same sequences in another generation, and brings this decision along.
    return Decision(f"rejected/{refusal.position.sequence}", None, "log", recorded_at, data)


def on_due(state: Sources, now: datetime) -> Iterable[Decision]:
    """Record ranges as gaps that have been missing for too long."""
    for missing in overdue(state, now, GAP_GRACE_S, GAPS_PER_ASK_MAX):
        yield _gap(missing, now)


def on_missing_rules(missing: Iterable[EnforcedRule], now: datetime) -> Iterable[Decision]:
    """Record that these rules are enforced."""
    for one in missing:
        yield Decision(f"rule/{one.rule}/{one.version}", None, one.rule, now, RuleEnforced(version=one.version))


def _on_agent_started(state: Sources, observed: Observed) -> Iterable[Decision]:
    """Follow what an agent says of the epochs that it ended, and find the one that it does not know any more."""
    event, recorded_at = observed.event, time_of_ns(observed.recorded_ns)
    started = with_payload(event).data
    assert isinstance(started, NodeAgentStarted), "it has this type"
    rules = EndRules(observed.rules[Rule.EPOCH_ENDS].version, Rule.BOUNDS in observed.rules)
    for one in started.ended:
        found = end_epoch(state, event, one, recorded_at, rules) if one.epoch != event.epoch else None
        if found is not None:
            yield _of_epoch("ended", observed, found)
    lost = unexplained_end(state, event, frozenset(one.epoch for one in started.ended), rules)
    if lost is not None:
        yield _of_epoch("unexplained", observed, lost)


def _of_epoch(word: str, observed: Observed, data: GapChange) -> Decision:
    """A decision about an epoch; one event may lead to several of them."""
    event = observed.event
    cause = f"{word}/{event.source}/{data.epoch}/{data.first}/{event.id}"
    return Decision(cause, event.id, event.source, time_of_ns(observed.recorded_ns), data)


def _gap(missing: Missing, now: datetime) -> Decision:
    data = SourceGapDetected(epoch=missing.epoch, first=missing.first, last=missing.last)
    cause = f"missing/{missing.source}/{missing.epoch}/{missing.first}-{missing.last}"
    return Decision(cause, None, missing.source, now, data)
