"""Folds the numbering of every source: what each recorded, which numbers are missing, and which events are rejected.

Rows here depend on what happened only, never on how far behind a reader was: the live tables and a rebuild agree.
"""

from bisect import insort
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import islice, takewhile
from typing import NamedTuple

from gpuledger.domain.fact import Fact, Handlers, TableState, time_of_ns
from gpuledger.domain.sources.deduplication import EPOCHS_MAX, keeps_all_epochs
from gpuledger.domain.sources.leader_epochs import began
from gpuledger.domain.sources.limits import HOUR, SOURCE_HOUR, GapAllowance, Hours
from gpuledger.domain.sources.missing import Gap, Missing, MissingIndex
from gpuledger.domain.table import Table, TableSpec
from gpuledger.events.device import DeviceReportRejected
from gpuledger.events.envelope import Undecoded
from gpuledger.events.position import Offset
from gpuledger.events.source import (
    SourceCompleted,
    SourceGapClosed,
    SourceGapDetected,
    SourceLimited,
    SourceMessageIdTaken,
    SourceRejected,
)

NO_EPOCH = ""
"""The epoch of what concerns none: rejected events that could not be read, and that the source is over its limits."""


class Source(NamedTuple):
    """One epoch of a source, or of a decider all epochs of its leaders, but for those that lack numbers.

    `missing` counts the numbers below `last_number` that have not come, `taken` the events that were recorded a second
    time because another's message stood under their message id, and `unknown` those whose type was not known when they
    were recorded. `limited_at`, in the row `NO_EPOCH` alone, says when the source last went over its limits.
    """

    source: str
    epoch: str
    events: int
    duplicates: int
    last_number: int
    missing: int
    first_time: datetime
    last_time: datetime
    first_recorded_at: datetime
    last_recorded_at: datetime
    completed_at: datetime | None
    taken: int = 0
    rejected: int = 0
    unknown: int = 0
    limited_at: datetime | None = None


class Rejection(NamedTuple):
    """An event from the edge that was rejected: its position in the log, and why."""

    position: Offset
    generation: int
    nats_subject: str
    reason: str
    recorded_at: datetime


SOURCE = TableSpec("source", Source, ("source", "epoch"))
MISSING = TableSpec("missing", Missing, ("source", "epoch", "first"))
GAP = TableSpec("gap", Gap, ("source", "epoch", "first"))
REJECTION: TableSpec[Rejection] = TableSpec("rejection", Rejection, ("generation", "position"), retires=())
SPECS = (SOURCE, SOURCE_HOUR, MISSING, GAP, REJECTION)


class Sources(TableState):
    """The state of the sources projection."""

    def __init__(self) -> None:
        self.source = Table(SOURCE, "source")
        self.source_hour = Table(SOURCE_HOUR)
        self.missing = Table(MISSING)
        self.gap = Table(GAP, "epoch")
        self.rejection = Table(REJECTION)
        self.hours = Hours(self.source_hour)
        self.gap_allowance = GapAllowance()
        self._missing_index: MissingIndex | None = None
        self._epoch_index: EpochIndex | None = None
        self._open_ended_gaps: dict[tuple[str, str], int] | None = None

    @property
    def open_ended_gaps(self) -> dict[tuple[str, str], int]:
        """Where the last gap of unknown length of an epoch begins, by source and epoch; made at the first use."""
        if self._open_ended_gaps is None:
            gaps = sorted((gap for gap in self.gap.rows.values() if gap.unknown_length), key=_first)
            self._open_ended_gaps = {(gap.source, gap.epoch): gap.first for gap in gaps}
        return self._open_ended_gaps

    @property
    def missing_index(self) -> MissingIndex:
        """The missing ranges, indexed; made from the rows at the first use."""
        if self._missing_index is None:
            self._missing_index = MissingIndex(self.missing.rows.values(), self.gap.rows)
        return self._missing_index

    @property
    def epoch_index(self) -> "EpochIndex":
        """The epochs of each source in their order; made from the rows at the first use."""
        if self._epoch_index is None:
            self._epoch_index = EpochIndex(self.source.rows.values())
        return self._epoch_index


class EpochIndex:
    """The epochs of each source, in the order in which the log showed them first."""

    def __init__(self, rows: Iterable[Source]) -> None:
        self._epochs: dict[str, list[tuple[datetime, str]]] = {}
        for row in rows:
            if row.epoch != NO_EPOCH:
                self.add(row)

    def add(self, row: Source) -> None:
        """Add an epoch."""
        insort(self._epochs.setdefault(row.source, []), (row.first_recorded_at, row.epoch))

    def take_excess(self, newest: Source) -> str | None:
        """The oldest epoch but for the newest, which leaves the index if its source has too many."""
        epochs = self._epochs[newest.source]
        if len(epochs) <= EPOCHS_MAX:
            return None
        return epochs.pop(int(epochs[0][1] == newest.epoch))[1]


def follow(
    state: Sources, row: Source | None, event: Undecoded, recorded_at: datetime, *, is_known: bool = True
) -> Sequence[Missing]:
    """Follow a source's numbering with an event that is no repeat; returns the ranges that it completes.

    `row` is that of the event's epoch, if it has one.
    """
    row = row or begin_epoch(state, event.source, event.epoch, event.time, recorded_at)
    completed: Sequence[Missing] = ()
    skipped = event.number - row.last_number - 1
    if skipped > 0:
        noted = Missing(row.source, row.epoch, row.last_number + 1, event.number - 1, recorded_at, skipped)
        state.missing_index.add(noted)
        state.missing.put(noted)
    elif skipped < 0:
        skipped, completed = -1, _fill(state, row, event.number)
    state.source.put(_follow(row, event, recorded_at, skipped, not is_known))
    return completed


def repeated(state: Sources, source: str, epoch: str) -> None:
    """Count a repeat, unless the epoch is forgotten."""
    row = state.source.get((source, epoch))
    if row is not None:
        state.source.put(row._replace(duplicates=row.duplicates + 1))


def rejected(state: Sources, source: str, epoch: str, recorded_at: datetime) -> None:
    """Count a rejected event, which has been followed if its epoch could be read."""
    row = state.source.get((source, epoch)) or begin_epoch(state, source, epoch, recorded_at, recorded_at)
    state.source.put(row._replace(rejected=row.rejected + 1, last_recorded_at=recorded_at))


def overdue(state: Sources, now: datetime, grace_s: float, most: int) -> list[Missing]:
    """Ranges that have been missing for longer than `grace_s` seconds and are not known as gaps: the `most` oldest.

    Those of a source of which enough were returned within the hour are left out until the next one.
    """
    rows = state.missing.rows
    pending = (rows[key] for key in state.missing_index.pending())
    late = takewhile(lambda row: (now - row.noticed_at).total_seconds() > grace_s, pending)
    return list(islice(filter(lambda row: state.gap_allowance.take(row.source, now), late), most))


def begin_epoch(state: Sources, source: str, epoch: str, time: datetime, recorded_at: datetime) -> Source:
    """The row of an epoch that the log shows for the first time; the oldest one leaves where a source has too many.

    The epoch of the leader before it is counted in with the new one and leaves as well, unless numbers of it are
    missing: its row and its gaps say so.
    """
    row = Source(source, epoch, 0, 0, 0, 0, time, time, recorded_at, recorded_at, None)
    if epoch != NO_EPOCH and not keeps_all_epochs(source):
        state.epoch_index.add(row)
        oldest = state.epoch_index.take_excess(row)
        if oldest is not None:
            _forget(state, source, oldest)
    if began(source, epoch) is not None:
        for closed in [one for one in state.source.where("source", source) if not one.missing]:
            if began(source, closed.epoch) is not None:
                row = _counted_in(row, closed)
                _forget(state, source, closed.epoch)
    return row


def _counted_in(row: Source, closed: Source) -> Source:
    """The row of a leader's epoch, which counts what a leader before it recorded as well."""
    return row._replace(
        events=row.events + closed.events,
        duplicates=row.duplicates + closed.duplicates,
        first_time=min(row.first_time, closed.first_time),
        last_time=max(row.last_time, closed.last_time),
        first_recorded_at=min(row.first_recorded_at, closed.first_recorded_at),
        rejected=row.rejected + closed.rejected,
    )


def _forget(state: Sources, source: str, epoch: str) -> None:
    state.source.delete((source, epoch))
    for key in state.missing_index.of_epoch(source, epoch):
        state.missing_index.remove(state.missing.rows[key])
        state.missing.delete(key)
    for gap in state.gap.where("epoch", epoch):
        if gap.source == source:
            state.gap.delete((source, epoch, gap.first))
    state.open_ended_gaps.pop((source, epoch), None)


def _follow(row: Source, event: Undecoded, recorded_at: datetime, skipped: int, unknown: int) -> Source:
    # Every event of the log comes by here, so this is spelled out, without calls.
    source, epoch, events, duplicates, last_number, missing, first_time, last_time, *_ = row
    number, time = event.number, event.time
    if time > last_time:
        last_time = time
    elif time < first_time:
        first_time = time
    return Source._make(
        (
            source,
            epoch,
            events + 1,
            duplicates,
            max(last_number, number),
            missing + skipped,
            first_time,
            last_time,
            row.first_recorded_at,
            recorded_at,
            row.completed_at,
            row.taken,
            row.rejected,
            row.unknown + unknown,
            row.limited_at,
        )
    )


def _fill(state: Sources, source: Source, number: int) -> list[Missing]:
    key = state.missing_index.find(source.source, source.epoch, number)
    row = state.missing.get(key)
    if row is None or number > row.last:
        return []
    if row.left > 1:
        state.missing.put(row._replace(left=row.left - 1))
        return []
    state.missing.delete(key)
    state.missing_index.remove(row)
    return [row]


def _first(gap: Gap) -> int:
    return gap.first


def _completed(state: Sources, fact: Fact, _data: SourceCompleted) -> None:
    event = fact.event
    row = state.source.get((event.source, event.epoch))
    assert row is not None, "an event is followed before it is folded"
    ended = event.time if row.completed_at is None else max(row.completed_at, event.time)
    state.source.put(row._replace(completed_at=ended))


def _message_id_taken(state: Sources, fact: Fact, _data: SourceMessageIdTaken) -> None:
    row = state.source.get((fact.event.source, fact.event.epoch))
    assert row is not None, "an event is followed before it is folded"
    state.source.put(row._replace(taken=row.taken + 1))


def _gap_detected(state: Sources, fact: Fact, data: SourceGapDetected) -> None:
    key = (fact.event.subject, data.epoch, data.first)
    is_forgotten = key[:2] not in state.source.rows
    if state.gap.get(key) is None and not is_forgotten:
        state.gap.put(Gap(*key, data.last, fact.event.time, None, data.unknown_length))
        if data.unknown_length:
            state.open_ended_gaps[key[:2]] = data.first
    state.missing_index.mark_gap(key)


def _gap_closed(state: Sources, fact: Fact, data: SourceGapClosed) -> None:
    row = state.gap.get((fact.event.subject, data.epoch, data.first))
    if row is not None:
        state.gap.put(row._replace(closed_at=fact.event.time))


def _rejected(state: Sources, fact: Fact, data: SourceRejected) -> None:
    time = fact.event.time
    state.rejection.put(Rejection(data.sequence, data.generation, data.nats_subject, data.reason, time))


def _report_rejected(state: Sources, fact: Fact, data: DeviceReportRejected) -> None:
    """Count it; the last one of an hour says that the agent is over a limit."""
    source = f"/nodes/{data.node}/agent"
    row = state.source.get((source, data.epoch))
    if row is not None:
        state.source.put(row._replace(rejected=row.rejected + 1))
    if data.last_of_hour:
        time, hour = time_of_ns(fact.recorded_ns), state.source_hour.get(source)
        _mark_limited(state, source, None if hour is None or time - hour.hour >= HOUR else hour.hour, time)


def _limited(state: Sources, fact: Fact, data: SourceLimited) -> None:
    _mark_limited(state, fact.event.subject, data.hour, fact.event.time)


def _mark_limited(state: Sources, source: str, hour: datetime | None, time: datetime) -> None:
    """The source is over a limit of this hour, if that is not over yet."""
    row_of_hour = state.source_hour.get(source)
    if row_of_hour is not None and row_of_hour.hour == hour:
        state.source_hour.put(row_of_hour._replace(limited_at=time))
    row = state.source.get((source, NO_EPOCH)) or begin_epoch(state, source, NO_EPOCH, time, time)
    state.source.put(row._replace(limited_at=time))


HANDLERS: Handlers = {
    SourceCompleted: _completed,
    SourceGapDetected: _gap_detected,
    SourceGapClosed: _gap_closed,
    SourceRejected: _rejected,
    DeviceReportRejected: _report_rejected,
    SourceMessageIdTaken: _message_id_taken,
    SourceLimited: _limited,
}
