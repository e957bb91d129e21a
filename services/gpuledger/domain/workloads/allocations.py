"""Which containers have which devices, now and at any time, as the agents of their nodes tell.

An agent tells what a container has whenever that changes, and again when it starts anew; each time replaces the last.
A unit that was told of again and again is held in one range, which begins when it was first told of. Facts may come in
any order: a late one cuts and joins the ranges around it. For what comes in order it is enough to know what the
container has; its past leaves memory, and is read back only for what comes late. Nothing is concluded from silence:
what an agent told of stands until it tells otherwise.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any, Final, NamedTuple

from gpuledger.domain.fact import Fact, Handlers, Touched
from gpuledger.domain.table import Table, TableSpec
from gpuledger.events.allocation import AllocationEnded, AllocationObserved
from gpuledger.events.payload import NAME_LENGTH_MAX
from gpuledger.events.publishing import is_agent_of

_SLICED = re.compile(r"(.+)::([0-9]{1,9})", re.DOTALL).fullmatch
"""The id of a slice of a device: `<uuid>::<n>`."""

_DIGEST_LENGTH: Final = 16


class ContainerAllocation(NamedTuple):
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


class Told(NamedTuple):
    """That it was told what a container has. It held until `until`; at once where it was nothing."""

    allocation: str
    told_at: datetime
    position: int
    until: datetime | None


ALLOCATION = TableSpec("container_allocation", ContainerAllocation, ("allocation", "unit"))
HISTORY: TableSpec[AllocationRange] = TableSpec(
    "container_allocation_history",
    AllocationRange,
    ("allocation", "unit", "valid_from"),
    retires=("valid_to",),
    page_by="allocation",
)
TOLD: TableSpec[Told] = TableSpec(
    "container_allocation_told", Told, ("allocation", "told_at"), retires=("until",), page_by="allocation"
)
SPECS = (ALLOCATION, HISTORY, TOLD)

Unit = tuple[Any, ...]
"""The columns of a unit, from `allocation` to `pool`."""


class Allocations:
    """The state of the allocations projection."""

    def __init__(self) -> None:
        self.allocation = Table(ALLOCATION, "allocation")
        self.history = Table(HISTORY, "allocation")
        self.told = Table(TOLD, "allocation")
        self._last: dict[str, datetime] | None = None

    @property
    def last(self) -> dict[str, datetime]:
        """When it was last told of each container that has something; made from the rows when first asked for."""
        if self._last is None:
            self._last = {row.allocation: row.told_at for row in self.told.rows.values() if row.until is None}
        return self._last

    def tables(self) -> Mapping[str, Table[Any]]:
        """Every table, by name."""
        tables: tuple[Table[Any], ...] = (self.allocation, self.history, self.told)
        return {table.spec.name: table for table in tables}


def touched(state: Allocations, fact: Fact) -> Touched:
    """The container's past; nothing where it has devices, and the fact is later than all that was told of it."""
    if _is_next(state, fact):
        return ()
    return ((HISTORY.name, fact.event.subject), (TOLD.name, fact.event.subject))


def _is_next(state: Allocations, fact: Fact) -> bool:
    """Whether the container has something, and nothing was told of it since; its past then does not matter."""
    last = state.last.get(fact.event.subject)
    return last is not None and last < fact.event.time


def _observed(state: Allocations, fact: Fact, data: AllocationObserved) -> None:
    if is_agent_of(fact.event.source, data.node):
        _tell(state, fact, set(_units(fact.event.subject, data).values()))


def _ended(state: Allocations, fact: Fact, _data: AllocationEnded) -> None:
    _tell(state, fact, set())


def _tell(state: Allocations, fact: Fact, units: set[Unit]) -> None:
    """From the fact's time on, up to the next that was told, the container has these units and no others."""
    allocation, time = fact.event.subject, fact.event.time
    told, ranges = _known(state, fact)
    if any(one.told_at == time and one.position > fact.sequence for one in told):
        return
    following = min((one.told_at for one in told if one.told_at > time), default=None)
    for one in told:
        if one.told_at < time and (one.until is None or time < one.until):
            state.told.put(one._replace(until=time))
    state.told.put(Told(allocation, time, fact.sequence, following if units else time))
    if following is None:
        _note_last(state, allocation, time if units else None)
    had = {_unit_of(row): row for row in ranges if _holds(row, time)}
    before = {_unit_of(row): row for row in ranges if row.valid_to == time}
    after = {_unit_of(row): row for row in ranges if row.valid_from == following}
    for unit in had.keys() - units:
        _cut(state, had[unit], time, following)
    for unit in units - had.keys():
        _join(state, AllocationRange._make((*unit, time, following)), before.get(unit), after.get(unit))


def _known(state: Allocations, fact: Fact) -> tuple[list[Told], list[AllocationRange]]:
    """What was told of the container and what it had, as far as it matters for the fact."""
    allocation = fact.event.subject
    if not _is_next(state, fact):
        return state.told.where("allocation", allocation), state.history.where("allocation", allocation)
    held = state.allocation.where("allocation", allocation)
    ranges = (state.history.get((allocation, row.unit, row.since)) for row in held)
    last = state.told.get((allocation, state.last[allocation]))
    return [last] if last else [], [row for row in ranges if row]


def _note_last(state: Allocations, allocation: str, told_at: datetime | None) -> None:
    if told_at is None:
        state.last.pop(allocation, None)
    else:
        state.last[allocation] = told_at


def _cut(state: Allocations, row: AllocationRange, start: datetime, end: datetime | None) -> None:
    """Take the time from start to end out of a range that holds at its start."""
    if row.valid_to is None:
        state.allocation.delete((row.allocation, row.unit))
    if row.valid_from < start:
        state.history.put(row._replace(valid_to=start))
    else:
        state.history.delete((row.allocation, row.unit, row.valid_from))
    if end is not None and (row.valid_to is None or end < row.valid_to):
        _put(state, row._replace(valid_from=end))


def _join(
    state: Allocations, row: AllocationRange, before: AllocationRange | None, after: AllocationRange | None
) -> None:
    """Put a range, as one with those of the same unit that it touches."""
    if after is not None:
        state.history.delete((after.allocation, after.unit, after.valid_from))
        row = row._replace(valid_to=after.valid_to)
    _put(state, row if before is None else row._replace(valid_from=before.valid_from))


def _put(state: Allocations, row: AllocationRange) -> None:
    state.history.put(row)
    if row.valid_to is None:
        state.allocation.put(ContainerAllocation._make(row[:-1]))


def _holds(row: AllocationRange, time: datetime) -> bool:
    return row.valid_from <= time and (row.valid_to is None or time < row.valid_to)


def _unit_of(row: AllocationRange) -> Unit:
    return row[:-2]


def _units(allocation: str, data: AllocationObserved) -> dict[str, Unit]:
    """The units that a container has, by what each is called; of what is called alike the last holds."""
    units: dict[str, Unit] = {}
    container = (data.node, data.namespace, data.pod, data.container)
    for held in data.resources:
        for device in held.devices:
            unit = _name(held.resource, device)
            units[unit] = (allocation, unit, *container, held.resource, *_sliced(device), None, None, None)
    for claim in data.claims:
        unit = _name(claim.claim, claim.driver, claim.pool, claim.device)
        units[unit] = (allocation, unit, *container, None, claim.device, None, claim.claim, claim.driver, claim.pool)
    return units


def _sliced(device: str) -> tuple[str, int | None]:
    """What a unit's id is a unit of, and which slice of it."""
    sliced = _SLICED(device)
    return (device, None) if sliced is None else (sliced[1], int(sliced[2]))


def _name(*parts: str) -> str:
    """A name that an index can hold, whatever an agent says."""
    whole = "/".join(parts)
    if len(whole) <= NAME_LENGTH_MAX:
        return whole
    return f"{whole[: NAME_LENGTH_MAX - _DIGEST_LENGTH - 1]}-{sha256(whole.encode()).hexdigest()[:_DIGEST_LENGTH]}"


HANDLERS: Handlers = {AllocationObserved: _observed, AllocationEnded: _ended}
