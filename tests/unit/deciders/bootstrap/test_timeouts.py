"""What the passing of time leads to: it is recorded once, and counts from where the log has it."""

import pytest

from gpuledger.events.device import DeviceWithdrawn
from gpuledger.events.node import NodeBootstrapWaited, NodeInventoryWithdrawn
from gpuledger.events.payload import BIGINT_MAX
from gpuledger.events.settings import SettingsChanged
from support.bootstrap import MODULE, NODE, Step, all_ready, components, inventory, prepared, second, steps

AGAIN = [(NODE, "Validating"), ("d1", "Validating"), (NODE, "Ready"), ("d1", "Ready")]
FAILED: list[Step] = [(NODE, "ValidatingFailed"), ("d1", "Faulted")]


def test_only_the_passing_of_time_fails_a_validator_that_does_not_start() -> None:
    node = prepared("d1", facts=components(validator="waiting:driver-validation"), heartbeat_count=0)
    assert node.wait(301) == []
    decided = node.wait(302)
    assert [type(one.data) for one in decided[:1]] == [NodeBootstrapWaited]
    assert decided[0].time == second(302)
    assert steps(decided) == FAILED
    assert node.wait(10_000) == []


@pytest.mark.parametrize(
    ("waiting", "phase", "condition", "reason"),
    [
        ({"gfd": "waiting"}, "GFD", "GFDReady", "GFDTimedOut"),
        ({"dcgm_exporter": "waiting"}, "Monitoring", "MonitoringMissing", "DCGMExporterTimedOut"),
    ],
)
def test_a_component_that_never_gets_ready_fails_its_node(
    waiting: dict[str, str], phase: str, condition: str, reason: str
) -> None:
    node = prepared("d1", facts=all_ready(**waiting), heartbeat_count=0)
    assert (node.phase(), node.wait(301)) == (phase, [])
    assert steps(node.wait(302)) == FAILED
    assert node.conditions()[condition] == ("False" if condition == "GFDReady" else "True", reason)
    assert node.wait(10_000) == []
    node.record(10_001, NODE, all_ready())
    assert node.phase() == "Monitoring"


@pytest.mark.parametrize("step", ["waiting", "ready"])
def test_a_component_without_a_pod_is_waited_for_once_the_validator_is_ready(step: str) -> None:
    node = prepared("d1", facts=components(validator="waiting"), heartbeat_count=0)
    node.record(100, NODE, components(validator="ready"))
    assert (node.phase(), node.wait(399)) == ("GFD", [])
    node.record(399, NODE, components(validator="ready", gfd=step))
    failed = node.wait(400)
    assert (node.phase(), bool(failed)) == (("Monitoring", False) if step == "ready" else ("GFD", False))


def test_dcgm_is_waited_for_where_no_exporter_of_ours_runs() -> None:
    node = prepared("d1", facts=all_ready(dcgm="waiting"))
    node.record(10, MODULE, SettingsChanged(dcgm_exporter_enabled=False))
    assert node.phase() == "Monitoring"
    node.wait(1000)
    assert node.conditions()["MonitoringMissing"] == ("True", "DCGMTimedOut")


def test_nothing_is_waited_for_behind_a_part_that_does_not_work() -> None:
    """The inventory has not described the devices, so monitoring is not what the node waits for."""
    node = prepared("d1", facts=all_ready(dcgm_exporter="waiting"), heartbeat_count=0)
    node.record(10, NODE, inventory(complete=False))
    assert (node.phase(), node.wait(10_000)) == ("GFD", [])
    node.record(10_001, NODE, inventory())
    assert (node.phase(), node.wait(10_300)) == ("Monitoring", [])
    assert steps(node.wait(10_301)) == FAILED


def test_a_timed_out_validator_that_gets_ready_is_believed() -> None:
    node = prepared("d1", facts=all_ready(validator="waiting"))
    node.wait(1000)
    assert node.phase() == "ValidatingFailed"
    assert steps(node.record(1001, NODE, all_ready())) == AGAIN


def test_a_wait_that_ended_before_it_was_recorded_changes_nothing() -> None:
    node = prepared("d1", facts=all_ready(validator="waiting"))
    decided = node.race(1000, 999, NODE, all_ready())
    assert isinstance(decided[0].data, NodeBootstrapWaited)
    assert steps(decided) == AGAIN[2:]
    assert node.phase() == "Ready"


def test_an_agent_that_was_back_in_time_is_not_lost() -> None:
    node = prepared("d1", facts=all_ready(node_agent="ready"))
    node.record(20, NODE, all_ready(node_agent="waiting"))
    decided = node.race(140, 139, NODE, all_ready(node_agent="ready"))
    assert [type(one.data) for one in decided] == [NodeBootstrapWaited]
    assert node.conditions()["MonitoringMissing"] == ("False", "HeartbeatStable")


def test_a_wait_counts_from_where_it_is_recorded() -> None:
    node = prepared("d1", facts=all_ready(validator="waiting"))
    decided = node.race(1000, 999, NODE, all_ready(validator="waiting", node_agent="ready"))
    failed = next(one for one in decided if ("ValidatingFailed" in str(one.data)))
    assert failed.causation_id == decided[0].id


def test_the_time_without_the_module_does_not_count() -> None:
    node = prepared("d1", heartbeat_count=0)
    node.record(10, MODULE, SettingsChanged(enabled=False))
    assert node.wait(1000) == []
    node.record(2000, MODULE, SettingsChanged())
    assert node.wait(2299) == []
    assert node.phase() == "Validating"
    assert steps(node.wait(2300)) == FAILED


@pytest.mark.parametrize("timeout_s", [999_999_999 * 3600, BIGINT_MAX])
def test_a_timeout_that_no_calendar_holds_never_comes(timeout_s: int) -> None:
    node = prepared("d1", facts=all_ready(validator="waiting"), heartbeat_count=0)
    node.record(10, MODULE, SettingsChanged(validation_timeout_s=timeout_s))
    assert (node.wait(10_000), node.phase()) == ([], "Validating")


def test_a_node_without_devices_waits_for_nothing() -> None:
    node = prepared(heartbeat_count=0)
    assert (node.phase(), node.wait(10_000)) == ("Validating", [])


def test_nobody_waits_for_a_node_that_went_while_the_module_was_disabled() -> None:
    node = prepared("d1", facts=all_ready(validator="waiting"))
    assert node.wait(9) == []
    node.record(10, MODULE, SettingsChanged(enabled=False))
    node.record(11, "d1", DeviceWithdrawn())
    node.record(11, NODE, NodeInventoryWithdrawn())
    node.record(12, MODULE, SettingsChanged())
    assert (node.phase(), node.wait(10_000)) == (None, [])
