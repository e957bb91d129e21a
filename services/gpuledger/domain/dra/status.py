"""The status of a ResourceSlice, in the seed's words. Pure.

Availability per device, a summary, and on one slice of each view what is to be said of the pool. Amounts of a device
are told only where several claims can share it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from gpuledger.domain.dra.objects import Holding
from gpuledger.domain.dra.pool_index import Book, Evaluated, Standing
from gpuledger.domain.dra.pools import PoolView
from gpuledger.domain.dra.verdicts import DeviceState
from gpuledger.domain.quantities import Quantity

Document = dict[str, Any]

ERRORS_TOLD_MAX: Final = 100
"""So many of a pool's errors are told one by one; an object of the API has to stay small."""

PROBLEMS_TOLD_MAX: Final = 10
"""So many of what makes a pool invalid stand in the message of its condition."""


class PoolCondition(NamedTuple):
    """A condition of a pool as seen from somewhere; `changed_at` is when its status last changed."""

    type: str
    status: bool
    reason: str
    message: str
    changed_at: datetime


def slice_status(
    book: Book, evaluated: Evaluated, name: str, conditions: Iterable[PoolCondition], *, redacted: bool
) -> Document:
    """The whole status of a slice. `redacted` leaves out which claims hold something, and keeps how many."""
    standings = evaluated.of(name)
    status: Document = {
        "devices": [_device(book, one, redacted=redacted) for one in standings.values()],
        "summary": _summary(standings.values()),
        "observedGeneration": book.slices[name].spec_generation,
    }
    if evaluated.owner() == name:
        status["poolStatus"] = _pool(book, evaluated, conditions, redacted=redacted)
    return status


def conditions_of(view: PoolView) -> Iterator[tuple[str, bool, str, str]]:
    """Type, status, reason and message of a pool's conditions."""
    seen = f"{view.observed} of {view.expected} slices of generation {view.generation} are there."
    yield "Complete", view.is_complete, "SliceCountMatch" if view.is_complete else "SliceCountMismatch", seen
    if not view.is_complete:
        yield "Valid", True, "NotChecked", "An incomplete pool is not checked."
    elif view.is_valid:
        yield "Valid", True, "ValidationPassed", ""
    else:
        yield "Valid", False, "ValidationFailed", "; ".join(_first(view.problems, PROBLEMS_TOLD_MAX))


def vanished_errors(holdings: Iterable[Holding], *, redacted: bool) -> Iterator[str]:
    """What is wrong with claims on devices that are no more, once for each claim and device."""
    for claim, device, pool in dict.fromkeys((one.claim, one.device, one.pool.name) for one in holdings):
        who = "A ResourceClaim" if redacted else f"ResourceClaim {claim}"
        yield f"{who} references non-existent device '{device}' in pool '{pool}'"


def overdrawn_errors(evaluated: Evaluated) -> Iterator[str]:
    """Which counters more is taken from than they hold."""
    for name, counters in sorted(evaluated.left.items()):
        for counter, nanos in sorted(counters.items()):
            if nanos < 0:
                yield f"counter {name}/{counter} is overcommitted by {Quantity(-nanos)}"


def _device(book: Book, standing: Standing, *, redacted: bool) -> Document:
    device, use = standing.device, standing.use
    found: Document = {"name": device.name, "state": str(standing.state)}
    if standing.reason is not None:
        found["stateReason"] = str(standing.reason)
    holdings = book.holdings(device.name) if use.is_used else []
    if holdings:
        found["allocations"] = [_allocation(one, redacted=redacted, told=device.is_shareable) for one in holdings]
    if device.is_shareable and device.capacity:
        found["capacity"] = {name: str(one.value) for name, one in device.capacity.items()}
        found["availableCapacity"] = {name: str(amount) for name, amount in _available(standing)}
    return found


def _allocation(holding: Holding, *, redacted: bool, told: bool) -> Document:
    claim = ("", "", "") if redacted else holding.claim
    found: Document = dict(zip(("claimNamespace", "claimName", "claimUID"), claim, strict=True))
    if not redacted and holding.request:
        found["request"] = holding.request
    if told and holding.consumed:
        found["capacity"] = {name: str(amount) for name, amount in sorted(holding.consumed.items())}
    return found


def _available(standing: Standing) -> Iterator[tuple[str, Quantity]]:
    """What is left of each capacity, from nothing to all of it; of a device that somebody holds, nothing."""
    for name, one in standing.device.capacity.items():
        left = 0 if standing.use.is_exclusive else one.value.nanos - standing.use.consumed_of(name)
        yield name, one.value.as_much(max(0, min(left, one.value.nanos)))


def _total(standing: Standing) -> Iterator[tuple[str, Quantity]]:
    """What a device has of each capacity; less than nothing, which can be published, is nothing."""
    for name, one in standing.device.capacity.items():
        yield name, one.value.as_much(max(0, one.value.nanos))


def _summary(standings: Iterable[Standing]) -> Document:
    standings = list(standings)
    states = [one.state for one in standings]
    found: Document = {
        "totalDevices": len(states),
        "allocatedDevices": sum(one.use.is_used for one in standings),
        "availableDevices": states.count(DeviceState.AVAILABLE),
        "partiallyAllocatedDevices": states.count(DeviceState.PARTIAL),
    }
    total, available = _sums(standings)
    if total:
        found["totalCapacity"] = {name: str(amount) for name, amount in total.items()}
        found["allocatedCapacity"] = {
            name: str(amount.as_much(amount.nanos - available[name].nanos)) for name, amount in total.items()
        }
        found["availableCapacity"] = {name: str(amount) for name, amount in available.items()}
    return found


def _sums(standings: Iterable[Standing]) -> tuple[Mapping[str, Quantity], Mapping[str, Quantity]]:
    """What the devices that can be shared have of each capacity together, and what is left of that."""
    total: dict[str, Quantity] = {}
    available: dict[str, Quantity] = {}
    for standing in standings:
        if standing.device.is_shareable:
            for name, amount in _total(standing):
                _add(total, name, amount)
            for name, amount in _available(standing):
                _add(available, name, amount)
    return dict(sorted(total.items())), available


def _add(sums: dict[str, Quantity], name: str, amount: Quantity) -> None:
    known = sums.get(name)
    sums[name] = amount if known is None else known.as_much(known.nanos + amount.nanos)


def _pool(book: Book, evaluated: Evaluated, conditions: Iterable[PoolCondition], *, redacted: bool) -> Document:
    view = evaluated.view
    errors = [
        *view.problems,
        *vanished_errors(book.vanished(), redacted=redacted),
        *overdrawn_errors(evaluated),
    ]
    found: Document = {
        "conditions": [_condition(one) for one in conditions],
        "observedSliceCount": view.observed,
        "expectedSliceCount": view.expected,
    }
    return found | ({"validationErrors": _first(errors, ERRORS_TOLD_MAX)} if errors else {})


def _first(errors: Sequence[str], told_max: int) -> list[str]:
    """The first of them, and how many more there are."""
    more = len(errors) - told_max
    return [*errors[:told_max], *([f"{more} more"] if more > 0 else [])]


def _condition(one: PoolCondition) -> Document:
    return {
        "type": one.type,
        "status": "True" if one.status else "False",
        "reason": one.reason,
        "message": one.message,
        "lastTransitionTime": one.changed_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
