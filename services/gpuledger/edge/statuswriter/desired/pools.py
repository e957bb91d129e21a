"""Desired status and finalizer of each pool's object, from its definition and the pods that request its units. Pure.

A pool's object belongs to a person: the product owns its finalizer and status, and never creates or deletes the object.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from sys import intern
from typing import Final, NamedTuple

from gpuledger.api.labels import POOL_FINALIZER
from gpuledger.api.phases import AssignmentPhase
from gpuledger.api.pool_ref import PoolRef
from gpuledger.domain.fact import Fact, Handlers, TableState
from gpuledger.domain.pools.pools import Pools
from gpuledger.domain.pools.spec import units
from gpuledger.domain.pools.status import pool_status
from gpuledger.domain.pools.validation import warning_of
from gpuledger.domain.table import Table, TableSpec
from gpuledger.edge.statuswriter.fields import canonical
from gpuledger.edge.statuswriter.objects import DesiredObject, Key, Kind, key_of
from gpuledger.events.pod import PodGone, PodObserved


class PodRequest(NamedTuple):
    """How many units of a pool a pod on a node requests."""

    pod: str
    pool: str
    units: int


class DevicePartitions(NamedTuple):
    """How many partitions a device has."""

    device: str
    partitions: int


POD_REQUEST: Final = TableSpec("pod_request", PodRequest, ("pod", "pool"))
DEVICE_PARTITIONS: Final = TableSpec("device_partitions", DevicePartitions, ("device",))


class PoolUsage(TableState):
    """How many units of each pool pods on nodes request, and how many partitions each device has."""

    def __init__(self) -> None:
        self.request_rows = Table(POD_REQUEST, "pod")
        self.partitions = Table(DEVICE_PARTITIONS)
        for table in (self.request_rows, self.partitions):
            table.never_written()
        self._used: Counter[str] | None = None
        self._touched: dict[str, None] = {}

    def take_touched(self) -> dict[str, None]:
        """The pools whose use changed since the last call."""
        touched, self._touched = self._touched, {}
        return touched

    @property
    def used(self) -> Counter[str]:
        """How many units of each pool are requested; counted once the rows of a snapshot are loaded."""
        if self._used is None:
            self._used = Counter()
            for _, pool, units_ in self.request_rows.rows.values():
                self._used[pool] += units_
        return self._used

    def request(self, pod: str, units: Mapping[str, int]) -> None:
        """A pod requests so many units of pools, and no others."""
        used, before = self.used, self.request_rows.where("pod", pod)
        for row in before:
            used[row.pool] -= row.units
            self.request_rows.delete((pod, row.pool))
        for pool, number in units.items():
            used[pool] += number
            self.request_rows.put(PodRequest(intern(pod), intern(pool), number))
        for pool in {row.pool for row in before} | units.keys():
            if not used[pool]:
                del used[pool]
            self._touched[pool] = None

    def partitions_of(self, device: str) -> int:
        """How many partitions a device has."""
        row = self.partitions.get(device)
        return 0 if row is None else row.partitions


def pool_key(pool: str) -> Key:
    """The object of a pool, by the pool's id."""
    return key_of(Kind.POOL if PoolRef.parse(pool).namespace else Kind.CLUSTER_POOL, pool)


def desired_pool(pools: Pools, usage: PoolUsage, key: Key) -> DesiredObject | None:
    """How a pool's object should be; None where the ledger has none."""
    row = pools.pool.get(key.id)
    if row is None:
        return None
    total, conditions = pools.total.get(key.id), pools.condition.where("pool", key.id)
    status = pool_status(total, conditions, usage.used[key.id], warning_of(row.spec.definition))
    finalizers = [] if row.released else [POOL_FINALIZER]
    return DesiredObject({"finalizers": finalizers}, canonical(status), uid=row.uid)


def slots(pools: Pools, usage: PoolUsage, pool: str, slices_max: int) -> Iterator[tuple[str, int]]:
    """The pool's devices that offer something, and how many units each offers."""
    row = pools.pool.get(pool)
    if row is None:
        return
    spec = row.spec.definition
    for one in pools.assignment.where("pool", pool):
        if one.phase == AssignmentPhase.ASSIGNED:
            partitions = usage.partitions_of(one.device)
            yield one.device, units(spec, cards=1, partitions=partitions, cap=slices_max)


def _pod_observed(usage: PoolUsage, fact: Fact, data: PodObserved) -> None:
    pod = fact.event.subject
    requested: Counter[str] = Counter()
    if data.node is not None:
        for resource, number in data.requests.items():
            if number and (pool := PoolRef.of_resource(resource, pod.partition("/")[0])) is not None:
                requested[pool.id] += number
    usage.request(pod, requested)


def _pod_gone(usage: PoolUsage, fact: Fact, _data: PodGone) -> None:
    usage.request(fact.event.subject, {})


HANDLERS: Handlers = {
    PodObserved: _pod_observed,
    PodGone: _pod_gone,
}
