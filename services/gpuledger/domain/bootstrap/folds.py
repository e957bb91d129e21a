"""Folds the decisions of inventory and pools, and the settings, into rows of the preparation."""

from collections.abc import Iterable
from datetime import datetime
from sys import intern
from typing import Any

from gpuledger.api.conditions import ConditionStatus, NodeConditionType
from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.api.phases import Component
from gpuledger.domain.bootstrap import state as bootstrap
from gpuledger.domain.bootstrap.facts import (
    SWITCHES,
    VALUES,
    BootstrapDevice,
    BootstrapFacts,
)
from gpuledger.domain.bootstrap.observations import (
    OBSERVATION_HANDLERS,
    forget_empty,
    forget_observations,
    later,
    node_row,
    put_node,
)
from gpuledger.domain.fact import Fact, Handlers
from gpuledger.events.device import (
    DeviceAssignmentChanged,
    DeviceDescribed,
    DeviceDetected,
    DeviceIdentified,
    DeviceStateChanged,
    DeviceWithdrawn,
)
from gpuledger.events.module import ModulePrerequisiteChanged
from gpuledger.events.node import (
    Condition,
    NodeBootstrapChanged,
    NodeBootstrapWaited,
    NodeBootstrapWithdrawn,
    NodeInventoryChanged,
    NodeInventoryWithdrawn,
)
from gpuledger.events.settings import SettingsChanged

OVERDUE_COLUMNS = {
    Component.VALIDATOR: "validator_overdue_since",
    Component.GFD: "gfd_overdue_since",
    Component.DCGM: "dcgm_overdue_since",
    Component.NODE_AGENT: "agent_overdue_since",
    Component.DCGM_EXPORTER: "exporter_overdue_since",
}
"""The column of a node's row that holds the wait which timed out, by component; DCGM stands for all of monitoring."""


def record_timeout(state: BootstrapFacts, fact: Fact, data: NodeBootstrapWaited) -> None:
    """Store a timeout that was recorded; only the latest matters, and none if the wait has ended meanwhile."""
    row = state.node.get(fact.event.subject)
    if row is not None:
        column = OVERDUE_COLUMNS[Component(data.component)]
        changed: dict[str, Any] = {column: later(getattr(row, column), data.since)}
        state.node.put(row._replace(**changed))


def _inventory_changed(state: BootstrapFacts, fact: Fact, data: NodeInventoryChanged) -> None:
    row, time = node_row(state, fact.event.subject), fact.event.time
    managed = not _holds(data.conditions, NodeConditionType.MANAGED_DISABLED)
    complete = _holds(data.conditions, NodeConditionType.INVENTORY_COMPLETE)
    changed = row._replace(
        in_inventory=True,
        managed=managed,
        managed_at=row.managed_at if row.in_inventory and managed == row.managed else time,
        complete=complete,
        complete_at=row.complete_at if row.in_inventory and complete == row.complete else time,
    )
    put_node(state, changed)


def _holds(conditions: Iterable[Condition], kind: NodeConditionType) -> bool:
    return any(one.type == kind and one.status == ConditionStatus.TRUE.value for one in conditions)


def _inventory_withdrawn(state: BootstrapFacts, fact: Fact, _data: NodeInventoryWithdrawn) -> None:
    """Forget the node, except what holds until the contrary is reported, and reports later than its withdrawal.

    Watchers and agents report changes only. Where pods of components outlive their Node, as when it is recreated under
    its name, their readiness, the state of monitoring and the health of the cards still hold.
    """
    node, time = fact.event.subject, fact.event.time
    row = node_row(state, node)._replace(
        in_inventory=False, managed=False, managed_at=time, complete=False, complete_at=None, devices_at=None
    )
    state.node.put(row)
    if not any(one.has_pod for one in state.component.where("node", node)):
        forget_observations(state, node, time)
    state.touch(node)


def _detected(state: BootstrapFacts, fact: Fact, data: DeviceDetected) -> None:
    name, node = intern(fact.event.subject), intern(data.node)
    row = node_row(state, node)
    if not state.device.where("node", node):
        row = row._replace(devices_at=fact.event.time)
    address = data.hardware.pci_address
    found = BootstrapDevice(
        name, node, intern(data.card), None if address is None else intern(address), data.provisional, data.missing,
        None, None, data.ignored,
    )  # fmt: skip
    state.device.put(found)
    put_node(state, row)


def _identified(state: BootstrapFacts, fact: Fact, data: DeviceIdentified) -> None:
    row = state.device.get(fact.event.subject)
    if row is not None:
        _put_device(state, row._replace(card=intern(data.card), provisional=False))


def _described(state: BootstrapFacts, fact: Fact, data: DeviceDescribed) -> None:
    row = state.device.get(fact.event.subject)
    if row is not None:
        address = data.hardware.pci_address
        found_at = fact.event.time if row.missing and not data.missing else row.found_at
        changed = row._replace(
            pci_address=None if address is None else intern(address),
            missing=data.missing,
            found_at=found_at,
            ignored=data.ignored,
        )
        _put_device(state, changed)


def _assignment_changed(state: BootstrapFacts, fact: Fact, data: DeviceAssignmentChanged) -> None:
    row = state.device.get(fact.event.subject)
    if row is not None:
        _put_device(state, row._replace(assignment=None if data.phase is None else intern(data.phase)))


def _put_device(state: BootstrapFacts, row: BootstrapDevice) -> None:
    if state.device.get(row.name) != row:
        state.device.put(row)
        state.touch(row.node)


def _withdrawn(state: BootstrapFacts, fact: Fact, data: DeviceWithdrawn) -> None:
    row = state.device.get(fact.event.subject)
    bootstrap.device_withdrawn(state, fact, data)
    if row is not None:
        state.device.delete(row.name)
        state.touch(row.node)


def _prerequisite_changed(state: BootstrapFacts, fact: Fact, data: ModulePrerequisiteChanged) -> None:
    current = state.settings_in_force()
    if fact.event.subject == MODULE_CONFIG and current.met != data.met:
        state.settings.put(current._replace(met=data.met))
        state.touch_all()


def _settings_changed(state: BootstrapFacts, fact: Fact, data: SettingsChanged) -> None:
    current, time = state.settings_in_force(), fact.event.time
    if fact.event.subject != MODULE_CONFIG or (current.changed_at is not None and current.changed_at > time):
        return
    changed = current._replace(changed_at=time, **{name: getattr(data, name) for name in VALUES})
    if any(getattr(changed, name) != getattr(current, name) for name in SWITCHES):
        changed = changed._replace(begun_at=time)
    state.settings.put(changed)
    if changed._replace(changed_at=current.changed_at) != current:
        state.touch_all()


def _bootstrap_changed(state: BootstrapFacts, fact: Fact, data: NodeBootstrapChanged) -> None:
    bootstrap.bootstrap_changed(state, fact, data)
    _decided(state, fact.event.subject, fact.event.time)


def _bootstrap_withdrawn(state: BootstrapFacts, fact: Fact, data: NodeBootstrapWithdrawn) -> None:
    bootstrap.bootstrap_withdrawn(state, fact, data)
    _decided(state, fact.event.subject, fact.event.time)
    forget_empty(state, fact.event.subject)


def _state_changed(state: BootstrapFacts, fact: Fact, data: DeviceStateChanged) -> None:
    device = state.device.get(fact.event.subject)
    if device is not None:
        bootstrap.state_changed(state, fact, data)
        _decided(state, device.node, fact.event.time)


def _decided(state: BootstrapFacts, node: str, time: datetime) -> None:
    row = state.node.get(node)
    if row is not None:
        state.node.put(row._replace(decided_at=later(row.decided_at, time)))


HANDLERS: Handlers = {
    **OBSERVATION_HANDLERS,
    NodeInventoryChanged: _inventory_changed,
    NodeInventoryWithdrawn: _inventory_withdrawn,
    NodeBootstrapChanged: _bootstrap_changed,
    NodeBootstrapWithdrawn: _bootstrap_withdrawn,
    DeviceDetected: _detected,
    DeviceIdentified: _identified,
    DeviceDescribed: _described,
    DeviceWithdrawn: _withdrawn,
    DeviceAssignmentChanged: _assignment_changed,
    DeviceStateChanged: _state_changed,
    ModulePrerequisiteChanged: _prerequisite_changed,
    SettingsChanged: _settings_changed,
}
"""Recorded timeouts have no handler: `BootstrapProjection.observed` folds them where they stand in the log."""
