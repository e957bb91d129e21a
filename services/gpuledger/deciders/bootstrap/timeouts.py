"""What the passing of time alone leads to: it is recorded that a wait is over, before anything follows from it.

A decision that was made at a moment between two facts would not be made there by a replay. What is recorded stands in
the log, and everybody who folds the log draws the conclusion at that place.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from gpuledger.api.phases import Component
from gpuledger.deciders.bootstrap.node_facts import HEARTBEAT_MAX_AGE, NodeView, is_over, view_of
from gpuledger.domain.bootstrap.facts import BootstrapFacts, BootstrapSettings
from gpuledger.domain.bootstrap.folds import WAITED
from gpuledger.domain.bootstrap.waits import Wait, Waits
from gpuledger.events.node import NodeBootstrapWaited
from gpuledger.projection.definition import Decision

WAITS_PER_ASK_MAX = 1000
"""How many waits of a component are told of at a time, the oldest first; the others follow when it is asked again."""


def on_due(state: BootstrapFacts, now: datetime) -> Iterator[Decision]:
    """Record the waits that are over."""
    settings = state.settings_in_force()
    if not settings.enabled or not settings.met:
        return
    waits = state.waits or _begin(state)
    for component in WAITED:
        bound = _bound(component, settings)
        for wait in waits.over(component, now - bound, WAITS_PER_ASK_MAX):
            if not _lasts(state, wait, component):
                continue
            data = NodeBootstrapWaited.model_validate({"component": component.value, "since": wait.since})
            cause = f"waited/{wait.node}/{component}/{wait.since.isoformat()}"
            yield Decision(cause, None, wait.node, wait.since + bound, data)


def _lasts(state: BootstrapFacts, wait: Wait, component: Component) -> bool:
    row = state.node.get(wait.node)
    return row is not None and row.is_known and wait_of(view_of(state, row), component) == wait.since


def note_waits(state: BootstrapFacts, view: NodeView) -> None:
    """Note what the node waits for now."""
    if state.waits is not None:
        for component in WAITED:
            state.waits.note(component, wait_of(view, component), view.row.node)


def wait_of(view: NodeView, component: Component) -> datetime | None:
    """Since when the node waits for the component, unless it was recorded that this is over."""
    if not view.row.managed or not view.devices:
        return None
    since = _since(view, component)
    return None if is_over(getattr(view.row, WAITED[component]), since) else since


def _since(view: NodeView, component: Component) -> datetime | None:
    if component is Component.VALIDATOR:
        return view.validator_since()
    return view.agent_since() if component is Component.NODE_AGENT else view.silence_since()


def _bound(component: Component, settings: BootstrapSettings) -> timedelta:
    return timedelta(seconds=settings.validation_timeout_s) if component is Component.VALIDATOR else HEARTBEAT_MAX_AGE


def _begin(state: BootstrapFacts) -> Waits:
    state.waits = Waits()
    for row in state.node.rows.values():
        if row.is_known:
            note_waits(state, view_of(state, row))
    return state.waits
