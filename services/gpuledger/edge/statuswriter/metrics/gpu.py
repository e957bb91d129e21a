"""Metrics of inventory, preparation and pools, under the names that dashboards use.

They are computed from the desired state at each scrape and stored nowhere; while the module is disabled there are none.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gpuledger.api.conditions import ConditionStatus
from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.api.phases import DeviceState
from gpuledger.edge.statuswriter.desired.pools import pool_key, slots
from gpuledger.edge.statuswriter.desired.state import DesiredState, module_conditions
from gpuledger.events.sharing import SharedDevice

Labels = tuple[str, ...]
Samples = Iterator[tuple[Labels, float]]

READY_PHASE: Final = "Ready"


class _DeviceCounts(NamedTuple):
    """One walk over all devices: those present by node, those by state, and those that no pool has."""

    in_sight: Tally[str]
    by_node: dict[str, Tally[str]]
    unassigned: int


class GpuMetrics(Collector):
    """`gpu_*` and `gpupool_*`."""

    def __init__(self, state: Callable[[], DesiredState | None]) -> None:
        self._state = state

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """The names, for the registry."""
        return [GaugeMetricFamily(name, text, labels=labels) for name, text, labels, _ in _FAMILIES]

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """All of them; without a sample while the module is disabled."""
        state = self._state()
        families = list(self.describe())
        if state is not None and state.enabled:
            counts = _counted(state)
            for family, (_, _, _, samples_of) in zip(families, _FAMILIES, strict=True):
                for labels, value in samples_of(state, counts):
                    family.add_metric(labels, value)
        return families


def _counted(state: DesiredState) -> _DeviceCounts:
    by_node: dict[str, Tally[str]] = {node: Tally() for node in list(state.node.rows)}
    present = {node for node, row in list(state.node.rows.items()) if row.present}
    in_sight = Tally(dict.fromkeys(by_node, 0))
    unassigned = 0
    shared = {one.id for node in list(state.shared.node.rows) for one in _offered(state, node)}
    for row in list(state.device.rows.values()):
        shown = state.state_of(row)
        if row.missing and shown != DeviceState.FAULTED:
            continue
        unassigned += shown == DeviceState.READY and not row.ignored and row.uuid not in shared
        if row.node in present:
            in_sight[row.node] += not row.missing
            by_node[row.node][shown] += 1
    return _DeviceCounts(in_sight, by_node, unassigned)


def _devices(_state: DesiredState, counts: _DeviceCounts) -> Samples:
    for node, found in counts.in_sight.items():
        yield (node,), found


def _states(_state: DesiredState, counts: _DeviceCounts) -> Samples:
    for node, found in counts.by_node.items():
        for name, count in sorted(found.items()):
            yield (node, name), count


def _conditions(state: DesiredState, _: _DeviceCounts) -> Samples:
    for row in list(state.condition.rows.values()):
        yield (row.node, row.type), row.status == ConditionStatus.TRUE
    for condition in module_conditions(state, MODULE_CONFIG):
        yield ("", condition["type"]), condition["status"] == ConditionStatus.TRUE


def _phases(state: DesiredState, _: _DeviceCounts) -> Samples:
    for row in list(state.bootstrap.phase.rows.values()):
        yield (row.node, row.phase), 1


def _ready(state: DesiredState, _: _DeviceCounts) -> Samples:
    for row in list(state.bootstrap.phase.rows.values()):
        yield (row.node,), row.phase == READY_PHASE


def _preparation(state: DesiredState, _: _DeviceCounts) -> Samples:
    for row in list(state.bootstrap.preparation.rows.values()):
        yield (row.node, row.type), row.status == ConditionStatus.TRUE


def _unassigned(_state: DesiredState, counts: _DeviceCounts) -> Samples:
    yield (), counts.unassigned


def _offered(state: DesiredState, node: str) -> tuple[SharedDevice, ...]:
    offer = state.shared.offer_of(node)
    return () if offer is None else offer.devices


def _shared(state: DesiredState, _: _DeviceCounts) -> Samples:
    for node in list(state.shared.node.rows):
        found = Tally((one.type, str(one.healthy).lower()) for one in _offered(state, node))
        for (kind, healthy), number in sorted(found.items()):
            yield (node, kind, healthy), number


def _not_shared(state: DesiredState, _: _DeviceCounts) -> Samples:
    for node in list(state.shared.node.rows):
        offer = state.shared.offer_of(node)
        found = Tally(one.reason for one in (offer.not_shared if offer is not None else ()))
        for reason, number in sorted(found.items()):
            yield (node, reason), number


def _pool(pool: str) -> Labels:
    key = pool_key(pool)
    return key.name, key.namespace


def _totals(state: DesiredState, _: _DeviceCounts) -> Samples:
    for row in list(state.pools.total.rows.values()):
        if row.total is not None:
            yield _pool(row.pool), row.total


def _assignments(state: DesiredState, _: _DeviceCounts) -> Samples:
    for pool in list(state.pools.pool.rows):
        rows = state.pools.assignment.where("pool", pool)
        yield _pool(pool), sum(row.phase is not None for row in rows)


def _node_slots(state: DesiredState, _: _DeviceCounts) -> Samples:
    slices_max = state.settings_in_force().max_slices_per_device
    for pool in list(state.pools.pool.rows):
        by_node: Tally[str] = Tally()
        for name, number in slots(state.pools, state.pool_usage, pool, slices_max):
            row = state.device.get(name)
            if row is not None:
                by_node[row.node] += number
        for node, number in sorted(by_node.items()):
            yield (*_pool(pool), node), number


_NODE = ["node"]
_CONDITION = ["node", "condition"]
_POOL = ["pool", "namespace"]
_FAMILIES: tuple[tuple[str, str, list[str], Callable[[DesiredState, _DeviceCounts], Samples]], ...] = (
    ("gpu_inventory_devices_total", "GPUs in sight, by node.", _NODE, _devices),
    ("gpu_inventory_devices_state", "GPUs in sight, and Faulted ones that are not.", ["node", "state"], _states),
    ("gpu_inventory_condition", "1 while it holds; the module's has no node.", _CONDITION, _conditions),
    ("gpu_bootstrap_node_phase", "1 for the phase that a node is in.", ["node", "phase"], _phases),
    ("gpu_bootstrap_ready", "1 while everything that GPUs need on the node works.", _NODE, _ready),
    ("gpu_bootstrap_condition", "1 while it holds.", _CONDITION, _preparation),
    ("gpu_device_unassigned_total", "GPUs that are ready, and neither in a pool nor shared.", [], _unassigned),
    ("gpu_shared_devices", "Devices that nodes share.", ["node", "type", "healthy"], _shared),
    ("gpu_not_shared_cards", "GPUs of nodes that share, which are left out.", ["node", "reason"], _not_shared),
    ("gpupool_capacity_total", "Units that a pool offers; absent while not known.", _POOL, _totals),
    ("gpupool_assignments", "GPUs that belong to a pool, or are coming or leaving.", _POOL, _assignments),
    ("gpupool_node_slots", "Units that a pool offers on a node.", [*_POOL, "node"], _node_slots),
)
