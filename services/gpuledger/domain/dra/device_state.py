"""Decides whether one more claim can have a device, and which state the device has for that reason. Pure.

The states are those of KEP-5677; the rules that make a device unavailable are the allocator's.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from gpuledger.domain.dra.capacity import fits_least
from gpuledger.domain.dra.counters import Balance, short_counters
from gpuledger.domain.dra.objects import DeviceTaint, DraDevice, PoolId, TaintRule
from gpuledger.domain.dra.pools import PoolView
from gpuledger.domain.dra.use import Use


class UnavailableReason(StrEnum):
    """Why one more claim cannot have a device; the `stateReason` of a device that is unavailable."""

    TAKEN = "Taken"
    CAPACITY = "InsufficientCapacity"
    OUTDATED = "OutdatedGeneration"
    INCOMPLETE = "PoolIncomplete"
    INVALID = "PoolInvalid"
    TAINTED = "Tainted"
    COUNTERS = "InsufficientSharedCapacity"


class AvailabilityState(StrEnum):
    """The states of a device in a ResourceSliceStatus."""

    AVAILABLE = "Available"
    PARTIAL = "PartiallyAllocated"
    ALLOCATED = "Allocated"
    UNAVAILABLE = "Unavailable"


class Blockers(NamedTuple):
    """All reasons against an allocation, the most important first; none means that some claim can have the device."""

    reasons: tuple[UnavailableReason, ...] = ()
    taints: tuple[DeviceTaint, ...] = ()
    counters: tuple[str, ...] = ()


def blockers(
    device: DraDevice,
    use: Use,
    balance: Balance,
    taints: Iterable[DeviceTaint],
    of_pool: UnavailableReason | None = None,
) -> Blockers:
    """The reasons that keep one more claim from a device; it tolerates no taint and requests as little as it can.

    `of_pool` is the reason that the pool gives against all devices of a slice.
    """
    blocking = tuple(taint for taint in taints if taint.blocks)
    short = tuple(short_counters(device, use, balance.left, balance.overdrawn)) if of_pool is None else ()
    found = (
        (UnavailableReason.TAKEN, use.is_exclusive),
        (UnavailableReason.CAPACITY, not use.is_exclusive and not fits_least(device, use)),
        (of_pool, of_pool is not None),
        (UnavailableReason.TAINTED, bool(blocking)),
        (UnavailableReason.COUNTERS, bool(short) and not use.is_exclusive),
    )
    return Blockers(tuple(reason for reason, is_there in found if reason and is_there), blocking, short)


def pool_reason(view: PoolView, *, is_current: bool) -> UnavailableReason | None:
    """The reason, if any, that the pool gives against all devices of a slice, current or outdated."""
    if not is_current:
        return UnavailableReason.OUTDATED
    if not view.is_complete:
        return UnavailableReason.INCOMPLETE
    return None if view.is_valid else UnavailableReason.INVALID


def state_of(use: Use, found: Blockers) -> tuple[AvailabilityState, UnavailableReason | None]:
    """The state of a device, and the reason where it is unavailable.

    A device is allocated when somebody holds it, or shares leave nothing of it. One that nobody can get for another
    reason is unavailable, whether some of it is shared already or not.
    """
    reasons = found.reasons
    if use.is_used and reasons and reasons[0] in (UnavailableReason.TAKEN, UnavailableReason.CAPACITY):
        return AvailabilityState.ALLOCATED, None
    if reasons:
        return AvailabilityState.UNAVAILABLE, reasons[0]
    return (AvailabilityState.PARTIAL if use.is_used else AvailabilityState.AVAILABLE), None


def taints_of(pool: PoolId, device: DraDevice, rules: Iterable[TaintRule]) -> tuple[DeviceTaint, ...]:
    """The device's own taints, and those that rules add."""
    return (*device.taints, *(rule.taint for rule in rules if rule.taints(pool, device.name)))
