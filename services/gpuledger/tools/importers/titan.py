"""Imports Titan's GPU lives (Ostrouchov et al., SC20): a row is one life of a GPU in a place, or only a failure of it.

A place is a node with one GPU, so slot and node have the same name. A life that was not taken `out` and ends with the
data set is still in service. It ignores `duration`, which was computed from local times and differs by daylight saving.
It never repairs rows: a row that contradicts another is recorded as it is.
"""

import hashlib
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from gpuledger.events.device import DeviceFailed, DeviceInserted, DeviceRemoved
from gpuledger.events.slot import SlotDeclared
from gpuledger.tools.importers import fields
from gpuledger.tools.importers.draft import Draft, Read, Reject
from gpuledger.tools.importers.errors import ImportFileError, RowError
from gpuledger.tools.importers.tables import TableFile

SOURCE = "/import/titan"
FORMAT = "titan/1"
"""Must increase whenever the same file would yield other events, because their numbers would change."""

COLUMNS = ("SN", "location", "insert", "remove", "duration", "out", "event")
EVENTS = ("DBE", "OTB")

_DECLARED, _REMOVED, _FAILED, _INSERTED, _REMOVED_AT_ONCE = range(5)


class Row(NamedTuple):
    """A checked row; without `insert` it is only a failure, at `remove`."""

    line: int
    serial: str
    location: str
    insert: datetime | None
    remove: datetime
    retired: bool
    event: str | None


class FirstPass(NamedTuple):
    """Facts about the whole file that the first row needs: memory grows with the locations, not with the rows."""

    end: datetime | None
    first_lives: dict[str, tuple[datetime, int]]
    """By location, the time and line of its first life, which declares it."""


def parse(line: int, row: Sequence[str]) -> Row:
    """The row, checked.

    Raises:
        RowError: a field is invalid; the message says which and why.
    """
    serial, location, insert, remove, _duration, out, event = row
    if event and event not in EVENTS:
        raise RowError(f"the event {fields.shown(event)} is unknown; known are {' and '.join(EVENTS)}")
    if insert and out not in ("TRUE", "FALSE"):
        raise RowError(f"out is neither TRUE nor FALSE: {fields.shown(out)}")
    if not insert and not event:
        raise RowError("the row has neither an insert time nor an event")
    began = fields.moment(insert, "insert") if insert else None
    ended = fields.moment(remove, "remove")
    if began is not None:
        fields.in_order(began, "insert", ended, "remove")
    names = fields.name(serial, "SN"), fields.name(location, "location")
    return Row(line, *names, began, ended, out == "TRUE", event or None)


def drafts_of(row: Row, first_pass: FirstPass) -> list[Draft]:
    """The events of a row."""
    drafts = [] if row.insert is None else _life(row, row.insert, first_pass)
    if row.event is not None:
        failure = DeviceFailed(kind=row.event, slot=row.location)
        drafts.append(Draft(row.remove, _FAILED, row.line, "device.failed", row.serial, failure))
    return drafts


def _life(row: Row, began: datetime, first_pass: FirstPass) -> list[Draft]:
    insertion = DeviceInserted(slot=row.location, serial=row.serial)
    drafts = [Draft(began, _INSERTED, row.line, "device.inserted", row.serial, insertion)]
    if first_pass.first_lives[row.location] == (began, row.line):
        place = SlotDeclared(node=row.location, index=0)
        drafts.append(Draft(began, _DECLARED, row.line, "slot.declared", row.location, place))
    if row.retired or row.remove != first_pass.end:
        removal = DeviceRemoved(slot=row.location, retired=row.retired)
        rank = _REMOVED_AT_ONCE if row.remove == began else _REMOVED
        drafts.append(Draft(row.remove, rank, row.line, "device.removed", row.serial, removal))
    return drafts


class TitanReading:
    """A file in Titan's format, read twice: first to find the end of the data, then for the events."""

    source = SOURCE

    def __init__(self, path: Path) -> None:
        self.epoch = ""
        self.end: datetime | None = None
        self._path = path

    def read(self) -> Iterator[Read]:
        """See `gpuledger.tools.importers.draft.Reading.read`."""
        first, first_pass = self._open(), FirstPass(None, {})
        for row in first.rows(parse):
            if isinstance(row, Row):
                first_pass = extended(first_pass, row)
            yield ()
        second = self._open()
        for row in second.rows(parse):
            yield row if isinstance(row, Reject) else drafts_of(row, first_pass)
        if first.digest != second.digest:
            raise ImportFileError(f"{self._path} changed while it was read; nothing was imported. Import it again.")
        self.epoch = hashlib.sha256(f"{FORMAT}\n{second.digest}".encode()).hexdigest()
        self.end = first_pass.end

    def _open(self) -> TableFile:
        return TableFile(self._path, COLUMNS, "a file in Titan's format")


def extended(first_pass: FirstPass, row: Row) -> FirstPass:
    """The first pass extended by one row."""
    if row.insert is not None:
        life = (row.insert, row.line)
        first_pass.first_lives[row.location] = min(life, first_pass.first_lives.get(row.location, life))
    return (
        first_pass
        if first_pass.end is not None and row.remove <= first_pass.end
        else first_pass._replace(end=row.remove)
    )
