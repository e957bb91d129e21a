"""Desired status and finalizer of each pool's object, from its definition and the pods that request its units. Pure.

A pool's object belongs to a person: the product owns its finalizer and status, and never creates or deletes the object.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import NamedTuple

from gpuledger.api.labels import POOL_FINALIZER
from gpuledger.api.phases import AssignmentPhase
from gpuledger.api.pool_ref import PoolRef
from gpuledger.api.pool_spec import UNIT_MIG
from gpuledger.domain.fact import Fact, Handlers
from gpuledger.domain.pools.decisions import PoolsDecided
from gpuledger.domain.pools.status import pool_status
from gpuledger.edge.statuswriter.fields import canonical
from gpuledger.edge.statuswriter.objects import DesiredObject, Key, Kind, key_of
from gpuledger.events.pod import PodGone, PodObserved
from gpuledger.events.pool import PoolDefined, PoolGone, PoolReleased


class PoolObject(NamedTuple):
    """What of a pool's object matters here; `is_released` once it may go."""

    uid: str
    is_mig: bool
    slices: int
    is_released: bool = False


class PoolObjects:
    """The pools that there are, and how many units of each pods on nodes have asked for."""

    def __init__(self) -> None:
        self.pool: dict[str, PoolObject] = {}
        self.used: Counter[str] = Counter()
        self.partitions: dict[str, int] = {}
        self._asked: dict[str, dict[str, int]] = {}
        self._touched: dict[str, None] = {}
        self._said_at: dict[str, datetime] = {}

    def is_late(self, pool: str, time: datetime) -> bool:
        """Whether later than this it was said what the pool's object is, or that it is gone; if not, this is noted."""
        if self._said_at.get(pool, time) > time:
            return True
        self._said_at[pool] = time
        return False

    def touch(self, pool: str) -> None:
        """The pool's object may have to be another."""
        self._touched[pool] = None

    def take_touched(self) -> dict[str, None]:
        """The pools that were touched since the last call."""
        touched, self._touched = self._touched, {}
        return touched

    def ask(self, pod: str, units: Mapping[str, int]) -> None:
        """A pod asks for so many units of pools, and for nothing else."""
        before = self._asked.pop(pod, {})
        self.used.subtract(before)
        if units:
            self._asked[pod] = dict(units)
            self.used.update(units)
        for pool in before.keys() | units.keys():
            if not self.used[pool]:
                del self.used[pool]
            self.touch(pool)


def pool_key(pool: str) -> Key:
    """The object of a pool, by the pool's id."""
    return key_of(Kind.POOL if PoolRef.parse(pool).namespace else Kind.CLUSTER_POOL, pool)


def desired_pool(objects: PoolObjects, decided: PoolsDecided, key: Key) -> DesiredObject | None:
    """How a pool's object has to be; None where the ledger knows of none."""
    row = objects.pool.get(key.id)
    if row is None:
        return None
    status = pool_status(decided.total.get(key.id), decided.condition.where("pool", key.id), objects.used[key.id])
    finalizers = [] if row.is_released else [POOL_FINALIZER]
    return DesiredObject({"finalizers": finalizers}, canonical(status), uid=row.uid)


def slots(objects: PoolObjects, decided: PoolsDecided, pool: str, slices_max: int) -> Iterator[tuple[str, int]]:
    """The pool's devices that offer something, and how many units each offers."""
    row = objects.pool.get(pool)
    if row is None:
        return
    for one in decided.assignment.where("pool", pool):
        if one.phase == AssignmentPhase.ASSIGNED:
            partitions = objects.partitions.get(one.device, 0) if row.is_mig else 1
            yield one.device, partitions * min(row.slices, slices_max)


def _defined(objects: PoolObjects, fact: Fact, data: PoolDefined) -> None:
    pool = fact.event.subject
    if objects.is_late(pool, fact.event.time):
        return
    known = objects.pool.get(pool)
    is_released = known is not None and known.uid == data.uid and known.is_released
    objects.pool[pool] = PoolObject(data.uid, data.unit == UNIT_MIG, data.slices_per_unit, is_released)
    objects.touch(pool)


def _gone(objects: PoolObjects, fact: Fact, _data: PoolGone) -> None:
    pool = fact.event.subject
    if objects.is_late(pool, fact.event.time):
        return
    objects.pool.pop(pool, None)
    objects.touch(pool)


def _released(objects: PoolObjects, fact: Fact, _data: PoolReleased) -> None:
    pool = fact.event.subject
    if pool in objects.pool:
        objects.pool[pool] = objects.pool[pool]._replace(is_released=True)
        objects.touch(pool)


def _pod_observed(objects: PoolObjects, fact: Fact, data: PodObserved) -> None:
    pod = fact.event.subject
    units: Counter[str] = Counter()
    if data.node is not None:
        for resource, number in data.requests.items():
            if number and (pool := PoolRef.of_resource(resource, pod.partition("/")[0])) is not None:
                units[pool.id] += number
    objects.ask(pod, units)


def _pod_gone(objects: PoolObjects, fact: Fact, _data: PodGone) -> None:
    objects.ask(fact.event.subject, {})


HANDLERS: Handlers = {
    PoolDefined: _defined,
    PoolGone: _gone,
    PoolReleased: _released,
    PodObserved: _pod_observed,
    PodGone: _pod_gone,
}
