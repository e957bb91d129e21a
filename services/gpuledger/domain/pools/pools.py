"""Pools as people define them, and what the `pools` service decided about them: one fold, which all share that need it.

The latest definition by event time is in force, and nothing that is older than a pool's end counts. A decision replaces
the one before it in the order of the log. A withdrawn device leaves nothing behind, a pool that is gone only its
end, for a while.
"""

from datetime import datetime
from sys import intern
from typing import Any, NamedTuple

from gpuledger.api.phases import AssignmentPhase
from gpuledger.api.pool_ref import PoolRef
from gpuledger.domain.conditions import put_conditions
from gpuledger.domain.fact import Fact, Handlers, TableState, is_late
from gpuledger.domain.inventory.state import json_text
from gpuledger.domain.pools.spec import Spec, approval_of, read_spec
from gpuledger.domain.table import Table, TableSpec
from gpuledger.domain.tombstones import RowEnds
from gpuledger.events.device import DeviceAssignmentChanged, DeviceWithdrawn
from gpuledger.events.pool import PoolChanged, PoolDefined, PoolGone, PoolReleased
from gpuledger.events.position import Offset


class Pool(NamedTuple):
    """A pool by its id. `payload` is its `pool.defined` as JSON; `position` is where this object was first recorded.

    `approval` is a label (`key=value`) of every device that it approves automatically, empty if there is no such
    label, and None if it approves nothing. `released` says that its object may go.
    """

    subject: str
    name: str
    uid: str
    generation: int
    deleting: bool
    released: bool
    position: Offset
    defined_at: datetime
    approval: str | None
    payload: str

    @property
    def spec(self) -> Spec:
        """Its spec, ready to compare."""
        return read_spec(self.payload)


class PoolEnd(NamedTuple):
    """When the object of a pool went that has none now: an older fact about it does not count."""

    pool: str
    gone_at: datetime


class Assignment(NamedTuple):
    """Which pool a device belongs to, by the pool's id; `pool` and `phase` None: to none, for this reason.

    `changed_at` is when this was decided, and `was_assigned` whether its agent had set it up before it was to leave.
    A device that no pool ever meant has no row.
    """

    device: str
    pool: str | None
    phase: str | None
    automatic: bool
    reason: str
    message: str
    changed_at: datetime
    was_assigned: bool = False


class PoolTotal(NamedTuple):
    """How many units a pool offers (None: unknown), by its spec of this generation, and when that was decided."""

    pool: str
    total: int | None
    observed_generation: int
    changed_at: datetime


class PoolCondition(NamedTuple):
    """A condition of a pool; `changed_at` is when its status last changed."""

    pool: str
    type: str
    status: str
    reason: str
    message: str
    changed_at: datetime


GPU_POOL = TableSpec("gpu_pool", Pool, ("subject",))
POOL_END = TableSpec("pool_end", PoolEnd, ("pool",))
GPU_DEVICE_ASSIGNMENT = TableSpec("gpu_device_assignment", Assignment, ("device",))
GPU_POOL_TOTAL = TableSpec("gpu_pool_total", PoolTotal, ("pool",))
GPU_POOL_CONDITION = TableSpec("gpu_pool_condition", PoolCondition, ("pool", "type"))
POOLS_SPECS: tuple[TableSpec[Any], ...] = (
    GPU_POOL,
    POOL_END,
    GPU_DEVICE_ASSIGNMENT,
    GPU_POOL_TOTAL,
    GPU_POOL_CONDITION,
)


class Pools(TableState):
    """Pools as defined and decided, by device and by pool."""

    def __init__(self) -> None:
        self.pool = Table(GPU_POOL, "name", "approval")
        self.end = Table(POOL_END)
        self.ends = RowEnds(self.end, lambda row: row.gone_at)
        self.assignment = Table(GPU_DEVICE_ASSIGNMENT, "pool")
        self.total = Table(GPU_POOL_TOTAL)
        self.condition = Table(GPU_POOL_CONDITION, "pool")

    def is_late(self, pool: str, time: datetime) -> bool:
        """Whether the ledger has a later definition of the pool, or a later end."""
        row, end = self.pool.get(pool), self.end.get(pool)
        return is_late(row and row.defined_at, time) or is_late(end and end.gone_at, time)


def _defined(state: Pools, fact: Fact, data: PoolDefined) -> None:
    pool, time = intern(fact.event.subject), fact.event.time
    if state.is_late(pool, time):
        return
    state.ends.forget(fact)
    before = state.pool.get(pool)
    same = before if before is not None and before.uid == data.uid else None
    payload = json_text(data.model_dump(mode="json"))
    row = Pool(
        pool,
        intern(PoolRef.parse(pool).name),
        data.uid,
        data.generation,
        data.deleting,
        same is not None and data.deleting and same.released,
        fact.sequence if same is None else same.position,
        time,
        approval_of(read_spec(payload)),
        payload,
    )
    state.end.delete(pool)
    # What is indexed must not change while a row stands.
    state.pool.delete(pool)
    state.pool.put(row)


def _gone(state: Pools, fact: Fact, _data: PoolGone) -> None:
    pool, time = fact.event.subject, fact.event.time
    if state.is_late(pool, time):
        return
    state.ends.forget(fact)
    end = PoolEnd(intern(pool), time)
    state.end.put(end)
    state.ends.note(end)
    state.pool.delete(pool)
    state.total.delete(pool)
    for row in state.condition.where("pool", pool):
        state.condition.delete((pool, row.type))


def _released(state: Pools, fact: Fact, _data: PoolReleased) -> None:
    row = state.pool.get(fact.event.subject)
    if row is not None:
        state.pool.put(row._replace(released=True))


def _changed(state: Pools, fact: Fact, data: PoolChanged) -> None:
    """A decision that was recorded behind its pool's end is void."""
    pool, time = intern(fact.event.subject), fact.event.time
    if state.pool.get(pool) is None:
        return
    state.total.put(PoolTotal(pool, data.total, data.observed_generation, time))
    put_conditions(state.condition, pool, data.conditions, time)


def _assignment_changed(state: Pools, fact: Fact, data: DeviceAssignmentChanged) -> None:
    device = intern(fact.event.subject)
    pool = None if data.pool is None else intern(data.pool)
    before = state.assignment.get(device)
    is_leaving = data.phase == AssignmentPhase.UNASSIGNING.value and before is not None and before.pool == pool
    was_assigned = (
        is_leaving and before is not None and (before.was_assigned or before.phase == AssignmentPhase.ASSIGNED)
    )
    # What is indexed must not change while a row stands.
    state.assignment.delete(device)
    texts = (data.phase, data.automatic, intern(data.reason), data.message)
    state.assignment.put(Assignment(device, pool, *texts, fact.event.time, was_assigned))


def _withdrawn(state: Pools, fact: Fact, _data: DeviceWithdrawn) -> None:
    state.assignment.delete(fact.event.subject)


POOLS_HANDLERS: Handlers = {
    PoolDefined: _defined,
    PoolGone: _gone,
    PoolReleased: _released,
    PoolChanged: _changed,
    DeviceAssignmentChanged: _assignment_changed,
    DeviceWithdrawn: _withdrawn,
}
