"""Renders the status of a ResourceSlice: every device, a summary, and on one slice of each view the pool. Pure.

Amounts of a device appear only where several claims can share it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from gpuledger.api.condition_messages import message_of
from gpuledger.api.conditions import rfc3339
from gpuledger.domain.dra.device_state import AvailabilityState
from gpuledger.domain.dra.evaluation import DeviceAvailability, PoolEvaluation
from gpuledger.domain.dra.objects import Holding
from gpuledger.domain.dra.pool_index import PoolIndex
from gpuledger.domain.dra.pools import PoolView
from gpuledger.domain.dra.rows import UNDECIDED, SlicePoolCondition
from gpuledger.domain.quantities import Quantity

Document = dict[str, Any]

COMPLETE: Final = "Complete"
VALID: Final = "Valid"
CONDITION_TYPES: Final = (COMPLETE, VALID)

ERRORS_MAX: Final = 100
"""The most errors of a pool in a status; an object of the API has to stay small."""

PROBLEMS_MAX: Final = 10
"""The most errors of a pool in the message of its condition."""


def slice_status(
    index: PoolIndex, evaluation: PoolEvaluation, name: str, conditions: Iterable[SlicePoolCondition], *, redacted: bool
) -> Document:
    """The whole status of a slice. `redacted` leaves out which claims hold something, and keeps how many."""
    availabilities = evaluation.of(name)
    status: Document = {
        "devices": [_device(index, one, redacted=redacted) for one in availabilities.values()],
        "summary": _summary(availabilities.values()),
        "observedGeneration": index.slices[name].spec_generation,
    }
    if evaluation.owner() == name:
        generation = status["observedGeneration"]
        shown = [_condition(one, generation) for one in conditions]
        status["poolStatus"] = {"conditions": shown, **_pool(index, evaluation, redacted=redacted)}
    return status


def conditions_of(view: PoolView) -> Iterator[tuple[str, bool, str, str]]:
    """Type, status, reason and message of a pool's conditions; the status is as a row has it."""
    text = f"{view.observed} of {view.expected} slices of generation {view.generation} are there."
    yield COMPLETE, view.is_complete, "SliceCountMatch" if view.is_complete else "SliceCountMismatch", text
    yield VALID, *_validity(view)


def vanished_errors(holdings: Iterable[Holding], *, redacted: bool) -> Iterator[str]:
    """Errors about claims on devices that are gone, once for each claim and device."""
    for claim, device, pool in dict.fromkeys((one.claim, one.device, one.pool.name) for one in holdings):
        who = "A ResourceClaim" if redacted else f"ResourceClaim {claim}"
        yield f"{who} references non-existent device '{device}' in pool '{pool}'"


def overdrawn_errors(evaluation: PoolEvaluation) -> Iterator[str]:
    """Which counters more is taken from than they hold."""
    for name, counters in sorted(evaluation.left.items()):
        for counter, nanos in sorted(counters.items()):
            if nanos < 0:
                yield f"counter {name}/{counter} is overcommitted by {Quantity(-nanos)}"


def _validity(view: PoolView) -> tuple[bool, str, str]:
    errors = "; ".join(_first(view.errors, PROBLEMS_MAX))
    if view.is_consistent is None:
        return True, UNDECIDED, errors or "The slices that are there agree, and others are missing."
    return view.is_consistent, "ValidationPassed" if view.is_consistent else "ValidationFailed", errors


def _device(index: PoolIndex, availability: DeviceAvailability, *, redacted: bool) -> Document:
    device, use = availability.device, availability.use
    found: Document = {"name": device.name, "state": str(availability.state)}
    if availability.reason is not None:
        found["stateReason"] = str(availability.reason)
    holdings = index.holdings(device.name) if use.is_used else []
    if holdings:
        found["allocations"] = [_allocation(one, redacted=redacted, shared=device.is_shareable) for one in holdings]
    if device.is_shareable and device.capacity:
        found["capacity"] = {name: str(one.value) for name, one in device.capacity.items()}
        found["availableCapacity"] = {name: str(amount) for name, amount in _available(availability)}
    return found


def _allocation(holding: Holding, *, redacted: bool, shared: bool) -> Document:
    claim = ("", "", "") if redacted else holding.claim
    found: Document = dict(zip(("claimNamespace", "claimName", "claimUID"), claim, strict=True))
    if not redacted and holding.request:
        found["request"] = holding.request
    if shared and holding.consumed:
        found["capacity"] = {name: str(amount) for name, amount in sorted(holding.consumed.items())}
    return found


def _available(availability: DeviceAvailability) -> Iterator[tuple[str, Quantity]]:
    """The remaining part of each capacity; nothing of a device that is held as a whole."""
    for name, one in availability.device.capacity.items():
        left = 0 if availability.use.is_exclusive else one.value.nanos - availability.use.consumed_of(name)
        yield name, one.value.as_much(max(0, min(left, one.value.nanos)))


def _total(availability: DeviceAvailability) -> Iterator[tuple[str, Quantity]]:
    """A device's amount of each capacity; a negative one, which a driver may publish, counts as nothing."""
    for name, one in availability.device.capacity.items():
        yield name, one.value.as_much(max(0, one.value.nanos))


def _summary(availabilities: Iterable[DeviceAvailability]) -> Document:
    availabilities = list(availabilities)
    states = [one.state for one in availabilities]
    found: Document = {
        "totalDevices": len(states),
        "allocatedDevices": sum(one.use.is_used for one in availabilities),
        "availableDevices": states.count(AvailabilityState.AVAILABLE),
        "partiallyAllocatedDevices": states.count(AvailabilityState.PARTIAL),
    }
    total, available = _sums(availabilities)
    if total:
        found["totalCapacity"] = {name: str(amount) for name, amount in total.items()}
        found["allocatedCapacity"] = {
            name: str(amount.as_much(amount.nanos - available[name].nanos)) for name, amount in total.items()
        }
        found["availableCapacity"] = {name: str(amount) for name, amount in available.items()}
    return found


def _sums(availabilities: Iterable[DeviceAvailability]) -> tuple[Mapping[str, Quantity], Mapping[str, Quantity]]:
    """The total of each capacity over all shareable devices, and the remaining part of it."""
    total: dict[str, Quantity] = {}
    available: dict[str, Quantity] = {}
    for availability in availabilities:
        if availability.device.is_shareable:
            for name, amount in _total(availability):
                _add(total, name, amount)
            for name, amount in _available(availability):
                _add(available, name, amount)
    return dict(sorted(total.items())), available


def _add(sums: dict[str, Quantity], name: str, amount: Quantity) -> None:
    before = sums.get(name)
    sums[name] = amount if before is None else before.as_much(before.nanos + amount.nanos)


def _pool(index: PoolIndex, evaluation: PoolEvaluation, *, redacted: bool) -> Document:
    view = evaluation.view
    errors = [
        *view.errors,
        *vanished_errors(index.vanished(), redacted=redacted),
        *overdrawn_errors(evaluation),
    ]
    found: Document = {"observedSliceCount": view.observed, "expectedSliceCount": view.expected}
    return found | ({"validationErrors": _first(errors, ERRORS_MAX)} if errors else {})


def _first(errors: Sequence[str], shown_max: int) -> list[str]:
    """The first of them, and how many more there are."""
    more = len(errors) - shown_max
    return [*errors[:shown_max], *([f"{more} more"] if more > 0 else [])]


def _condition(one: SlicePoolCondition, generation: int) -> Document:
    """A condition of the pool; the slice that shows it is the object whose spec was observed."""
    return {
        "type": one.type,
        "status": one.shown_status,
        "reason": one.reason,
        "message": message_of(one.reason, one.message),
        "lastTransitionTime": rfc3339(one.changed_at),
        "observedGeneration": generation,
    }
