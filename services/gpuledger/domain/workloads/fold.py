"""Folds workloads: who requested GPUs, which they got, and for how long.

A workload may be scheduled many times. Each scheduling lasts until the next one, or until the first end that is not
before it; so a workload that is scheduled after its end runs again, and an end at the same time as a scheduling ends
it. Facts may come in any order: allocations depend on the set of them. Ended workloads leave memory, and are read back
for a late event. Allocations that ended are in the day totals, under the owner and class that the workload has now.
Where their history was shortened, what was dropped stays there under those of then.
"""

from datetime import datetime
from typing import Any, NamedTuple

from gpuledger.domain.fact import Fact, Handler, Handlers, TableState, Touched
from gpuledger.domain.histories import WORKLOAD_ALLOCATIONS
from gpuledger.domain.table import Sum, Table, TableSpec
from gpuledger.domain.workloads.day_totals import changes_of, holder_of
from gpuledger.events.payload import BIGINT_MAX
from gpuledger.events.position import ORIGIN, Offset, order
from gpuledger.events.workload import WorkloadEnded, WorkloadScheduled, WorkloadSubmitted

PENDING, RUNNING, ENDED, UNSCHEDULED = "Pending", "Running", "Ended", "Unscheduled"
SUBMITTED, SCHEDULED, ENDING = "submitted", "scheduled", "ended"


class Workload(NamedTuple):
    """A workload. Of several facts of one kind the latest in (`time`, position) is in force; each has its position.

    `source` and `epoch` are those of the submission; without one, of the scheduling, else of the end.
    """

    workload: str
    phase: str
    owner: str | None
    workload_class: str | None
    gpu_milli: int | None
    cpu_milli: int | None
    memory_mib: int | None
    node: str | None
    outcome: str | None
    submitted_at: datetime | None
    submitted_position: Offset
    scheduled_at: datetime | None
    scheduled_position: Offset
    ended_at: datetime | None
    ended_position: Offset
    source: str
    epoch: str


class WorkloadFact(NamedTuple):
    """One thing that happened to a workload; of two of one kind and time the one recorded later is in force."""

    workload: str
    kind: str
    happened_at: datetime
    position: Offset
    owner: str | None
    workload_class: str | None
    gpu_milli: int | None
    cpu_milli: int | None
    memory_mib: int | None
    node: str | None
    outcome: str | None


class Allocation(NamedTuple):
    """GPUs that a scheduling gave to a workload, in thousandths. `device` is empty where only the amount is known."""

    workload: str
    device: str
    valid_from: datetime
    node: str | None
    gpu_milli: int
    valid_to: datetime | None


class AllocationDay(NamedTuple):
    """What ended allocations of an owner and class on a node change on a day (UTC), in thousandths of a GPU.

    `holder` stands for the three names. `held_us` is what they held on it, times microseconds. Those of many days count
    there only for the days of their ends, and `held` is what later days have to add of them, until it is taken away.
    """

    day: datetime
    holder: str
    node: str | None
    owner: str | None
    workload_class: str | None
    held: Sum
    held_us: Sum


WORKLOAD: TableSpec[Workload] = TableSpec(
    "workload",
    Workload,
    ("workload",),
    retires=("ended_at", "submitted_at"),
    page_by=("workload",),
)
ALLOCATION: TableSpec[Allocation] = TableSpec(
    "allocation",
    Allocation,
    ("workload", "device", "valid_from"),
    retires=("valid_to",),
    page_by=("workload",),
    history=WORKLOAD_ALLOCATIONS.name,
)
WORKLOAD_FACT: TableSpec[WorkloadFact] = TableSpec(
    "workload_fact", WorkloadFact, ("workload", "kind", "happened_at"), retires=(), page_by=("workload",)
)
ALLOCATION_DAY: TableSpec[AllocationDay] = TableSpec(
    "allocation_day", AllocationDay, ("day", "holder"), retires=(), adds=("held", "held_us")
)
SPECS = (WORKLOAD, ALLOCATION, WORKLOAD_FACT, ALLOCATION_DAY)

_ANY_EVENT: tuple[TableSpec[Any], ...] = (WORKLOAD, ALLOCATION)


class Workloads(TableState):
    """The state of the workloads projection."""

    def __init__(self) -> None:
        self.workload = Table(WORKLOAD)
        self.allocation = Table(ALLOCATION, "workload")
        self.fact = Table(WORKLOAD_FACT, "workload")
        self.day = Table(ALLOCATION_DAY)


def touched(fact: Fact) -> Touched:
    """Any event may touch the workload's row and allocations; a scheduling also needs its other facts."""
    workload = fact.event.subject
    tables = (WORKLOAD, ALLOCATION, WORKLOAD_FACT) if isinstance(fact.event.data, WorkloadScheduled) else _ANY_EVENT
    return [(spec.name, "workload", workload) for spec in tables]


def phase_of(scheduled_at: datetime | None, ended_at: datetime | None) -> str:
    """The phase of a workload that was last scheduled and last ended at these times."""
    if scheduled_at is None:
        return PENDING if ended_at is None else UNSCHEDULED
    return RUNNING if ended_at is None or ended_at < scheduled_at else ENDED


def _submitted(state: Workloads, fact: Fact, data: WorkloadSubmitted) -> None:
    requested = (data.owner, data.workload_class, data.gpu_milli, data.cpu_milli, data.memory_mib)
    _store(state, fact, SUBMITTED, *requested)
    row = _row(state, fact)
    if _is_newer(fact, row.submitted_at, row.submitted_position):
        _put(
            state,
            row._replace(
                owner=data.owner,
                workload_class=data.workload_class,
                gpu_milli=data.gpu_milli,
                cpu_milli=data.cpu_milli,
                memory_mib=data.memory_mib,
                submitted_at=fact.event.time,
                submitted_position=fact.sequence,
                source=fact.event.source,
                epoch=fact.event.epoch,
            ),
        )


def _scheduled(state: Workloads, fact: Fact, data: WorkloadScheduled) -> None:
    _store(state, fact, SCHEDULED, node=data.node)
    _allocate(state, fact, data)
    row = _row(state, fact)
    if not _is_newer(fact, row.scheduled_at, row.scheduled_position):
        return
    if row.submitted_at is None:
        row = _with_source(row, fact)
    _put(state, row._replace(node=data.node, scheduled_at=fact.event.time, scheduled_position=fact.sequence))


def _ended(state: Workloads, fact: Fact, data: WorkloadEnded) -> None:
    _store(state, fact, ENDING, outcome=data.outcome)
    _release(state, fact.event.subject, fact.event.time)
    row = _row(state, fact)
    if not _is_newer(fact, row.ended_at, row.ended_position):
        return
    if row.submitted_at is None and row.scheduled_at is None:
        row = _with_source(row, fact)
    _put(state, row._replace(outcome=data.outcome, ended_at=fact.event.time, ended_position=fact.sequence))


def _allocate(state: Workloads, fact: Fact, data: WorkloadScheduled) -> None:
    workload, start = fact.event.subject, fact.event.time
    for allocation in state.allocation.where("workload", workload):
        if allocation.valid_from == start:
            state.allocation.delete((workload, allocation.device, start))
    _release(state, workload, start)
    end = _end_of_allocation(state, workload, start)
    for device, gpu_milli in _shares(data).items():
        state.allocation.put(Allocation(workload, device, start, data.node, gpu_milli, end))


def _release(state: Workloads, workload: str, time: datetime) -> None:
    """End all allocations that hold at this time."""
    for allocation in state.allocation.where("workload", workload):
        if allocation.valid_from <= time and (allocation.valid_to is None or time < allocation.valid_to):
            state.allocation.put(allocation._replace(valid_to=time))


def _end_of_allocation(state: Workloads, workload: str, start: datetime) -> datetime | None:
    return min(
        (
            fact.happened_at
            for fact in state.fact.where("workload", workload)
            if (fact.kind == ENDING and fact.happened_at >= start)
            or (fact.kind == SCHEDULED and fact.happened_at > start)
        ),
        default=None,
    )


def _store(
    state: Workloads,
    fact: Fact,
    kind: str,
    owner: str | None = None,
    workload_class: str | None = None,
    gpu_milli: int | None = None,
    cpu_milli: int | None = None,
    memory_mib: int | None = None,
    node: str | None = None,
    outcome: str | None = None,
) -> None:
    requested = (owner, workload_class, gpu_milli, cpu_milli, memory_mib)
    event = fact.event
    state.fact.put(WorkloadFact(event.subject, kind, event.time, fact.sequence, *requested, node, outcome))


def _row(state: Workloads, fact: Fact) -> Workload:
    event = fact.event
    row = state.workload.get(event.subject)
    if row is not None:
        return row
    nothing = (None,) * 7
    never = (None, ORIGIN)
    return Workload(event.subject, PENDING, *nothing, *never, *never, *never, event.source, event.epoch)


def _with_source(row: Workload, fact: Fact) -> Workload:
    return row._replace(source=fact.event.source, epoch=fact.event.epoch)


def _put(state: Workloads, row: Workload) -> None:
    state.workload.put(row._replace(phase=phase_of(row.scheduled_at, row.ended_at)))


def _is_newer(fact: Fact, time: datetime | None, position: Offset) -> bool:
    return time is None or (time, order(position)) < (fact.event.time, order(fact.sequence))


def _shares(data: WorkloadScheduled) -> dict[str, int]:
    if not data.devices:
        return {"": data.gpu_milli} if data.gpu_milli else {}
    shares: dict[str, int] = {}
    for share in data.devices:
        shares[share.device] = min(shares.get(share.device, 0) + share.gpu_milli, BIGINT_MAX)
    return shares


def _with_day_totals(handler: Handler) -> Handler:
    """The handler, and the day totals of what it changed."""

    def handle(state: Workloads, fact: Fact, data: Any) -> None:  # noqa: ANN401 - each handler has its own
        workload = fact.event.subject
        asked, before = _ended_of(state, workload)
        handler(state, fact, data)
        asks, after = _ended_of(state, workload)
        for row, allocation in before.items():
            if asks != asked or row not in after:
                _add_to_days(state, allocation, asked, -1)
        for row, allocation in after.items():
            if asks != asked or row not in before:
                _add_to_days(state, allocation, asks, 1)

    return handle


_Requested = tuple[str | None, str | None]
"""A workload's owner and class."""


def _ended_of(state: Workloads, workload: str) -> tuple[_Requested, dict[int, Allocation]]:
    """Who requested a workload, and its ended allocations by identity: a row that was not replaced is the same."""
    row = state.workload.get(workload)
    requested = (None, None) if row is None else (row.owner, row.workload_class)
    rows = state.allocation.where("workload", workload)
    return requested, {id(one): one for one in rows if one.valid_to is not None}


def _add_to_days(state: Workloads, allocation: Allocation, requested: _Requested, sign: int) -> None:
    assert allocation.valid_to is not None, "it ended"
    node, (owner, workload_class) = allocation.node, requested
    holder = holder_of(node, owner, workload_class)
    for day, held, held_us in changes_of(allocation.valid_from, allocation.valid_to, sign * allocation.gpu_milli):
        state.day.add(AllocationDay(day, holder, node, owner, workload_class, held, held_us))


HANDLERS: Handlers = {
    WorkloadSubmitted: _with_day_totals(_submitted),
    WorkloadScheduled: _with_day_totals(_scheduled),
    WorkloadEnded: _with_day_totals(_ended),
}
