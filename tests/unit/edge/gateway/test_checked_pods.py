"""Which preflight checks may report over TCP, by what watchers have recorded of their pods."""

from datetime import timedelta
from typing import Any

import pytest

from gpuledger.api.preflight import ANNOTATION_INJECTED, LABEL_PREFLIGHT
from gpuledger.edge.gateway.checked_pods import RUNNING_MAX, CheckAttempt, CheckedPod, CheckedPods
from gpuledger.edge.watchers.resources import preflight_pods
from gpuledger.events.preflight import PodPreflightGone, PodPreflightObserved, PreflightCheck
from gpuledger.healthreports.errors import CheckUnconfirmedError, ReportDeniedError
from support.events import START

POD = CheckedPod("team-a/train-0", "u1", "n1")
FIRST = CheckAttempt("u1", "dcgm-diag", 0)


def check(name: str = "dcgm-diag", state: Any = "running", **fields: Any) -> PreflightCheck:
    return PreflightCheck(name=name, state=state, **{"started_at": START} | fields)


def observed(*checks: PreflightCheck, **fields: Any) -> CheckedPods:
    pods = CheckedPods()
    pods.observe(POD.name, PodPreflightObserved(**{"uid": "u1", "node": "n1", "checks": checks} | fields))
    return pods


def test_the_check_that_runs_may_report() -> None:
    pods = observed(check("a", "ended", exit_code=0), check(), check("b", "waiting", started_at=None))
    assert pods.reporting(POD, START) == {"preflight-dcgm-diag": FIRST}


@pytest.mark.parametrize(
    "pods",
    [
        CheckedPods(),
        observed(check(), uid="u2"),
        observed(check(), node="n2"),
        observed(check(), node=None),
        observed(check(state="waiting", started_at=None)),
        observed(check(state="ended", exit_code=1, started_at=None)),
        observed(check(state="ended", exit_code=1, ended_at=START - RUNNING_MAX - timedelta(seconds=1))),
        observed(check(started_at=START - RUNNING_MAX - timedelta(seconds=1))),
        observed(check(started_at=None)),
        observed(),
    ],
)
def test_what_the_ledger_does_not_have_yet_is_sent_again(pods: CheckedPods) -> None:
    with pytest.raises(CheckUnconfirmedError, match="does not say yet that a preflight check runs in team-a/train-0"):
        pods.reporting(POD, START)


@pytest.mark.parametrize("pods", [observed(check(), done=True), observed(check(state="ended", exit_code=0))])
def test_nothing_is_taken_once_the_checks_are_over(pods: CheckedPods) -> None:
    with pytest.raises(ReportDeniedError, match="are over"):
        pods.reporting(POD, START)


def test_a_check_that_is_tried_again_may_report_although_watchers_record_only_its_failed_end() -> None:
    """They record the next attempt when that ends, as `watchers.resources.preflight_pods` says."""
    pods = observed(check(state="ended", exit_code=1, ended_at=START), check("b", "waiting", started_at=None))
    again = FIRST._replace(attempt=1)
    assert pods.reporting(POD, START + timedelta(minutes=6)) == {"preflight-dcgm-diag": again}
    pods.close_recorded(POD.name, "preflight-dcgm-diag", "passed", START + timedelta(minutes=6))
    with pytest.raises(ReportDeniedError):
        pods.refuse_after_result(again, {"failed"})


def test_a_report_of_a_run_that_failed_closes_no_later_run() -> None:
    """Such as that of the cards that are healthy where another one fails, which a replica recalls when it starts."""
    pods = observed(check(state="ended", exit_code=1, ended_at=START))
    pods.close_recorded(POD.name, "preflight-dcgm-diag", "others", START - timedelta(seconds=1))
    pods.refuse_after_result(FIRST._replace(attempt=1), {"passed"})


def test_what_watchers_make_of_a_crash_loop_lets_each_attempt_report() -> None:
    state = {"exitCode": 1, "startedAt": START.isoformat(), "finishedAt": START.isoformat()}
    status = {
        "name": "preflight-dcgm-diag", "restartCount": 1, "state": {"running": {"startedAt": START.isoformat()}},
        "lastState": {"terminated": state},
    }  # fmt: skip
    metadata = {
        "name": "train-0", "namespace": "team-a", "uid": "u1", "labels": {LABEL_PREFLIGHT: "true"},
        "annotations": {ANNOTATION_INJECTED: "dcgm-diag"},
    }  # fmt: skip
    spec = {"nodeName": "n1", "initContainers": [{"name": status["name"]}]}
    obj = {"metadata": metadata, "spec": spec, "status": {"initContainerStatuses": [status]}}
    pods = CheckedPods()
    pods.observe(POD.name, preflight_pods.KIND.combine([preflight_pods.read(obj).content]))
    assert pods.reporting(POD, START) == {"preflight-dcgm-diag": FIRST._replace(attempt=1)}


def test_a_pod_that_is_gone_may_report_nothing() -> None:
    pods = observed(check())
    pods.observe(POD.name, PodPreflightGone(uid="u1"))
    with pytest.raises(CheckUnconfirmedError):
        pods.reporting(POD, START)


def test_a_check_that_may_pass_only_repeats_its_result_until_it_is_restarted() -> None:
    pods = observed(check())
    pods.refuse_after_result(FIRST, {"failed"})
    pods.close(FIRST, {"passed", "b"})
    pods.refuse_after_result(FIRST, {"passed"})
    with pytest.raises(ReportDeniedError, match="preflight-dcgm-diag has reported its result already"):
        pods.refuse_after_result(FIRST, {"passed", "failed"})
    pods.refuse_after_result(FIRST._replace(attempt=1), {"failed"})
    pods.refuse_after_result(FIRST._replace(check="other"), {"failed"})


def test_what_another_replica_has_taken_closes_a_check_as_well() -> None:
    pods = observed(check(), check("other"))
    pods.close_recorded(POD.name, "preflight-dcgm-diag", "passed", START)
    pods.close_recorded("team-a/unknown", "preflight-dcgm-diag", "passed", START)
    with pytest.raises(ReportDeniedError):
        pods.refuse_after_result(FIRST, {"failed"})
    pods.refuse_after_result(FIRST._replace(check="other"), {"failed"})
