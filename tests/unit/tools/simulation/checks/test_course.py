"""Simulated pods go through their checks in order, wait for their gangs, and are tried again where one fails."""

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from gpuledger.api.preflight import ExitCode
from gpuledger.edge.kube.reflector import ChangeBatch, Changed, Listed
from gpuledger.tools.simulation.allocation import Start
from gpuledger.tools.simulation.checks.course import (
    GANG_TIMEOUT_S,
    PEERS_TIMEOUT_S,
    CheckEnded,
    ChecksPassed,
    CheckStarted,
)
from gpuledger.tools.simulation.checks.gangs import gang_config
from gpuledger.tools.simulation.decide import FleetPlan, Happening, PodEnded, PodScheduled
from gpuledger.tools.simulation.fleet import Fleet, FleetSpec, SlotId
from gpuledger.tools.simulation.resume import pod_from
from gpuledger.tools.simulation.workload import FAILED, SUCCEEDED, Rates
from support.checked_pods import CHECKS, TRAINING, checked_pod, config_map
from support.simulating import new_fleet

FLEET = Fleet(FleetSpec(4, 2), 1)
NODES = list(FLEET.nodes)
QUIET = Rates(load=1e-9, failures_per_1000_node_days=0)


def plan_of(start: Start | None = None) -> FleetPlan:
    return FleetPlan(FLEET, Random(1), QUIET, start or replace(new_fleet(FLEET), prepared={}))


def submit(plan: FleetPlan, *objects: dict[str, Any]) -> list[Happening]:
    pods = [pod_from(FLEET, one, Random(1), QUIET) for one in objects]
    return [happening for pod in pods if pod is not None for happening in plan.submitted(pod)]


def until(plan: FleetPlan, seconds: float) -> list[Happening]:
    return plan.advance(seconds, 10**6)


def story(found: Iterable[Happening], pod: str | None = None) -> list[str]:
    """What happens to the checks of a pod, or of all, in words."""
    kinds = CheckStarted | CheckEnded | ChecksPassed | PodEnded
    seen = (one for one in found if isinstance(one, kinds))
    return [_word(one) for one in seen if pod is None or one.running_pod.pod.name == f"{TRAINING}/{pod}"]


def _word(one: CheckStarted | CheckEnded | ChecksPassed | PodEnded) -> str:
    match one:
        case CheckStarted(check=check, attempt=attempt):
            return f"{check} starts" + (f" again, {attempt}" if attempt else "")
        case CheckEnded(check=check, result=result):
            return f"{check} {result.outcome}" + "".join(f" {code}" for code in result.codes)
        case ChecksPassed():
            return "runs"
        case PodEnded(outcome=outcome):
            return outcome


def gang_is(plan: FleetPlan, expected: int, *peers: str) -> None:
    """The ConfigMap of the gang `jobs` has these pods, with their addresses."""
    config = gang_config(
        config_map("jobs", expected, [(one, plan.checking.address(f"{TRAINING}/{one}")) for one in peers])
    )
    plan.checking.follow(Listed([config], "1"))


ALONE = ("dcgm-diag", "nccl-loopback")


def test_the_checks_pass_one_after_the_other_and_then_the_pod_runs_and_ends() -> None:
    plan = plan_of()
    scheduled = submit(plan, checked_pod("a", ALONE, gpus=2))
    assert [type(one) for one in scheduled] == [PodScheduled]
    found = until(plan, 1e6)
    assert story(found) == [
        "dcgm-diag starts",
        "dcgm-diag passed",
        "nccl-loopback starts",
        "nccl-loopback passed",
        "runs",
        SUCCEEDED,
    ]
    ended = [one for one in found if isinstance(one, CheckEnded)]
    assert {(one.exit_code, one.pause_s) for one in ended} == {(ExitCode.PASSED, None)}
    assert [one.result.duration_s for one in ended] == [30, 15]
    assert all(one.result.bandwidth_gbps > one.result.threshold_gbps == 10 for one in ended)  # type: ignore[operator]


def test_a_check_that_fails_ends_a_pod_that_is_never_restarted() -> None:
    plan = plan_of()
    submit(plan, checked_pod("a", ALONE, failing="nccl-loopback=NCCL_SYSTEM_ERROR", restarts="Never"))
    found = until(plan, 1e6)
    assert story(found)[2:] == ["nccl-loopback starts", "nccl-loopback failed NCCL_SYSTEM_ERROR", FAILED]
    (failed,) = (one for one in found if isinstance(one, CheckEnded) and one.exit_code)
    assert (failed.exit_code, failed.pause_s) == (ExitCode.FAILED, None)
    assert f"{TRAINING}/a" not in plan.checking
    assert not plan.pods()


def test_a_check_that_fails_is_tried_again_after_growing_pauses() -> None:
    plan = plan_of()
    submit(plan, checked_pod("a", ("dcgm-diag",), failing="dcgm-diag=DCGM_PCIE_FAIL"))
    ended = [one for one in until(plan, 1400) if isinstance(one, CheckEnded)]
    assert [one.pause_s for one in ended] == [10, 20, 40, 80, 160, 300, 300, 300]
    assert [one.attempt for one in ended] == list(range(8))


def test_checks_fail_while_a_card_of_the_pod_is_out_of_service() -> None:
    plan = plan_of()
    submit(plan, checked_pod("a", ALONE))
    slot_id = SlotId(NODES[0], 0)
    plan.allocation.set_service(slot_id, in_service=False)
    assert story(until(plan, 33)) == ["dcgm-diag starts", "dcgm-diag failed DCGM_MEMORY_FAIL"]
    plan.allocation.set_service(slot_id, in_service=True)
    assert story(until(plan, 120))[:3] == ["dcgm-diag starts again, 1", "dcgm-diag passed", "nccl-loopback starts"]


def test_a_pod_is_with_its_card_until_that_is_removed() -> None:
    rates = replace(QUIET, failures_per_1000_node_days=4e7, removal_mean_s=5, load=1e-9)
    plan = FleetPlan(FLEET, Random(3), rates, replace(new_fleet(FLEET), prepared={}))
    submit(plan, *(checked_pod(f"p{number}", ("dcgm-diag",), gpus=2) for number in range(4)))
    ends = [one for one in until(plan, 400) if isinstance(one, PodEnded)]
    assert {one.outcome for one in ends} == {FAILED}


def test_a_gang_goes_through_its_check_when_all_have_come_to_it() -> None:
    plan = plan_of()
    submit(plan, *(checked_pod(one, gang="jobs") for one in ("a", "b")))
    gang_is(plan, 2, "a")
    assert story(until(plan, 300), "a")[-1] == "nccl-allreduce starts"
    gang_is(plan, 2, "a", "b")
    found = until(plan, 350)
    assert story(found) == ["nccl-allreduce passed", "nccl-allreduce passed", "runs", "runs"]
    waits = [one.result.gang_wait_s for one in found if isinstance(one, CheckEnded)]
    assert all(wait is not None and 200 < wait < 300 for wait in waits)


def test_the_pods_of_a_gang_come_to_nodes_of_their_own() -> None:
    plan = plan_of()
    scheduled = submit(plan, *(checked_pod(one, gang="jobs") for one in ("a", "b", "c")))
    assert [one.running_pod.node for one in scheduled if isinstance(one, PodScheduled)] == NODES[:3]
    addresses = {plan.checking.address(f"{TRAINING}/{one}") for one in ("a", "b", "c")}
    assert addresses == {"10.64.0.1", "10.64.1.1", "10.64.2.1"}


def test_a_gang_without_a_config_map_is_given_up() -> None:
    plan = plan_of()
    submit(plan, checked_pod("a", ("nccl-allreduce",), gang="jobs"))
    (ended,) = (one for one in until(plan, GANG_TIMEOUT_S + 5) if isinstance(one, CheckEnded))
    assert (ended.result.outcome, ended.exit_code) == ("gang-timeout", ExitCode.GANG_TIMEOUT)
    assert ended.result.gang_wait_s == GANG_TIMEOUT_S


def test_pods_of_a_gang_wait_for_one_that_fails_before_and_go_on_with_another_in_its_place() -> None:
    plan = plan_of()
    failing = "nccl-loopback=NCCL_SYSTEM_ERROR"
    submit(plan, checked_pod("a", gang="jobs"), checked_pod("b", gang="jobs", failing=failing))
    gang_is(plan, 2, "a", "b")
    found = until(plan, 200)
    assert story(found, "a")[-1] == "nccl-allreduce starts"
    assert "nccl-loopback failed NCCL_SYSTEM_ERROR" in story(found, "b")
    plan.vanished(f"{TRAINING}/b")
    submit(plan, checked_pod("b", gang="jobs"))
    gang_is(plan, 2, "a", "b")
    found = until(plan, 290)
    assert story(found, "a") == ["nccl-allreduce passed", "runs"]
    assert story(found, "b")[-1] == "runs"


def test_pods_of_a_gang_give_up_waiting_for_one_that_never_comes() -> None:
    plan = plan_of()
    submit(
        plan,
        checked_pod("a", gang="jobs"),
        checked_pod("b", gang="jobs", failing="dcgm-diag=DCGM_PCIE_FAIL", restarts="Never"),
    )
    gang_is(plan, 2, "a", "b")
    found = until(plan, PEERS_TIMEOUT_S + 55)
    assert story(found, "a")[-1] == "nccl-allreduce failed NCCL_TIMEOUT"


def test_a_pod_that_fails_in_the_check_of_a_gang_has_the_others_time_out() -> None:
    plan = plan_of()
    failing = checked_pod("b", ("nccl-allreduce",), gang="jobs", failing="nccl-allreduce=NCCL_REMOTE_ERROR")
    submit(plan, *(checked_pod(one, ("nccl-allreduce",), gang="jobs") for one in ("a", "c")), failing)
    gang_is(plan, 3, "a", "b", "c")
    found = until(plan, 25)
    assert [story(found, one)[1] for one in ("a", "b", "c")] == [
        "nccl-allreduce failed NCCL_TIMEOUT",
        "nccl-allreduce failed NCCL_REMOTE_ERROR",
        "nccl-allreduce failed NCCL_TIMEOUT",
    ]


def test_a_pod_that_is_deleted_in_the_check_of_its_gang_has_the_others_time_out() -> None:
    plan = plan_of()
    submit(plan, *(checked_pod(one, ("nccl-allreduce",), gang="jobs") for one in ("a", "b")))
    gang_is(plan, 2, "a", "b")
    until(plan, 5)
    plan.vanished(f"{TRAINING}/b")
    assert story(until(plan, 25)) == ["nccl-allreduce failed NCCL_TIMEOUT"]


def test_a_pod_without_a_gang_skips_the_check_of_gangs() -> None:
    plan = plan_of()
    submit(plan, checked_pod("a", ("nccl-allreduce",)))
    assert story(until(plan, 30)) == ["nccl-allreduce starts", "nccl-allreduce skipped SKIPPED", "runs"]


def test_a_pod_of_one_card_skips_the_check_between_cards() -> None:
    plan = plan_of()
    submit(plan, checked_pod("a", ("nccl-loopback",)))
    assert story(until(plan, 30)) == ["nccl-loopback starts", "nccl-loopback skipped SKIPPED", "runs"]


def test_the_config_map_that_is_deleted_brings_nobody_together() -> None:
    plan = plan_of()
    submit(plan, *(checked_pod(one, ("nccl-allreduce",), gang="jobs") for one in ("a", "b")))
    config = gang_config(config_map("jobs", 2, [("a", "10.64.0.1"), ("b", "10.64.1.1")]))
    plan.checking.follow(ChangeBatch((Changed("ADDED", config), Changed("DELETED", config)), "2"))
    assert story(until(plan, 60)) == ["nccl-allreduce starts", "nccl-allreduce starts"]


def test_pods_of_people_come_before_those_of_the_load() -> None:
    plan = plan_of()
    full = checked_pod("full", ALONE, gpus=2)
    submit(plan, *(full | {"metadata": full["metadata"] | {"name": f"full-{one}"}} for one in range(4)))
    load = {"metadata": {"name": "load", "labels": {"app.kubernetes.io/managed-by": "gpuledger-simulation"}}}
    submit(plan, load | {"spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]}})
    submit(plan, checked_pod("mine", ALONE, gpus=2))
    (scheduled,) = (one for one in plan.vanished(f"{TRAINING}/full-0") if isinstance(one, PodScheduled))
    assert scheduled.running_pod.pod.name == f"{TRAINING}/mine"


@pytest.mark.parametrize("checks", [CHECKS, ("third-party",)])
def test_every_check_takes_its_time(checks: tuple[str, ...]) -> None:
    plan = plan_of()
    submit(plan, checked_pod("a", checks))
    assert story(until(plan, 100))[-1] == "runs"
