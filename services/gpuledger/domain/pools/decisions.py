"""Pools as decided: which device belongs to which pool, how much a pool offers, and what holds for it.

Whoever shows or uses pools folds this. A decision replaces the one before it in the order of the log; a device that is
withdrawn, and a pool that is gone, leave nothing behind.
"""

from collections.abc import Mapping
from datetime import datetime
from sys import intern
from typing import Any, NamedTuple, Protocol

from gpuledger.api.phases import AssignmentPhase
from gpuledger.domain.fact import Fact, Handlers
from gpuledger.domain.table import Table, TableSpec
from gpuledger.events.device import DeviceAssignmentChanged, DeviceWithdrawn
from gpuledger.events.pool import PoolChanged, PoolGone


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
    """How many units a pool offers (None: not known), by its spec of this generation; and when that was decided."""

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


GPU_DEVICE_ASSIGNMENT = TableSpec("gpu_device_assignment", Assignment, ("device",))
GPU_POOL_TOTAL = TableSpec("gpu_pool_total", PoolTotal, ("pool",))
GPU_POOL_CONDITION = TableSpec("gpu_pool_condition", PoolCondition, ("pool", "type"))
POOLS_SPECS: tuple[TableSpec[Any], ...] = (GPU_DEVICE_ASSIGNMENT, GPU_POOL_TOTAL, GPU_POOL_CONDITION)


class HasPools(Protocol):
    """A state that these handlers can fold into."""

    assignment: Table[Assignment]
    total: Table[PoolTotal]
    condition: Table[PoolCondition]


class PoolsDecided:
    """Pools as decided, by device and by pool."""

    def __init__(self) -> None:
        self.assignment = Table(GPU_DEVICE_ASSIGNMENT, "pool")
        self.total = Table(GPU_POOL_TOTAL)
        self.condition = Table(GPU_POOL_CONDITION, "pool")

    def tables(self) -> Mapping[str, Table[Any]]:
        """Every table, by name."""
        tables: tuple[Table[Any], ...] = (self.assignment, self.total, self.condition)
        return {table.spec.name: table for table in tables}


def _assignment_changed(state: HasPools, fact: Fact, data: DeviceAssignmentChanged) -> None:
    device = intern(fact.event.subject)
    pool = None if data.pool is None else intern(data.pool)
    known = state.assignment.get(device)
    is_leaving = data.phase == AssignmentPhase.UNASSIGNING.value and known is not None and known.pool == pool
    was_assigned = is_leaving and known is not None and (known.was_assigned or known.phase == AssignmentPhase.ASSIGNED)
    # The pool is indexed, and what is indexed does not change while a row stands.
    state.assignment.delete(device)
    texts = (data.phase, data.automatic, intern(data.reason), data.message)
    state.assignment.put(Assignment(device, pool, *texts, fact.event.time, was_assigned))


def _withdrawn(state: HasPools, fact: Fact, _data: DeviceWithdrawn) -> None:
    state.assignment.delete(fact.event.subject)


def _pool_changed(state: HasPools, fact: Fact, data: PoolChanged) -> None:
    pool, time = intern(fact.event.subject), fact.event.time
    state.total.put(PoolTotal(pool, data.total, data.observed_generation, time))
    for one in data.conditions:
        known = state.condition.get((pool, one.type))
        changed_at = known.changed_at if known is not None and known.status == one.status else time
        texts = (intern(one.type), one.status, intern(one.reason), one.message)
        state.condition.put(PoolCondition(pool, *texts, changed_at))


def _pool_gone(state: HasPools, fact: Fact, _data: PoolGone) -> None:
    forget_pool(state, fact.event.subject)


def forget_pool(state: HasPools, pool: str) -> None:
    """Drop what was decided about a pool itself; devices that it still holds are released one by one."""
    state.total.delete(pool)
    for row in state.condition.where("pool", pool):
        state.condition.delete((pool, row.type))


POOLS_HANDLERS: Handlers = {
    DeviceAssignmentChanged: _assignment_changed,
    DeviceWithdrawn: _withdrawn,
    PoolChanged: _pool_changed,
    PoolGone: _pool_gone,
}
