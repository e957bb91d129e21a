"""What a row becomes: drafts of events, still without numbers, or a reject. Values only: nothing here does I/O."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

import orjson

from gpuledger.events.payload import Payload

REJECT_TEXT_LENGTH_MAX = 4096


class Draft(NamedTuple):
    """An event to be. Drafts are published in the order of `time`, `rank`, `line` and `kind`.

    `rank` orders what happened at one moment, `line` (1 is the file's first) and `kind` name what it was read from:
    no two drafts of an import share both.
    """

    time: datetime
    rank: int
    line: int
    kind: str
    subject: str
    data: Payload


class Reject(NamedTuple):
    """A row that cannot be imported, as it stands in the file, and why."""

    file: str
    line: int
    reason: str
    text: str

    def to_json(self) -> bytes:
        """The reject as one line of JSON, without its line end."""
        return orjson.dumps(self._asdict())


Read = Sequence[Draft] | Reject
"""What became of one row; an empty sequence where a first look gives nothing yet."""


class Reading(Protocol):
    """A file being read in one format; `epoch` and `end` are known when `read` is exhausted."""

    @property
    def source(self) -> str:
        """The source that the events are recorded under."""
        ...

    @property
    def epoch(self) -> str:
        """A digest of everything that decides which events come out."""
        ...

    @property
    def end(self) -> datetime | None:
        """The end of the data: the greatest time in it; None where no row could be taken."""
        ...

    def read(self) -> Iterator[Read]:
        """Row by row, so that the caller may take a break between rows.

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
