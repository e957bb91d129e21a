"""Whether one more claim can have a device, and if not, why. Pure."""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from gpuledger.domain.dra.capacity import fits_least
from gpuledger.domain.dra.counters import Left, short_counters
from gpuledger.domain.dra.objects import Device, PoolId, Taint, TaintRule
from gpuledger.domain.dra.use import Use


class Obstacle(StrEnum):
    """What keeps a device of a pool that gives devices from one more claim."""

    TAKEN = "Taken"
    CAPACITY = "InsufficientCapacity"
    COUNTERS = "InsufficientSharedCapacity"
    TAINTED = "Tainted"


class Verdict(NamedTuple):
    """Everything that is in the way, the most telling first; nothing means that some claim can have the device."""

    obstacles: tuple[Obstacle, ...]
    taints: tuple[Taint, ...] = ()
    counters: tuple[str, ...] = ()

    @property
    def is_allocatable(self) -> bool:
        """Whether some claim can have it."""
        return not self.obstacles


def verdict(device: Device, use: Use, left: Left, taints: Iterable[Taint]) -> Verdict:
    """What one more claim meets that tolerates no taint and asks for as little as it can."""
    blocking = tuple(taint for taint in taints if taint.blocks)
    short = tuple(short_counters(device, use, left))
    found = {
        Obstacle.TAKEN: use.is_exclusive,
        Obstacle.CAPACITY: not use.is_exclusive and not fits_least(device, use),
        Obstacle.COUNTERS: bool(short) and not use.is_exclusive,
        Obstacle.TAINTED: bool(blocking),
    }
    return Verdict(tuple(obstacle for obstacle, is_there in found.items() if is_there), blocking, short)


def taints_of(pool: PoolId, device: Device, rules: Iterable[TaintRule]) -> tuple[Taint, ...]:
    """The device's own taints, and those of the rules about it."""
    return (*device.taints, *(rule.taint for rule in rules if rule.taints(pool, device.name)))
