"""The archive that `log export` writes and `log import` reads: JSON lines that prove that they are complete.

    {"format": "gpuledger-log", "version": 1, "generation": 1, "events": 2, "exported_at": "..."}
    {"position": 1, "recorded_ns": 17..., "subject": "ledger...", "event": {...}}
    {"position": 2, "recorded_ns": 17..., "subject": "ledger...", "base64": "..."}
    {"end": true, "events": 2, "sha256": "..."}

The digest is of all bytes before the last line. A message is `event` where that line gives back its very bytes, and
`base64` otherwise. Memory does not grow with the file. Nothing here may accept a file that lacks even one byte.
"""

import base64
import binascii
import gzip
import hashlib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import orjson

from gpuledger.events.position import ORIGIN, Generations, Offset, events_up_to, is_after, number_of
from gpuledger.ledger.api import Ledger, Message
from gpuledger.tools.errors import ToolError
from gpuledger.tools.reporting import Reporter

FORMAT = "gpuledger-log"
VERSION = 1
LINE_BYTES_MAX = 64 * 1024 * 1024
PART = ".part"
"""The suffix of a file that is not complete yet."""


class Header(NamedTuple):
    """The generation of the events and how many there are, as the first line has them, and the digest at the end.

    `begun` names the generations of a log that has several, each with the place behind which it begins.
    """

    generation: int
    events: int
    sha256: str = ""
    begun: tuple[tuple[int, int], ...] = ()

    @property
    def generations(self) -> Generations:
        """The generations that the events are in."""
        return Generations(self.begun or [(self.generation, ORIGIN)])


class ArchiveWriter:
    """Writes an archive; without `finish` nobody accepts it."""

    def __init__(self, file: IO[bytes], header: Header, exported_at: str) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self._count = 0
        first = {"format": FORMAT, "version": VERSION, "generation": header.generation, "events": header.events}
        begun = {"begun": header.begun} if len(header.begun) > 1 else {}
        self._write(orjson.dumps(first | begun | {"exported_at": exported_at}, default=tuple))

    def add(self, message: Message) -> None:
        """Append a message."""
        line = {"position": number_of(message.sequence), "recorded_ns": message.recorded_ns, "subject": message.subject}
        self._write(orjson.dumps(line | _body(message.data)))
        self._count += 1

    def finish(self) -> None:
        """Write the last line."""
        last = {"end": True, "events": self._count, "sha256": self._digest.hexdigest()}
        self._file.write(orjson.dumps(last) + b"\n")
        self._file.flush()

    def _write(self, line: bytes) -> None:
        self._digest.update(line + b"\n")
        self._file.write(line + b"\n")


def _body(data: bytes) -> dict[str, object]:
    try:
        if orjson.dumps(orjson.loads(data)) == data:
            return {"event": orjson.Fragment(data)}
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        pass
    return {"base64": base64.b64encode(data).decode()}


@contextmanager
def opened(path: Path, mode: str) -> Iterator[IO[bytes]]:
    """The file, gzipped where its name ends in `.gz` (`.gz.part` as well).

    Raises:
        ToolError: it cannot be opened, read or written.
    """
    zipped = path.name.removesuffix(PART).endswith(".gz")
    try:
        with gzip.open(path, mode) if zipped else path.open(mode) as file:
            yield file  # type: ignore[misc] # both are binary files
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ToolError(f"{path} cannot be used: {reason}", "Name another file") from error


async def write_log(ledger: Ledger, file: IO[bytes], exported_at: str, reporter: Reporter) -> int:
    """Write the whole log; returns the number of events."""
    head = await ledger.head()
    events = events_up_to(head)
    begun = tuple((generation, number_of(behind)) for generation, behind in ledger.generations.begun)
    archive = ArchiveWriter(file, Header(ledger.generation, events, begun=begun), exported_at)
    with reporter.progress("Exporting", total=events, unit="events") as advance:
        async for batch in ledger.history(until=head):
            for one in batch:
                archive.add(one)
            advance(len(batch))
    archive.finish()
    return events


def read_header(path: Path) -> Header:
    """Read a whole archive and check it.

    Raises:
        ToolError: it is no archive, or damaged, or cut off.
    """
    with opened(path, "rb") as file:
        lines = _lines(path, file)
        header = _header(path, next(lines, b""))
        digest, before, count, last_position = hashlib.sha256(), b"", 0, ORIGIN
        file.seek(0)
        for line in _lines(path, file):
            if before:
                digest.update(before)
                if count:
                    last_position = _checked(path, count, before, last_position)
                count += 1
            before = line
        _check_end(path, before, count - 1, header, digest.hexdigest())
    return header._replace(sha256=digest.hexdigest())


def messages(path: Path) -> Iterator[Message]:
    """The messages of a verified archive."""
    with opened(path, "rb") as file:
        for number, line in enumerate(_lines(path, file)):
            document = _document(path, number, line)
            if number and "end" not in document:
                yield _message(path, number, document)


def _lines(path: Path, file: IO[bytes]) -> Iterator[bytes]:
    while line := file.readline(LINE_BYTES_MAX):
        if not line.endswith(b"\n"):
            raise _damaged(path, "its last line is cut off")
        yield line


def _header(path: Path, line: bytes) -> Header:
    document = _document(path, 0, line)
    if document.get("format") != FORMAT:
        raise ToolError(f"{path} is no archive of a log", "Name a file that `gpuledger log export` wrote")
    if document.get("version") != VERSION:
        version = document.get("version")
        raise ToolError(
            f"{path} has version {version!r}, this build reads {VERSION}", "Use the gpuledger that wrote it"
        )
    generation, events = document.get("generation"), document.get("events")
    if type(generation) is not int or type(events) is not int:
        raise _damaged(path, "its first line is incomplete")
    try:
        begun = tuple((int(number), int(behind)) for number, behind in document.get("begun") or ())
    except (TypeError, ValueError):
        raise _damaged(path, "its first line is incomplete") from None
    return Header(generation, events, begun=begun)


def _checked(path: Path, number: int, line: bytes, after: Offset) -> Offset:
    position = _message(path, number, _document(path, number, line)).sequence
    if not is_after(position, after):
        raise _damaged(path, f"line {number + 1} is out of order")
    return position


def _check_end(path: Path, line: bytes, count: int, header: Header, digest: str) -> None:
    end = _document(path, count + 1, line)
    if end.get("end") is not True:
        raise _damaged(path, "its end is missing")
    if end.get("sha256") != digest or not end.get("events") == header.events == count:
        raise _damaged(path, "its content is not what was written")


def _message(path: Path, number: int, document: dict[str, Any]) -> Message:
    try:
        data = orjson.dumps(document["event"]) if "event" in document else base64.b64decode(document["base64"])
        message = Message(document["subject"], data, document["position"], document["recorded_ns"])
    except (KeyError, TypeError, binascii.Error) as error:
        raise _damaged(path, f"line {number + 1} is incomplete") from error
    if not (type(message.subject) is str and type(message.sequence) is type(message.recorded_ns) is int):
        raise _damaged(path, f"line {number + 1} is incomplete")
    return message


def _document(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        document = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise _damaged(path, f"line {number + 1} is not JSON") from error
    if not isinstance(document, dict):
        raise _damaged(path, f"line {number + 1} is no JSON object")
    return document


def _damaged(path: Path, reason: str) -> ToolError:
    return ToolError(f"{path} is damaged: {reason}; nothing was imported", "Take another copy, or export again")
