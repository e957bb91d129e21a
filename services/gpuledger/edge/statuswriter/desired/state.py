"""Desired objects: what the API server should show, computed from the decisions that were folded. Pure.

Beside the decisions the state keeps which objects were withdrawn, until they are gone from the API server, what is
worth a Kubernetes Event, and which nodes could give devices to a pool but have none in one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from gpuledger.api.conditions import FALSE, TRUE, NodeConditionType
from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.api.labels import LABEL_DETECTED, LABEL_TRUE
from gpuledger.api.phases import AssignmentPhase, DeviceState
from gpuledger.api.pool_ref import PoolRef
from gpuledger.api.sharing import SharingNames
from gpuledger.domain.bootstrap.state import Bootstrap
from gpuledger.domain.inventory.state import GpuDevice, Inventory
from gpuledger.domain.inventory.status import (
    device_labels,
    device_state,
    device_status,
    module_condition,
    node_status,
)
from gpuledger.domain.pools.pools import Assignment, Pools
from gpuledger.domain.table import Changes, Table, TableSpec
from gpuledger.edge.statuswriter.desired.coverage import LabelCoverage
from gpuledger.edge.statuswriter.desired.instances import MigInstances
from gpuledger.edge.statuswriter.desired.machine_configs import (
    MachineConfigs,
    desired_rendered,
    desired_status,
)
from gpuledger.edge.statuswriter.desired.module import ModuleCheck
from gpuledger.edge.statuswriter.desired.pools import PoolUsage, desired_pool, pool_key
from gpuledger.edge.statuswriter.desired.replicas import Availability
from gpuledger.edge.statuswriter.desired.shared import SharedNodes, desired_device, desired_resources
from gpuledger.edge.statuswriter.desired.since import by_node
from gpuledger.edge.statuswriter.desired.slices import PresentAvailability, desired_slice
from gpuledger.edge.statuswriter.desired.young import YoungOccurrences
from gpuledger.edge.statuswriter.events.series import Occurrence
from gpuledger.edge.statuswriter.fields import canonical
from gpuledger.edge.statuswriter.objects import NAMES, DesiredObject, Document, Key, Kind
from gpuledger.events.settings import REDACTED

HOLDING = frozenset({AssignmentPhase.PENDING, AssignmentPhase.ASSIGNED})
"""Phases in which a pool that approves devices automatically says so on the device."""


class WithdrawnObject(NamedTuple):
    """An object that should exist no more, until it is gone from the API server."""

    kind: str
    name: str
    namespace: str

    @property
    def object_key(self) -> Key:
        """The object."""
        return Key(Kind(self.kind), self.name, self.namespace)


WITHDRAWN: Final = TableSpec("withdrawn_object", WithdrawnObject, ("kind", "name", "namespace"))


class DesiredState(Inventory):
    """Inventory, preparation, pools and configurations as decided, slices at present, and what is young or withdrawn.

    Nothing is written to any table but a snapshot's. Rows of withdrawn objects leave when the API server has none.
    `names` are those of shared devices. Without `labels_nodes` only Nodes are written that share devices or are
    configured.
    """

    def __init__(self, names: SharingNames = NAMES, *, labels_nodes: bool = True) -> None:
        super().__init__()
        self.names = names
        self.labels_nodes = labels_nodes
        self.shared = SharedNodes()
        self.bootstrap = Bootstrap()
        self.pools = Pools()
        self.pools.end.never_written()
        self.pool_usage = PoolUsage()
        self.instances = MigInstances()
        self.coverage = LabelCoverage()
        self.module_check = ModuleCheck()
        self.availability = Availability()
        self.slices = PresentAvailability()
        self.machine_configs = MachineConfigs()
        self._slice_settings_before = self._slice_settings()
        self._withdrawn = Table(WITHDRAWN)
        self._withdrawn.never_written()
        self.without_pool = by_node("node_without_pool")
        self.occurrences = YoungOccurrences()
        self._withdrawn_now: dict[Key, None] = {}

    def tables(self) -> Mapping[str, Table[Any]]:
        """All that a snapshot has to have."""
        parts = (self.bootstrap, self.pools, self.pool_usage, self.instances, self.coverage, self.module_check)
        tables = dict(super().tables())
        for part in (*parts, self.availability, self.slices, self.occurrences, self.shared, self.machine_configs):
            tables |= part.tables()
        return tables

    def take_occurrences(self) -> list[Occurrence]:
        """What has happened since the last call; at first what is young."""
        return self.occurrences.take()

    def take_changed(self) -> dict[Key, None]:
        """The objects whose desired form may have changed since the last call."""
        keys, self._withdrawn_now = self._withdrawn_now, {}
        keys |= dict.fromkeys(self._changed_devices())
        keys |= dict.fromkeys(self._changed_nodes())
        keys |= dict.fromkeys(Key(Kind.MODULE, row.module) for row in _rows(self.module))
        keys |= dict.fromkeys(Key(Kind.MODULE, name) for name in self.module_check.take_touched())
        keys |= dict.fromkeys(self._changed_pools())
        keys |= dict.fromkeys(Key(Kind.SLICE, name) for name in self.slices.take_touched())
        touched = self.shared.take_touched()
        keys |= dict.fromkeys(Key(kind, node) for node in touched for kind in (Kind.SHARED, Kind.KUBE_NODE))
        keys |= dict.fromkeys(self._changed_configs())
        before, self._slice_settings_before = self._slice_settings_before, self._slice_settings()
        if before != self._slice_settings_before:
            keys |= dict.fromkeys(self.keys(Kind.SLICE))
        self.mark.take_changes()
        self.settings.take_changes()
        return keys

    def _changed_devices(self) -> Iterator[Key]:
        yield from (Key(Kind.DEVICE, row.name) for row in _rows(self.device))
        yield from (Key(Kind.DEVICE, row.name) for row in _rows(self.bootstrap.state))
        yield from (Key(Kind.DEVICE, row.device) for row in _rows(self.pools.assignment))
        for node in self.instances.take_touched():
            yield from (Key(Kind.DEVICE, row.name) for row in self.device.where("node", node))

    def _changed_nodes(self) -> Iterator[Key]:
        self.bootstrap.phase.take_changes()
        yield from (Key(kind, row.node) for row in _rows(self.node) for kind in (Kind.NODE, Kind.KUBE_NODE))
        yield from (Key(Kind.NODE, node) for node in self.coverage.take_touched())
        for table in (self.condition, self.bootstrap.preparation):
            changes = table.take_changes()
            yield from (Key(Kind.NODE, row.node) for row in (*changes.new, *changes.changed))
            yield from (Key(Kind.NODE, node) for node, _ in changes.gone)

    def _changed_pools(self) -> Iterator[Key]:
        defined = self.pools.pool.take_changes()
        yield from (pool_key(row.subject) for row in (*defined.new, *defined.changed))
        yield from map(pool_key, defined.gone)
        yield from (pool_key(row.pool) for row in _rows(self.pools.total))
        yield from (pool_key(row.pool) for row in _rows(self.pools.condition))
        yield from map(pool_key, self.pool_usage.take_touched())

    def _changed_configs(self) -> Iterator[Key]:
        yield from (Key(Kind.RENDERED_CONFIG, name) for name in self.machine_configs.take_rendered())
        yield from (Key(Kind.CONFIG_POOL, name) for name in self.machine_configs.take_pools())
        yield from (Key(Kind.KUBE_NODE, name) for name in self.machine_configs.take_nodes())

    def _slice_settings(self) -> tuple[bool, str]:
        settings = self.settings_in_force()
        return settings.dra_availability, settings.claim_references

    def withdraw(self, key: Key) -> None:
        """An object should exist no more."""
        self._withdrawn.put(WithdrawnObject(str(key.kind), key.name, key.namespace))
        self._withdrawn_now[key] = None

    def forget_withdrawal(self, key: Key) -> None:
        """An object should exist after all, or is gone from the API server."""
        self._withdrawn.delete(tuple(map(str, key)))

    def is_withdrawn(self, key: Key) -> bool:
        """Whether an object should exist no more, and is not known to be gone."""
        return tuple(map(str, key)) in self._withdrawn.rows

    def withdrawn(self) -> list[Key]:
        """The objects that should exist no more."""
        return [row.object_key for row in self._withdrawn.rows.values()]

    @property
    def enabled(self) -> bool:
        """Whether the module is enabled; nothing is written while it is not."""
        return self.settings_in_force().enabled

    def keeps(self, kind: Kind) -> bool:
        """Whether gpuledger writes objects of a kind; while it does not, they stay as they are.

        Components follow the module even while it is disabled: they are deleted then.
        """
        settings = self.settings_in_force()
        if kind is Kind.COMPONENT:
            return True
        return settings.keeps_slice_statuses if kind is Kind.SLICE else settings.enabled

    def keys(self, kind: Kind | None = None) -> Iterator[Key]:
        """Every object that is desired or was withdrawn, of one kind or of all, but for the rule.

        Each kind is listed separately: listing a kind of few objects must not walk a whole fleet.
        """
        tables: Mapping[Kind, Iterable[str]] = {
            Kind.MODULE: dict.fromkeys([*self.module.rows, *self.module_check.modules()]),
            Kind.NODE: self.node.rows,
            Kind.KUBE_NODE: self._kube_nodes() if kind in (None, Kind.KUBE_NODE) else (),
            Kind.RENDERED_CONFIG: self.machine_configs.rendered.rows,
            Kind.CONFIG_POOL: self.machine_configs.state.rows,
            Kind.SHARED: self.shared.node.rows,
            Kind.DEVICE: self.device.rows,
            Kind.SLICE: self.slices.slice.rows,
        }
        for one, names in tables.items():
            if kind in (None, one):
                yield from [Key(one, name) for name in names]
        for others in (map(pool_key, self.pools.pool.rows), self.withdrawn()):
            yield from [key for key in others if kind in (None, key.kind)]

    def _kube_nodes(self) -> dict[str, None]:
        labelled = self.node.rows if self.labels_nodes else ()
        return dict.fromkeys([*labelled, *self.shared.node.rows, *self.machine_configs.node.rows])

    def state_of(self, device: GpuDevice) -> str:
        """The state that a GPUDevice shows."""
        return device_state(device, self.bootstrap.state.get(device.name), self.pools.assignment.get(device.name))

    def is_without_pool(self, node: str) -> bool:
        """Whether a node could give devices to a pool, and none of them belongs to one; one that shares could not."""
        if self.shared.offer_of(node) is not None:
            return False
        ready = self.bootstrap.preparation.get((node, NodeConditionType.READY_FOR_POOLING))
        if ready is None or ready.status != TRUE:
            return False
        states = [self.state_of(device) for device in self.device.where("node", node)]
        return DeviceState.READY in states and not {DeviceState.ASSIGNED, DeviceState.PENDING_ASSIGNMENT} & set(states)


def _rows(table: Table[Any]) -> Iterator[Any]:
    changes: Changes[Any] = table.take_changes()
    yield from changes.new
    yield from changes.changed


def desired_object(state: DesiredState, key: Key, rule: Document) -> DesiredObject | None:
    """How an object should be; None where the ledger has none. `rule` is the NodeFeatureRule that is shipped."""
    if key.kind is Kind.RULE:
        return DesiredObject({"spec": rule["spec"]}, {}) if key == rule_key(rule) else None
    if key.kind is Kind.NODE:
        return _node(state, key, rule)
    return _DESIRED[key.kind](state, key)


def rule_key(rule: Document) -> Key:
    """The key of the shipped rule."""
    return Key(Kind.RULE, rule["metadata"]["name"])


def _device(state: DesiredState, key: Key) -> DesiredObject | None:
    row = state.device.get(key.name)
    if row is None:
        return None
    assignment = state.pools.assignment.get(row.name)
    instances = state.instances.of_card(row.node, row.uuid)
    status = device_status(row, state.bootstrap.state.get(row.name), assignment, instances)
    return DesiredObject({"labels": device_labels(row)}, canonical(status), approved=_approved(assignment))


def _approved(assignment: Assignment | None) -> Document | None:
    """The annotation by which a pool says that it approved the device automatically."""
    if assignment is None or assignment.pool is None or not assignment.automatic or assignment.phase not in HOLDING:
        return None
    return PoolRef.parse(assignment.pool).assignment


def _node(state: DesiredState, key: Key, rule: Document) -> DesiredObject | None:
    """A node without any decided condition has nothing to show; InventoryComplete says which labels differ."""
    row = state.node.get(key.name)
    conditions = [*state.condition.where("node", key.name), *state.bootstrap.preparation.where("node", key.name)]
    if row is None or not conditions:
        return None
    status = node_status(row, conditions)
    for one in status["conditions"]:
        if one["type"] == NodeConditionType.INVENTORY_COMPLETE and one["status"] == FALSE:
            one["message"] = f"{one['message']} {state.coverage.result(row.node, rule)}".rstrip()
    return DesiredObject({"spec": {"nodeName": row.node}}, canonical(status))


def _kube_node(state: DesiredState, key: Key) -> DesiredObject | None:
    """The label by which components run on the node, what it shares, and the annotations of its configuration.

    Nodes that the inventory does not have, that never shared anything and that no rollout had are nobody's business.
    """
    row, shared = state.node.get(key.name), desired_resources(state.shared, key.name, state.names)
    configured = state.machine_configs.node.get(key.name)
    is_labelled = row is not None and (state.labels_nodes or shared is not None)
    if shared is None and configured is None and not is_labelled:
        return None
    labels = {LABEL_DETECTED: LABEL_TRUE} if row is not None and row.present and is_labelled else {}
    if shared is not None:
        labels |= shared.main["labels"]
    annotations = {} if configured is None else configured.shown
    main = {"labels": labels, "annotations": annotations}
    return DesiredObject(main, {} if shared is None else shared.status, configured=configured and configured.uid)


def _shared(state: DesiredState, key: Key) -> DesiredObject | None:
    return desired_device(state.shared, key.name, state.names)


def _module(state: DesiredState, key: Key) -> DesiredObject | None:
    conditions = module_conditions(state, key.name)
    return DesiredObject({}, canonical({"conditions": conditions})) if conditions else None


def module_conditions(state: DesiredState, module: str) -> list[Document]:
    """The conditions of the module: whether its prerequisites are met, and whether its settings are in force."""
    row = state.module.get(module)
    configured = state.module_check.condition() if module == MODULE_CONFIG else None
    return [*([] if row is None else [module_condition(row)]), *([] if configured is None else [configured])]


def _slice(state: DesiredState, key: Key) -> DesiredObject | None:
    is_redacted = state.settings_in_force().claim_references == REDACTED
    return desired_slice(state.slices, key.name, redacted=is_redacted)


def _rendered_config(state: DesiredState, key: Key) -> DesiredObject | None:
    return desired_rendered(state.machine_configs, key.name)


def _config_pool(state: DesiredState, key: Key) -> DesiredObject | None:
    return desired_status(state.machine_configs, key.name)


def _pool(state: DesiredState, key: Key) -> DesiredObject | None:
    return desired_pool(state.pools, state.pool_usage, key)


_DESIRED: Mapping[Kind, Callable[[DesiredState, Key], DesiredObject | None]] = {
    Kind.DEVICE: _device,
    Kind.KUBE_NODE: _kube_node,
    Kind.SHARED: _shared,
    Kind.MODULE: _module,
    Kind.SLICE: _slice,
    Kind.POOL: _pool,
    Kind.CLUSTER_POOL: _pool,
    Kind.RENDERED_CONFIG: _rendered_config,
    Kind.CONFIG_POOL: _config_pool,
}
