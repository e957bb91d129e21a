"""Sorts drafts in bounded memory: it writes sorted runs to disk and merges them.

The temporary files have no name, so even a kill leaves nothing of them behind.
"""

import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from heapq import merge
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import orjson

from gpuledger.events.catalogue import registry
from gpuledger.tools.importers.draft import Draft
from gpuledger.tools.importers.errors import ImportFileError

RUN_DRAFTS_MAX = 50_000
RUNS_MAX = 64
"""How many files are open at once; more runs are first merged into one."""

_ZERO = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_ORDER = itemgetter(0, 1, 2, 3)

Packed = list[Any]
"""A draft as JSON values: microseconds since 1970, rank, line, kind, subject, type, data."""


class Sorter:
    """Takes drafts in any order and returns them sorted; a context manager."""

    def __init__(
        self, folder: Path | None = None, *, run_drafts_max: int = RUN_DRAFTS_MAX, runs_max: int = RUNS_MAX
    ) -> None:
        self.count = 0
        self._folder = folder
        self._run_drafts_max = run_drafts_max
        self._runs_max = max(runs_max, 2)
        self._run: list[Packed] = []
        self._files: list[IO[bytes]] = []

    def __enter__(self) -> "Sorter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for file in self._files:
            file.close()

    def add(self, draft: Draft) -> None:
        """Add one draft.

        Raises:
            ImportFileError: the temporary folder cannot be written.
        """
        self.count += 1
        self._run.append(_pack(draft))
        if len(self._run) >= self._run_drafts_max:
            self._spill()

    def merged(self) -> Iterator[Draft]:
        """Every draft, in order; can be called only once."""
        self._run.sort(key=_ORDER)
        yield from map(_unpack, merge(*map(_unspilled, self._files), self._run, key=_ORDER))

    def _spill(self) -> None:
        self._run.sort(key=_ORDER)
        self._files.append(self._written(iter(self._run)))
        self._run = []
        if len(self._files) >= self._runs_max:
            whole = self._written(merge(*map(_unspilled, self._files), key=_ORDER))
            for file in self._files:
                file.close()
            self._files = [whole]

    def _written(self, run: Iterator[Packed]) -> IO[bytes]:
        try:
            file = tempfile.TemporaryFile(dir=self._folder, prefix="gpuledger-import-")  # noqa: SIM115 - see __exit__
            try:
                file.writelines(orjson.dumps(packed, option=orjson.OPT_APPEND_NEWLINE) for packed in run)
                file.flush()
            except BaseException:
                file.close()
                raise
        except OSError as error:
            folder = self._folder or tempfile.gettempdir()
            raise ImportFileError(
                f"The temporary folder {folder} cannot be written: {error.strerror}. "
                "Make room, or set TMPDIR to another."
            ) from error
        return file


def _unspilled(file: IO[bytes]) -> Iterator[Packed]:
    file.seek(0)
    return map(orjson.loads, file)


def _pack(draft: Draft) -> Packed:
    data = draft.data.model_dump(mode="json", exclude_none=True)
    microseconds = (draft.time - _ZERO) // _MICROSECOND
    return [microseconds, draft.rank, draft.line, draft.kind, draft.subject, draft.data.TYPE, data]


def _unpack(packed: Packed) -> Draft:
    microseconds, rank, line, kind, subject, event_type, data = packed
    time = _ZERO + timedelta(microseconds=microseconds)
    return Draft(time, rank, line, kind, subject, registry.decode(event_type, data))
