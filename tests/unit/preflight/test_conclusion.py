"""How results end the process, are left for Kubernetes, and are reported so that a gateway takes them."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpuledger.api.preflight import Detail, NotRun, Variable
from gpuledger.domain.preflight.findings import Finding
from gpuledger.events.health import NodeHealthReported, Strategy
from gpuledger.events.preflight import CheckOutcome, PreflightResult
from gpuledger.healthreports.translate import ReportContext, translate
from gpuledger.preflight.conclusion import CheckConclusion, exit_code
from gpuledger.preflight.errors import ConfigurationError
from gpuledger.preflight.report import report_of
from gpuledger.preflight.settings import PodIdentity, TopologySettings
from gpuledger.preflight.termination import BYTES_MAX, message_of, termination_of
from gpuledger.preflight.topology import TopologyChoice, choose_topology

AT = datetime(2026, 1, 2, tzinfo=UTC)
POD = PodIdentity("training", "pod-0", "u-0", "10.0.0.1", "worker-01")
FAULT = Finding("DCGM_MEMORY_FAIL", True, "CONTACT_SUPPORT", "memory: fail", "GPU-2")


@pytest.mark.parametrize(
    ("outcome", "code"),
    [("passed", 0), ("skipped", 0), ("failed", 1), ("config-error", 2), ("gang-timeout", 3), ("not-reported", 4)],
)
def test_each_outcome_has_its_exit_code(outcome: CheckOutcome, code: int) -> None:
    assert exit_code(CheckConclusion(outcome, ""), "execute-remediation", NotRun.BLOCK) == code


@pytest.mark.parametrize(
    ("outcome", "strategy", "not_run", "code"),
    [
        ("failed", "store-only", NotRun.BLOCK, 0),
        ("failed", "execute-remediation", NotRun.CONTINUE, 1),
        ("not-reported", "execute-remediation", NotRun.CONTINUE, 0),
        ("config-error", "store-only", NotRun.CONTINUE, 2),
    ],
)
def test_what_blocks_no_pod(outcome: CheckOutcome, strategy: Strategy, not_run: NotRun, code: int) -> None:
    assert exit_code(CheckConclusion(outcome, ""), strategy, not_run) == code


@pytest.mark.parametrize("message", ["x" * 9000, "\x01" * 9000, "ä" * 9000, "\U0001f600" * 9000, ""])
def test_a_termination_message_has_room(message: str) -> None:
    findings = tuple(Finding(f"CODE_{place}" + "X" * 200, True, "NONE", "") for place in range(16))
    concluded = CheckConclusion("failed", message, findings=findings, bandwidth_gbps=1.23456)
    text = message_of(termination_of(concluded, 1.0))
    assert len(text) <= BYTES_MAX
    assert PreflightResult.model_validate_json(text).outcome == "failed"


def reported(concluded: CheckConclusion, strategy: Strategy = "execute-remediation") -> list[NodeHealthReported]:
    request = report_of("dcgm-diag", concluded, POD, strategy, 1.5, AT)
    return [one.data for one in translate(request, ReportContext("worker-01", (), None), AT)]


def test_a_card_that_failed_is_unhealthy_and_the_others_are_healthy() -> None:
    bad, good = reported(CheckConclusion("failed", "memory: fail", ("GPU-1", "GPU-2"), (FAULT,)))
    assert (bad.check, bad.monitor, bad.component) == ("preflight-dcgm-diag", "gpuledger-preflight", "GPU")
    assert (bad.healthy, bad.fatal, bad.action, bad.codes) == (False, True, "CONTACT_SUPPORT", ("DCGM_MEMORY_FAIL",))
    assert [(one.type, one.value) for one in bad.entities] == [("GPU_UUID", "GPU-2")]
    assert (good.healthy, good.codes, [one.value for one in good.entities]) == (True, (), ["GPU-1"])
    assert bad.metadata[Detail.OUTCOME] == "failed"
    assert Detail.OUTCOME not in good.metadata


def test_a_finding_without_a_card_is_about_all() -> None:
    (bad,) = reported(CheckConclusion("failed", "", ("GPU-1", "GPU-2"), (FAULT._replace(gpu=None),)))
    assert [one.value for one in bad.entities] == ["GPU-1", "GPU-2"]


@pytest.mark.parametrize("outcome", ["skipped", "not-reported", "config-error"])
def test_what_says_nothing_about_hardware_is_stored_only_and_ends_no_fault(outcome: CheckOutcome) -> None:
    (event,) = reported(CheckConclusion(outcome, "no host engine", ("GPU-1",)))
    assert (event.healthy, event.fatal, event.strategy, event.entities) == (True, False, "store-only", ())
    assert event.codes == (outcome.upper().replace("-", "_"),)


def test_without_a_card_the_report_is_about_the_pod() -> None:
    (event,) = reported(CheckConclusion("passed", "", gang_wait_s=1.25, details={Detail.GANG: "gang-a"}))
    assert [(one.type, one.value) for one in event.entities] == [("POD", "training/pod-0")]
    assert (event.metadata[Detail.GANG_WAIT_S], event.metadata[Detail.GANG]) == ("1.25", "gang-a")


FILES = TopologySettings(None, {"p5.48xlarge": "p5.xml"}, Path("/topologies"))


def test_the_topology_file_is_the_pods_own_else_the_instance_types_else_none() -> None:
    own = choose_topology(TopologySettings("/my.xml"), "p5.48xlarge", lambda _: False)
    assert own == TopologyChoice("/my.xml", "the pod brings it")
    assert choose_topology(FILES, "p5.48xlarge", lambda _: True).file == "/topologies/p5.xml"
    assert choose_topology(FILES, "p5.48xlarge", lambda _: False) == (None, "/topologies/p5.xml is not there")
    assert choose_topology(FILES, None, lambda _: True).file is None


def test_without_fallback_a_missing_topology_file_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="no file is mapped to the instance type t4") as refused:
        choose_topology(TopologySettings(None, {}, None, fallback=False), "t4", lambda _: True)
    assert refused.value.variable == Variable.TOPOLOGY_MAPPING
