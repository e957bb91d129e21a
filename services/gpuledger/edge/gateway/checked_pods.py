"""Which preflight checks of which pods may report at present, by what watchers recorded. Pure but for its state.

The token of a pod is in every container of it, so the token alone does not prove that a check reports. A check may
report while the ledger says that it runs in this very pod on this very node. The workload starts after all checks have
passed, and a check passes after its report has been taken: so once a report was taken that lets the check pass, only
that very report is taken from it, and the workload has nothing to report even before watchers have seen that it runs.

A check that failed is tried again, and watchers record nothing of that until it ends once more. So a failed end says
that the next attempt may be running.
"""

from collections import OrderedDict
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from gpuledger.api.preflight import ExitCode, check_container
from gpuledger.events.preflight import PodPreflightGone, PodPreflightObserved, PreflightCheck
from gpuledger.healthreports.errors import CheckUnconfirmedError, ReportDeniedError

PODS_MAX: Final = 16_384
"""How many pods with checks are kept; the one that was observed longest ago makes room."""

CLOSED_MAX: Final = 32_768
"""How many checks are kept that have reported."""

RUNNING_MAX: Final = timedelta(hours=2)
"""How long a check may run and still report, so that watchers that have stopped keep nobody's right to report."""


class CheckedPod(NamedTuple):
    """A pod with checks, by its name `<namespace>/<pod>` and UID, and its node."""

    name: str
    uid: str
    node: str


class CheckAttempt(NamedTuple):
    """One run of a pod's check."""

    uid: str
    check: str
    attempt: int


class CheckedPods:
    """The pods with checks that have not passed, and what their checks have reported."""

    def __init__(self) -> None:
        self._pods: OrderedDict[str, PodPreflightObserved] = OrderedDict()
        self._closed: OrderedDict[CheckAttempt, frozenset[str]] = OrderedDict()

    def observe(self, pod: str, data: PodPreflightObserved | PodPreflightGone) -> None:
        """Take what watchers have recorded of a pod."""
        self._pods.pop(pod, None)
        if isinstance(data, PodPreflightObserved):
            self._pods[pod] = data
            if len(self._pods) > PODS_MAX:
                self._pods.popitem(last=False)

    def reporting(self, pod: CheckedPod, now: datetime) -> dict[str, CheckAttempt]:
        """The checks of a pod that may report now, by the names of their containers.

        Raises:
            CheckUnconfirmedError: the ledger does not say yet that one runs.
            ReportDeniedError: all have passed, or the pod has ended.
        """
        data = self._pods.get(pod.name)
        if data is None or data.uid != pod.uid or data.node != pod.node:
            raise _unconfirmed(pod)
        if data.done or (data.checks and all(map(_has_passed, data.checks))):
            raise ReportDeniedError(
                f"The preflight checks of {pod.name} are over, and nothing else of it may report health."
            )
        found = {check_container(one.name): _attempt(pod.uid, one) for one in data.checks if _may_run(one, now)}
        if not found:
            raise _unconfirmed(pod)
        return found

    def refuse_after_result(self, attempt: CheckAttempt, digests: Collection[str]) -> None:
        """Refuse reports of a check that has reported already that it may pass, unless they are these again.

        Raises:
            ReportDeniedError: they are others.
        """
        closed = self._closed.get(attempt)
        if closed is not None and not closed.issuperset(digests):
            raise ReportDeniedError(
                f"{check_container(attempt.check)} has reported its result already, and may only send that again. A "
                "check reports all of its result in one request."
            )

    def close(self, attempt: CheckAttempt, digests: Collection[str]) -> None:
        """Note the reports by which a check has said that it may pass."""
        self._closed[attempt] = self._closed.pop(attempt, frozenset()) | frozenset(digests)
        if len(self._closed) > CLOSED_MAX:
            self._closed.popitem(last=False)

    def close_recorded(self, pod: str, container: str, digest: str, at: datetime) -> None:
        """Note a report of that kind and time that another replica has recorded, as far as the pod is known here."""
        data = self._pods.get(pod)
        for check in () if data is None else data.checks:
            if data is not None and check_container(check.name) == container:
                self.close(_attempt_at(data.uid, check, at), (digest,))


def _attempt(uid: str, check: PreflightCheck) -> CheckAttempt:
    """The run of a check that may report: behind a failed end the next one."""
    return CheckAttempt(uid, check.name, check.attempt + _has_failed(check))


def _attempt_at(uid: str, check: PreflightCheck, at: datetime) -> CheckAttempt:
    """The run of a check that reported at a time, which may be the one whose failed end is known already."""
    has_ended = _has_failed(check) and check.ended_at is not None and at <= check.ended_at
    return CheckAttempt(uid, check.name, check.attempt) if has_ended else _attempt(uid, check)


def _has_passed(check: PreflightCheck) -> bool:
    return check.state == "ended" and check.exit_code == ExitCode.PASSED


def _has_failed(check: PreflightCheck) -> bool:
    return check.state == "ended" and check.exit_code != ExitCode.PASSED


def _may_run(check: PreflightCheck, now: datetime) -> bool:
    """Whether a check runs, or is tried again because it failed."""
    since = (check.ended_at or check.started_at) if _has_failed(check) else check.started_at
    is_recent = since is not None and now - since <= RUNNING_MAX
    return is_recent and (check.state == "running" or _has_failed(check))


def _unconfirmed(pod: CheckedPod) -> CheckUnconfirmedError:
    return CheckUnconfirmedError(
        f"The ledger does not say yet that a preflight check runs in {pod.name} on {pod.node}; send the report again. "
        "Watchers record it within seconds, unless they are away, or the pod has no checks."
    )
