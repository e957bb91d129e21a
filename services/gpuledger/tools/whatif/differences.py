"""Compares hypothetical pools with the recorded ones: which pool has each device, and what pools offer. Pure."""

from collections.abc import Iterator
from typing import NamedTuple

from gpuledger.api.reasons import AssignmentReason
from gpuledger.domain.pools.pools import PoolCondition
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.tools.whatif.hypothetical import HypotheticalPools


class DeviceHolding(NamedTuple):
    """The pool that has a device, and the phase of the assignment; both None if no pool has it."""

    pool: str | None
    phase: str | None


class ReasonGiven(NamedTuple):
    """A reason that the decider gave, and its message."""

    reason: str
    message: str


class DeviceDifference(NamedTuple):
    """A device that another pool would have, or the same one in another phase; `why` in the order of its steps.

    A withdrawn device has no node.
    """

    device: str
    node: str | None
    product: str | None
    was: DeviceHolding
    would: DeviceHolding
    why: tuple[ReasonGiven, ...]


class PoolOffer(NamedTuple):
    """How many units a pool offers (None: not decided), and its conditions by type."""

    total: int | None
    conditions: tuple[PoolCondition, ...]


class PoolDifference(NamedTuple):
    """A pool whose offer or conditions would differ; None: there is no such pool."""

    pool: str
    was: PoolOffer | None
    would: PoolOffer | None


def device_differences(recorded: PoolFacts, hypothetical: HypotheticalPools) -> Iterator[DeviceDifference]:
    """The devices whose pool or phase would differ, by name."""
    state = hypothetical.state
    for name in sorted(recorded.assignment.rows.keys() | state.assignment.rows.keys()):
        was, would = _holding(recorded, name), _holding(state, name)
        if was != would:
            device = state.device.get(name)
            node, product = (None, None) if device is None else (device.node, device.product)
            yield DeviceDifference(name, node, product, was, would, tuple(_reasons(hypothetical, name, was, would)))


def pool_differences(recorded: PoolFacts, hypothetical: HypotheticalPools) -> Iterator[PoolDifference]:
    """The pools whose total or conditions would differ, by id."""
    for pool in sorted(recorded.pool.rows.keys() | hypothetical.state.pool.rows.keys()):
        was, would = offer_of(recorded, pool), offer_of(hypothetical.state, pool)
        if _compared(was) != _compared(would):
            yield PoolDifference(pool, was, would)


def offer_of(state: PoolFacts, pool: str) -> PoolOffer | None:
    """What a pool offers; None if there is no such pool."""
    if pool not in state.pool.rows:
        return None
    total = state.total.get(pool)
    return PoolOffer(None if total is None else total.total, tuple(sorted(state.condition.where("pool", pool))))


def _holding(state: PoolFacts, device: str) -> DeviceHolding:
    row = state.assignment.get(device)
    return DeviceHolding(None, None) if row is None else DeviceHolding(row.pool, row.phase)


def _reasons(
    hypothetical: HypotheticalPools, device: str, was: DeviceHolding, would: DeviceHolding
) -> Iterator[ReasonGiven]:
    """Why the device would leave the one pool and join the other; else why its assignment is as it is."""
    left, taken = hypothetical.left.get(device), hypothetical.taken.get(device)
    leaves = was.pool not in (None, would.pool) and left is not None and left.pool == was.pool
    joins = would.pool not in (None, was.pool) and taken is not None
    for decision in (left if leaves else None, taken if joins else None):
        if decision is not None:
            yield ReasonGiven(decision.reason, decision.message)
    if not leaves and not joins:
        row = hypothetical.state.assignment.get(device)
        yield ReasonGiven(AssignmentReason.NOT_ASKED_FOR, "") if row is None else ReasonGiven(row.reason, row.message)


def _compared(offer: PoolOffer | None) -> object:
    """The parts that count as a difference; times and the wording of messages do not."""
    return offer and (offer.total, [(one.type, one.status, one.reason) for one in offer.conditions])
