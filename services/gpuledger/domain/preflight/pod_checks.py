"""How far the preflight checks of one pod are, and which of them keeps the pod from starting. Pure.

Checks run one after the other, and the next begins once the one before has ended with exit code 0. So the first check
without such an end decides, whatever its outcome is called.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from gpuledger.api.preflight import GANG_CHECKS, ExitCode
from gpuledger.domain.preflight.results_rows import GangState, Outcome, PreflightAttempt, PreflightGang, State


class Stage(StrEnum):
    """What the first check that has not passed does."""

    NOT_PLACED = "PodNotPlaced"
    """The pod has no node yet, so that checks are not what it waits for."""

    NOT_STARTED = "CheckNotStarted"
    RUNNING = "CheckRuns"
    WAITS_FOR_GANG = "CheckWaitsForGang"
    FAILED = "CheckFailed"
    MISCONFIGURED = "CheckMisconfigured"
    GANG_TIMED_OUT = "GangTimedOut"
    NOT_REPORTED = "CheckNotReported"
    OVER = "ChecksOver"
    """The pod ended before the check did."""

    PASSED = "ChecksPassed"


HOLD_UP_GANGS = frozenset({Stage.NOT_PLACED, Stage.NOT_STARTED, Stage.FAILED, Stage.MISCONFIGURED, Stage.NOT_REPORTED})
"""A pod at such a stage may be what the others of its gang wait for."""

_OF_OUTCOME: Mapping[str | None, Stage] = {
    Outcome.FAILED: Stage.FAILED,
    Outcome.CONFIG_ERROR: Stage.MISCONFIGURED,
    Outcome.GANG_TIMEOUT: Stage.GANG_TIMED_OUT,
}
"""Any other end that is no pass blames nothing: the check could not run or report."""


class PodChecks(NamedTuple):
    """The attempts of one pod, its gang, and the last attempts of the gang's other pods whose checks go on.

    `gang_timeouts` are by check how long it waits for its gang, as its container has it; a check that is not in there
    is one of gangs if it is one of ours.
    """

    attempts: tuple[PreflightAttempt, ...]
    gang: PreflightGang | None = None
    peers: tuple[PreflightAttempt, ...] = ()
    gang_timeouts: Mapping[str, timedelta] = {}

    @property
    def uid(self) -> str:
        """The UID of the pod."""
        return self.attempts[0].uid

    @property
    def latest(self) -> list[PreflightAttempt]:
        """The last attempt at each check, in the order of checks."""
        last: dict[str, PreflightAttempt] = {}
        for one in sorted(self.attempts, key=lambda one: one.attempt):
            last[one.check_name] = one
        return sorted(last.values(), key=lambda one: one.number)

    @property
    def present(self) -> PreflightAttempt | None:
        """The attempt that decides; None once all checks have passed."""
        return next((one for one in self.latest if not has_passed(one)), None)

    @property
    def stage(self) -> Stage:
        """What keeps the pod from starting."""
        one = self.present
        if one is None:
            return Stage.PASSED
        if one.state == State.ENDED:
            return _OF_OUTCOME.get(one.outcome, Stage.NOT_REPORTED)
        if one.over_at is not None:
            return Stage.OVER
        if one.state == State.RUNNING:
            return Stage.WAITS_FOR_GANG if self._waits_for_gang(one) else Stage.RUNNING
        return Stage.NOT_PLACED if one.node is None else Stage.NOT_STARTED

    @property
    def held_up_by(self) -> list["PodChecks"]:
        """The other pods of the gang that are not at its check, and may never come to it, by name."""
        pods: dict[str, list[PreflightAttempt]] = {}
        for one in self.peers:
            pods.setdefault(one.uid, []).append(one)
        found = [PodChecks(tuple(attempts)) for attempts in pods.values()]
        return sorted((one for one in found if one.stage in HOLD_UP_GANGS), key=lambda one: one.attempts[0].pod)

    def gives_up_at(self, attempt: PreflightAttempt) -> datetime | None:
        """When a check that runs gives its gang up; None where nothing says so."""
        timeout = self.gang_timeouts.get(attempt.check_name)
        return None if timeout is None or attempt.started_at is None else attempt.started_at + timeout

    def needs_gang(self, attempt: PreflightAttempt) -> bool:
        """Whether a check goes on only with the other pods of the gang at it."""
        return attempt.gang is not None and attempt.check_name in (self.gang_timeouts or GANG_CHECKS)

    def _waits_for_gang(self, running: PreflightAttempt) -> bool:
        is_complete = self.gang is not None and self.gang.state == GangState.COMPLETE
        return self.needs_gang(running) and not is_complete


def has_passed(one: PreflightAttempt) -> bool:
    """Whether an attempt lets the next container start: by its exit code, else by its outcome."""
    if one.state != State.ENDED:
        return False
    if one.exit_code is None:
        return one.outcome in (Outcome.PASSED, Outcome.SKIPPED)
    return one.exit_code == ExitCode.PASSED


def not_carried_out(attempts: Iterable[PreflightAttempt]) -> list[PreflightAttempt]:
    """The attempts that let the pod start though their check did not run."""
    return [one for one in attempts if has_passed(one) and one.outcome == Outcome.NOT_REPORTED]
