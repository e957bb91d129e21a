"""Imports the user's own events, one JSON object a line: `type`, `subject`, `time` (RFC 3339) and `data`.

It ignores other attributes: the import has its own source, epoch and numbers, in the order of the times. It accepts
only types that importers publish: nobody can bring in decisions of gpuledger's services from outside.
"""

import hashlib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import orjson

from gpuledger.events.catalogue import registry
from gpuledger.events.envelope import SPEC_VERSION, Decoded, parse, with_payload
from gpuledger.events.errors import EventError
from gpuledger.events.publishing import SourceKind
from gpuledger.events.source import SourceCompleted
from gpuledger.tools.importers import fields
from gpuledger.tools.importers.draft import Draft, Read, reject
from gpuledger.tools.importers.errors import RowError
from gpuledger.tools.importers.lines import Line, LineFile

SOURCE = "/import/jsonl"
FORMAT = "jsonl/1"
"""Must increase whenever the same file would yield other events, because their numbers would change."""

ATTRIBUTES = ("type", "subject", "time", "data")

_ENVELOPE = {"specversion": SPEC_VERSION, "id": "draft", "source": SOURCE, "sourceepoch": "draft", "sourceseq": 1}


def draft_of(line: int, text: str) -> Draft:
    """The event of a line.

    Raises:
        RowError: the line is no event that can be imported; the message says why.
    """
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise RowError(f"the line is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise RowError("the line is not a JSON object")
    if missing := [name for name in ATTRIBUTES if name not in document]:
        raise RowError(f"{' and '.join(missing)} missing")
    event = _checked({name: document[name] for name in ATTRIBUTES})
    publishers = event.data.PUBLISH_RULE.publishers
    if SourceKind.IMPORTERS not in publishers:
        raise RowError(f"{event.type} is published by {', '.join(publishers)} and cannot be imported")
    if isinstance(event.data, SourceCompleted):
        raise RowError(f"the import itself records {event.type}")
    return Draft(event.time, 0, line, event.data.TYPE, fields.name(event.subject, "subject"), event.data)


def _checked(attributes: dict[str, object]) -> Decoded:
    try:
        return with_payload(parse(orjson.dumps(_ENVELOPE | attributes)), registry)
    except orjson.JSONEncodeError as error:
        raise RowError(f"the line cannot be stored as JSON: {error}") from error
    except EventError as error:
        raise RowError(str(error).removesuffix(".")) from error


class JsonLinesReading:
    """A file of events, read once."""

    source = SOURCE

    def __init__(self, path: Path) -> None:
        self.epoch = ""
        self.end: datetime | None = None
        self._file = LineFile(path)

    def read(self) -> Iterator[Read]:
        """See `gpuledger.tools.importers.draft.Reading.read`."""
        for line in self._file.lines():
            yield self._read(line) if isinstance(line, Line) else line
        self.epoch = hashlib.sha256(f"{FORMAT}\n{self._file.digest}".encode()).hexdigest()

    def _read(self, line: Line) -> Read:
        if not line.text.strip():
            return ()
        try:
            draft = draft_of(line.number, line.text)
        except RowError as error:
            return reject(self._file.name, line.number, str(error), line.text)
        self.end = max(draft.time, self.end or draft.time)
        return (draft,)
