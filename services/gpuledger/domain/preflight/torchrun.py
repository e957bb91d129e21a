"""Reads the report that torchrun prints when a worker failed, of PyTorch 1.9 to 2.x. Pure.

torchrun itself always ends with 1, so the worker's own exit code stands only here. It numbers the failures by time: the
root cause is `[0]`, printed last, and a report that is cut has lost it.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from gpuledger.domain.preflight.text import cleaned, message_of

FAILURES_MAX: Final = 4096
"""The most failures of a report that are read."""

_ENTRY: Final = re.compile(r"^\s*\[([0-9]{1,6})\]:\s*$")
_FIELD: Final = re.compile(r"^\s*(time|host|rank|exitcode|error_file|traceback|msg)\s*:\s?(.*)$")
_BORDER: Final = re.compile(r"^\s*[=*-]{10,}\s*$|^\s*(?:Root Cause|Other Failures|Failures)\b.*:\s*$")
_RANK: Final = re.compile(r"([0-9]{1,7})\s*\(local_rank: ([0-9]{1,7})\)")
_EXIT: Final = re.compile(r"(-?[0-9]{1,10})\s*\(pid: ([0-9]{1,10})\)(?:\s*\((SIG[A-Z0-9+]{1,12})\))?")
_SIGNALS: Final = {
    -4: "SIGILL",
    -6: "SIGABRT",
    -7: "SIGBUS",
    -8: "SIGFPE",
    -9: "SIGKILL",
    -11: "SIGSEGV",
    -15: "SIGTERM",
}


class WorkerFailure(NamedTuple):
    """A worker that failed. `exit_code` is negative for a signal; None is what the report does not have."""

    place: int
    rank: int | None
    local_rank: int | None
    host: str | None
    exit_code: int | None
    signal: str | None
    message: str
    """The last line of its traceback, where it recorded one, else what torchrun says in its place."""


class TorchrunReport(NamedTuple):
    """The failures of a report by their place; `root` is None where the report is cut before it."""

    failures: tuple[WorkerFailure, ...]

    @property
    def root(self) -> WorkerFailure | None:
        """The failure that was first, which torchrun calls the root cause."""
        return next((one for one in self.failures if one.place == 0), None)

    @property
    def earliest(self) -> WorkerFailure | None:
        """The root cause, or of a report that is cut the first failure that is left; None without any."""
        return min(self.failures, key=lambda one: one.place, default=None)


def parse(text: str) -> TorchrunReport:
    """The failures that torchrun reports in an output; none where it has no report."""
    lines = cleaned(text).splitlines()
    begins = [at for at, line in enumerate(lines) if _ENTRY.match(line)][:FAILURES_MAX]
    entries = (lines[begin:end] for begin, end in pairwise([*begins, len(lines)]))
    return TorchrunReport(tuple(failure for entry in entries if (failure := _failure(entry)) is not None))


def _failure(lines: Sequence[str]) -> WorkerFailure | None:
    """The failure that an entry is about; None where it has neither a rank nor an exit code."""
    fields = _fields(lines)
    rank, exit_code = _RANK.search(fields.get("rank", "")), _EXIT.search(fields.get("exitcode", ""))
    place = _ENTRY.match(lines[0])
    if place is None or (rank is None and exit_code is None):
        return None
    code = int(exit_code[1]) if exit_code is not None else None
    return WorkerFailure(
        place=int(place[1]),
        rank=int(rank[1]) if rank is not None else None,
        local_rank=int(rank[2]) if rank is not None else None,
        host=message_of(fields["host"]) if "host" in fields else None,
        exit_code=code,
        signal=(exit_code[3] if exit_code is not None else None) or _SIGNALS.get(code or 0),
        message=message_of(fields.get("traceback") or fields.get("msg", "")),
    )


def _fields(lines: Sequence[str]) -> dict[str, str]:
    """The fields of an entry; of one with several lines the last, which has an exception's message."""
    fields: dict[str, str] = {}
    name = ""
    for line in lines[1:]:
        if _BORDER.match(line):
            break
        if name != "traceback" and (field := _FIELD.match(line)) is not None:
            name = field[1]
            fields[name] = field[2]
        elif line.strip() and name:
            fields[name] = line
    return fields
