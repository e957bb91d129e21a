"""What the webhooks know when they are asked: a fold of the ledger, kept in memory. Pure.

Pools with what was decided of them, namespaces with their gate, devices with their state and pool, nodes' labels and
the module's settings. It is as old as the ledger's last event that was read, so what depends on two writes at once
(two pools of one name) may pass here, and is settled by the service that decides it.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar

from gpuledger.api.kinds import NAMESPACE
from gpuledger.api.pool_ref import PoolRef
from gpuledger.domain.fact import Fact, Handlers
from gpuledger.domain.inventory.state import DECIDED_HANDLERS, GpuDevice, Inventory, ModuleSettings
from gpuledger.domain.table import Table
from gpuledger.events.device import (
    DeviceAssignmentChanged,
    DeviceDescribed,
    DeviceDetected,
    DeviceIdentified,
    DeviceStateChanged,
    DeviceWithdrawn,
)
from gpuledger.events.namespace import NamespaceGone, NamespaceObserved
from gpuledger.events.node import Condition, NodeLabelled, NodeUnlabelled
from gpuledger.events.pool import PoolChanged, PoolDefined, PoolGone
from gpuledger.events.settings import SettingsChanged
from gpuledger.projection.definition import Projection

T = TypeVar("T")


class KnownPool(NamedTuple):
    """A pool, and what was decided of it: None as long as nothing was."""

    ref: PoolRef
    spec: PoolDefined
    decided: PoolChanged | None

    def condition(self, kind: str) -> Condition | None:
        """The condition of that type."""
        conditions = self.decided.conditions if self.decided else ()
        return next((one for one in conditions if one.type == kind), None)

    def is_true(self, kind: str) -> bool:
        """Whether a condition holds."""
        found = self.condition(kind)
        return found is not None and found.status == "True"


class KnownDevice(NamedTuple):
    """A GPUDevice as the inventory has it, how far it is prepared, which pool has it, and whether by itself."""

    row: GpuDevice
    prepared: str
    pool: str | None
    phase: str | None
    is_automatic: bool
    node_labels: Mapping[str, str]


class _Latest(Generic[T]):
    """What was said last of each thing, by the time at which it held; that it is gone is something said."""

    def __init__(self) -> None:
        self.values: dict[str, T] = {}
        self._times: dict[str, datetime] = {}

    def put(self, key: str, time: datetime, value: T) -> bool:
        """Take it in; False where something later is known."""
        if key in self._times and self._times[key] > time:
            return False
        self.values[key], self._times[key] = value, time
        return True

    def drop(self, key: str, time: datetime) -> bool:
        """The thing is gone; False where something later is known, or there was none."""
        if key in self._times and self._times[key] > time:
            return False
        self._times[key] = time
        return self.values.pop(key, None) is not None


class Known:
    """The state of the fold, and what the rules ask of it; `home` is the namespace that the product runs in."""

    def __init__(self, home: str = NAMESPACE) -> None:
        self.home = home
        self.inventory = Inventory()
        for table in self.inventory.tables().values():
            table.never_written()
        self.pools = _Latest[PoolDefined]()
        self.decided: dict[str, PoolChanged] = {}
        self.namespaces = _Latest[bool]()
        self.node_labels = _Latest[Mapping[str, str]]()
        self.prepared: dict[str, str] = {}
        self.assigned: dict[str, tuple[str, str | None, bool]] = {}
        self.subjects: dict[str, set[str]] = {}

    def tables(self) -> Mapping[str, Table[Any]]:
        """None: nothing of this is stored."""
        return {}

    @property
    def settings(self) -> ModuleSettings:
        """The module's settings in force."""
        return self.inventory.settings_in_force()

    def pool(self, ref: PoolRef) -> KnownPool | None:
        """The pool of that name."""
        spec = self.pools.values.get(ref.id)
        return None if spec is None else KnownPool(ref, spec, self.decided.get(ref.id))

    def pools_named(self, name: str) -> Iterator[KnownPool]:
        """The pools of that name, in whatever namespace; there should be one at most."""
        for subject in sorted(self.subjects.get(name, ())):
            if (found := self.pool(PoolRef.parse(subject))) is not None:
                yield found

    def has_gate_open(self, namespace: str) -> bool:
        """Whether the namespace may have pods that use GPUs."""
        return self.namespaces.values.get(namespace, False)

    def device(self, name: str) -> KnownDevice | None:
        """The GPUDevice of that name."""
        row = self.inventory.device.get(name)
        if row is None:
            return None
        pool, phase, is_automatic = self.assigned.get(name, (None, None, False))
        labels = self.node_labels.values.get(row.node, {})
        return KnownDevice(row, self.prepared.get(name, row.state), pool, phase, is_automatic, labels)


def _pool_defined(state: Known, fact: Fact, data: PoolDefined) -> None:
    subject = fact.event.subject
    if state.pools.put(subject, fact.event.time, data):
        state.subjects.setdefault(PoolRef.parse(subject).name, set()).add(subject)


def _pool_gone(state: Known, fact: Fact, _data: PoolGone) -> None:
    subject = fact.event.subject
    if not state.pools.drop(subject, fact.event.time):
        return
    state.decided.pop(subject, None)
    name = PoolRef.parse(subject).name
    state.subjects[name].discard(subject)
    if not state.subjects[name]:
        del state.subjects[name]


def _pool_changed(state: Known, fact: Fact, data: PoolChanged) -> None:
    if fact.event.subject in state.pools.values:
        state.decided[fact.event.subject] = data


def _namespace_observed(state: Known, fact: Fact, data: NamespaceObserved) -> None:
    state.namespaces.put(fact.event.subject, fact.event.time, data.gpu_enabled)


def _namespace_gone(state: Known, fact: Fact, _data: NamespaceGone) -> None:
    state.namespaces.drop(fact.event.subject, fact.event.time)


def _node_labelled(state: Known, fact: Fact, data: NodeLabelled) -> None:
    state.node_labels.put(fact.event.subject, fact.event.time, data.labels)


def _node_unlabelled(state: Known, fact: Fact, _data: NodeUnlabelled) -> None:
    state.node_labels.drop(fact.event.subject, fact.event.time)


def _state_changed(state: Known, fact: Fact, data: DeviceStateChanged) -> None:
    state.prepared[fact.event.subject] = data.state


def _assignment_changed(state: Known, fact: Fact, data: DeviceAssignmentChanged) -> None:
    if data.pool is None:
        state.assigned.pop(fact.event.subject, None)
    else:
        state.assigned[fact.event.subject] = (data.pool, data.phase, data.automatic)


def _device_withdrawn(state: Known, fact: Fact, data: DeviceWithdrawn) -> None:
    DECIDED_HANDLERS[DeviceWithdrawn](state.inventory, fact, data)
    state.prepared.pop(fact.event.subject, None)
    state.assigned.pop(fact.event.subject, None)


def _inventory(model: type[Any]) -> Any:  # noqa: ANN401 - a handler
    handler = DECIDED_HANDLERS[model]
    return lambda state, fact, data: handler(state.inventory, fact, data)


HANDLERS: Handlers = {
    **{model: _inventory(model) for model in (DeviceDetected, DeviceIdentified, DeviceDescribed, SettingsChanged)},
    DeviceWithdrawn: _device_withdrawn,
    DeviceStateChanged: _state_changed,
    DeviceAssignmentChanged: _assignment_changed,
    NodeLabelled: _node_labelled,
    NodeUnlabelled: _node_unlabelled,
    NamespaceObserved: _namespace_observed,
    NamespaceGone: _namespace_gone,
    PoolDefined: _pool_defined,
    PoolGone: _pool_gone,
    PoolChanged: _pool_changed,
}


class KnownProjection(Projection):
    """Folds what the webhooks have to know; its state stays in memory."""

    name = "admission"
    version = 1
    specs = ()
    handlers = HANDLERS

    def __init__(self, home: str = NAMESPACE) -> None:
        self._home = home

    def new_state(self) -> Known:
        """An empty state."""
        return Known(self._home)
