"""Pools, their devices and the pods that request units, as Kubernetes has them now. Pure.

What people define and what pods request is read as the watchers read it; what gpuledger decided, from the statuses that
it wrote. How many units a node offers is what its kubelet reports, which is what the scheduler counts by.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from gpuledger.api.labels import POOL_RESOURCES
from gpuledger.api.phases import AssignmentPhase, DeviceState
from gpuledger.api.pool_ref import PoolRef
from gpuledger.domain.pools.folds import HANDLERS
from gpuledger.domain.pools.pools import Pool, PoolCondition, PoolTotal
from gpuledger.domain.pools.requests import read_units
from gpuledger.domain.pools.rows import PoolDevice
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.edge.kube.client import Object
from gpuledger.edge.kube.objects import items, mapping, time_of
from gpuledger.edge.watchers.decide import AnyKind
from gpuledger.edge.watchers.resources import gpupools, nodes, pods
from gpuledger.tools.present.devices import decisions_of
from gpuledger.tools.present.objects import UNDATED, dated, facts_of, fold

POOL_KINDS: Final = (gpupools.KIND, gpupools.CLUSTER_KIND)


class PoolObjects(NamedTuple):
    """The objects that say what pools offer and who uses it; `pools` are by their watched kind."""

    pools: Mapping[str, list[Object]]
    devices: list[Object]
    nodes: list[Object]
    pods: list[Object]


class PresentPools(PoolFacts):
    """The state without agents' reports: nodes say what they offer."""

    def __init__(self) -> None:
        super().__init__()
        self.allocatable: dict[str, Counter[str]] = defaultdict(Counter)

    def units_by_node(self, pool: Pool) -> Counter[str]:
        """How many units of a pool each node's kubelet reports."""
        return self.allocatable.get(PoolRef.parse(pool.subject).resource_name, Counter())

    def offered(self, device: str) -> tuple[int, int]:
        """One card and one partition for a device that is set up: an API object does not say how many it is."""
        held = self.assignment.get(device)
        is_set_up = held is not None and held.phase == AssignmentPhase.ASSIGNED
        return (1, 1) if is_set_up else (0, 0)


def pools_of(objects: PoolObjects) -> PresentPools:
    """The state that the objects amount to; it must never be written."""
    state = PresentPools()
    for table in state.tables().values():
        table.never_written()
    watched: list[tuple[AnyKind, Iterable[Object]]] = [(kind, objects.pools.get(kind.name, ())) for kind in POOL_KINDS]
    watched += [(nodes.LABELS_KIND, objects.nodes), (pods.KIND, objects.pods)]
    for kind, listed in watched:
        fold(state, HANDLERS, facts_of(kind, (dated(kind, obj) for obj in listed)))
    for obj in (one for kind in POOL_KINDS for one in objects.pools.get(kind.name, ())):
        _put_status(state, obj)
    for obj in objects.devices:
        _put_device(state, obj)
    for obj in objects.nodes:
        _put_units(state, obj)
    return state


def _put_status(state: PresentPools, obj: Object) -> None:
    """What gpuledger decided about a pool."""
    metadata, status = mapping(obj, "metadata"), mapping(obj, "status")
    pool = PoolRef(str(metadata.get("name")), str(metadata.get("namespace") or "")).id
    total, rows = mapping(status, "capacity").get("total"), list(_conditions(pool, status))
    for row in rows:
        state.condition.put(row)
    if isinstance(total, int):
        generations = (one.get("observedGeneration") for one in map(mapping, items(status, "conditions")))
        observed = max((one for one in generations if isinstance(one, int)), default=0)
        state.total.put(PoolTotal(pool, total, observed, max((one.changed_at for one in rows), default=UNDATED)))


def _conditions(pool: str, status: Mapping[str, Any]) -> Iterator[PoolCondition]:
    for one in map(mapping, items(status, "conditions")):
        kind, holds, reason, message = (str(one.get(key) or "") for key in ("type", "status", "reason", "message"))
        since = time_of(one.get("lastTransitionTime")) or UNDATED
        yield PoolCondition(pool, kind, holds, reason, message, since)


def _put_device(state: PresentPools, obj: Object) -> None:
    name, status = str(mapping(obj, "metadata").get("name")), mapping(obj, "status")
    decisions, node = decisions_of(obj), status.get("nodeName")
    if not isinstance(node, str):
        return
    prepared = DeviceState.DISCOVERED.value if decisions.prepared is None else decisions.prepared.state
    managed, inventory_id = status.get("managed") is not False, str(status.get("inventoryID") or "")
    nothing = dict.fromkeys(("product", "pci_vendor", "pci_device", "mig_capable", "mig_profiles", "uuid"))
    state.device.put(
        PoolDevice(
            name, node, None, managed, ignored=False, missing=False, prepared=prepared, inventory_id=inventory_id,
            labels="{}", pci_address=None, **nothing,
        )
    )  # fmt: skip
    if decisions.assignment is not None:
        state.assignment.put(decisions.assignment)


def _put_units(state: PresentPools, obj: Object) -> None:
    name = str(mapping(obj, "metadata").get("name"))
    for resource, amount in mapping(obj, "status", "allocatable").items():
        if resource.startswith(POOL_RESOURCES) and (units := read_units(amount).number):
            state.allocatable[resource][name] = units
