"""The devices that match a pool and are not in it, each with all obstacles. Pure.

If the `pools` service has decided why, its reason comes first, and further obstacles follow.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from gpuledger.api.conditions import FALSE, TRUE, PoolConditionType
from gpuledger.api.pool_ref import PoolRef
from gpuledger.api.pool_spec import MANUAL
from gpuledger.api.reasons import AssignmentReason
from gpuledger.deciders.pools.assignment import device_obstacles, node_obstacles
from gpuledger.domain.inventory.status import held_state
from gpuledger.domain.pools.pools import Assignment, Pool
from gpuledger.domain.pools.rows import PoolDevice
from gpuledger.domain.pools.spec import Spec, mismatch, selects
from gpuledger.domain.pools.state import PoolFacts

IN_ANOTHER_POOL: Final = "InAnotherPool"
ASKED_FOR_ANOTHER: Final = "AskedForAnotherPool"


class Obstacle(NamedTuple):
    """One thing that keeps a device out of a pool."""

    reason: str
    message: str = ""


class ExcludedDevice(NamedTuple):
    """A device that matches a pool, or is requested for it, and is not in it."""

    device: str
    node: str
    state: str
    obstacles: tuple[Obstacle, ...]


def excluded_devices(state: PoolFacts, pool: Pool) -> Iterator[ExcludedDevice]:
    """The devices that could be in the pool and are not, by name, each with all obstacles."""
    spec, closed = pool.spec, tuple(_closed(state, pool))
    for name in sorted(state.device.rows):
        device, held = state.device.rows[name], state.assignment.get(name)
        if held is not None and held.pool == pool.subject:
            continue
        is_requested = _requested(state, name) == _annotation(pool)
        if is_requested or _matches(state, spec, device):
            found = (*_obstacles(state, pool, spec, device, held, is_requested=is_requested), *closed)
            by_reason = {one.reason: one for one in reversed(found)}
            shown = held_state(device.prepared, held)
            yield ExcludedDevice(name, device.node, shown, tuple(by_reason.values())[::-1])


def _obstacles(
    state: PoolFacts, pool: Pool, spec: Spec, device: PoolDevice, held: Assignment | None, *, is_requested: bool
) -> Iterator[Obstacle]:
    if held is not None and held.pool is not None:
        yield Obstacle(IN_ANOTHER_POOL, f"It belongs to {held.pool} ({held.phase}).")
    elif is_requested and held is not None:
        yield Obstacle(held.reason, held.message)
    if not is_requested:
        yield from _not_requested(state, pool, spec, device)
    yield from (Obstacle(*one) for one in device_obstacles(device))
    for one in node_obstacles(state, device, pool):
        yield Obstacle(one.reason, one.message or f"Devices of {device.node} cannot be pooled now.")


def _not_requested(state: PoolFacts, pool: Pool, spec: Spec, device: PoolDevice) -> Iterator[Obstacle]:
    requested = _requested(state, device.name)
    if requested != (None, None):
        names = " and ".join(repr(name) for name in requested if name is not None)
        yield Obstacle(ASKED_FOR_ANOTHER, f"Its annotations ask for {names}.")
    elif spec.approves is None:
        yield Obstacle(AssignmentReason.NOT_ASKED_FOR, f"No annotation assigns it to {pool.name}.")
    elif not selects(spec.approves, device.name, state.labels_of(device)):
        yield Obstacle(AssignmentReason.NOT_ASKED_FOR, "Its labels are not among the pool's autoApproveSelector.")
    elif state.settings_in_force().approval_mode == MANUAL:
        yield Obstacle(AssignmentReason.NOT_ASKED_FOR, "The module's setting has no pool approve devices by itself.")


def _closed(state: PoolFacts, pool: Pool) -> Iterator[Obstacle]:
    """Why the pool takes no devices at all now, by its conditions."""
    for kind, status in ((PoolConditionType.CONFIGURED, FALSE), (PoolConditionType.MAINTENANCE, TRUE)):
        row = state.condition.get((pool.subject, kind))
        if row is not None and row.status == status:
            yield Obstacle(AssignmentReason.POOL_CLOSED, f"{kind} is {status}: {row.reason}.")


def _matches(state: PoolFacts, spec: Spec, device: PoolDevice) -> bool:
    return mismatch(spec, device.facts) is None and state.selects_node(spec, device.node)


def _requested(state: PoolFacts, device: str) -> tuple[str | None, str | None]:
    """The values of the two assignment annotations."""
    mark = state.mark.get(device)
    return (None, None) if mark is None else (mark.requested_pool, mark.requested_cluster_pool)


def _annotation(pool: Pool) -> tuple[str | None, str | None]:
    """The values of the two assignment annotations on a device that is requested for the pool."""
    return (pool.name, None) if PoolRef.parse(pool.subject).namespace else (None, pool.name)
