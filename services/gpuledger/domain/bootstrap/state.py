"""The decided preparation of nodes and GPUDevices: phases, states and conditions.

Everything that shows or uses the preparation folds this module alone. A GPUDevice without a row is Discovered. Times
are those of the events; a later decision in the log replaces an earlier one.
"""

from datetime import datetime
from sys import intern
from typing import Any, NamedTuple

from gpuledger.domain.conditions import put_conditions
from gpuledger.domain.fact import Fact, Handlers, TableState
from gpuledger.domain.inventory.state import GpuNodeCondition
from gpuledger.domain.table import Table, TableSpec
from gpuledger.events.device import DeviceStateChanged, DeviceWithdrawn
from gpuledger.events.node import NodeBootstrapChanged, NodeBootstrapWithdrawn


class NodePhase(NamedTuple):
    """The phase of a node's preparation, and since when."""

    node: str
    phase: str
    changed_at: datetime


class PreparedDevice(NamedTuple):
    """How far a GPUDevice is prepared, and since when; its assignment to a pool is another row."""

    name: str
    state: str
    reason: str
    message: str
    changed_at: datetime


GPU_NODE_PHASE = TableSpec("gpu_node_phase", NodePhase, ("node",))
GPU_DEVICE_STATE = TableSpec("gpu_device_state", PreparedDevice, ("name",))
GPU_NODE_PREPARATION = TableSpec("gpu_node_preparation", GpuNodeCondition, ("node", "type"))
BOOTSTRAP_SPECS: tuple[TableSpec[Any], ...] = (GPU_NODE_PHASE, GPU_DEVICE_STATE, GPU_NODE_PREPARATION)


class Bootstrap(TableState):
    """The decided preparation of nodes and GPUDevices."""

    def __init__(self) -> None:
        self.phase = Table(GPU_NODE_PHASE)
        self.state = Table(GPU_DEVICE_STATE)
        self.preparation = Table(GPU_NODE_PREPARATION, "node")


def bootstrap_changed(state: Bootstrap, fact: Fact, data: NodeBootstrapChanged) -> None:
    """Store the node's phase, whose time changes only with it, and its conditions."""
    node, time = intern(fact.event.subject), fact.event.time
    previous = state.phase.get(node)
    changed_at = previous.changed_at if previous is not None and previous.phase == data.phase else time
    state.phase.put(NodePhase(node, intern(data.phase), changed_at))
    for row in state.preparation.where("node", node):
        if all(row.type != one.type for one in data.conditions):
            state.preparation.delete((node, row.type))
    put_conditions(state.preparation, node, data.conditions, time)


def bootstrap_withdrawn(state: Bootstrap, fact: Fact, _data: NodeBootstrapWithdrawn) -> None:
    """Forget the node's preparation."""
    node = fact.event.subject
    for row in state.preparation.where("node", node):
        state.preparation.delete((node, row.type))
    state.phase.delete(node)


def state_changed(state: Bootstrap, fact: Fact, data: DeviceStateChanged) -> None:
    """Store the GPUDevice's state; its time changes only with the state, not with the reason."""
    name, time = intern(fact.event.subject), fact.event.time
    previous = state.state.get(name)
    changed_at = previous.changed_at if previous is not None and previous.state == data.state else time
    state.state.put(PreparedDevice(name, intern(data.state), intern(data.reason), intern(data.message), changed_at))


def device_withdrawn(state: Bootstrap, fact: Fact, _data: DeviceWithdrawn) -> None:
    """Forget the GPUDevice."""
    state.state.delete(fact.event.subject)


BOOTSTRAP_HANDLERS: Handlers = {
    NodeBootstrapChanged: bootstrap_changed,
    NodeBootstrapWithdrawn: bootstrap_withdrawn,
    DeviceStateChanged: state_changed,
    DeviceWithdrawn: device_withdrawn,
}
"""The inventory folds `device.withdrawn` as well: a state that has both calls both handlers."""
