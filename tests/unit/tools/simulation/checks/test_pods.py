"""The checks of a pod and how far they are are read from its object, whose status the simulated kubelet keeps."""

from datetime import UTC, datetime
from typing import Any

import pytest

from gpuledger.api.preflight import MONITOR, ExitCode
from gpuledger.events.preflight import PreflightResult
from gpuledger.tools.simulation.allocation import RunningPod, Share, SimulatedPod
from gpuledger.tools.simulation.checks import statuses
from gpuledger.tools.simulation.checks.course import CheckEnded, CheckStarted
from gpuledger.tools.simulation.checks.gangs import gang_config
from gpuledger.tools.simulation.checks.pods import ConfigMapKey, InjectedCheck, checks_of
from gpuledger.tools.simulation.checks.results import failed, gang_timed_out, passed, report_of, skipped
from gpuledger.tools.simulation.hardware import GPU_RESOURCE
from gpuledger.tools.simulation.names import PodPlace, place_of, pod_in, pod_of, workload_of
from gpuledger.tools.simulation.objects import ended as pod_ended
from support.checked_pods import TRAINING, checked_pod, config_map

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TIME = "2026-01-01T00:00:00Z"
POD = RunningPod(
    SimulatedPod(f"{TRAINING}/a", "", GPU_RESOURCE, 1, 1000, 60, "Succeeded"), "w1", (Share("GPU-1", 1000),)
)
CHECK = InjectedCheck("nccl-loopback", 10.0)
PASSED = passed(CHECK, 15, None, 0.5)
BROKEN = failed(CHECK, "NCCL_SYSTEM_ERROR", 15, None)


def changed(live: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
    """The pod with a status merged, as the API server does."""
    return {**live, "status": {**live.get("status", {}), **status}}


def bound() -> dict[str, Any]:
    live = checked_pod("a", ("dcgm-diag", "nccl-loopback"))
    return changed(live, statuses.bound(live, "10.64.0.1", NOW))


def after(live: dict[str, Any], check: str, result: PreflightResult, pause_s: float | None = None) -> dict[str, Any]:
    live = changed(live, statuses.started(live, CheckStarted(0, POD, check, 0), NOW))
    code = ExitCode.PASSED if result.outcome == "passed" else ExitCode.FAILED
    return changed(live, statuses.ended(live, CheckEnded(1, POD, check, 0, result, code, pause_s), NOW))


def state_of(live: dict[str, Any], number: int) -> Any:
    return live["status"]["initContainerStatuses"][number]


def test_the_checks_are_those_that_were_injected() -> None:
    live = checked_pod("a", gang="jobs", failing="nccl-loopback = NCCL_SYSTEM_ERROR, nonsense, =x", restarts="Never")
    found = checks_of(live)
    assert found is not None
    assert found.checks == (
        InjectedCheck("dcgm-diag", 10.0),
        InjectedCheck("nccl-loopback", 10.0, "NCCL_SYSTEM_ERROR"),
        InjectedCheck("nccl-allreduce", 10.0),
    )
    assert found.gang == ConfigMapKey(TRAINING, "preflight-jobs")
    assert (found.retries, found.passed, found.attempt, found.address) == (False, 0, 0, None)


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"name": "a", "namespace": TRAINING}},
        {"status": {"phase": "Running"}},
        {"spec": {"containers": []}},
    ],
    ids=["no label", "runs already", "no container of a check"],
)
def test_other_pods_have_none(change: dict[str, Any]) -> None:
    assert checks_of(checked_pod("a") | change) is None


def test_a_pod_on_its_node_has_an_address_and_waits() -> None:
    live = bound()
    assert live["status"]["podIP"] == "10.64.0.1"
    assert live["status"]["phase"] == "Pending"
    assert {one["type"]: one["status"] for one in live["status"]["conditions"]} == {
        "Initialized": "False",
        "ContainersReady": "False",
        "Ready": "False",
    }
    found = checks_of(live)
    assert found is not None
    assert (found.passed, found.attempt, found.address) == (0, 0, "10.64.0.1")


def test_a_check_that_passed_leaves_its_result() -> None:
    live = after(bound(), "dcgm-diag", PASSED)
    terminated = state_of(live, 0)["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (0, "Completed")
    assert PreflightResult.model_validate_json(terminated["message"]) == PASSED
    found = checks_of(live)
    assert found is not None
    assert found.passed == 1


def test_a_check_that_is_tried_again_waits_and_keeps_its_result() -> None:
    live = after(after(bound(), "dcgm-diag", PASSED), "nccl-loopback", BROKEN, pause_s=20)
    status = state_of(live, 1)
    assert status["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert PreflightResult.model_validate_json(status["lastState"]["terminated"]["message"]) == BROKEN
    live = changed(live, statuses.started(live, CheckStarted(2, POD, "nccl-loopback", 1), NOW))
    assert state_of(live, 1)["state"] == {"running": {"startedAt": TIME}}
    found = checks_of(live)
    assert found is not None
    assert (found.passed, found.attempt) == (1, 1)


def test_a_pod_that_failed_in_a_check_has_run_no_container() -> None:
    live = after(bound(), "dcgm-diag", BROKEN)
    status = pod_ended(live, "Failed", NOW)
    assert status["phase"] == "Failed"
    assert status["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}


def test_init_containers_of_the_owner_are_done_before_the_pod_runs() -> None:
    live = checked_pod("a", ("dcgm-diag",))
    live["spec"]["initContainers"].append({"name": "download", "image": "x"})
    live = after(changed(live, statuses.bound(live, "10.64.0.1", NOW)), "dcgm-diag", PASSED)
    status = statuses.passed(live, NOW)
    assert status["phase"] == "Running"
    assert [one["state"]["terminated"]["exitCode"] for one in status["initContainerStatuses"]] == [0, 0]
    assert "message" in status["initContainerStatuses"][0]["state"]["terminated"]


@pytest.mark.parametrize(
    ("result", "healthy", "fatal", "action"),
    [
        (PASSED, True, False, "NONE"),
        (BROKEN, False, True, "CONTACT_SUPPORT"),
        (failed(CHECK, "DCGM_STRESS_FAIL", 1, None), False, True, "RUN_DCGMEUD"),
        (failed(CHECK, "NCCL_TIMEOUT", 1, None), False, False, "NONE"),
        (gang_timed_out(CHECK, 600), False, False, "NONE"),
    ],
    ids=["passed", "hardware", "stress", "timeout", "gang"],
)
def test_a_check_reports_the_cards_of_its_pod(result: PreflightResult, healthy: bool, fatal: bool, action: str) -> None:
    found = report_of("nccl-loopback", result, PodPlace(TRAINING, "a"), ["GPU-1"])
    assert (found.monitor, found.check, found.reporter) == (MONITOR, "preflight-nccl-loopback", "training/a")
    assert (found.healthy, found.fatal, found.action) == (healthy, fatal, action)
    assert (found.devices, found.codes) == (("GPU-1",), result.codes)
    assert found.metadata["outcome"] == result.outcome


def test_a_check_that_is_skipped_says_nothing_about_cards() -> None:
    result = skipped(CHECK, cards=1, has_gang=False)
    assert result is not None
    found = report_of("nccl-loopback", result, PodPlace(TRAINING, "a"), ["GPU-1"])
    assert (found.healthy, found.devices, found.entities, found.strategy) == (True, (), (), "store-only")
    assert found.codes == ("SKIPPED",)


def test_a_gang_is_complete_when_all_its_pods_are_there() -> None:
    found = gang_config(config_map("jobs", 2, [("a", "10.0.0.1"), ("b", "10.0.0.2")]))
    assert found is not None
    assert found.is_complete
    fewer = gang_config(config_map("jobs", 3, [("a", "10.0.0.1"), ("b", "10.0.0.2")]))
    assert fewer is not None
    assert not fewer.is_complete


@pytest.mark.parametrize(
    "change",
    [{"metadata": {"name": "jobs", "namespace": TRAINING}}, {"data": {"peers": "a:10.0.0.1"}}, {"data": None}],
    ids=["another name", "no count yet", "no data"],
)
def test_other_config_maps_are_no_gangs(change: dict[str, Any]) -> None:
    assert gang_config(config_map("jobs", 1, []) | change) is None


@pytest.mark.parametrize(("namespace", "pod"), [("gpu-demo", "a"), ("training", "training/a")])
def test_a_pod_is_called_by_its_namespace_but_in_that_of_the_demo(namespace: str, pod: str) -> None:
    assert pod_in(namespace, "a") == pod
    assert place_of(pod) == (namespace, "a")
    assert pod_of(workload_of(pod)) == pod
