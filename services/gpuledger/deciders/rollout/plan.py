"""Decides how far the update of one node is to be: what it is to have, in which phase, set aside or not. Pure.

One step at a time, from what was decided last to what follows from it now. Who may begin is another question, that of
the budget of its pool; what has begun is brought to an end here, whatever changes meanwhile.
"""

from datetime import datetime, timedelta
from typing import Final, NamedTuple, cast

import orjson

from gpuledger.api.machine_config import AgentState, RebootStrategy
from gpuledger.domain.machineconfig.holding import holds_devices
from gpuledger.domain.machineconfig.nodes import row_of
from gpuledger.domain.machineconfig.rows import AT_REST, ConfigNodeRow
from gpuledger.domain.machineconfig.state import APPLYING, DRAINING, FAILED, IDLE, Rollout
from gpuledger.domain.maintenance.rows import FINISHED
from gpuledger.events.machine_config import NodeConfigPhase

STEPS_MAX: Final = 6
"""How many steps may follow from one fact: returned, moved to another pool, and what that pool wants."""

APPLY_FAILED, APPLY_TIMEOUT, DRAIN_STUCK = "ApplyFailed", "ApplyTimeout", "DrainStuck"
PAUSED, OVERLAP, CHANGED = "Paused", "PoolOverlap", "RevisionChanged"
"""Reasons of phases."""


class NodePlan(NamedTuple):
    """What is decided about a node, as `NodeConfigChanged` has it; by default it is nobody's."""

    pool: str | None = None
    desired: str | None = None
    desired_set_at: datetime | None = None
    cordoned: bool = False
    drain_started_at: datetime | None = None
    drain_retries: int = 0
    phase: NodeConfigPhase = IDLE
    reason: str = ""
    message: str = ""

    def at_rest(self, reason: str = "") -> "NodePlan":
        """Nothing is under way: the node is given back, and keeps what it is to have."""
        return NodePlan(self.pool, self.desired, self.desired_set_at, reason=reason)

    def draining(self, at: datetime) -> "NodePlan":
        """The node is set aside, and its pods leave."""
        return self.at_rest()._replace(cordoned=True, drain_started_at=at, phase=DRAINING)

    def applying(self, revision: str, at: datetime, *, cordoned: bool) -> "NodePlan":
        """The node is to have this revision, and its agent sees to that."""
        started_at = self.drain_started_at if cordoned else None
        return NodePlan(
            self.pool, revision, self.ordered_at(at), cordoned, started_at, self.drain_retries, APPLYING
        )  # fmt: skip

    def ordered_at(self, at: datetime) -> datetime:
        """When the next order is given: agents tell orders apart by that, so it is later than the last one."""
        before = self.desired_set_at
        return at if before is None or before < at else before + timedelta(microseconds=1)

    def failed(self, reason: str, message: str) -> "NodePlan":
        """The agent does not get there by itself, so far."""
        return self._replace(phase=FAILED, reason=reason, message=message)


def plan_of(row: ConfigNodeRow) -> NodePlan:
    """What was decided last."""
    return NodePlan(
        row.decided_pool, row.desired_revision, row.desired_set_at, row.cordoned, row.drain_started_at,
        row.drain_retries, cast("NodeConfigPhase", row.phase), row.reason, row.message,
    )  # fmt: skip


class NodeView(NamedTuple):
    """What a step is decided by; `target` and `is_paused` are those of `home`, the one pool of the node."""

    row: ConfigNodeRow
    pools: tuple[str, ...]
    home: str | None
    target: str | None
    is_paused: bool
    is_drained: bool
    is_controller: bool
    at: datetime

    def may_change(self) -> bool:
        """Whether what the node is to have may be replaced by the target."""
        return self.home is not None and self.target is not None and not self.is_paused

    def has_target(self) -> bool:
        """Whether the node has what its pool wants."""
        return self.target is not None and self.row.current_revision == self.target


def view_of(state: Rollout, node: str, at: datetime) -> NodeView:
    """What the next step of a node is decided by, as of a time."""
    row, maintenance = row_of(state, node), state.maintenance.get(node)
    home = state.home(node)
    definition = None if home is None else state.definition(home)
    return NodeView(
        row,
        state.membership.pools_of(node),
        home,
        None if home is None else state.target(home),
        definition is not None and definition.paused,
        maintenance is not None and maintenance.requested_at is not None and maintenance.drain == FINISHED,
        state.is_controller(node),
        at,
    )


def next_plan(view: NodeView) -> NodePlan:
    """What is to be decided about a node, after as many steps as follow from each other."""
    plan = plan_of(view.row)
    for _ in range(STEPS_MAX):
        after = _step(view, plan)
        if after == plan:
            break
        plan = after
    return plan


def begun(state: Rollout, view: NodeView) -> NodePlan:
    """The first step of a node's update, which its pool's budget allows.

    The node of this very service is neither cordoned nor drained, as it would evict itself. Nor is a new node, which
    has no devices to give back; but where the update reboots it, its other pods have to leave before.
    """
    plan, is_new = plan_of(view.row), view.row.current_revision is None and not holds_devices(state, view.row.node)
    if view.target is not None and (view.is_controller or (is_new and not _reboots(state, view))):
        return plan.applying(view.target, view.at, cordoned=False)
    return plan.draining(view.at)


def _reboots(state: Rollout, view: NodeView) -> bool:
    """Whether the agent reboots a new node for the target."""
    definition, row = state.definition(view.home or ""), state.rendered.get(view.target)
    if definition is None or row is None or definition.reboot_strategy != RebootStrategy.IF_REQUIRED.value:
        return False
    return bool(orjson.loads(row.config).get("reboot_required"))


def is_done(row: ConfigNodeRow, desired: str | None) -> bool:
    """Whether the agent has what the node is to have, and has reported so since."""
    is_at_rest = row.agent_state in AT_REST and row.is_confirmed()
    return desired is not None and row.current_revision == desired and is_at_rest


def has_error(row: ConfigNodeRow) -> bool:
    """Whether the agent fails at what the node is to have."""
    is_about_it = row.agent_revision in (None, row.desired_revision)
    return row.agent_state == AgentState.ERROR and is_about_it


def _step(view: NodeView, plan: NodePlan) -> NodePlan:
    if plan.pool not in view.pools:
        return NodePlan(view.home)
    if view.home is None:
        return _overlapping(view, plan)
    if plan.phase == IDLE:
        return _idle(view, plan)
    return _draining(view, plan) if plan.phase == DRAINING else _applying(view, plan)


def _overlapping(view: NodeView, plan: NodePlan) -> NodePlan:
    """No update begins on a node of several pools: one that drains is given back, one that applies finishes."""
    if plan.phase == DRAINING:
        return plan.at_rest(OVERLAP)
    return plan if plan.phase == IDLE else _finished(view, plan)


def _idle(view: NodeView, plan: NodePlan) -> NodePlan:
    row = view.row
    if plan.desired is not None and plan.desired == row.desired_revision and plan.desired != row.current_revision:
        return plan.applying(plan.desired, view.at, cordoned=False)  # The agent is at it already.
    if view.has_target() and plan.desired != view.target:
        return plan.at_rest()._replace(desired=view.target, desired_set_at=plan.ordered_at(view.at))
    return plan


def _draining(view: NodeView, plan: NodePlan) -> NodePlan:
    if view.is_paused:
        return plan.at_rest(PAUSED)
    if view.target is None or view.has_target():
        return plan.at_rest(CHANGED)
    if view.is_controller:
        return plan.applying(view.target, view.at, cordoned=False)
    return plan.applying(view.target, view.at, cordoned=True) if view.is_drained else plan


def _applying(view: NodeView, plan: NodePlan) -> NodePlan:
    if view.may_change() and view.target is not None and plan.desired != view.target:
        return plan.applying(view.target, view.at, cordoned=plan.cordoned)
    return _finished(view, plan)


def _finished(view: NodeView, plan: NodePlan) -> NodePlan:
    """The plan once the agent has reported what came of it."""
    row = view.row
    if plan.desired != row.desired_revision or plan.desired_set_at != row.desired_set_at:
        return plan  # It was changed just now; nothing can have been reported about that.
    if is_done(row, plan.desired):
        return plan.at_rest()
    return plan.failed(APPLY_FAILED, row.last_error) if has_error(row) else plan
