"""Reads a file line by line in bounded memory, and computes its digest meanwhile.

A line that is not text, or too long, is a reject and never the end of the import.
"""

import hashlib
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from gpuledger.tools.importers.draft import REJECT_TEXT_LENGTH_MAX, Reject, reject
from gpuledger.tools.importers.errors import ImportFileError

LINE_BYTES_MAX = 512 * 1024
"""Keeps the events of a line within a message of 1 MiB, the server's default limit."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Line(NamedTuple):
    """One line of a file, without its end; `number` is 1 for the first."""

    number: int
    text: str


class LineFile:
    """A file, read once from its beginning; `digest` (SHA-256, hex) is complete when `lines` is exhausted."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path
        self._digest = hashlib.sha256()

    @property
    def digest(self) -> str:
        """The digest of the lines read so far."""
        return self._digest.hexdigest()

    def lines(self) -> Iterator[Line | Reject]:
        """Every line.

        Raises:
            ImportFileError: the file cannot be read, or is not a regular file.
        """
        try:
            self._check()
            with self._path.open("rb") as file:
                yield from self._lines(file)
        except OSError as error:
            raise ImportFileError(f"{self.name} cannot be read: {error.strerror or error}. Check the path.") from error

    def _check(self) -> None:
        if not stat.S_ISREG(self._path.stat().st_mode):
            raise ImportFileError(f"{self.name} is not a regular file. Save its output to a file and import that.")

    def _lines(self, file: BinaryIO) -> Iterator[Line | Reject]:
        number = 0
        while raw := file.readline(LINE_BYTES_MAX + 1):
            self._digest.update(raw)
            number += 1
            if number == 1:
                raw = raw.removeprefix(_BYTE_ORDER_MARK)
            if len(raw) > LINE_BYTES_MAX:
                self._skip_rest(file, raw)
                yield self._reject(number, f"the line has more than {LINE_BYTES_MAX} bytes", raw)
            else:
                yield self._decoded(number, raw)

    def _skip_rest(self, file: BinaryIO, raw: bytes) -> None:
        while raw and not raw.endswith(b"\n"):
            raw = file.readline(LINE_BYTES_MAX)
            self._digest.update(raw)

    def _decoded(self, number: int, raw: bytes) -> Line | Reject:
        raw = raw.removesuffix(b"\n").removesuffix(b"\r")
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            return self._reject(number, f"byte {error.start + 1} of the line is not UTF-8", raw)
        if "\0" in text:
            return self._reject(number, "the line holds a NUL character", raw)
        return Line(number, text)

    def _reject(self, number: int, reason: str, raw: bytes) -> Reject:
        return reject(self.name, number, reason, raw[: 2 * REJECT_TEXT_LENGTH_MAX].decode(errors="backslashreplace"))
