"""Whether one more claim can have a device, and what state that makes of it. Pure.

The states are those of the seed on availability (KEP-5677); what makes a device unavailable are the allocator's rules.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from gpuledger.domain.dra.capacity import fits_least
from gpuledger.domain.dra.counters import Balance, short_counters
from gpuledger.domain.dra.objects import Device, PoolId, Taint, TaintRule
from gpuledger.domain.dra.pools import PoolView
from gpuledger.domain.dra.use import Use


class Obstacle(StrEnum):
    """What keeps one more claim from a device; as a `stateReason` it explains why the device is unavailable."""

    TAKEN = "Taken"
    CAPACITY = "InsufficientCapacity"
    OUTDATED = "OutdatedGeneration"
    INCOMPLETE = "PoolIncomplete"
    INVALID = "PoolInvalid"
    TAINTED = "Tainted"
    COUNTERS = "InsufficientSharedCapacity"


class DeviceState(StrEnum):
    """The seed's states of a device."""

    AVAILABLE = "Available"
    PARTIAL = "PartiallyAllocated"
    ALLOCATED = "Allocated"
    UNAVAILABLE = "Unavailable"


class Verdict(NamedTuple):
    """Everything that is in the way, the most telling first; nothing means that some claim can have the device."""

    obstacles: tuple[Obstacle, ...] = ()
    taints: tuple[Taint, ...] = ()
    counters: tuple[str, ...] = ()

    @property
    def is_allocatable(self) -> bool:
        """Whether some claim can have it."""
        return not self.obstacles


def verdict(
    device: Device, use: Use, balance: Balance, taints: Iterable[Taint], of_pool: Obstacle | None = None
) -> Verdict:
    """What one more claim meets at a device; it tolerates nothing and asks for little.

    `of_pool` is what the pool itself puts in the way of all devices of a slice.
    """
    blocking = tuple(taint for taint in taints if taint.blocks)
    short = tuple(short_counters(device, use, balance.left, balance.overdrawn)) if of_pool is None else ()
    found = (
        (Obstacle.TAKEN, use.is_exclusive),
        (Obstacle.CAPACITY, not use.is_exclusive and not fits_least(device, use)),
        (of_pool, of_pool is not None),
        (Obstacle.TAINTED, bool(blocking)),
        (Obstacle.COUNTERS, bool(short) and not use.is_exclusive),
    )
    return Verdict(tuple(obstacle for obstacle, is_there in found if obstacle and is_there), blocking, short)


def obstacle_of(view: PoolView, *, is_current: bool) -> Obstacle | None:
    """What a pool puts in the way of all devices of a slice, which may be one of those that count, or outdated."""
    if not is_current:
        return Obstacle.OUTDATED
    if not view.is_complete:
        return Obstacle.INCOMPLETE
    return None if view.is_valid else Obstacle.INVALID


def state_of(use: Use, found: Verdict) -> tuple[DeviceState, Obstacle | None]:
    """The state of a device, and the reason where it is unavailable.

    A device is allocated when somebody holds it, or shares leave nothing of it. One that nobody can get for another
    reason is unavailable, whether some of it is shared already or not.
    """
    obstacles = found.obstacles
    if use.is_used and obstacles and obstacles[0] in (Obstacle.TAKEN, Obstacle.CAPACITY):
        return DeviceState.ALLOCATED, None
    if obstacles:
        return DeviceState.UNAVAILABLE, obstacles[0]
    return (DeviceState.PARTIAL if use.is_used else DeviceState.AVAILABLE), None


def taints_of(pool: PoolId, device: Device, rules: Iterable[TaintRule]) -> tuple[Taint, ...]:
    """The device's own taints, and those of the rules about it."""
    return (*device.taints, *(rule.taint for rule in rules if rule.taints(pool, device.name)))
