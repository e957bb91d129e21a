"""How what services decided, and the settings, become rows of the preparation; each replaces what was before it."""

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
from gpuledger.domain.bootstrap.observations import SEEN_HANDLERS, forget_blank, forget_said, later, node_row, put_node
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

WAITED = {
    Component.VALIDATOR: "validator_waited",
    Component.NODE_AGENT: "agent_waited",
    Component.DCGM_EXPORTER: "exporter_waited",
}
"""Where a node's row keeps since when a wait for a component was over."""


def waited(state: BootstrapFacts, fact: Fact, data: NodeBootstrapWaited) -> None:
    """Note that a wait was over; the latest counts, and where it has ended meanwhile nothing follows from it."""
    row = state.node.get(fact.event.subject)
    if row is not None:
        column = WAITED[Component(data.component)]
        changed: dict[str, Any] = {column: later(getattr(row, column), data.since)}
        state.node.put(row._replace(**changed))


def _inventory_changed(state: BootstrapFacts, fact: Fact, data: NodeInventoryChanged) -> None:
    row, time = node_row(state, fact.event.subject), fact.event.time
    managed = not _holds(data.conditions, NodeConditionType.MANAGED_DISABLED)
    complete = _holds(data.conditions, NodeConditionType.INVENTORY_COMPLETE)
    changed = row._replace(
        is_known=True,
        managed=managed,
        managed_at=row.managed_at if row.is_known and managed == row.managed else time,
        complete=complete,
        complete_at=row.complete_at if row.is_known and complete == row.complete else time,
    )
    put_node(state, changed)


def _holds(conditions: Iterable[Condition], kind: NodeConditionType) -> bool:
    return any(one.type == kind and one.status == ConditionStatus.TRUE.value for one in conditions)


def _inventory_withdrawn(state: BootstrapFacts, fact: Fact, _data: NodeInventoryWithdrawn) -> None:
    """Forget the node, except what holds until the contrary is said, and what was said of it after it was gone.

    Watchers and agents say nothing twice. Where pods of components outlive their Node, as when it is made anew under
    its name, they are as ready as they were, its monitoring is as alive, and its cards are as fit.
    """
    node, time = fact.event.subject, fact.event.time
    row = node_row(state, node)._replace(
        is_known=False, managed=False, managed_at=time, complete=False, complete_at=None, devices_at=None
    )
    state.node.put(row)
    if not any(one.is_there for one in state.component.where("node", node)):
        forget_said(state, node, time)
    state.touch(node)


def _detected(state: BootstrapFacts, fact: Fact, data: DeviceDetected) -> None:
    name, node = intern(fact.event.subject), intern(data.node)
    row = node_row(state, node)
    if not state.device.where("node", node):
        row = row._replace(devices_at=fact.event.time)
    address = data.hardware.pci_address
    found = BootstrapDevice(
        name, node, intern(data.card), None if address is None else intern(address), data.provisional, data.missing,
        None, None,
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
            pci_address=None if address is None else intern(address), missing=data.missing, found_at=found_at
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
    known = state.settings_in_force()
    if fact.event.subject == MODULE_CONFIG and known.met != data.met:
        state.settings.put(known._replace(met=data.met))
        state.touch_all()


def _settings_changed(state: BootstrapFacts, fact: Fact, data: SettingsChanged) -> None:
    known, time = state.settings_in_force(), fact.event.time
    if fact.event.subject != MODULE_CONFIG or (known.changed_at is not None and known.changed_at > time):
        return
    changed = known._replace(changed_at=time, **{name: getattr(data, name) for name in VALUES})
    if any(getattr(changed, name) != getattr(known, name) for name in SWITCHES):
        changed = changed._replace(begun_at=time)
    state.settings.put(changed)
    if changed._replace(changed_at=known.changed_at) != known:
        state.touch_all()


def _bootstrap_changed(state: BootstrapFacts, fact: Fact, data: NodeBootstrapChanged) -> None:
    bootstrap.bootstrap_changed(state, fact, data)
    _decided(state, fact.event.subject, fact.event.time)


def _bootstrap_withdrawn(state: BootstrapFacts, fact: Fact, data: NodeBootstrapWithdrawn) -> None:
    bootstrap.bootstrap_withdrawn(state, fact, data)
    _decided(state, fact.event.subject, fact.event.time)
    forget_blank(state, fact.event.subject)


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
    **SEEN_HANDLERS,
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
"""Recorded waits have no handler: they count from where they stand in the log, and are told by `observed`."""
