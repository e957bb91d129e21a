"""The webhooks' cache: a fold of the ledger in memory, and what the rules look up in it. Pure.

It holds pools with what was decided about them, namespaces with their gate, devices with their state and pool, nodes'
labels and the module's settings. It is as old as the last event that was read, so two writes at once (two pools of one
name) may both pass here; the service that decides settles them.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final, Generic, NamedTuple, TypeVar

from gpuledger.api.conditions import TRUE
from gpuledger.api.kinds import NAMESPACE
from gpuledger.api.pool_ref import PoolRef
from gpuledger.domain.fact import Fact, Handlers, is_late, within
from gpuledger.domain.inventory.state import DECIDED_HANDLERS, GpuDevice, Inventory, ModuleSettings
from gpuledger.domain.pools.pools import POOLS_HANDLERS, PoolCondition, Pools, PoolTotal
from gpuledger.domain.pools.potential import potential_units
from gpuledger.domain.pools.spec import Spec
from gpuledger.domain.table import Table
from gpuledger.events.device import (
    DeviceDescribed,
    DeviceDetected,
    DeviceIdentified,
    DeviceStateChanged,
    DeviceWithdrawn,
)
from gpuledger.events.namespace import NamespaceGone, NamespaceObserved
from gpuledger.events.node import NodeLabelled, NodeUnlabelled
from gpuledger.events.settings import SettingsChanged
from gpuledger.projection.definition import Projection

T = TypeVar("T")

FROM_INVENTORY: Final = (DeviceDetected, DeviceIdentified, DeviceDescribed, SettingsChanged)


class CachedPool(NamedTuple):
    """A pool, and what was decided about it: `total` is None, and conditions are missing, until something was."""

    ref: PoolRef
    spec: Spec
    total: PoolTotal | None = None
    conditions: Mapping[str, PoolCondition] = {}

    def is_true(self, kind: str) -> bool:
        """Whether a condition holds."""
        found = self.conditions.get(kind)
        return found is not None and found.status == TRUE


class CachedDevice(NamedTuple):
    """A GPUDevice as the inventory has it, how far it is prepared, and which pool has it, automatically or not."""

    row: GpuDevice
    prepared: str
    pool: str | None
    phase: str | None
    is_automatic: bool
    node_labels: Mapping[str, str]


class _Latest(Generic[T]):
    """The latest value of each key by event time; an end counts as a value."""

    def __init__(self) -> None:
        self.values: dict[str, T] = {}
        self._times: dict[str, datetime] = {}

    def put(self, key: str, time: datetime, value: T) -> None:
        """Take a value in, unless a later one is there."""
        if not is_late(self._times.get(key), time):
            self.values[key], self._times[key] = value, time

    def drop(self, key: str, time: datetime) -> None:
        """Forget the value, unless a later one is there."""
        if not is_late(self._times.get(key), time):
            self._times[key] = time
            self.values.pop(key, None)


class AdmissionCache:
    """The state of the fold; `home` is the namespace that the product runs in."""

    def __init__(self, home: str = NAMESPACE) -> None:
        self.home = home
        self.inventory = Inventory()
        self.pools = Pools()
        for table in (*self.inventory.tables().values(), *self.pools.tables().values()):
            table.never_written()
        self.namespaces = _Latest[bool]()
        self.node_labels = _Latest[Mapping[str, str]]()
        self.prepared: dict[str, str] = {}

    def tables(self) -> Mapping[str, Table[Any]]:
        """None: nothing of this is stored."""
        return {}

    @property
    def settings(self) -> ModuleSettings:
        """The module's settings in force."""
        return self.inventory.settings_in_force()

    def pool(self, ref: PoolRef) -> CachedPool | None:
        """The pool, if it exists."""
        row = self.pools.pool.get(ref.id)
        if row is None:
            return None
        conditions = {one.type: one for one in self.pools.condition.where("pool", ref.id)}
        return CachedPool(ref, row.spec, self.pools.total.get(ref.id), conditions)

    def pools_named(self, name: str) -> Iterator[CachedPool]:
        """The pools of that name, in whatever namespace; there should be one at most."""
        for subject in sorted(self.pools.pool.by["name"].get(name)):
            if (found := self.pool(PoolRef.parse(subject))) is not None:
                yield found

    def potential_units(self, pool: CachedPool) -> int | None:
        """How many units all devices that the pool selects would offer; None while it selects none."""
        devices, cap = self.inventory.device.rows.values(), self.settings.max_slices_per_device
        return potential_units(pool.spec, devices, lambda node: self.node_labels.values.get(node, {}), cap)

    def allows_gpus(self, namespace: str) -> bool:
        """Whether the namespace may have pods that use GPUs."""
        return self.namespaces.values.get(namespace, False)

    def device(self, name: str) -> CachedDevice | None:
        """The GPUDevice of that name."""
        row, assignment = self.inventory.device.get(name), self.pools.assignment.get(name)
        if row is None:
            return None
        pool, phase, is_automatic = (None, None, False) if assignment is None else assignment[1:4]
        labels = self.node_labels.values.get(row.node, {})
        return CachedDevice(row, self.prepared.get(name, row.state), pool, phase, is_automatic, labels)


def _namespace_observed(state: AdmissionCache, fact: Fact, data: NamespaceObserved) -> None:
    state.namespaces.put(fact.event.subject, fact.event.time, data.gpu_enabled)


def _namespace_gone(state: AdmissionCache, fact: Fact, _data: NamespaceGone) -> None:
    state.namespaces.drop(fact.event.subject, fact.event.time)


def _node_labelled(state: AdmissionCache, fact: Fact, data: NodeLabelled) -> None:
    state.node_labels.put(fact.event.subject, fact.event.time, data.labels)


def _node_unlabelled(state: AdmissionCache, fact: Fact, _data: NodeUnlabelled) -> None:
    state.node_labels.drop(fact.event.subject, fact.event.time)


def _state_changed(state: AdmissionCache, fact: Fact, data: DeviceStateChanged) -> None:
    state.prepared[fact.event.subject] = data.state


def _device_withdrawn(state: AdmissionCache, fact: Fact, data: DeviceWithdrawn) -> None:
    DECIDED_HANDLERS[DeviceWithdrawn](state.inventory, fact, data)
    POOLS_HANDLERS[DeviceWithdrawn](state.pools, fact, data)
    state.prepared.pop(fact.event.subject, None)


HANDLERS: Handlers = {
    **within("inventory", {model: DECIDED_HANDLERS[model] for model in FROM_INVENTORY}),
    **within("pools", POOLS_HANDLERS),
    DeviceWithdrawn: _device_withdrawn,
    DeviceStateChanged: _state_changed,
    NodeLabelled: _node_labelled,
    NodeUnlabelled: _node_unlabelled,
    NamespaceObserved: _namespace_observed,
    NamespaceGone: _namespace_gone,
}


class CacheProjection(Projection):
    """Folds the ledger into the cache, which stays in memory."""

    name = "admission"
    version = 1
    specs = ()
    handlers = HANDLERS

    def __init__(self, home: str = NAMESPACE) -> None:
        self._home = home

    def new_state(self) -> AdmissionCache:
        """An empty cache."""
        return AdmissionCache(self._home)
