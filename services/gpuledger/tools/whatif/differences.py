"""Where a supposed world differs from the recorded one: who has which device, and what pools offer. Pure."""

from collections.abc import Iterator
from typing import NamedTuple

from gpuledger.api.reasons import AssignmentReason
from gpuledger.domain.pools.pools import PoolCondition
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.tools.whatif.world import SupposedPools


class Held(NamedTuple):
    """The pool that has a device, and how far it is; both None where no pool has it."""

    pool: str | None
    phase: str | None


class Why(NamedTuple):
    """A reason as the decider gave it, and what it said with it."""

    reason: str
    message: str


class DeviceDifference(NamedTuple):
    """A device that another pool would have, or the same one not as far; `why` in the order of its steps.

    A device that was withdrawn has no node any more.
    """

    device: str
    node: str | None
    product: str | None
    was: Held
    would: Held
    why: tuple[Why, ...]


class Offer(NamedTuple):
    """What holds for a pool: how many units it offers (None: not known), and its conditions by type."""

    total: int | None
    conditions: tuple[PoolCondition, ...]


class PoolDifference(NamedTuple):
    """A pool that would offer something else, or of which something else would hold; None: there is no such pool."""

    pool: str
    was: Offer | None
    would: Offer | None


def device_differences(recorded: PoolFacts, world: SupposedPools) -> Iterator[DeviceDifference]:
    """The devices whose pool or phase would be another, by name."""
    supposed = world.state
    for name in sorted(recorded.assignment.rows.keys() | supposed.assignment.rows.keys()):
        was, would = _held(recorded, name), _held(supposed, name)
        if was != would:
            device = supposed.device.get(name)
            node, product = (None, None) if device is None else (device.node, device.product)
            yield DeviceDifference(name, node, product, was, would, tuple(_why(world, name, was, would)))


def pool_differences(recorded: PoolFacts, world: SupposedPools) -> Iterator[PoolDifference]:
    """The pools that would offer another total, or have another condition, by id."""
    supposed = world.state
    for pool in sorted(recorded.pool.rows.keys() | supposed.pool.rows.keys()):
        was, would = offer_of(recorded, pool), offer_of(supposed, pool)
        if _told(was) != _told(would):
            yield PoolDifference(pool, was, would)


def offer_of(state: PoolFacts, pool: str) -> Offer | None:
    """What holds for a pool; None where there is none."""
    if pool not in state.pool.rows:
        return None
    total = state.total.get(pool)
    return Offer(None if total is None else total.total, tuple(sorted(state.condition.where("pool", pool))))


def _held(state: PoolFacts, device: str) -> Held:
    row = state.assignment.get(device)
    return Held(None, None) if row is None else Held(row.pool, row.phase)


def _why(world: SupposedPools, device: str, was: Held, would: Held) -> Iterator[Why]:
    """Why it left the one pool and came into the other; else why it stands as it does."""
    left, taken, told = world.left.get(device), world.taken.get(device), False
    if was.pool not in (None, would.pool) and left is not None and left.pool == was.pool:
        yield Why(left.reason, left.message)
        told = True
    if would.pool not in (None, was.pool) and taken is not None:
        yield Why(taken.reason, taken.message)
        told = True
    if not told:
        row = world.state.assignment.get(device)
        yield Why(AssignmentReason.NOT_ASKED_FOR, "") if row is None else Why(row.reason, row.message)


def _told(offer: Offer | None) -> object:
    """What counts as a difference: not since when something holds, and not how a message is worded."""
    return offer and (offer.total, [(one.type, one.status, one.reason) for one in offer.conditions])
