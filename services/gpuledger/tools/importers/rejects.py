"""Writes rejects to a file: one JSON object a line, {file, line, reason, text}."""

from pathlib import Path
from types import TracebackType
from typing import IO

from gpuledger.tools.importers.draft import Reject
from gpuledger.tools.importers.errors import ImportFileError


class RejectFile:
    """A file for rejects; a context manager to call with each reject.

    It replaces an existing file at the end, so that the file always holds all rejects of one import.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._beside = path.with_name(f"{path.name}.part")
        self._file: IO[bytes] | None = None

    def __enter__(self) -> "RejectFile":
        try:
            self._file = self._beside.open("wb")
        except OSError as error:
            raise self._unwritable(error) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._file is not None, "a reject file is closed once"
        try:
            self._file.close()
            if error is None:
                self._beside.replace(self._path)
            else:
                self._beside.unlink()
        except OSError as problem:
            raise self._unwritable(problem) from problem

    def __call__(self, reject: Reject) -> None:
        """Write one reject.

        Raises:
            ImportFileError: the file cannot be written.
        """
        assert self._file is not None, "rejects come within the context"
        try:
            self._file.write(reject.to_json() + b"\n")
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> ImportFileError:
        return ImportFileError(f"The rejects cannot be written to {self._path}: {error.strerror}. Name another file.")
