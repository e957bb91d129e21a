"""Folds Nodes, their labels, and what agents of machine configuration say into rows. Pure.

Of what is said about one thing the latest by event time holds. A Node's annotations repeat what its agent reported, and
come later: they count from where they change, so that an old annotation beside a new cordon takes nothing back.
"""

from datetime import datetime, timedelta
from sys import intern
from typing import Final

from gpuledger.domain.fact import Fact, Handlers, is_late, storable
from gpuledger.domain.inventory.state import json_text
from gpuledger.domain.machineconfig.rows import AT_REST, AT_WORK, ConfigNodeRow
from gpuledger.domain.machineconfig.state import IDLE, Rollout
from gpuledger.events.machine_config import NodeConfigReported, NodeMachineGone, NodeMachineObserved
from gpuledger.events.node import NodeLabelled, NodeUnlabelled

NO_LABELS: Final = "{}"

LAG_MAX: Final = timedelta(seconds=30)
"""How long the watch of Nodes may be behind what agents have reported by themselves."""

_ABSENT: Final = ConfigNodeRow(
    "", None, None, NO_LABELS, False, None, None, "", False, None, None, None, None, None, None, False, None, 0, IDLE,
    "", "", None, None, "[]", None, None, None,
)  # fmt: skip
"""A Node of which nothing was observed, but for its name."""


def row_of(state: Rollout, node: str) -> ConfigNodeRow:
    """A node's row, or an empty one."""
    return state.node.get(node) or _ABSENT._replace(node=intern(node))


def _labelled(state: Rollout, fact: Fact, data: NodeLabelled) -> None:
    _put_labels(state, fact, intern(json_text(data.labels)))


def _unlabelled(state: Rollout, fact: Fact, _data: NodeUnlabelled) -> None:
    _put_labels(state, fact, NO_LABELS)


def _put_labels(state: Rollout, fact: Fact, labels: str) -> None:
    before = row_of(state, fact.event.subject)
    if not is_late(before.labelled_at, fact.event.time):
        _put_or_forget(state, before._replace(labels=labels, labelled_at=fact.event.time))


def _observed(state: Rollout, fact: Fact, data: NodeMachineObserved) -> None:
    before, time = row_of(state, fact.event.subject), fact.event.time
    if is_late(before.observed_at, time):
        return
    if before.uid != data.uid:
        _forget_isolation(state, before.node)
        before = _anew(before)._replace(reported_at=min(storable(data.created), time))
    annotations = (data.current_revision, data.agent_state, data.last_error, data.reboot_pending)
    text = json_text(annotations)
    row = before._replace(
        uid=data.uid,
        created=storable(data.created),
        unschedulable=data.unschedulable,
        observed_at=time,
        annotations=text,
    )
    is_behind = is_late(row.reported_at, time) or _is_behind(row, data, time)
    if text != before.annotations and not is_behind:
        current, agent_state, error, is_pending = annotations
        row = row._replace(current_revision=current, agent_state=agent_state, last_error=error)
        row = row._replace(reboot_pending=is_pending, agent_revision=None)
        if row.is_confirmed():
            row = row._replace(reported_at=time)
    _put(state, row)


def _is_behind(row: ConfigNodeRow, data: NodeMachineObserved, time: datetime) -> bool:
    """Whether annotations show an agent at work on what it has just reported as done: its Node is seen with a lag."""
    is_done = row.agent_state in AT_REST and row.agent_revision == row.current_revision == row.desired_revision
    if row.reported_at is None or row.agent_revision is None or not (is_done and row.is_confirmed()):
        return False
    return data.agent_state in AT_WORK and time - row.reported_at <= LAG_MAX


def _anew(row: ConfigNodeRow) -> ConfigNodeRow:
    """Another Node of this name, or none: what was said and decided about the one before is over."""
    return _ABSENT._replace(node=row.node, labels=row.labels, labelled_at=row.labelled_at, pool=row.pool)


def _gone(state: Rollout, fact: Fact, data: NodeMachineGone) -> None:
    before, time = row_of(state, fact.event.subject), fact.event.time
    if not is_late(before.observed_at, time) and data.uid in (None, before.uid):
        _put_or_forget(state, _anew(before)._replace(observed_at=time))
        _forget_isolation(state, before.node)
        for holder in state.holder.where("node", before.node):
            state.holder.delete(holder.holder)


def _forget_isolation(state: Rollout, node: str) -> None:
    """What was put on the Node went with it; a request about it may still be carried out on the next one."""
    held = state.maintenance.get(node)
    if held is not None:
        state.put_maintenance(held._replace(intent="", intent_cordons=False, is_answered=False, failed_at=None))


def _put_or_forget(state: Rollout, row: ConfigNodeRow) -> None:
    if row.uid is None and row.labels == NO_LABELS:
        state.delete_node(row.node)
        state.touch_node(row.node)
    else:
        _put(state, row)


def _reported(state: Rollout, fact: Fact, data: NodeConfigReported) -> None:
    """What an agent says of a Node that is gone, or not there yet, counts for nothing: its annotations say it again."""
    before, time = state.node.get(fact.event.subject), fact.event.time
    if before is None or before.uid is None or is_late(before.reported_at, time):
        return
    row = before._replace(
        current_revision=data.current_revision,
        agent_state=data.state,
        last_error=data.error,
        reboot_pending=data.reboot_pending,
        agent_revision=data.revision,
        reported_at=time,
    )
    _put(state, row._replace(confirms_after=_confirms_after(row, data)))


def _confirms_after(row: ConfigNodeRow, data: NodeConfigReported) -> datetime | None:
    """After which time a node whose agent has now reported has to report yet.

    A report that says which order it is about answers that one alone, once it is carried out. Otherwise its time tells.
    """
    if row.confirms_after is None or row.reported_at is None or data.desired_set_at is None:
        return row.confirms_after
    is_about_it = (data.revision, storable(data.desired_set_at)) == (row.desired_revision, row.desired_set_at)
    if is_about_it and data.state in AT_REST:
        return None
    return max(row.confirms_after, row.reported_at)


def _put(state: Rollout, row: ConfigNodeRow) -> None:
    """Put a row; something may follow from what is new in it, but not from times and labels alone."""
    before = state.node.get(row.node)
    state.put_node(row)
    if before is None or _decisive(before) != _decisive(row) or before.is_confirmed() != row.is_confirmed():
        state.touch_node(row.node)


def _decisive(row: ConfigNodeRow) -> tuple[object, ...]:
    agent = (row.current_revision, row.agent_state, row.last_error, row.reboot_pending, row.agent_revision)
    return row.uid, row.unschedulable, *agent


NODE_HANDLERS: Handlers = {
    NodeLabelled: _labelled,
    NodeUnlabelled: _unlabelled,
    NodeMachineObserved: _observed,
    NodeMachineGone: _gone,
    NodeConfigReported: _reported,
}
