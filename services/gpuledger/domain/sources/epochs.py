"""Folds the ends of epochs: what a source lost with an epoch that it does not continue. Pure.

A reader notices a lost number only by a later one of the same epoch, so it never misses an epoch's last events. The
source knows where the epoch ended, if it did not lose that as well, and says so when it announces the next one.
"""

from datetime import datetime
from typing import Final, NamedTuple

from gpuledger.domain.sources.fold import Source, Sources, begin_epoch
from gpuledger.domain.sources.limits import is_over_limits
from gpuledger.domain.sources.missing import Gap, Missing
from gpuledger.events.envelope import Undecoded
from gpuledger.events.node import EndedEpoch
from gpuledger.events.payload import BIGINT_MAX
from gpuledger.events.source import SourceGapClosed, SourceGapDetected

EARLY_ENDS_SINCE: Final = 2
"""The version of `Rule.EPOCH_ENDS` from which on an end before the last recorded number leaves a gap."""

GapChange = SourceGapDetected | SourceGapClosed


class EndRules(NamedTuple):
    """What is enforced where a source announces ends: the version of `Rule.EPOCH_ENDS`, and whether `Rule.BOUNDS` is.

    Within bounds, ends leave no more ranges of missing numbers than may be missing, and an epoch has one gap of unknown
    length.
    """

    version: int
    bounded: bool


def end_epoch(
    state: Sources, event: Undecoded, ended: EndedEpoch, recorded_at: datetime, rules: EndRules
) -> GapChange | None:
    """Note that an epoch of the event's source ended with a number; what the log lacks up to it is missing.

    Returns the gap of unknown length that this closes, if nothing is missing after all, or the one that it opens.
    """
    source, epoch, last = event.source, ended.epoch, ended.last
    row = state.source.get((source, epoch))
    last_number = 0 if row is None else row.last_number
    gap = _open_ended_gap(state, source, epoch, last_number + 1, rules)
    if last > last_number:
        row = row or begin_epoch(state, source, epoch, event.time, recorded_at)
        if not _miss(state, row, last, recorded_at, rules):
            return None
        if gap is not None and (source, epoch, gap.first) in state.missing.rows:
            return None  # It closes with the range that begins where it does.
    elif row is not None and last < last_number and rules.version >= EARLY_ENDS_SINCE:
        return _open_ended_gap_behind(state, row, rules) if row.events else None
    if gap is None or gap.closed_at is not None:
        return None
    return SourceGapClosed(epoch=gap.epoch, first=gap.first, last=gap.last)


def unexplained_end(
    state: Sources, event: Undecoded, ended: frozenset[str], rules: EndRules
) -> SourceGapDetected | None:
    """The gap of unknown length behind the source's epoch before that of an event, if the source named no end of it.

    None also where that was found before, or no number can follow its last one.
    """
    rows = [row for row in state.source.where("source", event.source) if row.events and row.epoch != event.epoch]
    latest = max(rows, key=_when_recorded, default=None)
    return None if latest is None or latest.epoch in ended else _open_ended_gap_behind(state, latest, rules)


def begins(row: Source | None, *, bounded: bool) -> bool:
    """Whether an event is the first of its epoch, by the row before it; within bounds also where it was only named."""
    return row is None or (bounded and not row.events)


def _miss(state: Sources, row: Source, last: int, recorded_at: datetime, rules: EndRules) -> bool:
    """Note that numbers up to `last` are missing; within bounds, if there is room for one more range.

    Whether a range is a gap plays no part: the leader that detects the gap folds it before it stands in the log.

    Returns whether there was room.
    """
    index, first, lacking = state.missing_index, row.last_number + 1, last - row.last_number
    if rules.bounded and not index.has_room(row.source, row.epoch):
        return False
    missing = Missing(row.source, row.epoch, first, last, recorded_at, lacking)
    index.add(missing)
    state.missing.put(missing)
    state.source.put(row._replace(last_number=last, missing=row.missing + lacking))
    return True


def _open_ended_gap_behind(state: Sources, row: Source, rules: EndRules) -> SourceGapDetected | None:
    first = row.last_number + 1
    if row.last_number >= BIGINT_MAX or _open_ended_gap(state, row.source, row.epoch, first, rules) is not None:
        return None
    if rules.bounded and is_over_limits(state.source_hour.get(row.source)):
        return None
    return SourceGapDetected(epoch=row.epoch, first=first, last=first, unknown_length=True)


def _open_ended_gap(state: Sources, source: str, epoch: str, first: int, rules: EndRules) -> Gap | None:
    """The gap of unknown length from a number on; within bounds the epoch's, which covers what follows it."""
    if rules.bounded:
        first = state.open_ended_gaps.get((source, epoch), first)
    gap = state.gap.get((source, epoch, first))
    return gap if gap is not None and gap.unknown_length else None


def _when_recorded(row: Source) -> tuple[datetime, datetime, str]:
    return (row.last_recorded_at, row.first_recorded_at, row.epoch)
