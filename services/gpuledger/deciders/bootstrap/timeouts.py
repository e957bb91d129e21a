"""Records timeouts as events, so that their consequences have a place in the log. Pure.

A decision made by the clock alone, between two facts, would come out elsewhere in a replay. So this module only records
that a wait has timed out, and every fold of the log draws the consequence at that place.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta

from gpuledger.api.phases import Component
from gpuledger.deciders.bootstrap.node_context import HEARTBEAT_MAX_AGE, NodeContext, context_of, is_overdue
from gpuledger.domain.bootstrap.facts import BootstrapFacts, BootstrapSettings, PendingTimeout, Timeouts
from gpuledger.domain.bootstrap.folds import OVERDUE_COLUMNS
from gpuledger.events.node import NodeBootstrapWaited
from gpuledger.projection.definition import Decision

WAIT_S_MAX = 100 * 365 * 24 * 3600
"""A wait that is longer by its setting is a hundred years all the same, so that the calendar holds its beginning."""

TIMEOUTS_PER_CALL_MAX = 1000
"""The most timeouts of one component per call, the oldest first; the others follow with the next call."""


def on_due(state: BootstrapFacts, now: datetime) -> Iterator[Decision]:
    """Record the timeouts of waits that have lasted too long."""
    settings = state.settings_in_force()
    if not settings.enabled or not settings.met:
        return
    timeouts = state.timeouts or _tracked(state)
    for component in OVERDUE_COLUMNS:
        bound = _bound(component, settings)
        for wait in timeouts.expired(component, now - bound, TIMEOUTS_PER_CALL_MAX):
            if not _is_still_pending(state, wait, component):
                continue
            data = NodeBootstrapWaited.model_validate({"component": component.value, "since": wait.since})
            cause = f"waited/{wait.node}/{component}/{wait.since.isoformat()}"
            yield Decision(cause, None, wait.node, wait.since + bound, data)


def _is_still_pending(state: BootstrapFacts, wait: PendingTimeout, component: Component) -> bool:
    row = state.node.get(wait.node)
    return row is not None and row.in_inventory and pending_since(context_of(state, row), component) == wait.since


def track_timeouts(state: BootstrapFacts, context: NodeContext) -> None:
    """Track what the node waits for now."""
    if state.timeouts is not None:
        for component in OVERDUE_COLUMNS:
            state.timeouts.track(component, pending_since(context, component), context.row.node)


def pending_since(context: NodeContext, component: Component) -> datetime | None:
    """Since when the node waits for the component; None where it does not, or the timeout is recorded."""
    if not context.row.managed or not context.devices:
        return None
    since = _BEGINNINGS[component](context)
    return None if is_overdue(getattr(context.row, OVERDUE_COLUMNS[component]), since) else since


_BEGINNINGS: Mapping[Component, Callable[[NodeContext], datetime | None]] = {
    Component.VALIDATOR: NodeContext.validator_unready_since,
    Component.GFD: NodeContext.gfd_unready_since,
    Component.DCGM: NodeContext.monitors_unready_since,
    Component.NODE_AGENT: NodeContext.agent_unready_since,
    Component.DCGM_EXPORTER: NodeContext.silence_since,
}
"""When the wait for a component began, or None, by component."""

_STARTS = (Component.VALIDATOR, Component.GFD, Component.DCGM)
"""What starts on a node while it is prepared, and may take as long as the validator."""


def _bound(component: Component, settings: BootstrapSettings) -> timedelta:
    if component in _STARTS:
        return timedelta(seconds=min(settings.validation_timeout_s, WAIT_S_MAX))
    return HEARTBEAT_MAX_AGE


def _tracked(state: BootstrapFacts) -> Timeouts:
    state.timeouts = Timeouts()
    for row in state.node.rows.values():
        if row.in_inventory:
            track_timeouts(state, context_of(state, row))
    return state.timeouts
