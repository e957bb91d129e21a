"""Folds the ends of epochs: what a source lost with an epoch that it does not continue. Pure.

A reader notices a lost number only by a later one of the same epoch, so it never misses an epoch's last events. The
source knows where the epoch ended, if it did not lose that as well, and says so when it announces the next one.
"""

from datetime import datetime

from gpuledger.domain.sources.fold import Source, Sources, begin_epoch
from gpuledger.domain.sources.missing import Gap, Missing
from gpuledger.events.envelope import Undecoded
from gpuledger.events.payload import BIGINT_MAX


def end_epoch(state: Sources, event: Undecoded, epoch: str, last: int, recorded_at: datetime) -> Gap | None:
    """Note that an epoch of the event's source ended with a number; what the log lacks up to it is missing.

    Returns the gap of unknown length that this closes, if nothing is missing after all.
    """
    source = event.source
    row = state.source.get((source, epoch))
    last_number = 0 if row is None else row.last_number
    if last <= last_number:
        gap = state.gap.get((source, epoch, last_number + 1))
        return gap if gap is not None and gap.unknown_length and gap.closed_at is None else None
    row = row or begin_epoch(state, source, epoch, event.time, recorded_at)
    lacking = last - row.last_number
    missing = Missing(source, epoch, row.last_number + 1, last, recorded_at, lacking)
    state.missing_index.add(missing)
    state.missing.put(missing)
    state.source.put(row._replace(last_number=last, missing=row.missing + lacking))
    return None


def unexplained_end(state: Sources, event: Undecoded, ended: frozenset[str]) -> Source | None:
    """The source's epoch before that of an event, if its end is not among those that the source named.

    None also where that was found before, or no number can follow its last one.
    """
    rows = [row for row in state.source.where("source", event.source) if row.events and row.epoch != event.epoch]
    latest = max(rows, key=_when_recorded, default=None)
    if latest is None or latest.epoch in ended or latest.last_number >= BIGINT_MAX:
        return None
    is_known = (latest.source, latest.epoch, latest.last_number + 1) in state.gap.rows
    return None if is_known else latest


def _when_recorded(row: Source) -> tuple[datetime, datetime, str]:
    return (row.last_recorded_at, row.first_recorded_at, row.epoch)
