"""Folds the agents' reports of which containers have which devices, into the present and the past.

An agent reports everything that a container has whenever that changes, and again when the agent restarts; each report
replaces the one before. Repeated reports of a unit make one range, which begins with the first. Reports may come in any
order: a late one cuts and joins the ranges around it. In-order reports only need what the container has now, so its
past leaves memory and is read back for a late report. Silence means nothing: a report holds until the next one.
Ranges that ended are in the day totals.
"""

import re
from datetime import datetime
from hashlib import sha256
from typing import Any, Final, NamedTuple

from gpuledger.domain.fact import Fact, Handlers, TableState, Touched
from gpuledger.domain.histories import CONTAINER_ALLOCATIONS
from gpuledger.domain.table import Sum, Table, TableSpec
from gpuledger.domain.workloads.day_totals import changes_of, holder_of
from gpuledger.events.allocation import UNITS_OF_NODE_MAX, AllocationEnded, AllocationObserved
from gpuledger.events.payload import NAME_LENGTH_MAX
from gpuledger.events.position import Offset, is_after, order
from gpuledger.events.publishing import Rule

_SLICED = re.compile(r"(.+)::([0-9]{1,9})", re.DOTALL).fullmatch
"""The id of a slice of a device: `<uuid>::<n>`."""

_DIGEST_LENGTH: Final = 16

_BOUNDS: Final = Rule.BOUNDS  # Every event asks, and an enumeration takes long to find its member.


class ContainerUnit(NamedTuple):
    """A unit that a container has, since when it has it without a break.

    `unit` is `<resource>/<id>` as the device plugin named it, or `<claim>/<driver>/<pool>/<device>`; a longer one ends
    in a hash. `device` is what it is a unit of: a UUID, or what a claim's driver calls it. `slice` is None where the
    container has the device alone; `resource` is None for devices of claims, and the last three are None for others.
    """

    allocation: str
    unit: str
    node: str
    namespace: str
    pod: str
    container: str
    resource: str | None
    device: str
    slice: int | None
    claim: str | None
    driver: str | None
    pool: str | None
    since: datetime


class AllocationRange(NamedTuple):
    """A unit that a container had from `valid_from` up to, not including, `valid_to`."""

    allocation: str
    unit: str
    node: str
    namespace: str
    pod: str
    container: str
    resource: str | None
    device: str
    slice: int | None
    claim: str | None
    driver: str | None
    pool: str | None
    valid_from: datetime
    valid_to: datetime | None


class ContainerDay(NamedTuple):
    """What ended ranges of a namespace's containers on a node change on a day (UTC), in units of one kind.

    `holder` stands for the five names: `resource` is None for devices of claims, `driver` and `pool` for others. Sums
    are as in `AllocationDay`, in units and unit-microseconds.
    """

    day: datetime
    holder: str
    node: str
    namespace: str
    resource: str | None
    driver: str | None
    pool: str | None
    held: Sum
    held_us: Sum


class AllocationReport(NamedTuple):
    """A report of what a container has. It held until `until`; a report of nothing ends at once.

    A container that its node has no more room for counts as reported with nothing.
    """

    allocation: str
    reported_at: datetime
    position: Offset
    until: datetime | None


ALLOCATION = TableSpec("container_allocation", ContainerUnit, ("allocation", "unit"))
HISTORY: TableSpec[AllocationRange] = TableSpec(
    "container_allocation_history",
    AllocationRange,
    ("allocation", "unit", "valid_from"),
    retires=("valid_to",),
    page_by=("allocation",),
    history=CONTAINER_ALLOCATIONS.name,
    by_month="valid_from",
    page_after="container_allocation_report",
)
REPORTS: TableSpec[AllocationReport] = TableSpec(
    "container_allocation_report",
    AllocationReport,
    ("allocation", "reported_at"),
    retires=("until",),
    page_by=("allocation",),
    history=CONTAINER_ALLOCATIONS.name,
)
DAY_TOTALS: TableSpec[ContainerDay] = TableSpec(
    "container_allocation_day", ContainerDay, ("day", "holder"), retires=(), adds=("held", "held_us")
)
SPECS = (ALLOCATION, HISTORY, REPORTS, DAY_TOTALS)

Unit = tuple[Any, ...]
"""The columns of a unit, from `allocation` to `pool`."""


class Allocations(TableState):
    """The state of the allocations projection."""

    def __init__(self) -> None:
        self.allocation = Table(ALLOCATION, "allocation", "node")
        self.history = Table(HISTORY, "allocation")
        self.reports = Table(REPORTS, "allocation")
        self.day = Table(DAY_TOTALS)
        self._last: dict[str, dict[str, datetime]] | None = None

    @property
    def last(self) -> dict[str, dict[str, datetime]]:
        """By node, the time of the last report on each container that has something, in the order of the log."""
        if self._last is None:
            self._last = {}
            held = [row for row in self.reports.rows.values() if row.until is None]
            for row in sorted(held, key=lambda row: order(row.position)):
                self._last.setdefault(node_of(row.allocation), {})[row.allocation] = row.reported_at
        return self._last


def node_of(allocation: str) -> str:
    """The node of an allocation's id, which begins with it."""
    return allocation.partition("/")[0]


def touched(state: Allocations, fact: Fact) -> Touched:
    """The container's past; nothing where it has devices and the fact is later than all reports on it."""
    if _is_next(state, fact.event.subject, fact.event.time):
        return ()
    return [(spec.name, "allocation", fact.event.subject) for spec in (HISTORY, REPORTS)]


def _is_next(state: Allocations, allocation: str, time: datetime) -> bool:
    """Whether the container has something and a report of this time is its latest; its past then does not matter."""
    last = state.last.get(node_of(allocation), {}).get(allocation)
    return last is not None and last < time


def _observed(state: Allocations, fact: Fact, data: AllocationObserved) -> None:
    allocation, time = fact.event.subject, fact.event.time
    units = set(_units(allocation, data).values())
    _set_units(state, AllocationReport._make((allocation, time, fact.sequence, None)), units)
    if _BOUNDS in fact.rules:
        _make_room(state, fact, data.node)


def _ended(state: Allocations, fact: Fact, _data: AllocationEnded) -> None:
    _set_units(state, AllocationReport(fact.event.subject, fact.event.time, fact.sequence, None), set())


def _make_room(state: Allocations, fact: Fact, node: str) -> None:
    """End the containers of a node whose last reports are the oldest of the log, as long as it has too many units.

    Each ends with the fact, or with its own last report if that is of a later time; so its past plays no part.
    """
    held = state.allocation.by["node"]
    while len(held.get(node)) > UNITS_OF_NODE_MAX:
        allocation, reported_at = next(iter(state.last[node].items()))
        end = max(reported_at, fact.event.time)
        _set_units(state, AllocationReport(allocation, end, fact.sequence, None), set())


def _set_units(state: Allocations, report: AllocationReport, units: set[Unit]) -> None:
    """From the report's time up to the next report, the container has exactly these units."""
    allocation, time, position, _ = report
    reports, ranges = _relevant(state, allocation, time)
    if not reports and not ranges:
        _begin(state, report, units)
        return
    if any(one.reported_at == time and is_after(one.position, position) for one in reports):
        return
    following = min((one.reported_at for one in reports if one.reported_at > time), default=None)
    for one in reports:
        if one.reported_at < time and (one.until is None or time < one.until):
            state.reports.put(one._replace(until=time))
    state.reports.put(report._replace(until=following if units else time))
    if following is None:
        _set_last(state, allocation, time if units else None)
    current = {_unit_of(row): row for row in ranges if _holds(row, time)}
    before = {_unit_of(row): row for row in ranges if row.valid_to == time}
    after = {_unit_of(row): row for row in ranges if row.valid_from == following}
    for unit in current.keys() - units:
        _cut(state, current[unit], time, following)
    for unit in units - current.keys():
        _join(state, AllocationRange._make((*unit, time, following)), before.get(unit), after.get(unit))


def _begin(state: Allocations, report: AllocationReport, units: set[Unit]) -> None:
    """Take the first report on a container."""
    allocation, time, position, _ = report
    state.reports.put(AllocationReport._make((allocation, time, position, None if units else time)))
    if units:
        _set_last(state, allocation, time)
    for unit in units:
        _put(state, AllocationRange._make((*unit, time, None)))


def _relevant(
    state: Allocations, allocation: str, time: datetime
) -> tuple[list[AllocationReport], list[AllocationRange]]:
    """The reports on the container and its ranges, as far as they matter for a report of this time."""
    if not _is_next(state, allocation, time):
        return state.reports.where("allocation", allocation), state.history.where("allocation", allocation)
    held = state.allocation.where("allocation", allocation)
    ranges = (state.history.get((allocation, row.unit, row.since)) for row in held)
    last = state.reports.get((allocation, state.last[node_of(allocation)][allocation]))
    return [last] if last else [], [row for row in ranges if row]


def _set_last(state: Allocations, allocation: str, reported_at: datetime | None) -> None:
    node = node_of(allocation)
    last = state.last.setdefault(node, {})
    last.pop(allocation, None)
    if reported_at is not None:
        last[allocation] = reported_at
    elif not last:
        del state.last[node]


def _cut(state: Allocations, row: AllocationRange, start: datetime, end: datetime | None) -> None:
    """Cut the time from start to end out of a range that holds at its start."""
    if row.valid_to is None:
        state.allocation.delete((row.allocation, row.unit))
    if row.valid_from < start:
        _put_range(state, row._replace(valid_to=start))
    else:
        _delete_range(state, row)
    if end is not None and (row.valid_to is None or end < row.valid_to):
        _put(state, row._replace(valid_from=end))


def _join(
    state: Allocations, row: AllocationRange, before: AllocationRange | None, after: AllocationRange | None
) -> None:
    """Put a range, joined with the ranges of the same unit that it touches."""
    if after is not None:
        _delete_range(state, after)
        row = row._replace(valid_to=after.valid_to)
    _put(state, row if before is None else row._replace(valid_from=before.valid_from))


def _put(state: Allocations, row: AllocationRange) -> None:
    _put_range(state, row)
    if row.valid_to is None:
        state.allocation.put(ContainerUnit._make(row[:-1]))


def _put_range(state: Allocations, row: AllocationRange) -> None:
    before = state.history.get((row.allocation, row.unit, row.valid_from))
    if before is not None:
        _add_to_days(state, before, -1)
    state.history.put(row)
    _add_to_days(state, row, 1)


def _delete_range(state: Allocations, row: AllocationRange) -> None:
    state.history.delete((row.allocation, row.unit, row.valid_from))
    _add_to_days(state, row, -1)


def _add_to_days(state: Allocations, row: AllocationRange, units: int) -> None:
    if row.valid_to is None:
        return
    names = (row.node, row.namespace, row.resource, row.driver, row.pool)
    for day, held, held_us in changes_of(row.valid_from, row.valid_to, units):
        state.day.add(ContainerDay(day, holder_of(*names), *names, held, held_us))


def _holds(row: AllocationRange, time: datetime) -> bool:
    return row.valid_from <= time and (row.valid_to is None or time < row.valid_to)


def _unit_of(row: AllocationRange) -> Unit:
    return row[:-2]


def _units(allocation: str, data: AllocationObserved) -> dict[str, Unit]:
    """The units that a container has, by name; of several with one name the last is in force."""
    units: dict[str, Unit] = {}
    container = (data.node, data.namespace, data.pod, data.container)
    for held in data.resources:
        for device in held.devices:
            unit = _bounded_name(held.resource, device)
            units[unit] = (allocation, unit, *container, held.resource, *_split_slice(device), None, None, None)
    for claim in data.claims:
        unit = _bounded_name(claim.claim, claim.driver, claim.pool, claim.device)
        units[unit] = (allocation, unit, *container, None, claim.device, None, claim.claim, claim.driver, claim.pool)
    return units


def _split_slice(device: str) -> tuple[str, int | None]:
    """The device of a unit's id, and the slice of it."""
    match = _SLICED(device)
    return (device, None) if match is None else (match[1], int(match[2]))


def _bounded_name(*parts: str) -> str:
    """A name that fits into an index, whatever an agent reports."""
    whole = "/".join(parts)
    if len(whole) <= NAME_LENGTH_MAX:
        return whole
    return f"{whole[: NAME_LENGTH_MAX - _DIGEST_LENGTH - 1]}-{sha256(whole.encode()).hexdigest()[:_DIGEST_LENGTH]}"


HANDLERS: Handlers = {AllocationObserved: _observed, AllocationEnded: _ended}
