"""The webhooks' cache: a fold of the ledger in memory, and what the rules look up in it. Pure.

It holds pools with what was decided about them, namespaces with their gate, devices with their state and pool, nodes'
labels and the module's settings. It is as old as the last event that was read, so two writes at once (two pools of one
name) may both pass here; the service that decides settles them.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from sys import intern
from typing import Any, Final, NamedTuple

import orjson

from gpuledger.api.conditions import TRUE
from gpuledger.api.kinds import NAMESPACE
from gpuledger.api.pool_ref import PoolRef
from gpuledger.api.sharing import SharingNames
from gpuledger.domain.fact import Fact, Handlers, within
from gpuledger.domain.inventory.state import DECIDED_HANDLERS, GpuDevice, Inventory, ModuleSettings, json_text
from gpuledger.domain.pools.pools import POOLS_HANDLERS, PoolCondition, Pools, PoolTotal
from gpuledger.domain.pools.potential import potential_units
from gpuledger.domain.pools.spec import Spec
from gpuledger.domain.table import Table, TableSpec
from gpuledger.domain.tombstones import LatestRows
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

LABEL_SETS_MAX: Final = 32_768
"""How many nodes' labels are kept ready to compare."""

DEFAULT_NAMES: Final = SharingNames()

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


class NamespaceGate(NamedTuple):
    """Whether a namespace may have pods that use GPUs (None: the namespace is gone), as of a time."""

    namespace: str
    is_open: bool | None
    observed_at: datetime


class LabelledNode(NamedTuple):
    """The labels of a node as a JSON object (None: the node is gone), as of a time."""

    node: str
    labels: str | None
    observed_at: datetime


class PreparedDevice(NamedTuple):
    """How far a GPUDevice is prepared."""

    name: str
    state: str


NAMESPACE_GATE: Final = TableSpec("namespace_gate", NamespaceGate, ("namespace",))
LABELLED_NODE: Final = TableSpec("labelled_node", LabelledNode, ("node",))
PREPARED_DEVICE: Final = TableSpec("prepared_device", PreparedDevice, ("name",))


@lru_cache(maxsize=LABEL_SETS_MAX)
def _labels(text: str) -> Mapping[str, str]:
    labels: Mapping[str, str] = orjson.loads(text)
    return labels


class AdmissionCache:
    """The state of the fold; `home` is the namespace that the product runs in, `sharing` the names of sharing."""

    def __init__(self, home: str = NAMESPACE, sharing: SharingNames = DEFAULT_NAMES) -> None:
        self.home = home
        self.sharing = sharing
        self.inventory = Inventory()
        self.pools = Pools()
        self.prepared = Table(PREPARED_DEVICE)
        self._namespaces = LatestRows(NAMESPACE_GATE)
        self._nodes = LatestRows(LABELLED_NODE)
        for table in self.tables().values():
            table.never_written()

    def tables(self) -> Mapping[str, Table[Any]]:
        """All that the cache holds."""
        own: tuple[Table[Any], ...] = (self.prepared, self._namespaces.table, self._nodes.table)
        return {**self.inventory.tables(), **self.pools.tables(), **{table.spec.name: table for table in own}}

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
        return potential_units(pool.spec, devices, self.labels_of, cap)

    def allows_gpus(self, namespace: str) -> bool:
        """Whether the namespace may have pods that use GPUs."""
        row = self._namespaces.table.get(namespace)
        return row is not None and bool(row.is_open)

    def labels_of(self, node: str) -> Mapping[str, str]:
        """The labels of a node; none where there is no such node."""
        row = self._nodes.table.get(node)
        return {} if row is None or row.labels is None else _labels(row.labels)

    def observe_namespace(self, fact: Fact, is_open: bool | None) -> None:
        """A namespace is open or not, or gone (None)."""
        self._namespaces.put(fact, NamespaceGate(intern(fact.event.subject), is_open, fact.event.time))

    def observe_node(self, fact: Fact, labels: str | None) -> None:
        """A node has these labels, or is gone (None)."""
        self._nodes.put(fact, LabelledNode(intern(fact.event.subject), labels, fact.event.time))

    def device(self, name: str) -> CachedDevice | None:
        """The GPUDevice of that name."""
        row, assignment = self.inventory.device.get(name), self.pools.assignment.get(name)
        if row is None:
            return None
        pool, phase, is_automatic = (None, None, False) if assignment is None else assignment[1:4]
        prepared = self.prepared.get(name)
        state = row.state if prepared is None else prepared.state
        return CachedDevice(row, state, pool, phase, is_automatic, self.labels_of(row.node))


def _namespace_observed(state: AdmissionCache, fact: Fact, data: NamespaceObserved) -> None:
    state.observe_namespace(fact, data.gpu_enabled)


def _namespace_gone(state: AdmissionCache, fact: Fact, _data: NamespaceGone) -> None:
    state.observe_namespace(fact, None)


def _node_labelled(state: AdmissionCache, fact: Fact, data: NodeLabelled) -> None:
    state.observe_node(fact, json_text(data.labels))


def _node_unlabelled(state: AdmissionCache, fact: Fact, _data: NodeUnlabelled) -> None:
    state.observe_node(fact, None)


def _state_changed(state: AdmissionCache, fact: Fact, data: DeviceStateChanged) -> None:
    state.prepared.put(PreparedDevice(intern(fact.event.subject), intern(data.state)))


def _device_withdrawn(state: AdmissionCache, fact: Fact, data: DeviceWithdrawn) -> None:
    DECIDED_HANDLERS[DeviceWithdrawn](state.inventory, fact, data)
    POOLS_HANDLERS[DeviceWithdrawn](state.pools, fact, data)
    state.prepared.delete(fact.event.subject)


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
    """Folds the ledger into the cache, which stays in memory, and in snapshots."""

    name = "admission"
    version = 3
    specs = ()
    handlers = HANDLERS

    def __init__(self, home: str = NAMESPACE, sharing: SharingNames = DEFAULT_NAMES) -> None:
        self._home = home
        self._sharing = sharing

    def new_state(self) -> AdmissionCache:
        """An empty cache."""
        return AdmissionCache(self._home, self._sharing)
