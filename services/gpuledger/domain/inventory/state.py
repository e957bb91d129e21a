"""The decided inventory: GPUDevices, nodes with GPUs, the module, its settings, and labels that people set.

Everything that shows or uses the inventory folds this module alone. Times are those of the events; a later decision in
the log replaces an earlier one.
"""

from datetime import datetime
from sys import intern
from typing import Any, Final, NamedTuple

import orjson

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.api.phases import DeviceState
from gpuledger.domain.conditions import put_conditions
from gpuledger.domain.fact import Fact, Handlers, TableState
from gpuledger.domain.inventory.device_names import inventory_id
from gpuledger.domain.table import Table, TableSpec
from gpuledger.domain.tombstones import RowEnds
from gpuledger.events.device import (
    Description,
    DeviceAttached,
    DeviceDescribed,
    DeviceDetached,
    DeviceDetected,
    DeviceIdentified,
    DeviceMarked,
    DeviceWithdrawn,
    Hardware,
)
from gpuledger.events.module import ModulePrerequisiteChanged
from gpuledger.events.node import NodeInventoryChanged, NodeInventoryWithdrawn
from gpuledger.events.settings import DEFAULT_CLAIM_REFERENCES, SettingsChanged

NO_LABELS: Final = "{}"
"""No labels, as a JSON object."""


class GpuDevice(NamedTuple):
    """A GPUDevice. A time named `_at` beside a flag is when the flag last changed; lists are joined by commas.

    `slot` is where the card was found and stands in the device's passport, `card` as in `device.detected`.
    `inventory_id` is empty until the PCI address is known, and then stays, also when the card moves to another slot.
    """

    name: str
    node: str
    card: str
    provisional: bool
    device_index: int | None
    state: str
    detected_at: datetime
    slot: str | None
    managed: bool
    managed_at: datetime
    ignored: bool
    ignored_at: datetime
    missing: bool
    missing_at: datetime
    uuid: str | None = None
    serial: str | None = None
    pci_address: str | None = None
    pci_vendor: str | None = None
    pci_device: str | None = None
    pci_class: str | None = None
    product: str | None = None
    memory_mib: int | None = None
    compute_major: int | None = None
    compute_minor: int | None = None
    precision: str | None = None
    mig_capable: bool | None = None
    mig_strategy: str | None = None
    mig_profiles: str | None = None
    inventory_id: str = ""


class GpuDeviceMark(NamedTuple):
    """The labels and annotations that people set on a GPUDevice, as JSON objects."""

    name: str
    marked_at: datetime
    labels: str
    annotations: str

    def ended_at(self) -> datetime | None:
        """Since when there is nothing of people's on the device, or no device; None while there is."""
        return self.marked_at if self.labels == self.annotations == NO_LABELS else None


class GpuNode(NamedTuple):
    """A node with GPUs, now or in the past; `decided_at` is the time of the last decision about it or its devices."""

    node: str
    present: bool
    decided_at: datetime


class GpuNodeCondition(NamedTuple):
    """A condition of a node; `changed_at` is when its status last changed."""

    node: str
    type: str
    status: str
    reason: str
    message: str
    changed_at: datetime


class GpuModule(NamedTuple):
    """Whether the module's prerequisites are met, and since when."""

    module: str
    met: bool
    reason: str
    message: str
    changed_at: datetime


class ModuleSettings(NamedTuple):
    """The module's settings in force. Defaults as in `settings.changed`.

    The selector is a JSON object of labels, or of `labels` and `requirements` where there are any of the latter.
    """

    module: str
    changed_at: datetime | None
    enabled: bool
    managed_label_key: str
    enabled_by_default: bool
    approval_mode: str
    approval_selector: str
    scheduling_strategy: str
    topology_key: str
    resync_period_s: int
    high_availability: bool | None
    claim_references: str
    dra_availability: bool
    validator_enabled: bool
    gfd_enabled: bool
    dcgm_enabled: bool
    dcgm_exporter_enabled: bool
    heartbeats: int
    recovery_heartbeats: int
    validation_timeout_s: int
    max_slices_per_device: int

    @property
    def keeps_slice_statuses(self) -> bool:
        """Whether gpuledger writes ResourceSliceStatuses; while it does not, they stay as they are."""
        return self.enabled and self.dra_availability


GPU_DEVICE = TableSpec("gpu_device", GpuDevice, ("name",))
GPU_DEVICE_MARK = TableSpec("gpu_device_mark", GpuDeviceMark, ("name",))
GPU_NODE = TableSpec("gpu_node", GpuNode, ("node",))
GPU_NODE_CONDITION = TableSpec("gpu_node_condition", GpuNodeCondition, ("node", "type"))
GPU_MODULE = TableSpec("gpu_module", GpuModule, ("module",))
MODULE_SETTINGS = TableSpec("module_settings", ModuleSettings, ("module",))
DECIDED_SPECS: tuple[TableSpec[Any], ...] = (
    GPU_DEVICE,
    GPU_DEVICE_MARK,
    GPU_NODE,
    GPU_NODE_CONDITION,
    GPU_MODULE,
    MODULE_SETTINGS,
)


class Inventory(TableState):
    """The decided inventory, with settings, labels and annotations from people."""

    def __init__(self) -> None:
        self.device = Table(GPU_DEVICE, "node")
        self.mark = Table(GPU_DEVICE_MARK)
        self.mark_ends = RowEnds(self.mark, GpuDeviceMark.ended_at)
        self.node = Table(GPU_NODE)
        self.condition = Table(GPU_NODE_CONDITION, "node")
        self.module = Table(GPU_MODULE)
        self.settings = Table(MODULE_SETTINGS)

    def settings_in_force(self) -> ModuleSettings:
        """The settings, or their defaults where nobody has set any."""
        return self.settings.get(MODULE_CONFIG) or DEFAULT_SETTINGS


def settings_row(data: SettingsChanged, changed_at: datetime | None) -> ModuleSettings:
    """The settings as a row."""
    labels, requirements = data.approval_selector, [one.model_dump() for one in data.approval_requirements]
    selector = json_text({"labels": labels, "requirements": requirements} if requirements else labels)
    apart = {"approval_selector", "approval_requirements", "generation", "not_in_force"}
    values = {**data.model_dump(exclude=apart), "approval_selector": selector}
    return ModuleSettings(module=MODULE_CONFIG, changed_at=changed_at, **values)


def json_text(value: object) -> str:
    """Canonical JSON: equal values give equal text."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


DEFAULT_SETTINGS = settings_row(SettingsChanged(claim_references=DEFAULT_CLAIM_REFERENCES), None)

HARDWARE = tuple(Hardware.model_fields)
"""The columns of a GPUDevice's row that describe its hardware."""


def hardware_columns(hardware: Hardware) -> dict[str, Any]:
    """The hardware as columns of a GPUDevice's row."""
    return {name: _column(getattr(hardware, name)) for name in HARDWARE}


def _column(value: Any) -> Any:  # noqa: ANN401 - columns are of several types
    if isinstance(value, tuple):
        return intern(",".join(value))
    return intern(value) if type(value) is str else value


def described(row: GpuDevice, data: Description, time: datetime) -> GpuDevice:
    """The row after a description; a flag's time changes only with the flag."""
    return row._replace(
        **hardware_columns(data.hardware),
        managed=data.managed,
        managed_at=time if data.managed != row.managed else row.managed_at,
        ignored=data.ignored,
        ignored_at=time if data.ignored != row.ignored else row.ignored_at,
        missing=data.missing,
        missing_at=time if data.missing != row.missing else row.missing_at,
    )


def _detected(state: Inventory, fact: Fact, data: DeviceDetected) -> None:
    name, time = fact.event.subject, fact.event.time
    row = GpuDevice(
        intern(name),
        intern(data.node),
        intern(data.card),
        data.provisional,
        data.index,
        DeviceState.DISCOVERED.value,
        detected_at=time,
        slot=None,
        managed=data.managed,
        managed_at=time,
        ignored=data.ignored,
        ignored_at=time,
        missing=data.missing,
        missing_at=time,
    )
    state.device.put(_with_inventory_id(state, described(row, data, time)))
    _touch(state, data.node, time)


def _identified(state: Inventory, fact: Fact, data: DeviceIdentified) -> None:
    _change(state, fact, card=intern(data.card), provisional=False)


def _described(state: Inventory, fact: Fact, data: DeviceDescribed) -> None:
    row = state.device.get(fact.event.subject)
    if row is not None:
        state.device.put(_with_inventory_id(state, described(row, data, fact.event.time)))
        _touch(state, row.node, fact.event.time)


def _with_inventory_id(state: Inventory, row: GpuDevice) -> GpuDevice:
    if row.inventory_id or row.pci_address is None:
        return row
    taken = {other.inventory_id for other in state.device.where("node", row.node)}
    return row._replace(inventory_id=intern(inventory_id(row.name, row.node, row.pci_address, taken)))


def _withdrawn(state: Inventory, fact: Fact, _data: DeviceWithdrawn) -> None:
    row = state.device.get(fact.event.subject)
    if row is not None:
        state.device.delete(row.name)
        _touch(state, row.node, fact.event.time)


def _attached(state: Inventory, fact: Fact, data: DeviceAttached) -> None:
    _change(state, fact, data.name, slot=data.slot)


def _detached(state: Inventory, fact: Fact, data: DeviceDetached) -> None:
    _change(state, fact, data.name, slot=None)


def _change(state: Inventory, fact: Fact, name: str | None = None, **columns: Any) -> None:  # noqa: ANN401
    row = state.device.get(name or fact.event.subject)
    if row is not None:
        state.device.put(row._replace(**columns))
        _touch(state, row.node, fact.event.time)


def _touch(state: Inventory, node: str, time: datetime, *, present: bool | None = None) -> None:
    previous = state.node.get(node) or GpuNode(intern(node), False, time)
    is_present = previous.present if present is None else present
    state.node.put(GpuNode(previous.node, is_present, max(previous.decided_at, time)))


def _inventory_changed(state: Inventory, fact: Fact, data: NodeInventoryChanged) -> None:
    node, time = fact.event.subject, fact.event.time
    put_conditions(state.condition, node, data.conditions, time)
    _touch(state, node, time, present=data.present)


def _inventory_withdrawn(state: Inventory, fact: Fact, _data: NodeInventoryWithdrawn) -> None:
    node = fact.event.subject
    for condition in state.condition.where("node", node):
        state.condition.delete((node, condition.type))
    state.node.delete(node)


def _prerequisite_changed(state: Inventory, fact: Fact, data: ModulePrerequisiteChanged) -> None:
    previous = state.module.get(fact.event.subject)
    changed_at = previous.changed_at if previous is not None and previous.met == data.met else fact.event.time
    state.module.put(GpuModule(fact.event.subject, data.met, data.reason, data.message, changed_at))


def _marked(state: Inventory, fact: Fact, data: DeviceMarked) -> None:
    name, time = fact.event.subject, fact.event.time
    previous = state.mark.get(name)
    if previous is None or previous.marked_at <= time:
        row = GpuDeviceMark(name, time, json_text(data.labels), json_text(data.annotations))
        state.mark.put(row)
        state.mark_ends.note(row)
    state.mark_ends.forget(fact)


def _settings_changed(state: Inventory, fact: Fact, data: SettingsChanged) -> None:
    previous = state.settings.get(MODULE_CONFIG)
    if fact.event.subject == MODULE_CONFIG and (
        previous is None or previous.changed_at is None or previous.changed_at <= fact.event.time
    ):
        state.settings.put(settings_row(data, fact.event.time))


DECIDED_HANDLERS: Handlers = {
    DeviceDetected: _detected,
    DeviceIdentified: _identified,
    DeviceDescribed: _described,
    DeviceWithdrawn: _withdrawn,
    DeviceAttached: _attached,
    DeviceDetached: _detached,
    DeviceMarked: _marked,
    NodeInventoryChanged: _inventory_changed,
    NodeInventoryWithdrawn: _inventory_withdrawn,
    ModulePrerequisiteChanged: _prerequisite_changed,
    SettingsChanged: _settings_changed,
}
