"""One thing that `doctor` looked at, and what came out."""

from enum import StrEnum
from typing import NamedTuple


class Status(StrEnum):
    """`failed` keeps gpuledger from working, `warning` wants to be known."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


class Check(NamedTuple):
    """`detail` says what was found and, unless all is well, what to do next."""

    check: str
    status: Status
    detail: str


def ok(check: str, detail: str) -> Check:
    """All is well."""
    return Check(check, Status.OK, detail)


def warning(check: str, detail: str) -> Check:
    """It works, and still somebody should know."""
    return Check(check, Status.WARNING, detail)


def failed(check: str, detail: str) -> Check:
    """It does not work."""
    return Check(check, Status.FAILED, detail)
