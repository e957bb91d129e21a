"""Folds the rollout's own decisions into rows: what was rendered, what nodes are to have, pools' states. Pure."""

from sys import intern

from gpuledger.domain.fact import Fact, Handlers, storable
from gpuledger.domain.inventory.state import json_text
from gpuledger.domain.machineconfig.rows import (
    ConfigControllerRow,
    ConfigMaintenanceRow,
    ConfigNodeRow,
    ConfigPoolStatusRow,
    RenderedConfigRow,
)
from gpuledger.domain.machineconfig.state import APPLYING, CONTROLLER, FAILED, SOURCE, Rollout
from gpuledger.events.machine_config import (
    MachineConfigPoolChanged,
    MachineConfigPoolWithdrawn,
    MachineConfigRendered,
    MachineConfigRenderedWithdrawn,
    NodeConfigChanged,
    NodeConfigDrainFailed,
    RolloutControllerPlaced,
)
from gpuledger.events.maintenance import NodeMaintenanceReleased, NodeMaintenanceRequested

ERROR = "error"


def conditions_text(data: MachineConfigPoolChanged) -> str:
    """A pool's conditions as its row has them, a JSON array."""
    return json_text([one.model_dump(mode="json") for one in data.conditions])


def status_row(pool: str, data: MachineConfigPoolChanged, fact: Fact) -> ConfigPoolStatusRow:
    """The row of a pool's state."""
    counts = data.model_dump(exclude={"conditions"})
    return ConfigPoolStatusRow(
        pool=intern(pool), **counts, conditions=conditions_text(data), changed_at=fact.event.time
    )


def _rendered(state: Rollout, fact: Fact, data: MachineConfigRendered) -> None:
    pool, newest = intern(fact.event.subject), state.newest(fact.event.subject)
    place = 1 if newest is None else newest.place + 1
    before, text = state.rendered.get(data.name), json_text(data.model_dump(mode="json"))
    if before is not None and before.pool != pool:
        state.rendered.delete(data.name)  # Names of pools may run into those of revisions; the index needs the pool.
    row = RenderedConfigRow(intern(data.name), pool, data.revision, data.config_hash, text, place, fact.event.time)
    state.rendered.put(row)


def _rendered_withdrawn(state: Rollout, _fact: Fact, data: MachineConfigRenderedWithdrawn) -> None:
    state.rendered.delete(data.name)


def _pool_changed(state: Rollout, fact: Fact, data: MachineConfigPoolChanged) -> None:
    state.status.put(status_row(fact.event.subject, data, fact))


def _pool_withdrawn(state: Rollout, fact: Fact, _data: MachineConfigPoolWithdrawn) -> None:
    state.status.delete(fact.event.subject)


def _node_changed(state: Rollout, fact: Fact, data: NodeConfigChanged) -> None:
    before, time = state.node.get(fact.event.subject), fact.event.time
    if before is None:
        return
    row = before._replace(
        decided_pool=data.pool and intern(data.pool),
        desired_revision=data.desired_revision and intern(data.desired_revision),
        desired_set_at=data.desired_set_at and storable(data.desired_set_at),
        cordoned=data.cordoned,
        drain_started_at=data.drain_started_at and storable(data.drain_started_at),
        drain_retries=data.drain_retries,
        phase=data.phase,
        reason=data.reason or "",
        message=data.message,
        since=before.since if data.phase == before.phase else time,
        decided_at=time,
    )
    if row.desired_set_at != before.desired_set_at:
        row = row._replace(confirms_after=time if _may_work_on(before, row) else None)
        if row.agent_state == ERROR:
            row = row._replace(agent_state=None, last_error="")  # It was about what the node was to have before.
    state.put_node(row)


def _may_work_on(before: ConfigNodeRow, after: ConfigNodeRow) -> bool:
    """Whether the agent may be at what the node was to have before, although it reports what it is to have now.

    A report that was made before, and comes later, may be about the same revision, which the node was to have earlier.
    """
    is_under_way = before.phase in (APPLYING, FAILED) or not before.is_confirmed()
    if after.phase == APPLYING:
        return is_under_way or after.desired_revision == after.current_revision
    return is_under_way


def _drain_failed(state: Rollout, fact: Fact, _data: NodeConfigDrainFailed) -> None:
    row = state.maintenance.get(fact.event.subject)
    if row is not None:
        state.put_maintenance(row._replace(retried_at=fact.event.time))


def _requested(state: Rollout, fact: Fact, data: NodeMaintenanceRequested) -> None:
    if fact.event.source != SOURCE:
        return  # Others ask for their own reasons, whatever they call themselves.
    node, before = intern(fact.event.subject), state.maintenance.get(fact.event.subject)
    row = ConfigMaintenanceRow(
        node,
        intern(data.owner),
        fact.event.time,
        None,
        fact.event.id,
        False,
        "",
        False,
        True,
        None,
        "",
        "",
        0,
        "",
        None,
    )
    if before is not None and before.requested_at is not None:
        row = row._replace(intent=before.intent, intent_cordons=before.intent_cordons, retried_at=before.retried_at)
    state.put_maintenance(row)


def _released(state: Rollout, fact: Fact, data: NodeMaintenanceReleased) -> None:
    row = state.maintenance.get(fact.event.subject)
    if row is not None and row.owner == data.owner and fact.event.source == SOURCE:
        after = row._replace(requested_at=None, released_at=fact.event.time, drain_intent="", drain="", failed_at=None)
        state.put_maintenance(after._replace(pods_left=0, message="", retried_at=None))


def record_placement(state: Rollout, fact: Fact, data: RolloutControllerPlaced) -> None:
    """The service runs on another node, at this place of the log."""
    before = state.controller.get(CONTROLLER)
    state.controller.put(ConfigControllerRow(CONTROLLER, data.node, fact.event.id))
    for node in (data.node, None if before is None else before.node):
        if node is not None:
            state.touch_node(node)


DECISION_HANDLERS: Handlers = {
    MachineConfigRendered: _rendered,
    MachineConfigRenderedWithdrawn: _rendered_withdrawn,
    MachineConfigPoolChanged: _pool_changed,
    MachineConfigPoolWithdrawn: _pool_withdrawn,
    NodeConfigChanged: _node_changed,
    NodeConfigDrainFailed: _drain_failed,
    NodeMaintenanceRequested: _requested,
    NodeMaintenanceReleased: _released,
}
"""Where the service runs has no handler: `RolloutProjection.observed` folds it where it stands in the log."""
