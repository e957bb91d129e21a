"""Every reason of every condition that the preparation keeps, and the facts that lead to it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from gpuledger.events.payload import Payload
from gpuledger.events.settings import SettingsChanged
from support.bootstrap import (
    MODULE,
    NODE,
    Prepared,
    all_ready,
    assigned,
    cards,
    components,
    heartbeat,
    inventory,
    prepared,
    ready,
)


class Case(NamedTuple):
    """The first facts, the next ones, and the condition after them."""

    begin: Callable[[], Prepared]
    reports: tuple[tuple[float, str, Payload], ...]
    kind: str
    status: str
    reason: str
    until: float | None = None


def off(**settings: Any) -> tuple[float, str, Payload]:
    return (0.5, MODULE, SettingsChanged(**settings))


def pods(at: float, **recorded: str) -> tuple[float, str, Payload]:
    return (at, NODE, components(**recorded))


def all_but(at: float, **recorded: str) -> tuple[float, str, Payload]:
    return (at, NODE, all_ready(**recorded))


def beats(*times: float, fresh: bool = True) -> tuple[tuple[float, str, Payload], ...]:
    return tuple((time, NODE, heartbeat(fresh=fresh)) for time in times)


def finds(at: float, *, driver: bool) -> tuple[float, str, Payload]:
    return (at, NODE, cards(driver=driver))


def fresh_node() -> Prepared:
    return prepared("d1", heartbeat_count=0)


def ready_node() -> Prepared:
    return ready("d1")


def all_but_beats() -> Prepared:
    return prepared("d1", facts=all_ready(), heartbeat_count=0)


DRIVER = "driver-validation"
TOOLKIT = "toolkit-validation"
CUDA = "cuda-validation"
LONG = 1000.0

CASES = {
    "driver unknown": Case(fresh_node, (), "DriverMissing", "Unknown", "ValidatorPending"),
    "driver unknown while the validator starts": Case(
        fresh_node, (pods(2, validator=f"waiting:{DRIVER}"),), "DriverMissing", "Unknown", "ValidatorPending"
    ),
    "driver there": Case(fresh_node, (pods(2, validator="ready"),), "DriverMissing", "False", "ValidatorReady"),
    "driver missing": Case(
        fresh_node, (pods(2, validator=f"failing:{DRIVER}"),), "DriverMissing", "True", "DriverValidationFailed"
    ),
    "driver missing, no step told": Case(
        fresh_node, (pods(2, validator="failing"),), "DriverMissing", "True", "DriverValidationFailed"
    ),
    "driver there, toolkit missing": Case(
        fresh_node, (pods(2, validator=f"failing:{TOOLKIT}"),), "DriverMissing", "False", "ValidatorReady"
    ),
    "driver missing after a time without a pod": Case(
        fresh_node, (), "DriverMissing", "True", "ValidatorTimedOut", until=LONG
    ),
    "driver missing after a time at its step": Case(
        fresh_node, (pods(2, validator=f"waiting:{DRIVER}"),), "DriverMissing", "True", "ValidatorTimedOut", until=LONG
    ),
    "driver verdict kept by a pod that restarts": Case(
        fresh_node,
        (pods(2, validator=f"failing:{DRIVER}"), pods(3, validator=f"waiting:{DRIVER}")),
        "DriverMissing", "True", "DriverValidationFailed",
    ),
    "driver there as long as the pod only restarts": Case(
        ready_node, (pods(10, validator="waiting"),), "DriverMissing", "False", "ValidatorReady"
    ),
    "driver missing once the pod restarts for too long": Case(
        ready_node, (all_but(10, validator="waiting"),), "DriverMissing", "True", "ValidatorTimedOut", until=LONG
    ),
    "driver missing once the validator that watches it is not ready for too long": Case(
        ready_node, (all_but(10, validator="waiting:validated"),), "DriverMissing", "True", "ValidatorTimedOut", LONG
    ),
    "driver there where the container that watches it does not start": Case(
        ready_node, (all_but(10, validator="failing:validated"),), "DriverMissing", "False", "ValidatorReady"
    ),
    "driver verdict kept by a pod that restarts for too long": Case(
        fresh_node,
        (pods(2, validator=f"failing:{DRIVER}"), pods(3, validator=f"waiting:{DRIVER}")),
        "DriverMissing", "True", "DriverValidationFailed", until=LONG,
    ),
    "driver there where the pod restarts after a component was switched off": Case(
        ready_node,
        ((10, MODULE, SettingsChanged(gfd_enabled=False)), all_but(11, validator="waiting")),
        "DriverMissing", "False", "ValidatorReady",
    ),
    "driver unknown where the pod restarted before the preparation began": Case(
        ready_node,
        (
            (10, NODE, inventory(managed=False)),
            all_but(11, validator="waiting"),
            (12, NODE, inventory()),
        ),
        "DriverMissing", "Unknown", "ValidatorPending",
    ),
    "driver not waited for": Case(
        fresh_node, (off(validator_enabled=False),), "DriverMissing", "False", "ComponentDisabled", until=LONG
    ),
    "driver that does not answer the agent, while the validator starts": Case(
        fresh_node, (finds(2, driver=False),), "DriverMissing", "True", "DriverNotAnswering"
    ),
    "driver that answers the agent, while the validator starts": Case(
        fresh_node, (finds(2, driver=True),), "DriverMissing", "Unknown", "ValidatorPending"
    ),
    "driver that answers the agent no more": Case(
        ready_node, (finds(10, driver=True), finds(11, driver=False)), "DriverMissing", "True", "DriverNotAnswering"
    ),
    "driver that does not answer the agent, whatever the validator finds then": Case(
        ready_node, (finds(10, driver=False), all_but(11, validator="ready")),
        "DriverMissing", "True", "DriverNotAnswering",
    ),
    "driver that answers the agent again": Case(
        ready_node, (finds(10, driver=False), finds(11, driver=True)), "DriverMissing", "False", "ValidatorReady"
    ),
    "driver that answers the agent, in a late report": Case(
        ready_node, (finds(10, driver=False), finds(9, driver=True)), "DriverMissing", "True", "DriverNotAnswering"
    ),
    "driver that does not answer the agent, in a late report": Case(
        ready_node, (finds(10, driver=True), finds(9, driver=False)), "DriverMissing", "False", "ValidatorReady"
    ),
    "driver that neither validator nor agent finds": Case(
        ready_node, (finds(10, driver=False), all_but(11, validator=f"failing:{DRIVER}")),
        "DriverMissing", "True", "DriverValidationFailed",
    ),
    "driver that the agent alone looks for": Case(
        fresh_node, (off(validator_enabled=False), finds(2, driver=False)),
        "DriverMissing", "True", "DriverNotAnswering",
    ),
    "driver that the agent finds, and the validator does not": Case(
        ready_node, (all_but(10, validator=f"failing:{DRIVER}"), finds(11, driver=True)),
        "DriverMissing", "True", "DriverValidationFailed",
    ),
    "toolkit of which nobody can tell without a driver": Case(
        ready_node, (finds(10, driver=False), all_but(11, validator=f"failing:{TOOLKIT}")),
        "ToolkitMissing", "Unknown", "WaitingForDriver",
    ),
    "degraded by a driver that does not answer the agent": Case(
        ready_node, (finds(10, driver=False),), "InfraDegraded", "True", "DriverMissing"
    ),
    "driver of nobody's interest, whatever the agent says": Case(
        ready_node, (finds(10, driver=False), (11, NODE, inventory(managed=False))),
        "DriverMissing", "Unknown", "ManagedDisabled",
    ),
    "driver of nobody's interest": Case(
        ready_node, ((10, NODE, inventory(managed=False)),), "DriverMissing", "Unknown", "ManagedDisabled"
    ),
    "toolkit unknown": Case(fresh_node, (), "ToolkitMissing", "Unknown", "ValidatorPending"),
    "toolkit there": Case(fresh_node, (pods(2, validator="ready"),), "ToolkitMissing", "False", "ValidatorReady"),
    "toolkit unknown without a driver": Case(
        fresh_node, (pods(2, validator=f"failing:{DRIVER}"),), "ToolkitMissing", "Unknown", "WaitingForDriver"
    ),
    "toolkit missing": Case(
        fresh_node, (pods(2, validator=f"failing:{TOOLKIT}"),), "ToolkitMissing", "True", "ToolkitValidationFailed"
    ),
    "toolkit of which another step that fails says nothing": Case(
        fresh_node, (pods(2, validator=f"failing:{CUDA}"),), "ToolkitMissing", "Unknown", "ValidationFailed"
    ),
    "toolkit of which a step between the driver's and its own says nothing": Case(
        fresh_node, (pods(2, validator="failing:gdrcopy-validation"),), "ToolkitMissing", "Unknown", "ValidationFailed"
    ),
    "toolkit of which a step that takes too long says nothing": Case(
        fresh_node, (pods(2, validator=f"waiting:{CUDA}"),), "ToolkitMissing", "Unknown", "ValidatorTimedOut", LONG
    ),
    "toolkit there where only plugin-validation fails": Case(
        fresh_node, (pods(2, validator="failing:plugin-validation"),), "ToolkitMissing", "False", "ValidatorReady"
    ),
    "toolkit there where plugin-validation waits for ever": Case(
        fresh_node, (pods(2, validator="waiting:plugin-validation"),), "ToolkitMissing", "False", "ValidatorReady", LONG
    ),
    "driver there where another step fails": Case(
        fresh_node, (pods(2, validator=f"failing:{CUDA}"),), "DriverMissing", "False", "ValidatorReady"
    ),
    "verdict of another step kept by a container that starts again": Case(
        fresh_node, (pods(2, validator=f"failing:{CUDA}"), pods(3, validator=f"waiting:{CUDA}")),
        "ToolkitMissing", "Unknown", "ValidationFailed",
    ),
    "degraded by another step that fails": Case(
        ready_node, (all_but(10, validator=f"failing:{CUDA}"),), "InfraDegraded", "True", "ValidationFailed"
    ),
    "GFD waits for another step that fails": Case(
        ready_node, (all_but(10, validator=f"failing:{CUDA}"),), "GFDReady", "False", "ValidationFailed"
    ),
    "workloads degraded by another step that fails": Case(
        ready_node, ((10, "d1", assigned("Assigned")), all_but(11, validator=f"failing:{CUDA}")),
        "DegradedWorkloads", "True", "DevicesAssigned",
    ),
    "not for pools where another step fails": Case(
        ready_node, (all_but(10, validator=f"failing:{CUDA}"),), "ReadyForPooling", "False", "InfrastructureNotReady"
    ),
    "toolkit missing after a time at its step": Case(
        fresh_node, (pods(2, validator=f"waiting:{TOOLKIT}"),), "ToolkitMissing", "True", "ValidatorTimedOut", LONG
    ),
    "toolkit not waited for": Case(
        fresh_node, (off(validator_enabled=False),), "ToolkitMissing", "False", "ComponentDisabled"
    ),
    "toolkit of nobody's interest": Case(
        ready_node, ((10, NODE, inventory(managed=False)),), "ToolkitMissing", "Unknown", "ManagedDisabled"
    ),
    "GFD waits for the driver": Case(fresh_node, (pods(2, gfd="ready"),), "GFDReady", "False", "WaitingForDriver"),
    "GFD pending": Case(fresh_node, (pods(2, validator="ready"),), "GFDReady", "False", "GFDPending"),
    "GFD failing": Case(fresh_node, (pods(2, validator="ready", gfd="failing"),), "GFDReady", "False", "GFDFailing"),
    "GFD without a complete inventory": Case(
        all_but_beats, ((3, NODE, inventory(complete=False)),), "GFDReady", "False", "InventoryIncomplete"
    ),
    "GFD ready": Case(fresh_node, (pods(2, validator="ready", gfd="ready"),), "GFDReady", "True", "GFDSynced"),
    "GFD not waited for": Case(
        fresh_node, (off(gfd_enabled=False), pods(2, validator="ready")), "GFDReady", "True", "ComponentDisabled"
    ),
    "GFD of nobody's interest": Case(
        ready_node, ((10, NODE, inventory(managed=False)),), "GFDReady", "Unknown", "ManagedDisabled"
    ),
    "monitoring by an exporter whose DCGM starts": Case(
        ready_node, (all_but(10, dcgm="waiting"),), "MonitoringMissing", "False", "HeartbeatStable"
    ),
    "monitoring by an exporter whose DCGM is gone": Case(
        ready_node, (pods(10, validator="ready", gfd="ready", dcgm_exporter="ready"),),
        "MonitoringMissing", "False", "HeartbeatStable",
    ),
    "monitoring without anything": Case(fresh_node, (), "MonitoringMissing", "True", "DCGMExporterPending"),
    "monitoring by an exporter with a host engine of its own": Case(
        fresh_node, (pods(2, validator="ready", gfd="ready", dcgm_exporter="ready"), *beats(3, 4, 5)),
        "MonitoringMissing", "False", "HeartbeatStable",
    ),
    "monitoring by DCGM alone, which has no heartbeat": Case(
        fresh_node, (off(dcgm_exporter_enabled=False),), "MonitoringMissing", "True", "DCGMPending"
    ),
    "monitoring with a failing DCGM": Case(
        fresh_node, (all_but(2, dcgm="failing"),), "MonitoringMissing", "True", "DCGMFailing"
    ),
    "monitoring without an exporter": Case(
        fresh_node, (pods(2, dcgm="ready"),), "MonitoringMissing", "True", "DCGMExporterPending"
    ),
    "monitoring with a failing exporter": Case(
        fresh_node, (pods(2, dcgm_exporter="failing"),), "MonitoringMissing", "True", "DCGMExporterFailing"
    ),
    "monitoring unheard of": Case(all_but_beats, (), "MonitoringMissing", "True", "HeartbeatMissing"),
    "monitoring stale": Case(ready_node, beats(10, fresh=False), "MonitoringMissing", "True", "HeartbeatStale"),
    "monitoring heard of twice": Case(all_but_beats, beats(3, 4), "MonitoringMissing", "True", "HeartbeatUnstable"),
    "monitoring stable": Case(all_but_beats, beats(3, 4, 5), "MonitoringMissing", "False", "HeartbeatStable"),
    "monitoring heard of twice after a loss": Case(
        ready_node, (*beats(10, fresh=False), *beats(11, 12)), "MonitoringMissing", "True", "HeartbeatUnstable"
    ),
    "monitoring stable after a loss": Case(
        ready_node, (*beats(10, fresh=False), *beats(11, 12, 13)), "MonitoringMissing", "False", "HeartbeatStable"
    ),
    "a lost pod starts the count anew": Case(
        ready_node,
        (all_but(10, dcgm_exporter="waiting"), all_but(11), *beats(12, 13)),
        "MonitoringMissing", "True", "HeartbeatUnstable",
    ),
    "the count ends after a lost pod": Case(
        ready_node,
        (all_but(10, dcgm_exporter="waiting"), all_but(11), *beats(12, 13, 14)),
        "MonitoringMissing", "False", "HeartbeatStable",
    ),
    "an agent that has reported all its heartbeats is silent for a good reason": Case(
        ready_node,
        (*beats(*range(6, 14)), all_but(20, dcgm_exporter="waiting"), all_but(21)),
        "MonitoringMissing", "False", "HeartbeatStable", until=LONG,
    ),
    "an agent that has more to tell is waited for": Case(
        ready_node, (all_but(20, dcgm_exporter="waiting"), all_but(21)),
        "MonitoringMissing", "True", "HeartbeatUnstable", LONG,
    ),
    "an agent that was never there is not missed": Case(
        ready_node, (), "MonitoringMissing", "False", "HeartbeatStable", until=LONG
    ),
    "an agent that restarts is not missed": Case(
        ready_node,
        (all_but(10, node_agent="ready"), all_but(20, node_agent="waiting")),
        "MonitoringMissing", "False", "HeartbeatStable", until=139,
    ),
    "an agent that is not ready for long is missed": Case(
        ready_node,
        (all_but(10, node_agent="ready"), all_but(20, node_agent="waiting")),
        "MonitoringMissing", "True", "NodeAgentNotReady", until=140,
    ),
    "an agent that is gone for long is missed": Case(
        ready_node,
        (all_but(10, node_agent="ready"), all_but(20)),
        "MonitoringMissing", "True", "NodeAgentNotReady", until=140,
    ),
    "more heartbeats may be required": Case(
        all_but_beats, (off(heartbeats=4), *beats(3, 4, 5)), "MonitoringMissing", "True", "HeartbeatUnstable"
    ),
    "DCGM not waited for": Case(
        fresh_node,
        (off(dcgm_enabled=False), pods(2, validator="ready", dcgm_exporter="ready"), *beats(3, 4, 5)),
        "MonitoringMissing", "False", "HeartbeatStable",
    ),
    "exporter and heartbeat not waited for": Case(
        fresh_node,
        (off(dcgm_exporter_enabled=False), pods(2, validator="ready", dcgm="ready")),
        "MonitoringMissing", "False", "ComponentDisabled",
    ),
    "monitoring of nobody's interest": Case(
        ready_node, ((10, NODE, inventory(managed=False)),), "MonitoringMissing", "Unknown", "ManagedDisabled"
    ),
    "degraded by the driver": Case(
        ready_node, (all_but(10, validator="failing"),), "InfraDegraded", "True", "DriverMissing"
    ),
    "degraded by the toolkit": Case(
        ready_node, (all_but(10, validator=f"failing:{TOOLKIT}"),), "InfraDegraded", "True", "ToolkitMissing"
    ),
    "degraded by monitoring": Case(
        ready_node, beats(10, fresh=False), "InfraDegraded", "True", "MonitoringMissing"
    ),
    "not degraded": Case(ready_node, (), "InfraDegraded", "False", "NotDegraded"),
    "not degraded by GFD": Case(ready_node, (all_but(10, gfd="failing"),), "InfraDegraded", "False", "NotDegraded"),
    "workloads fine": Case(
        ready_node, ((10, "d1", assigned("Assigned")),), "DegradedWorkloads", "False", "NotDegraded"
    ),
    "workloads degraded": Case(
        ready_node, ((10, "d1", assigned("Assigned")), *beats(11, fresh=False)),
        "DegradedWorkloads", "True", "DevicesAssigned",
    ),
    "workloads degraded while their device is taken back": Case(
        ready_node, ((10, "d1", assigned("Unassigning")), *beats(11, fresh=False)),
        "DegradedWorkloads", "True", "DevicesAssigned",
    ),
    "nothing assigned to degrade": Case(
        ready_node, ((10, "d1", assigned("Pending")), *beats(11, fresh=False)),
        "DegradedWorkloads", "False", "NoDevicesAssigned",
    ),
    "ready for pooling": Case(ready_node, (), "ReadyForPooling", "True", "ReadyForPooling"),
    "not without devices": Case(ready, (), "ReadyForPooling", "False", "NoDevices"),
    "not where it is not managed": Case(
        ready_node, ((10, NODE, inventory(managed=False)),), "ReadyForPooling", "False", "ManagedDisabled"
    ),
    "not with an incomplete inventory": Case(
        ready_node, ((10, NODE, inventory(complete=False)),), "ReadyForPooling", "False", "InventoryIncomplete"
    ),
    "not while the infrastructure is not ready": Case(
        fresh_node, (), "ReadyForPooling", "False", "InfrastructureNotReady"
    ),
    "not while GFD is not": Case(
        ready_node, (all_but(10, gfd="waiting"),), "ReadyForPooling", "False", "InfrastructureNotReady"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_condition(case: Case) -> None:
    node = case.begin()
    for at, subject, data in case.reports:
        node.record(at, subject, data)
    if case.until is not None:
        node.wait(case.until)
    assert node.conditions()[case.kind] == (case.status, case.reason)


def test_a_condition_changes_its_time_with_its_status_only() -> None:
    node = prepared("d1", facts=all_ready(), heartbeat_count=0)
    row = node.state.preparation.rows[NODE, "MonitoringMissing"]
    node.record(7, NODE, heartbeat())
    changed = node.state.preparation.rows[NODE, "MonitoringMissing"]
    assert (changed.reason, changed.changed_at) == ("HeartbeatUnstable", row.changed_at)


def test_every_condition_is_kept_from_the_first_decision_on() -> None:
    kept = {
        "DriverMissing", "ToolkitMissing", "GFDReady", "MonitoringMissing", "InfraDegraded", "DegradedWorkloads",
        "ReadyForPooling",
    }  # fmt: skip
    assert set(fresh_node().conditions()) == kept
