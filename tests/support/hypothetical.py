"""Hypothetical pools for tests: a pool under another definition, beside the recorded pools."""

from typing import Any, NamedTuple

from gpuledger.domain.pools.state import PoolFacts
from gpuledger.events.node import NodeLabelled
from gpuledger.events.pool import PoolDefined
from gpuledger.projection.fold import Fold
from gpuledger.tools.whatif.agents import AssumedReports, report
from gpuledger.tools.whatif.differences import (
    DeviceDifference,
    PoolDifference,
    device_differences,
    pool_differences,
)
from gpuledger.tools.whatif.hypothetical import Hypothesis, HypotheticalPools, RecordedPools, copy_of
from support.events import GENERATION
from support.pools import PoolsLog, pool

MIG: dict[str, Any] = {"unit": "MIG", "mig_profile": "1g.5gb"}


def left_and_came_back() -> tuple[PoolsLog, int]:
    """A device that a pool has divided; since the position its node's zone is a. Nothing is known of its profiles."""
    history = PoolsLog().begin("n1")
    history.record("ns/p", pool(**MIG))
    history.assign("n1-0", "ns/p", 7)
    begun = len(history.log)
    history.record("n1", NodeLabelled(uid="n", labels={"zone": "a"}))
    return history, begun


class Comparison(NamedTuple):
    """The hypothetical pools, and how they differ from the recorded ones."""

    world: HypotheticalPools
    answered: AssumedReports
    devices: dict[str, DeviceDifference]
    pools: dict[str, PoolDifference]

    def moves(self) -> dict[str, tuple[str | None, str | None]]:
        """The pools of each device that differs: which has it, and which would."""
        return {one.device: (one.was.pool, one.would.pool) for one in self.devices.values()}

    def reasons(self, device: str) -> list[str]:
        """Why the device would be elsewhere."""
        return [one.reason for one in self.devices[device].why]

    def totals(self) -> dict[str, tuple[int | None, int | None]]:
        """What each pool that differs offers, and would."""
        return {one.pool: (one.was and one.was.total, one.would and one.would.total) for one in self.pools.values()}


def compare(
    history: PoolsLog,
    pool_id: str,
    definition: PoolDefined,
    *,
    since: int | None = None,
    sets_maintenance: bool = False,
) -> Comparison:
    """Suppose that a pool is defined so, now or since the log had come so far."""
    hypothesis = Hypothesis(pool_id, definition, sets_maintenance)
    projection = RecordedPools()
    fold = Fold(projection, GENERATION)
    until = len(history.log) if since is None else since
    fold.apply_all(history.log[:until])
    world = HypotheticalPools(facts_of(fold), hypothesis, until + 1)
    projection.pass_on = world.replay
    fold.apply_all(history.log[until:])
    return outcome(facts_of(fold), world, pool_id)


def outcome(recorded: PoolFacts, world: HypotheticalPools, pool_id: str) -> Comparison:
    """What differs, once agents have answered."""
    before = rows_of(recorded)
    answered = report(world, recorded, pool_id)
    devices = {one.device: one for one in device_differences(recorded, world)}
    pools = {one.pool: one for one in pool_differences(recorded, world)}
    assert rows_of(recorded) == before, "What is recorded must not change."
    return Comparison(world, answered, devices, pools)


def facts_of(fold: Fold) -> PoolFacts:
    """The fold's state."""
    assert isinstance(fold.state, PoolFacts)
    return fold.state


def rows_of(state: PoolFacts) -> dict[str, dict[object, object]]:
    """All rows by table and key."""
    return {name: dict(table.rows) for name, table in copy_of(state).tables().items()}
