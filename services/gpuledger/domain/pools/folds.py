"""Folds facts about pools, devices, nodes and assignments into rows; modules beside this one fold the others.

Of what watchers record the latest by event time is in force; decisions of services count in the order of the log.
"""

from sys import intern

from gpuledger.api.conditions import TRUE, NodeConditionType
from gpuledger.api.labels import ANNOTATION_ASSIGNMENT, ANNOTATION_CLUSTER_ASSIGNMENT
from gpuledger.api.phases import AssignmentPhase, DeviceState
from gpuledger.api.pool_ref import PoolRef
from gpuledger.api.pool_spec import MAINTENANCE_CONFIRMED
from gpuledger.api.reasons import AssignmentReason
from gpuledger.domain.fact import Fact, Handlers, is_late
from gpuledger.domain.inventory.device_names import inventory_id
from gpuledger.domain.inventory.state import (
    DECIDED_HANDLERS,
    NO_LABELS,
    GpuDevice,
    hardware_columns,
    json_text,
)
from gpuledger.domain.inventory.status import device_labels
from gpuledger.domain.pools.agent_reports import REPORT_HANDLERS, next_request_time, without_report
from gpuledger.domain.pools.nodes import node_row, put_node
from gpuledger.domain.pools.orders import ORDER_HANDLERS
from gpuledger.domain.pools.pods import POD_HANDLERS
from gpuledger.domain.pools.pools import POOLS_HANDLERS
from gpuledger.domain.pools.rows import PoolDevice, PoolMark
from gpuledger.domain.pools.shared_nodes import SHARING_HANDLERS
from gpuledger.domain.pools.spec import facts_of
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.events.device import (
    Description,
    DeviceAssignmentChanged,
    DeviceDescribed,
    DeviceDetected,
    DeviceMarked,
    DeviceStateChanged,
    DeviceWithdrawn,
)
from gpuledger.events.maintenance import NodeIsolationChanged
from gpuledger.events.module import ModulePrerequisiteChanged
from gpuledger.events.node import NodeBootstrapChanged, NodeBootstrapWithdrawn, NodeGone, NodeLabelled, NodeUnlabelled
from gpuledger.events.pool import PoolChanged, PoolDefined, PoolGone, PoolReleased
from gpuledger.events.settings import SettingsChanged


def _detected(state: PoolFacts, fact: Fact, data: DeviceDetected) -> None:
    before = state.device.get(fact.event.subject)
    prepared = DeviceState.DISCOVERED.value if before is None else before.prepared
    _put_device(state, _described_device(fact, data, data.node, data.index), prepared)


def _described(state: PoolFacts, fact: Fact, data: DeviceDescribed) -> None:
    before = state.device.get(fact.event.subject)
    if before is not None:
        _put_device(state, _described_device(fact, data, before.node, before.device_index), before.prepared)


def _described_device(fact: Fact, data: Description, node: str, index: int | None) -> GpuDevice:
    """The GPUDevice as far as its description goes."""
    time, name = fact.event.time, intern(fact.event.subject)
    flags = (time, None, data.managed, time, data.ignored, time, data.missing, time)
    return GpuDevice(name, intern(node), "", False, index, "", *flags, **hardware_columns(data.hardware))


def _put_device(state: PoolFacts, shown: GpuDevice, prepared: str) -> None:
    before, facts = state.device.get(shown.name), facts_of(shown)
    if before is not None and before.node != shown.node:
        state.touch_orders(shown.name)
        state.device.delete(shown.name)
    row = PoolDevice(
        shown.name, shown.node, shown.device_index, shown.managed, shown.ignored, shown.missing, prepared,
        intern(_inventory_id(state, shown, before)), facts.product, facts.pci_vendor, facts.pci_device,
        facts.mig_capable, shown.mig_profiles, intern(json_text(device_labels(shown))), shown.uuid, shown.pci_address,
    )  # fmt: skip
    if row != before:
        state.device.put(row)
        state.touch_device(row.name)
        state.touch_orders(row.name)


def _inventory_id(state: PoolFacts, shown: GpuDevice, before: PoolDevice | None) -> str:
    if before is not None and before.node == shown.node and before.inventory_id:
        return before.inventory_id
    if shown.pci_address is None:
        return ""
    taken = {other.inventory_id for other in state.device.where("node", shown.node)}
    return inventory_id(shown.name, shown.node, shown.pci_address, taken)


def _state_changed(state: PoolFacts, fact: Fact, data: DeviceStateChanged) -> None:
    before = state.device.get(fact.event.subject)
    if before is not None and before.prepared != data.state:
        state.device.put(before._replace(prepared=data.state))
        state.touch_device(before.name)


def _withdrawn(state: PoolFacts, fact: Fact, data: DeviceWithdrawn) -> None:
    name = fact.event.subject
    before, assignment = state.device.get(name), state.assignment.get(name)
    state.touch_orders(name)
    with state.counted(name):
        POOLS_HANDLERS[DeviceWithdrawn](state, fact, data)
        state.setup.delete(name)
    state.device.delete(name)
    if before is not None and assignment is not None and assignment.pool is not None:
        state.free_room(assignment.pool, before.node)


def _marked(state: PoolFacts, fact: Fact, data: DeviceMarked) -> None:
    device, time = intern(fact.event.subject), fact.event.time
    before = state.mark.get(device)
    if is_late(before and before.marked_at, time):
        return
    state.mark.delete(device)
    pools = (
        data.annotations.get(ANNOTATION_ASSIGNMENT),
        data.annotations.get(ANNOTATION_CLUSTER_ASSIGNMENT),
    )
    row = PoolMark(device, time, intern(json_text(data.labels)), *pools)
    state.mark.put(row)
    state.mark_ends.note(row)
    state.mark_ends.forget(fact)
    if device in state.device.rows:
        state.touch_device(device)


def _labelled(state: PoolFacts, fact: Fact, data: NodeLabelled) -> None:
    _label(state, fact, json_text(data.labels))


def _unlabelled(state: PoolFacts, fact: Fact, _data: NodeUnlabelled) -> None:
    _label(state, fact, NO_LABELS)


def _label(state: PoolFacts, fact: Fact, labels: str) -> None:
    before = node_row(state, fact.event.subject)
    if is_late(before.labelled_at, fact.event.time):
        return
    put_node(state, fact, before._replace(labels=intern(labels), labelled_at=fact.event.time))
    if before.labels != labels:
        state.touch_node(before.node)


def _bootstrap_changed(state: PoolFacts, fact: Fact, data: NodeBootstrapChanged) -> None:
    ready = any(one.type == NodeConditionType.READY_FOR_POOLING and one.status == TRUE for one in data.conditions)
    _set_ready(state, fact, ready=ready)


def _bootstrap_withdrawn(state: PoolFacts, fact: Fact, _data: NodeBootstrapWithdrawn) -> None:
    _set_ready(state, fact, ready=False)


def _set_ready(state: PoolFacts, fact: Fact, *, ready: bool) -> None:
    node = fact.event.subject
    before = node_row(state, node)
    put_node(state, fact, before._replace(ready=ready))
    if before.ready != ready:
        state.touch_node(node)


def _isolation_changed(state: PoolFacts, fact: Fact, data: NodeIsolationChanged) -> None:
    _set_aside(state, fact, aside=data.isolation.unschedulable)


def _node_gone(state: PoolFacts, fact: Fact, _data: NodeGone) -> None:
    """Its isolation went with it; a Node that comes anew gets another one."""
    _set_aside(state, fact, aside=False)


def _set_aside(state: PoolFacts, fact: Fact, *, aside: bool) -> None:
    node = fact.event.subject
    before = node_row(state, node)
    if before.aside != aside:
        put_node(state, fact, before._replace(aside=aside))
        state.touch_node(node)


def _defined(state: PoolFacts, fact: Fact, data: PoolDefined) -> None:
    pool = fact.event.subject
    if state.is_late(pool, fact.event.time):
        return
    name, before = PoolRef.parse(pool).name, state.pool.get(pool)
    state.touch_name(name)
    POOLS_HANDLERS[PoolDefined](state, fact, data)
    state.touch_name(name)
    if before is not None and before.payload != state.pool.rows[pool].payload:
        state.touch_orders_of(pool)
    spec = None if before is None else before.spec.definition
    if data.maintenance == MAINTENANCE_CONFIRMED and (spec is None or spec.maintenance != MAINTENANCE_CONFIRMED):
        _confirm(state, pool)
    if spec is not None and (spec.unit, spec.mig_profile) != (data.unit, data.mig_profile):
        _forget_former_partitions(state, pool)


def _forget_former_partitions(state: PoolFacts, pool: str) -> None:
    """Partitions that a card had of another profile do not count as drift once it has those of the new one."""
    for device in state.assignment.by["pool"].get(pool):
        setup = state.setup.get(device)
        if setup is not None and setup.pool == pool:
            state.setup.put(setup._replace(partitions_most=0))


def _confirm(state: PoolFacts, pool: str) -> None:
    """People accept the drift: the devices are right as they are."""
    for device in state.settle_drift(pool):
        setup = state.setup.get(device)
        if setup is not None and setup.pool == pool:
            state.setup.put(setup._replace(partitions_most=setup.partitions))


def _gone(state: PoolFacts, fact: Fact, data: PoolGone) -> None:
    pool = fact.event.subject
    is_known = pool in state.pool.rows and not state.is_late(pool, fact.event.time)
    if is_known:
        state.touch_name(PoolRef.parse(pool).name)
    POOLS_HANDLERS[PoolGone](state, fact, data)
    if is_known:
        state.settle_drift(pool)


def _assignment_changed(state: PoolFacts, fact: Fact, data: DeviceAssignmentChanged) -> None:
    name = fact.event.subject
    before, setup = state.assignment.get(name), state.setup.get(name)
    with state.counted(name):
        POOLS_HANDLERS[DeviceAssignmentChanged](state, fact, data)
        is_step = before is None or (before.pool, before.phase) != (data.pool, data.phase)
        if is_step and data.phase != AssignmentPhase.ASSIGNED.value and data.reason != AssignmentReason.TAKEN_BACK:
            # The agent's report was about the step before, and not what led to this one.
            requested_at = next_request_time(setup, fact.event.time)
            state.setup.put(without_report(name, data.pool, setup and setup.reported_at, requested_at))
    state.touch_orders(name)
    if before is None or before.pool is None:
        return
    if data.reason == AssignmentReason.DRIFT and before.phase == AssignmentPhase.ASSIGNED:
        state.drift(name, before.pool, AssignmentReason.DRIFT, data.message)
    device = state.device.get(name)
    if device is not None and data.pool != before.pool:
        state.free_room(before.pool, device.node)


def _prerequisite_changed(state: PoolFacts, fact: Fact, data: ModulePrerequisiteChanged) -> None:
    DECIDED_HANDLERS[ModulePrerequisiteChanged](state, fact, data)
    state.touch_all()


def _settings_changed(state: PoolFacts, fact: Fact, data: SettingsChanged) -> None:
    DECIDED_HANDLERS[SettingsChanged](state, fact, data)
    state.touch_all()


HANDLERS: Handlers = {
    DeviceDetected: _detected,
    DeviceDescribed: _described,
    DeviceStateChanged: _state_changed,
    DeviceWithdrawn: _withdrawn,
    DeviceMarked: _marked,
    NodeLabelled: _labelled,
    NodeUnlabelled: _unlabelled,
    NodeBootstrapChanged: _bootstrap_changed,
    NodeBootstrapWithdrawn: _bootstrap_withdrawn,
    NodeIsolationChanged: _isolation_changed,
    NodeGone: _node_gone,
    PoolDefined: _defined,
    PoolGone: _gone,
    PoolReleased: POOLS_HANDLERS[PoolReleased],
    PoolChanged: POOLS_HANDLERS[PoolChanged],
    **REPORT_HANDLERS,
    **POD_HANDLERS,
    **ORDER_HANDLERS,
    **SHARING_HANDLERS,
    DeviceAssignmentChanged: _assignment_changed,
    ModulePrerequisiteChanged: _prerequisite_changed,
    SettingsChanged: _settings_changed,
}
