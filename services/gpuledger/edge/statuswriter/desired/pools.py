"""Desired status and finalizer of each pool's object, from its definition and the pods that request its units. Pure.

A pool's object belongs to a person: the product owns its finalizer and status, and never creates or deletes the object.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from gpuledger.api.labels import POOL_FINALIZER
from gpuledger.api.phases import AssignmentPhase
from gpuledger.api.pool_ref import PoolRef
from gpuledger.domain.fact import Fact, Handlers
from gpuledger.domain.pools.pools import Pools
from gpuledger.domain.pools.spec import units
from gpuledger.domain.pools.status import pool_status
from gpuledger.domain.pools.validation import warning_of
from gpuledger.edge.statuswriter.fields import canonical
from gpuledger.edge.statuswriter.objects import DesiredObject, Key, Kind, key_of
from gpuledger.events.pod import PodGone, PodObserved


class PoolUsage:
    """How many units of each pool pods on nodes request, and how many partitions each device has."""

    def __init__(self) -> None:
        self.used: Counter[str] = Counter()
        self.partitions: dict[str, int] = {}
        self._requests: dict[str, dict[str, int]] = {}
        self._touched: dict[str, None] = {}

    def take_touched(self) -> dict[str, None]:
        """The pools whose use changed since the last call."""
        touched, self._touched = self._touched, {}
        return touched

    def request(self, pod: str, units: Mapping[str, int]) -> None:
        """A pod requests so many units of pools, and no others."""
        before = self._requests.pop(pod, {})
        self.used.subtract(before)
        if units:
            self._requests[pod] = dict(units)
            self.used.update(units)
        for pool in before.keys() | units.keys():
            if not self.used[pool]:
                del self.used[pool]
            self._touched[pool] = None


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
            partitions = usage.partitions.get(one.device, 0)
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
