"""Folds what the service `rollout` decides into one row for each rollout of a pool, and each update of a node. Pure.

Decisions count in the order of the log: one service makes all of them, each on the state that the one before left.
"""

from typing import Final

from gpuledger.domain.fact import Fact, Handlers
from gpuledger.domain.machineconfig.history_rows import (
    ConfigRollout,
    ConfigUpdate,
    ConfigUpdates,
    RolloutOutcome,
    UpdateOutcome,
)
from gpuledger.events.machine_config import (
    MachineConfigPoolChanged,
    MachineConfigPoolWithdrawn,
    NodeConfigChanged,
    NodeConfigDrainFailed,
    NodeMachineGone,
)

IDLE: Final = "Idle"
DRAINING: Final = "Draining"
FAILED: Final = "Failed"


def _pool_changed(state: ConfigUpdates, fact: Fact, data: MachineConfigPoolChanged) -> None:
    pool = fact.event.subject
    is_complete = data.updated_count >= data.machine_count
    row = _open_rollout(state, pool)
    if row is not None and row.revision != data.target_revision:
        _end_rollout(state, row, fact, RolloutOutcome.SUPERSEDED)
        row = None
    if row is not None:
        row = _counted(row, data)
    elif data.target_revision is not None and not is_complete:
        row = _counted(_begun(fact, data.target_revision, data), data)
    else:
        return
    if is_complete:
        _end_rollout(state, row, fact, RolloutOutcome.COMPLETE)
    else:
        state.rollout.put(row)


def _begun(fact: Fact, revision: str, data: MachineConfigPoolChanged) -> ConfigRollout:
    return ConfigRollout(
        pool=fact.event.subject,
        begun_position=fact.sequence,
        revision=revision,
        previous=data.current_revision,
        begun_at=fact.event.time,
        nodes=0,
        machines=0,
        unavailable_max=0,
        max_unavailable=0,
        ended_at=None,
        outcome=None,
    )


def _counted(row: ConfigRollout, data: MachineConfigPoolChanged) -> ConfigRollout:
    return row._replace(
        nodes=max(row.nodes, data.machine_count - data.updated_count),
        machines=max(row.machines, data.machine_count),
        unavailable_max=max(row.unavailable_max, data.unavailable),
        max_unavailable=data.max_unavailable,
    )


def _pool_withdrawn(state: ConfigUpdates, fact: Fact, _data: MachineConfigPoolWithdrawn) -> None:
    row = _open_rollout(state, fact.event.subject)
    if row is not None:
        _end_rollout(state, row, fact, RolloutOutcome.WITHDRAWN)


def _end_rollout(state: ConfigUpdates, row: ConfigRollout, fact: Fact, outcome: RolloutOutcome) -> None:
    state.rollout.put(row._replace(ended_at=max(fact.event.time, row.begun_at), outcome=outcome.value))


def _open_rollout(state: ConfigUpdates, pool: str) -> ConfigRollout | None:
    return next((row for row in state.rollout.where("pool", pool) if row.ended_at is None), None)


def _node_changed(state: ConfigUpdates, fact: Fact, data: NodeConfigChanged) -> None:
    row = _open_update(state, fact.event.subject)
    if data.phase == IDLE or data.pool is None:
        if row is not None:
            state.update.put(_ended(row, fact, data))
        return
    if row is None:
        row = _beginning(fact, data, data.pool)
    is_new_failure = data.phase == FAILED and row.phase != FAILED
    row = row._replace(
        pool=data.pool,
        revision=data.desired_revision if data.phase != DRAINING else row.revision,
        drained=row.drained or data.phase == DRAINING,
        applying_at=row.applying_at if data.phase == DRAINING else row.applying_at or fact.event.time,
        phase=data.phase,
    )
    if is_new_failure:
        row = row._replace(failures=row.failures + 1, failed_at=fact.event.time)
    if data.phase == FAILED:
        row = row._replace(reason=data.reason or "", message=data.message)
    state.update.put(row)


def _beginning(fact: Fact, data: NodeConfigChanged, pool: str) -> ConfigUpdate:
    return ConfigUpdate(
        node=fact.event.subject,
        begun_position=fact.sequence,
        pool=pool,
        revision=None,
        begun_at=fact.event.time,
        drained=False,
        applying_at=None,
        drains_failed=data.drain_retries,
        is_stuck=False,
        failures=0,
        failed_at=None,
        reason="",
        message="",
        phase=IDLE,
        ended_at=None,
        outcome=None,
    )


def _ended(row: ConfigUpdate, fact: Fact, data: NodeConfigChanged) -> ConfigUpdate:
    if data.pool != row.pool:
        outcome = UpdateOutcome.LEFT
    else:
        outcome = UpdateOutcome.RETURNED if row.phase == DRAINING else UpdateOutcome.UPDATED
    return row._replace(phase=IDLE, ended_at=max(fact.event.time, row.begun_at), outcome=outcome.value)


def _machine_gone(state: ConfigUpdates, fact: Fact, _data: NodeMachineGone) -> None:
    """Nothing is decided any more about a Node that is gone."""
    row = _open_update(state, fact.event.subject)
    if row is not None:
        ended_at = max(fact.event.time, row.begun_at)
        state.update.put(row._replace(phase=IDLE, ended_at=ended_at, outcome=UpdateOutcome.LEFT.value))


def _drain_failed(state: ConfigUpdates, fact: Fact, data: NodeConfigDrainFailed) -> None:
    row = _open_update(state, fact.event.subject)
    if row is not None:
        state.update.put(
            row._replace(drains_failed=max(row.drains_failed + 1, data.attempt), is_stuck=row.is_stuck or data.is_stuck)
        )


def _open_update(state: ConfigUpdates, node: str) -> ConfigUpdate | None:
    return next((row for row in state.update.where("node", node) if row.ended_at is None), None)


HANDLERS: Final[Handlers] = {
    MachineConfigPoolChanged: _pool_changed,
    MachineConfigPoolWithdrawn: _pool_withdrawn,
    NodeConfigChanged: _node_changed,
    NodeConfigDrainFailed: _drain_failed,
    NodeMachineGone: _machine_gone,
}
