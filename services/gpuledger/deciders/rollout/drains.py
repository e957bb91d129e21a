"""Decides which maintenance of nodes the rollout requests and releases, and what of drains that do not end. Pure.

A drain that does not finish is reported at each retry interval, whatever keeps it. Where the maintenance service works
on it no more, because somebody uncordoned the node or the request lapsed, it is requested again then, and not before.
"""

from collections.abc import Iterator
from datetime import datetime

from gpuledger.deciders.rollout.plan import DRAIN_STUCK, NodePlan
from gpuledger.domain.machineconfig.rows import ConfigMaintenanceRow, ConfigNodeRow
from gpuledger.domain.machineconfig.state import OWNER_PREFIX, Rollout
from gpuledger.domain.maintenance.rows import DRAINING, SUPERSEDED
from gpuledger.events.machine_config import MachineConfigPoolDefined, NodeConfigDrainFailed
from gpuledger.events.maintenance import Drain, NodeMaintenanceReleased, NodeMaintenanceRequested
from gpuledger.events.payload import Payload, truncated

REASON = "MachineConfig"
GIVEN_BACK = "GivenBack"
STILL_DRAINING = "Pods are left on the Node."
NOT_BEGUN = "The maintenance service has not begun to drain the Node. It is requested again."


def requests_for(state: Rollout, node: str, plan: NodePlan) -> Iterator[Payload]:
    """The requests and releases that make a node's maintenance what the plan says."""
    held = state.maintenance.get(node)
    owner = None if held is None or held.requested_at is None else held.owner
    desired = f"{OWNER_PREFIX}{plan.pool}" if plan.cordoned else None
    if owner is not None and owner != desired:
        yield NodeMaintenanceReleased(owner=owner, reason=plan.reason or GIVEN_BACK)
    if desired is not None and owner != desired and plan.pool is not None:
        yield request(state, plan.pool)


def request(state: Rollout, pool: str) -> NodeMaintenanceRequested:
    """The request for the maintenance of a node of a pool."""
    definition, target = state.definition(pool), state.target(pool)
    assert definition is not None, "a pool that is gone updates nothing"
    return NodeMaintenanceRequested(
        owner=f"{OWNER_PREFIX}{pool}",
        reason=REASON,
        message=f"MachineConfigPool {pool} rolls out {target}.",
        drain=Drain(mode="Immediate", timeout_s=definition.drain_timeout_s),
    )


def retried(row: ConfigNodeRow, held: ConfigMaintenanceRow | None, *, is_stuck: bool) -> NodeConfigDrainFailed:
    """That the drain of a node has not finished, once more; `is_stuck`: nor within the pool's time-out."""
    assert row.decided_pool is not None, "a node that drains has a pool"
    is_drained = held is not None and held.drain == DRAINING
    message = "" if held is None else held.message
    return NodeConfigDrainFailed(
        pool=row.decided_pool,
        attempt=row.drain_retries + 1,
        left=0 if held is None else held.pods_left,
        message=truncated(message or (STILL_DRAINING if is_drained else NOT_BEGUN)),
        is_stuck=is_stuck,
    )


def is_lost(held: ConfigMaintenanceRow | None) -> bool:
    """Whether nobody drains a node whose drain is requested."""
    if held is None or held.requested_at is None:
        return False
    return held.drain == SUPERSEDED or not (held.drain_intent or held.drain)


def is_over_time(row: ConfigNodeRow, definition: MachineConfigPoolDefined, at: datetime) -> bool:
    """Whether the drain of a node has taken longer than the pool's time-out."""
    started_at = row.drain_started_at
    return started_at is not None and (at - started_at).total_seconds() >= definition.drain_timeout_s


def stuck(plan: NodePlan, definition: MachineConfigPoolDefined) -> NodePlan:
    """The plan of a node whose drain takes longer than the time-out; it goes on."""
    message = f"The drain has not finished within {definition.drain_timeout_s} s; it goes on."
    return plan._replace(reason=DRAIN_STUCK, message=message)
