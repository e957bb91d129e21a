"""Which decisions and reports about the configuration of nodes are worth a Kubernetes Event. Pure.

Events about a node are on its Node; what goes wrong there is on the MachineConfigPool as well, where people watch a
rollout. Each function sees the state as it was before the fact.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from gpuledger.api.conditions import ConditionStatus
from gpuledger.api.machine_config import AgentState, ConfigPoolConditionType
from gpuledger.api.reasons import EventReason
from gpuledger.domain.fact import Fact
from gpuledger.edge.statuswriter.desired.machine_configs import ConfigNode, MachineConfigs
from gpuledger.edge.statuswriter.objects import Key, Kind
from gpuledger.events.machine_config import (
    ConfigChange,
    MachineConfigPoolChanged,
    NodeConfigChanged,
    NodeConfigDrainFailed,
    NodeConfigReported,
)
from gpuledger.events.node import Condition

IDLE, DRAINING, APPLYING, FAILED = "Idle", "Draining", "Applying", "Failed"
"""Phases of a node's update, as `NodeConfigChanged` has them."""

RENDER_FAILED: Final = EventReason.RENDER_FAILED.value
"""The reason of a pool's condition Degraded whose MachineConfigs cannot be merged."""

APPLY_TIMEOUT: Final = EventReason.APPLY_TIMEOUT.value
"""The reason of a node's phase Failed whose agent has not come to an end in time."""

FAILURES_SHOWN_MAX: Final = 5


class News(NamedTuple):
    """Something worth an Event; `about` distinguishes those of one object and reason."""

    key: Key
    reason: EventReason
    about: str
    note: str
    is_warning: bool = False


def of_pool(state: MachineConfigs, fact: Fact, data: MachineConfigPoolChanged) -> Iterator[News]:
    """A rollout begins or has ended, its MachineConfigs cannot be merged, or its nodes belong to another pool too."""
    pool = fact.event.subject
    row = state.pool.get(pool)
    if row is None or row.uid is None:
        return
    key = Key(Kind.CONFIG_POOL, pool)
    before = {one.type: one for one in state.condition.where("pool", pool)}
    for one in data.conditions:
        was = before.get(one.type)
        was_true = was is not None and was.status == ConditionStatus.TRUE
        is_true = one.status == ConditionStatus.TRUE.value
        if one.type == ConfigPoolConditionType.UPDATING and is_true != was_true:
            yield from _progress(key, data, is_updating=is_true)
        elif is_true and not (was_true and was is not None and was.reason == one.reason):
            yield from _problem(key, one)


def _progress(key: Key, data: MachineConfigPoolChanged, *, is_updating: bool) -> Iterator[News]:
    """A rollout that ends with nodes left, because somebody paused it, is not applied."""
    target, left = data.target_revision or "no configuration", data.machine_count - data.updated_count
    if is_updating:
        note = (
            f"{left} of {data.machine_count} nodes are updated to {target}, at most {data.max_unavailable} at a time."
        )
        yield News(key, EventReason.UPDATE_STARTED, target, note)
    elif left == 0:
        yield News(key, EventReason.UPDATE_APPLIED, target, f"All {data.machine_count} nodes have {target}.")


def _problem(key: Key, one: Condition) -> Iterator[News]:
    if one.type == ConfigPoolConditionType.DEGRADED and one.reason == RENDER_FAILED:
        yield News(key, EventReason.RENDER_FAILED, one.message, one.message or "It cannot be rendered.", True)
    elif one.type == ConfigPoolConditionType.POOL_OVERLAP:
        yield News(key, EventReason.POOL_OVERLAP, one.message, one.message or "Nodes are in other pools too.", True)


def of_node(state: MachineConfigs, fact: Fact, data: NodeConfigChanged) -> Iterator[News]:
    """The update of a node begins, has been applied, or has failed."""
    node = fact.event.subject
    before = state.node.get(node)
    same = before if before is not None and before.uid == data.uid else None
    phase, was = data.phase, IDLE if same is None else same.phase
    if data.pool is None or phase == was:
        return
    key = Key(Kind.KUBE_NODE, node)
    if was == IDLE and phase in (DRAINING, APPLYING):
        yield News(key, EventReason.UPDATE_STARTED, _target(state, data), _begins(state, data))
    elif was in (APPLYING, FAILED) and phase == IDLE and _is_of_one_update(same, data):
        applied = data.desired_revision or ""
        yield News(key, EventReason.UPDATE_APPLIED, applied, f"The node has {applied} of pool {data.pool}.")
    elif phase == FAILED:
        yield from _failed(same, node, data)


def _is_of_one_update(before: ConfigNode | None, data: NodeConfigChanged) -> bool:
    """Whether the node was to have the same before; one that another pool takes over has applied nothing."""
    return before is not None and (before.pool, before.desired) == (data.pool, data.desired_revision)


def _target(state: MachineConfigs, data: NodeConfigChanged) -> str:
    """What the node is updated to: before its drain is over, the pool's target is not yet desired."""
    row = None if data.pool is None else state.state.get(data.pool)
    return (row.target if row is not None and data.phase == DRAINING else None) or data.desired_revision or ""


def _begins(state: MachineConfigs, data: NodeConfigChanged) -> str:
    first = "Its pods leave, then it applies" if data.phase == DRAINING else "It applies"
    return f"{first} {_target(state, data) or 'the configuration'} of pool {data.pool}."


def _failed(before: ConfigNode | None, node: str, data: NodeConfigChanged) -> Iterator[News]:
    """Where its own agent has reported the failure, the Node has that Event already."""
    is_timeout = data.reason == APPLY_TIMEOUT
    reason = EventReason.APPLY_TIMEOUT if is_timeout else EventReason.APPLY_FAILED
    revision = data.desired_revision or ""
    because = data.message or "its agent did not come to an end in time" if is_timeout else data.message or data.reason
    note = f"{revision} is not applied: {because}"
    if is_timeout or before is None or before.agent_state != AgentState.ERROR:
        yield News(Key(Kind.KUBE_NODE, node), reason, revision, note, True)
    if data.pool is not None:
        yield News(Key(Kind.CONFIG_POOL, data.pool), reason, node, f"Node {node}: {note}", True)


def of_drain(_state: MachineConfigs, fact: Fact, data: NodeConfigDrainFailed) -> Iterator[News]:
    """A drain goes on and on."""
    node = fact.event.subject
    reason = EventReason.DRAIN_STUCK if data.is_stuck else EventReason.DRAIN_FAILED
    message = f" {data.message}" if data.message else ""
    pods = "1 pod is left" if data.left == 1 else f"{data.left} pods are left"
    note = f"The node is not drained after attempt {data.attempt}: {pods}; the drain goes on.{message}"
    yield News(Key(Kind.KUBE_NODE, node), reason, data.pool, note, True)
    yield News(Key(Kind.CONFIG_POOL, data.pool), reason, node, f"Node {node}: {note}", True)


def of_report(state: MachineConfigs, fact: Fact, data: NodeConfigReported) -> Iterator[News]:
    """The agent could not apply a configuration, or reboots the node."""
    node = fact.event.subject
    key, revision = Key(Kind.KUBE_NODE, node), data.revision or ""
    before = state.node.get(node)
    if data.state == AgentState.ERROR.value:
        note = f"{revision or 'The configuration'} is not applied: {data.error}{_failures(data.changes)}"
        yield News(key, EventReason.APPLY_FAILED, revision, note, True)
    elif data.state == AgentState.REBOOTING.value and (before is None or before.agent_state != AgentState.REBOOTING):
        yield News(
            key, EventReason.REBOOT_STARTED, revision, f"The node reboots for {revision or 'its configuration'}."
        )


def _failures(changes: Iterable[ConfigChange]) -> str:
    """What the agent did not bring about, the first of it."""
    left = [one for one in changes if one.outcome in ("failed", "not-applied")]
    shown = ", ".join(f"{one.subject} ({one.action}: {one.outcome})" for one in left[:FAILURES_SHOWN_MAX])
    more = f" and {len(left) - FAILURES_SHOWN_MAX} more" if len(left) > FAILURES_SHOWN_MAX else ""
    return f" Not applied: {shown}{more}." if shown else ""
