"""Decides for the `sources` service: which numbers are lost, which came late, and which events are rejected. Pure.

It follows the numbering of every source in the order of the log; only the time comes from outside.
"""

from collections.abc import Iterable
from datetime import datetime

from gpuledger.domain.fact import time_of_ns
from gpuledger.domain.sources.fold import Missing, Sources, follow, overdue, repeated
from gpuledger.events.source import SourceGapClosed, SourceGapDetected, SourceRejected
from gpuledger.projection.definition import Decision, Observed, RefusalKind, RefusedEvent

GAP_GRACE_S = 30.0
"""How long a number may be late before its absence is called a gap."""

GAPS_PER_ASK_MAX = 100
"""How many gaps are recorded at a time, the oldest first; the others follow at the next check."""

REASON_LENGTH_MAX = 1000
"""How much of a reason and of a subject is recorded. The server lets a subject hold NUL, which no table can store."""


def on_observed(state: Sources, observed: Observed) -> Iterable[Decision]:
    """Follow the numbering; a gap that was detected closes with its last number."""
    event = observed.event
    for filled in follow(state, event, observed.recorded_ns):
        if (filled.source, filled.epoch, filled.first) in state.gap.rows:
            data = SourceGapClosed(epoch=filled.epoch, first=filled.first, last=filled.last)
            yield Decision(event.id, event.correlation_id, filled.source, time_of_ns(observed.recorded_ns), data)


def on_refused(state: Sources, refusal: RefusedEvent) -> Iterable[Decision]:
    """Count a repeat; record the rejection of an event."""
    event = refusal.event
    if refusal.kind is RefusalKind.DUPLICATE:
        if event is not None:
            repeated(state, event.source, event.epoch)
        return
    if event is not None:
        yield from on_observed(state, Observed(event, refusal.position, refusal.recorded_ns))
    data = SourceRejected(
        generation=refusal.position.generation,
        sequence=refusal.position.sequence,
        nats_subject=refusal.nats_subject.replace("\0", "\\0")[:REASON_LENGTH_MAX],
        reason=refusal.reason[:REASON_LENGTH_MAX],
    )
    # A restored log has the same sequences in another generation, and brings this decision along.
    cause = f"rejected/{refusal.position.sequence}"
    yield Decision(cause, None, "log", time_of_ns(refusal.recorded_ns), data)


def on_due(state: Sources, now: datetime) -> Iterable[Decision]:
    """Record ranges as gaps that have been missing for too long."""
    for missing in overdue(state, now, GAP_GRACE_S, GAPS_PER_ASK_MAX):
        yield _gap(missing, now)


def _gap(missing: Missing, now: datetime) -> Decision:
    data = SourceGapDetected(epoch=missing.epoch, first=missing.first, last=missing.last)
    cause = f"missing/{missing.source}/{missing.epoch}/{missing.first}-{missing.last}"
    return Decision(cause, None, missing.source, now, data)
