"""Reports that nodes' agents would make about hypothetical pools. Pure.

Agents are assumed to set up and release the devices that the hypothetical pools require, and the recorded ones do not.
What waits for its agent in both is left waiting, and what an agent has refused stays refused.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from gpuledger.api.phases import AgentReport, AssignmentPhase
from gpuledger.api.pool_spec import UNIT_MIG
from gpuledger.domain.mig.geometry import partitions_of
from gpuledger.domain.pools.pools import Assignment
from gpuledger.domain.pools.rows import PoolDevice, SetupReport
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.events.device import DevicePoolApplied, DevicePoolReleased
from gpuledger.events.pool import PoolDefined
from gpuledger.tools.whatif.hypothetical import HypotheticalPools

ROUNDS_MAX: Final = 20
"""How often reports may follow from reports: a device is released, taken by the next pool, and set up there."""


class AssumedReports(NamedTuple):
    """The devices that agents are assumed to have reported.

    `indivisible` are those that no agent could divide as their pool requires, judging by what is recorded of their
    cards; `is_settled` is False if reports still led to further ones at the end.
    """

    devices: frozenset[str]
    indivisible: frozenset[str]
    is_settled: bool


def report(pools: HypotheticalPools, recorded: PoolFacts, pool: str) -> AssumedReports:
    """Record what agents would report of hypothetical assignments that differ from the recorded ones.

    Agents also divide the devices that `pool` holds again, if its definition divides them differently.
    """
    devices, indivisible, reported = set[str](), set[str](), set[Assignment]()
    if _divides_differently(pools.state, recorded, pool):
        for setup in list(_set_up(pools.state, pool)):
            devices.add(setup.device)
            if not _divide(pools, setup):
                indivisible.add(setup.device)
    for _ in range(ROUNDS_MAX):
        waiting = sorted(row for row in pools.waiting() if row not in reported and _differs(row, recorded))
        if not waiting:
            return AssumedReports(frozenset(devices), frozenset(indivisible), is_settled=True)
        for row in waiting:
            reported.add(row)
            if not _is_refused(pools.state, row):
                (devices if _report_of(pools, row) else indivisible).add(row.device)
    return AssumedReports(frozenset(devices), frozenset(indivisible), is_settled=False)


def _differs(row: Assignment, recorded: PoolFacts) -> bool:
    other = recorded.assignment.get(row.device)
    return other is None or (other.pool, other.phase) != (row.pool, row.phase)


def _is_refused(state: PoolFacts, row: Assignment) -> bool:
    setup = state.setup.get(row.device)
    is_refused = setup is not None and (setup.pool, setup.report) == (row.pool, AgentReport.REFUSED)
    return is_refused and row.phase == AssignmentPhase.PENDING


def _report_of(pools: HypotheticalPools, row: Assignment) -> bool:
    """Record the agent's report; False if it could not set the device up."""
    assert row.pool is not None, "a device that waits for its agent has a pool"
    device, pool = pools.state.device.rows[row.device], pools.state.pool.get(row.pool)
    if row.phase == AssignmentPhase.UNASSIGNING or pool is None:
        _record(pools, row, device, DevicePoolReleased(pool=row.pool))
        return True
    definition = pool.spec.definition
    partitions = _partitions(definition, device)
    if partitions is None and definition.unit == UNIT_MIG:
        return False
    _record(pools, row, device, DevicePoolApplied(pool=row.pool, partitions=partitions))
    return True


def _record(
    pools: HypotheticalPools, row: Assignment, device: PoolDevice, data: DevicePoolApplied | DevicePoolReleased
) -> None:
    """Record a report at a time at which it counts: not before the agent's last one."""
    setup = pools.state.setup.get(row.device)
    time = row.changed_at if setup is None or setup.reported_at is None else max(setup.reported_at, row.changed_at)
    pools.record(f"/nodes/{device.node}/agent", row.device, time, data)


def _partitions(definition: PoolDefined, device: PoolDevice) -> int | None:
    """How many partitions the card would have; None if the pool does not divide it, or nobody can."""
    if definition.unit != UNIT_MIG:
        return None
    return partitions_of(definition.mig_profile or "", device.facts.mig_profiles)


def _divides_differently(state: PoolFacts, recorded: PoolFacts, pool: str) -> bool:
    was, would = recorded.pool.get(pool), state.pool.get(pool)
    if was is None or would is None:
        return False
    old, new = was.spec.definition, would.spec.definition
    return (old.unit, old.mig_profile) != (new.unit, new.mig_profile)


def _set_up(state: PoolFacts, pool: str) -> Iterator[SetupReport]:
    """The agents' reports of the devices that are assigned to the pool and set up."""
    for row in state.assignment.where("pool", pool):
        setup = state.setup.get(row.device)
        if setup is not None and row.phase == AssignmentPhase.ASSIGNED and setup.report == AgentReport.APPLIED:
            yield setup


def _divide(pools: HypotheticalPools, setup: SetupReport) -> bool:
    """Report the new partitions of a device; those that it had of another kind must not count as drift."""
    state = pools.state
    row, device = state.assignment.rows[setup.device], state.device.rows[setup.device]
    assert row.pool is not None, "an assigned device has a pool"
    definition = state.pool.rows[row.pool].spec.definition
    partitions = _partitions(definition, device)
    state.setup.put(setup._replace(partitions_most=0))
    _record(pools, row, device, DevicePoolApplied(pool=row.pool, partitions=partitions or 0))
    return partitions is not None or definition.unit != UNIT_MIG
