"""Drafts of events, which have no numbers yet, and rejects: what importers turn rows into. Pure."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

import orjson

from gpuledger.events.payload import Payload

REJECT_TEXT_LENGTH_MAX = 4096


class Draft(NamedTuple):
    """An event to publish. Drafts are published in the order of `time`, `rank`, `line` and `kind`.

    `rank` orders events of the same moment; `line` (1 is the file's first) and `kind` identify where it was read: no
    two drafts of an import share both.
    """

    time: datetime
    rank: int
    line: int
    kind: str
    subject: str
    data: Payload


class Reject(NamedTuple):
    """A row that cannot be imported, as it is in the file, and why."""

    file: str
    line: int
    reason: str
    text: str

    def to_json(self) -> bytes:
        """The reject as one line of JSON, without its line end."""
        return orjson.dumps(self._asdict())


Read = Sequence[Draft] | Reject
"""The result of one row; an empty sequence if a first pass yields nothing yet."""


class Reading(Protocol):
    """A file being read in one format; `epoch` and `end` are complete when `read` is exhausted."""

    @property
    def source(self) -> str:
        """The source that the events are recorded under."""
        ...

    @property
    def epoch(self) -> str:
        """A digest of everything that determines the events."""
        ...

    @property
    def end(self) -> datetime | None:
        """The end of the data: the latest time in it; None if every row was rejected."""
        ...

    def read(self) -> Iterator[Read]:
        """Read row by row, so that the caller may pause between rows.

        Raises:
            ImportFileError: a file cannot be read, or changed meanwhile.
            ImportFormatError: a file is not in this format.
        """
        ...


def reject(file: str, line: int, reason: str, text: str) -> Reject:
    """A reject whose text is cut to its bound."""
    if len(text) > REJECT_TEXT_LENGTH_MAX:
        text = text[:REJECT_TEXT_LENGTH_MAX] + "…"
    return Reject(file, line, reason, text)
