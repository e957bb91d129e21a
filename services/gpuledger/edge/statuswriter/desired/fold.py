"""Folds the ledger's events into the desired state, and notes which of them are worth a Kubernetes Event. Pure."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gpuledger.api.conditions import (
    PREREQUISITE_NOT_MET,
    ConditionStatus,
    NodeConditionType,
    PoolConditionType,
)
from gpuledger.api.phases import DeviceState
from gpuledger.api.reasons import AssignmentReason, EventReason, WithdrawalReason
from gpuledger.api.sharing import SharingNames
from gpuledger.domain.bootstrap.state import BOOTSTRAP_HANDLERS
from gpuledger.domain.dra.fold import HANDLERS as SLICE_HANDLERS
from gpuledger.domain.fact import Fact, Handler, Handlers, within
from gpuledger.domain.inventory.state import DECIDED_HANDLERS, DECIDED_SPECS, GpuDevice
from gpuledger.domain.pools.agent_reports import partitions_reported
from gpuledger.domain.pools.pools import POOLS_HANDLERS
from gpuledger.edge.statuswriter.desired import config_news
from gpuledger.edge.statuswriter.desired.coverage import HANDLERS as COVERAGE_HANDLERS
from gpuledger.edge.statuswriter.desired.instances import HANDLERS as INSTANCE_HANDLERS
from gpuledger.edge.statuswriter.desired.machine_configs import HANDLERS as CONFIG_HANDLERS
from gpuledger.edge.statuswriter.desired.machine_configs import MachineConfigs
from gpuledger.edge.statuswriter.desired.module import HANDLERS as MODULE_HANDLERS
from gpuledger.edge.statuswriter.desired.module import news_of
from gpuledger.edge.statuswriter.desired.pools import HANDLERS as POOL_USAGE_HANDLERS
from gpuledger.edge.statuswriter.desired.pools import DevicePartitions, pool_key
from gpuledger.edge.statuswriter.desired.replicas import HANDLERS as AVAILABILITY_HANDLERS
from gpuledger.edge.statuswriter.desired.shared import HANDLERS as SHARED_HANDLERS
from gpuledger.edge.statuswriter.desired.since import since
from gpuledger.edge.statuswriter.desired.state import WITHDRAWN, DesiredState
from gpuledger.edge.statuswriter.events.series import Occurrence
from gpuledger.edge.statuswriter.objects import NAMES, Key, Kind
from gpuledger.events.device import (
    DeviceAssignmentChanged,
    DeviceDetected,
    DeviceMarked,
    DevicePoolApplied,
    DeviceStateChanged,
    DeviceWithdrawn,
)
from gpuledger.events.machine_config import (
    MachineConfigPoolChanged,
    MachineConfigRendered,
    MachineConfigRenderedWithdrawn,
    NodeConfigChanged,
    NodeConfigDrainFailed,
    NodeConfigReported,
)
from gpuledger.events.module import ModulePrerequisiteChanged
from gpuledger.events.node import (
    Condition,
    NodeBootstrapChanged,
    NodeBootstrapWithdrawn,
    NodeInventoryChanged,
    NodeInventoryWithdrawn,
)
from gpuledger.events.payload import Payload
from gpuledger.events.pool import PoolChanged
from gpuledger.events.publishing import is_agent_of
from gpuledger.events.settings import SettingsChanged
from gpuledger.events.sharing import NodeDevicesShared
from gpuledger.events.slice import SlicePublished, SliceWithdrawn
from gpuledger.projection.definition import Projection

USUAL = frozenset(
    {
        (NodeConditionType.INVENTORY_COMPLETE, ConditionStatus.TRUE),
        (NodeConditionType.MANAGED_DISABLED, ConditionStatus.FALSE),
    }
)
"""Conditions that are not worth an Event of a node that was just recorded."""

FAILED_PHASE = "ValidatingFailed"
FIRST_PHASE = "Validating"
"""The phase that is not worth an Event of a node that was just recorded."""

POOL_EVENTS: Mapping[str, EventReason] = {
    PoolConditionType.MAINTENANCE: EventReason.MAINTENANCE,
    PoolConditionType.MISCONFIGURED: EventReason.MISCONFIGURED,
}
"""Conditions of pools that are worth an Event."""


def _in_sequence(handlers: list[Handler]) -> Handler:
    def fold(state: DesiredState, fact: Fact, data: object) -> None:
        for handler in handlers:
            handler(state, fact, data)

    return handlers[0] if len(handlers) == 1 else fold


def _combined(*parts: Handlers) -> Handlers:
    """Every part folds what it handles, in this order."""
    handlers: defaultdict[type[Payload], list[Handler]] = defaultdict(list)
    for part in parts:
        for model, handler in part.items():
            handlers[model].append(handler)
    return {model: _in_sequence(several) for model, several in handlers.items()}


_FOLD: Handlers = _combined(
    {model: handler for model, handler in DECIDED_HANDLERS.items() if model is not DeviceMarked},
    within("bootstrap", BOOTSTRAP_HANDLERS),
    within("pools", POOLS_HANDLERS),
    within("pool_usage", POOL_USAGE_HANDLERS),
    within("instances", INSTANCE_HANDLERS),
    within("coverage", COVERAGE_HANDLERS),
    within("module_check", MODULE_HANDLERS),
    within("availability", AVAILABILITY_HANDLERS),
    within("slices", SLICE_HANDLERS),
    within("shared", SHARED_HANDLERS),
    within("machine_configs", CONFIG_HANDLERS),
)


def _fold(state: DesiredState, fact: Fact, data: Payload) -> None:
    _FOLD[type(data)](state, fact, data)


def _announce(
    state: DesiredState, fact: Fact, key: Key, reason: EventReason, about: str, note: str, *, is_warning: bool = False
) -> None:
    """Note an occurrence, unless it was imported or restored."""
    event = fact.event
    if not event.imported and event.recorded_at is None:
        state.occurrences.add(Occurrence(key, reason, about, note, is_warning, event.time, fact.recorded_ns))


def _check_pools(state: DesiredState, fact: Fact, node: str) -> None:
    """Note since when a node could give devices to a pool but has none in one."""
    if not state.is_without_pool(node):
        state.without_pool.delete(node)
    elif node not in state.without_pool.rows:
        state.without_pool.put(since(fact, node))


def _detected(state: DesiredState, fact: Fact, data: DeviceDetected) -> None:
    _fold(state, fact, data)
    key = Key(Kind.DEVICE, fact.event.subject)
    state.forget_withdrawal(key)
    _announce(
        state, fact, key, EventReason.DEVICE_DETECTED, "", f"{_described(state.device.rows[key.name])} was found."
    )


def _described(row: GpuDevice) -> str:
    at = f" at {row.pci_address}" if row.pci_address else ""
    return f"{row.product or 'A GPU'} in node {row.node}{at}"


_WITHDRAWN: Mapping[str | None, str] = {
    WithdrawalReason.REPLACED: "another card is in its slot",
    WithdrawalReason.RETIRED: "its card is missing, and it was retired",
}


def _withdrawn(state: DesiredState, fact: Fact, data: DeviceWithdrawn) -> None:
    row = state.device.get(fact.event.subject)
    _fold(state, fact, data)
    state.pool_usage.partitions.delete(fact.event.subject)
    if row is None:
        return
    key = Key(Kind.DEVICE, row.name)
    state.withdraw(key)
    _check_pools(state, fact, row.node)
    why = f"it sits in node {data.moved_to} now" if data.moved_to else _WITHDRAWN.get(data.reason, "its node is gone")
    _announce(state, fact, key, EventReason.DEVICE_REMOVED, "", f"{_described(row)} was removed: {why}.")


def _inventory_changed(state: DesiredState, fact: Fact, data: NodeInventoryChanged) -> None:
    key = Key(Kind.NODE, fact.event.subject)
    state.forget_withdrawal(key)
    for condition in data.conditions:
        before = state.condition.get((key.name, condition.type))
        was = None if before is None else (before.status, before.reason)
        is_usual = (condition.type, condition.status) in USUAL
        if was != (condition.status, condition.reason) and not (was is None and is_usual):
            is_warning = (condition.type, condition.status) == (
                NodeConditionType.INVENTORY_COMPLETE,
                ConditionStatus.FALSE,
            )
            _announce_condition(state, fact, key, EventReason.CONDITION_CHANGED, condition, is_warning=is_warning)
        if condition.type == NodeConditionType.INVENTORY_COMPLETE:
            _note_completeness(state, fact, condition)
    _fold(state, fact, data)


def _note_completeness(state: DesiredState, fact: Fact, condition: Condition) -> None:
    if condition.status == ConditionStatus.FALSE.value:
        state.coverage.note_incomplete(since(fact, fact.event.subject))
    else:
        state.coverage.note_complete(fact.event.subject)


def _announce_condition(
    state: DesiredState, fact: Fact, key: Key, reason: EventReason, condition: Condition, *, is_warning: bool
) -> None:
    note = f"{condition.type} is {condition.status}: {condition.reason}. {condition.message}".strip()
    about = f"{condition.type}={condition.status}/{condition.reason}"
    _announce(state, fact, key, reason, about, note, is_warning=is_warning)


def _inventory_withdrawn(state: DesiredState, fact: Fact, data: NodeInventoryWithdrawn) -> None:
    _fold(state, fact, data)
    state.coverage.note_complete(fact.event.subject)
    state.withdraw(Key(Kind.NODE, fact.event.subject))


def _prerequisite_changed(state: DesiredState, fact: Fact, data: ModulePrerequisiteChanged) -> None:
    before = state.module.get(fact.event.subject)
    _fold(state, fact, data)
    if data.met and before is None:
        return
    status = ConditionStatus.FALSE if data.met else ConditionStatus.TRUE
    note = f"{PREREQUISITE_NOT_MET} is {status}: {data.reason}. {data.message}".strip()
    about = f"{PREREQUISITE_NOT_MET}={status}/{data.reason}"
    key = Key(Kind.MODULE, fact.event.subject)
    _announce(state, fact, key, EventReason.CONDITION_CHANGED, about, note, is_warning=not data.met)


def _settings_changed(state: DesiredState, fact: Fact, data: SettingsChanged) -> None:
    before = state.module_check.latest
    _fold(state, fact, data)
    now = state.module_check.latest
    note = news_of(before, now)
    if note is None or now is None:
        return
    key = Key(Kind.MODULE, fact.event.subject)
    _announce(state, fact, key, EventReason.CONDITION_CHANGED, note, note, is_warning=bool(now.in_vain))


def _bootstrap_changed(state: DesiredState, fact: Fact, data: NodeBootstrapChanged) -> None:
    node = fact.event.subject
    before = state.bootstrap.phase.get(node)
    was = FIRST_PHASE if before is None else before.phase
    _fold(state, fact, data)
    _check_pools(state, fact, node)
    if data.phase == was:
        return
    wrong = "".join(f" {one.type}: {one.message or one.reason}" for one in data.conditions if _is_wrong(one))
    note = f"The node's preparation went from {was} to {data.phase}.{wrong}"
    is_warning = data.phase == FAILED_PHASE
    key = Key(Kind.NODE, node)
    _announce(state, fact, key, EventReason.PHASE_CHANGED, f"{was}>{data.phase}", note, is_warning=is_warning)


def _is_wrong(condition: Condition) -> bool:
    return condition.type.endswith("Missing") and condition.status == ConditionStatus.TRUE.value


def _bootstrap_withdrawn(state: DesiredState, fact: Fact, data: NodeBootstrapWithdrawn) -> None:
    _fold(state, fact, data)
    state.without_pool.delete(fact.event.subject)


def _state_changed(state: DesiredState, fact: Fact, data: DeviceStateChanged) -> None:
    before = state.bootstrap.state.get(fact.event.subject)
    _fold(state, fact, data)
    _device_changed(state, fact)
    if data.state == DeviceState.FAULTED.value and (before is None or before.state != DeviceState.FAULTED):
        note = f"The device is not usable: {data.reason}. {data.message}".strip()
        key = Key(Kind.DEVICE, fact.event.subject)
        _announce(state, fact, key, EventReason.DEVICE_FAULTED, data.reason, note, is_warning=True)


def _assignment_changed(state: DesiredState, fact: Fact, data: DeviceAssignmentChanged) -> None:
    _fold(state, fact, data)
    _device_changed(state, fact)
    if data.pool is None and data.reason == AssignmentReason.MISMATCH:
        note = data.message or "The device cannot belong to the pool that its annotation names."
        key = Key(Kind.DEVICE, fact.event.subject)
        _announce(state, fact, key, EventReason.ANNOTATION_MISMATCH, "", note, is_warning=True)


def _device_changed(state: DesiredState, fact: Fact) -> None:
    row = state.device.get(fact.event.subject)
    if row is not None:
        _check_pools(state, fact, row.node)


def _pool_applied(state: DesiredState, fact: Fact, data: DevicePoolApplied) -> None:
    """An agent's report counts for the pool that a device belongs to; before reports were judged, on its own node."""
    row, assignment = state.device.get(fact.event.subject), state.pools.assignment.get(fact.event.subject)
    if assignment is None or assignment.pool != data.pool:
        return
    if row is not None and is_agent_of(fact.event.source, row.node):
        state.pool_usage.partitions.put(DevicePartitions(row.name, partitions_reported(data)))


def _pool_changed(state: DesiredState, fact: Fact, data: PoolChanged) -> None:
    pool = fact.event.subject
    if pool not in state.pools.pool.rows:
        return
    for condition in data.conditions:
        before = state.pools.condition.get((pool, condition.type))
        was = ConditionStatus.FALSE.value if before is None else before.status
        reason = POOL_EVENTS.get(condition.type)
        if reason is not None and condition.status != was:
            is_warning = condition.status == ConditionStatus.TRUE.value
            _announce_condition(state, fact, pool_key(pool), reason, condition, is_warning=is_warning)
    _fold(state, fact, data)


def _slice_published(state: DesiredState, fact: Fact, data: SlicePublished) -> None:
    _fold(state, fact, data)
    state.forget_withdrawal(Key(Kind.SLICE, fact.event.subject))


def _slice_withdrawn(state: DesiredState, fact: Fact, data: SliceWithdrawn) -> None:
    if state.slices.slice.get(fact.event.subject) is not None:
        state.withdraw(Key(Kind.SLICE, fact.event.subject))
    _fold(state, fact, data)


def _devices_shared(state: DesiredState, fact: Fact, data: NodeDevicesShared) -> None:
    """A node that offers devices again needs its Device again."""
    key = Key(Kind.SHARED, fact.event.subject)
    was_shared = state.shared.of(key.name).payload is not None
    _fold(state, fact, data)
    _check_pools(state, fact, key.name)
    if data.enabled:
        state.forget_withdrawal(key)
    elif was_shared:
        state.withdraw(key)


def _rendered(state: DesiredState, fact: Fact, data: MachineConfigRendered) -> None:
    _fold(state, fact, data)
    state.forget_withdrawal(Key(Kind.RENDERED_CONFIG, data.name))


def _rendered_withdrawn(state: DesiredState, fact: Fact, data: MachineConfigRenderedWithdrawn) -> None:
    if state.machine_configs.rendered.get(data.name) is not None:
        state.withdraw(Key(Kind.RENDERED_CONFIG, data.name))
    _fold(state, fact, data)


def _announcing(news_of: Callable[[MachineConfigs, Fact, Any], Iterator[config_news.News]]) -> Handler:
    """Folds an event about the configuration of nodes, and announces what of it is news."""

    def fold(state: DesiredState, fact: Fact, data: Payload) -> None:
        found = list(news_of(state.machine_configs, fact, data))
        if type(data) in _FOLD:
            _fold(state, fact, data)
        for key, reason, about, note, is_warning in found:
            _announce(state, fact, key, reason, about, note, is_warning=is_warning)

    return fold


_HANDLERS: Handlers = {
    MachineConfigRendered: _rendered,
    MachineConfigRenderedWithdrawn: _rendered_withdrawn,
    MachineConfigPoolChanged: _announcing(config_news.of_pool),
    NodeConfigChanged: _announcing(config_news.of_node),
    NodeConfigDrainFailed: _announcing(config_news.of_drain),
    NodeConfigReported: _announcing(config_news.of_report),
    NodeDevicesShared: _devices_shared,
    DeviceDetected: _detected,
    DeviceWithdrawn: _withdrawn,
    DeviceStateChanged: _state_changed,
    DeviceAssignmentChanged: _assignment_changed,
    DevicePoolApplied: _pool_applied,
    NodeInventoryChanged: _inventory_changed,
    NodeInventoryWithdrawn: _inventory_withdrawn,
    NodeBootstrapChanged: _bootstrap_changed,
    NodeBootstrapWithdrawn: _bootstrap_withdrawn,
    ModulePrerequisiteChanged: _prerequisite_changed,
    SettingsChanged: _settings_changed,
    PoolChanged: _pool_changed,
    SlicePublished: _slice_published,
    SliceWithdrawn: _slice_withdrawn,
}


class DesiredProjection(Projection):
    """Folds the desired state, which stays in memory."""

    name = "statuswriter"
    version = 3
    specs = DECIDED_SPECS
    handlers = {**_FOLD, **_HANDLERS}
    forgotten_by_effects = frozenset({WITHDRAWN.name})

    def __init__(self, names: SharingNames = NAMES) -> None:
        self._names = names

    def new_state(self) -> DesiredState:
        """An empty state."""
        return DesiredState(self._names)
