"""Checks that failed, as people read of them at their pod. Pure."""

from datetime import datetime
from typing import Final, NamedTuple

from gpuledger.domain.fact import Fact
from gpuledger.events.preflight import PodPreflightObserved, PreflightCheck

FAILED: Final = "failed"


class CheckFailure(NamedTuple):
    """A check of a pod that failed; `pod` is `<namespace>/<name>`."""

    pod: str
    uid: str
    check: str
    note: str
    failed_at: datetime
    recorded_ns: int


def failures_of(fact: Fact, data: PodPreflightObserved) -> list[CheckFailure]:
    """The checks of a pod that have failed, as far as the fact says."""
    event = fact.event
    return [
        CheckFailure(event.subject, data.uid, one.name, note_of(one), event.time, fact.recorded_ns)
        for one in data.checks
        if has_failed(one)
    ]


def has_failed(check: PreflightCheck) -> bool:
    """Whether it ended otherwise than well; a failure that is only to be stored ends with 0, and its result says so."""
    if check.state != "ended":
        return False
    return bool(check.exit_code) or (check.result is not None and check.result.outcome == FAILED)


def note_of(check: PreflightCheck) -> str:
    """What happened, in one line: the check, how it ended, and what it says itself."""
    how = "without an exit code" if check.exit_code is None else f"with exit code {check.exit_code}"
    result = check.result
    codes = f" ({', '.join(result.codes)})" if result is not None and result.codes else ""
    message = result.message if result is not None and result.message else check.reason or ""
    return f"The preflight check {check.name} ended {how}{codes}{': ' if message else ''}{message}"
