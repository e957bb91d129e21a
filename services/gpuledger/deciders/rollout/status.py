"""Decides the state of a pool: its revisions, counters and conditions, as seed 004 has them. Pure."""

from collections.abc import Iterator

from gpuledger.api.machine_config import ConfigPoolConditionType as Type
from gpuledger.deciders.rollout.budget import max_unavailable
from gpuledger.deciders.rollout.counts import LISTED_MAX, Counts, listed
from gpuledger.domain.machineconfig.decided import conditions_text
from gpuledger.domain.machineconfig.rows import ConfigPoolRow, ConfigPoolStatusRow
from gpuledger.domain.machineconfig.state import Rollout
from gpuledger.events.machine_config import MachineConfigPoolChanged, MachineConfigPoolDefined
from gpuledger.events.node import Condition
from gpuledger.events.payload import truncated

IN_PROGRESS, COMPLETE, NOT_RENDERED, PAUSED = "RolloutInProgress", "RolloutComplete", "NotRendered", "Paused"
RENDER_FAILED, PINNED_MISSING, NODES_FAILED = "RenderFailed", "PinnedRevisionMissing", "NodesFailed"
OVERLAPPING, AS_EXPECTED = "NodesInSeveralPools", "AsExpected"
"""Reasons of conditions."""


def status_of(state: Rollout, row: ConfigPoolRow, target: str | None, found: Counts) -> MachineConfigPoolChanged:
    """The state of a pool as its nodes are now."""
    definition, before = state.definition(row.name), state.status.get(row.name)
    assert definition is not None, "the pool is there"
    is_ready = target is not None and found.ready == found.machines
    current = before and before.current_revision
    if len(found.revisions) == 1:
        (current,) = {one or current for one in found.revisions}
    successful = target if is_ready else before and before.last_successful_revision
    return MachineConfigPoolChanged(
        target_revision=target,
        current_revision=current,
        last_successful_revision=successful,
        machine_count=found.machines,
        ready_count=found.ready,
        updated_count=found.updated,
        updating_count=found.updating,
        degraded_count=len(found.degraded),
        cordoned_count=found.cordoned,
        draining_count=len(found.draining),
        pending_reboot_count=found.pending_reboot,
        unavailable=len(found.unavailable),
        max_unavailable=max_unavailable(definition.max_unavailable, found.machines),
        observed_generation=row.generation,
        conditions=tuple(_conditions(state, row, definition, target, found)),
    )


def differs(before: ConfigPoolStatusRow | None, after: MachineConfigPoolChanged) -> bool:
    """Whether there is anything new in a pool's state."""
    if before is None:
        return True
    values = after.model_dump(exclude={"conditions"})
    is_same = all(getattr(before, name) == value for name, value in values.items())
    return not is_same or before.conditions != conditions_text(after)


def _conditions(
    state: Rollout, row: ConfigPoolRow, definition: MachineConfigPoolDefined, target: str | None, found: Counts
) -> Iterator[Condition]:
    left = found.machines - found.updated if target is not None else 0
    degraded = _degraded(row, definition, target, found)
    progress = f"{found.updated} of {found.machines} nodes updated"
    why = NOT_RENDERED if target is None else PAUSED if definition.paused and left else IN_PROGRESS
    if found.overlapping and not left:
        why = OVERLAPPING
    is_ready = target is not None and found.ready == found.machines and not (degraded or found.overlapping)
    yield _condition(Type.READY, is_ready, COMPLETE, progress, why if not degraded else degraded[0], progress)
    updating = PAUSED if definition.paused else IN_PROGRESS
    yield _condition(Type.UPDATING, left > 0, updating, f"Updating {left} nodes")
    draining = f"{len(found.draining)} nodes are currently draining: {listed(found.draining)}"
    yield _condition(Type.DRAINING, bool(found.draining), "NodesDraining", draining)
    yield _condition(Type.DEGRADED, degraded is not None, *(degraded or ("", "")))
    pools = [f"{node} is in {', '.join(state.membership.pools_of(node))}" for node in found.overlapping[:LISTED_MAX]]
    overlaps = f"{len(found.overlapping)} nodes belong to several pools, and are not updated: {'; '.join(pools)}"
    yield _condition(Type.POOL_OVERLAP, bool(found.overlapping), OVERLAPPING, overlaps)
    stuck = f"Drains have not finished within {definition.drain_timeout_s} s: {listed(found.stuck)}"
    yield _condition(Type.DRAIN_STUCK, bool(found.stuck), "DrainTimeout", stuck)


def _degraded(
    row: ConfigPoolRow, definition: MachineConfigPoolDefined, target: str | None, found: Counts
) -> tuple[str, str] | None:
    """Why a pool is degraded: reason and message."""
    if row.problem:
        return RENDER_FAILED, row.problem
    pinned = definition.pinned_revision
    if pinned is not None and pinned != target:
        return PINNED_MISSING, f"There is no RenderedMachineConfig {pinned} of this pool; the newest is rolled out."
    if found.degraded:
        failures = [f"{one.node} ({one.reason or one.agent_state})" for one in found.degraded]
        first = next((one.last_error or one.message for one in found.degraded if one.last_error or one.message), "")
        return NODES_FAILED, f"{listed(failures)}. {first}".strip()
    return None


def _condition(
    kind: Type, holds: bool, reason: str, message: str, other: str = AS_EXPECTED, otherwise: str = ""
) -> Condition:
    if holds:
        return Condition(type=kind, status="True", reason=reason, message=truncated(message))
    return Condition(type=kind, status="False", reason=other, message=truncated(otherwise))
