"""What nodes' agents are supposed to do in a supposed world. Pure.

They set up and release what is asked of them there and not in the recorded one. What waits for its agent in both worlds
is left waiting, and what an agent has refused stays refused.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from gpuledger.api.phases import AgentReport, AssignmentPhase
from gpuledger.api.pool_spec import UNIT_MIG
from gpuledger.domain.mig.geometry import partitions_of
from gpuledger.domain.pools.pools import Assignment
from gpuledger.domain.pools.rows import PoolDevice, PoolSetup
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.events.device import DevicePoolApplied, DevicePoolReleased
from gpuledger.events.pool import PoolDefined
from gpuledger.tools.whatif.world import SupposedPools

ROUNDS_MAX: Final = 20
"""How often agents answer what their answers led to: a device is released, taken by the next pool, and set up there."""


class Answered(NamedTuple):
    """What came of the agents' answers.

    `devices` are those that were answered for, `indivisible` those that no agent could divide as their pool asks, by
    what is known of their cards; `is_settled` is False where answers still led to new questions at the end.
    """

    devices: frozenset[str]
    indivisible: frozenset[str]
    is_settled: bool


def answer(world: SupposedPools, recorded: PoolFacts, pool: str) -> Answered:
    """Have agents do what is asked of them in the supposed world and not in the recorded one.

    Devices that `pool` holds are divided anew where it is supposed to make something else of them.
    """
    devices, indivisible, asked = set[str](), set[str](), set[Assignment]()
    if _makes_something_else(world.state, recorded, pool):
        for setup in list(_set_up(world.state, pool)):
            devices.add(setup.device)
            if not _divide(world, setup):
                indivisible.add(setup.device)
    for _ in range(ROUNDS_MAX):
        waiting = sorted(row for row in world.waiting() if row not in asked and _differs(row, recorded))
        if not waiting:
            return Answered(frozenset(devices), frozenset(indivisible), is_settled=True)
        for row in waiting:
            asked.add(row)
            if not _is_refused(world.state, row):
                (devices if _answer(world, row) else indivisible).add(row.device)
    return Answered(frozenset(devices), frozenset(indivisible), is_settled=False)


def _differs(row: Assignment, recorded: PoolFacts) -> bool:
    known = recorded.assignment.get(row.device)
    return known is None or (known.pool, known.phase) != (row.pool, row.phase)


def _is_refused(state: PoolFacts, row: Assignment) -> bool:
    setup = state.setup.get(row.device)
    return (
        row.phase == AssignmentPhase.PENDING
        and setup is not None
        and (setup.pool, setup.word) == (row.pool, AgentReport.REFUSED)
    )


def _answer(world: SupposedPools, row: Assignment) -> bool:
    """The agent's word; False where it could not set the device up."""
    assert row.pool is not None, "a device that waits for its agent has a pool"
    device, held = world.state.device.rows[row.device], world.state.pool.get(row.pool)
    if row.phase == AssignmentPhase.UNASSIGNING or held is None:
        _say(world, row, device, DevicePoolReleased(pool=row.pool))
        return True
    said = held.spec.definition
    partitions = _partitions(said, device)
    if partitions is None and said.unit == UNIT_MIG:
        return False
    _say(world, row, device, DevicePoolApplied(pool=row.pool, partitions=partitions))
    return True


def _say(
    world: SupposedPools, row: Assignment, device: PoolDevice, said: DevicePoolApplied | DevicePoolReleased
) -> None:
    """At a time at which the agent is heard: not before what it said last."""
    setup = world.state.setup.get(row.device)
    told_at = row.changed_at if setup is None or setup.told_at is None else max(setup.told_at, row.changed_at)
    world.say(f"/nodes/{device.node}/agent", row.device, told_at, said)


def _partitions(pool: PoolDefined, device: PoolDevice) -> int | None:
    """How many partitions the card has then; None where it is not, or cannot be, divided."""
    profiles = device.mig_profiles.split(",") if device.mig_profiles else []
    return partitions_of(pool.mig_profile or "", profiles) if pool.unit == UNIT_MIG else None


def _makes_something_else(state: PoolFacts, recorded: PoolFacts, pool: str) -> bool:
    was, would = recorded.pool.get(pool), state.pool.get(pool)
    if was is None or would is None:
        return False
    old, new = was.spec.definition, would.spec.definition
    return (old.unit, old.mig_profile) != (new.unit, new.mig_profile)


def _set_up(state: PoolFacts, pool: str) -> Iterator[PoolSetup]:
    """What the agents of devices that the pool has assigned said of them."""
    for row in state.assignment.where("pool", pool):
        setup = state.setup.get(row.device)
        if setup is not None and row.phase == AssignmentPhase.ASSIGNED and setup.word == AgentReport.APPLIED:
            yield setup


def _divide(world: SupposedPools, setup: PoolSetup) -> bool:
    """The device with as many partitions as it has now; how many it had of another kind must not count as drift."""
    state = world.state
    row, device = state.assignment.rows[setup.device], state.device.rows[setup.device]
    assert row.pool is not None, "an assigned device has a pool"
    pool = state.pool.rows[row.pool].spec.definition
    partitions = _partitions(pool, device)
    state.setup.put(setup._replace(partitions_most=0))
    _say(world, row, device, DevicePoolApplied(pool=row.pool, partitions=partitions or 0))
    return partitions is not None or pool.unit != UNIT_MIG
