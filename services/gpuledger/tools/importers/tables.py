"""Reads comma-separated values with a header: columns in any order, other columns ignored, fields optionally quoted.

A row that cannot be split is a reject; a quote that is never closed costs its own line and not the rest of the file.
"""

import csv
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple, TypeVar

from gpuledger.tools.importers.draft import Reject, reject
from gpuledger.tools.importers.errors import ImportFormatError, RowError
from gpuledger.tools.importers.fields import shown
from gpuledger.tools.importers.lines import Line, LineFile

LINES_PER_RECORD_MAX = 16
"""The most lines that a quoted field may span."""

R = TypeVar("R")

_NOT_CLOSED = "unexpected end of data"


class Record(NamedTuple):
    """One row, split; `line` is the line that it begins in."""

    line: int
    text: str
    fields: Sequence[str]


class TableFile:
    """A file with a header, read once; `what` names the format in messages."""

    def __init__(self, path: Path, columns: tuple[str, ...], what: str) -> None:
        self._file = LineFile(path)
        self._columns = columns
        self._what = what

    @property
    def digest(self) -> str:
        """The file's SHA-256 in hex, once everything has been read."""
        return self._file.digest

    def rows(self, parse: Callable[[int, Sequence[str]], R]) -> Iterator[R | Reject]:
        """The result of `parse` for every row, called with its line number and its fields in the order of the format.

        Raises:
            ImportFileError: the file cannot be read.
            ImportFormatError: the header lacks columns.
        """
        for record in self._records():
            if isinstance(record, Reject):
                yield record
                continue
            try:
                yield parse(record.line, record.fields)
            except RowError as error:
                yield reject(self._file.name, record.line, str(error), record.text)

    def _records(self) -> Iterator[Record | Reject]:
        records = _split(self._file.name, self._file.lines())
        header = next(records, None)
        names = self._names(header)
        pick = itemgetter(*map(names.index, self._columns))
        for record in records:
            if isinstance(record, Reject) or len(record.fields) == len(names):
                yield record if isinstance(record, Reject) else record._replace(fields=pick(record.fields))
            else:
                reason = f"the row has {len(record.fields)} columns, the header {len(names)}"
                yield reject(self._file.name, record.line, reason, record.text)

    def _names(self, header: Record | Reject | None) -> list[str]:
        if header is None:
            raise self._not_this_format("The file is empty")
        if isinstance(header, Reject):
            raise self._not_this_format(f"In line {header.line} {header.reason}")
        names = [field.strip() for field in header.fields]
        if missing := [column for column in self._columns if column not in names]:
            raise self._not_this_format(f"{', '.join(missing)} missing in line {header.line}, {shown(header.text)}")
        if repeated := [column for column in self._columns if names.count(column) > 1]:
            raise self._not_this_format(f"{', '.join(repeated)} more than once in line {header.line}")
        return names

    def _not_this_format(self, found: str) -> ImportFormatError:
        return ImportFormatError(
            f"{self._file.name} is not {self._what}, whose header is `{','.join(self._columns)}`. {found}."
        )


def _split(file: str, lines: Iterator[Line | Reject]) -> Iterator[Record | Reject]:
    waiting: deque[Line | Reject] = deque()
    while (line := _following(waiting, lines)) is not None:
        if isinstance(line, Reject):
            yield line
        elif line.text.strip():
            yield _record(file, line, waiting, lines)


def _record(file: str, first: Line, waiting: deque[Line | Reject], lines: Iterator[Line | Reject]) -> Record | Reject:
    """The record that begins with `first`; lines read in vain go back to `waiting`."""
    taken = [first]
    while True:
        try:
            return _fields(taken)
        except csv.Error as error:
            problem = str(error)
        may_go_on = problem == _NOT_CLOSED and len(taken) < LINES_PER_RECORD_MAX
        line = _following(waiting, lines) if may_go_on else None
        if not isinstance(line, Line):
            break
        taken.append(line)
    if line is not None:
        waiting.appendleft(line)
    waiting.extendleft(reversed(taken[1:]))
    reason = "a quote is not closed" if problem == _NOT_CLOSED else f"the row cannot be split: {problem}"
    return reject(file, first.number, reason, first.text)


def _following(waiting: deque[Line | Reject], lines: Iterator[Line | Reject]) -> Line | Reject | None:
    return waiting.popleft() if waiting else next(lines, None)


def _fields(lines: list[Line]) -> Record:
    [fields] = csv.reader([line.text + "\n" for line in lines], strict=True)
    return Record(lines[0].number, "\n".join(line.text for line in lines), fields)
