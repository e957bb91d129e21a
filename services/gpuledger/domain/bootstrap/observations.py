"""Folds observations of watchers and agents into rows of the preparation, independently of the order of recording.

An agent reports on its own node and that node's cards only. Heartbeats normally arrive in the order of their times.
After a late one the current run is still right, but the runs before the last loss may be incomplete.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from sys import intern
from typing import Final

from gpuledger.api.phases import (
    DRIVER_STEP,
    PLUGIN_STEP,
    TOOLKIT_STEP,
    WATCHING_STEP,
    Component,
    ValidatorVerdict,
)
from gpuledger.domain.bootstrap.facts import (
    BootstrapComponent,
    BootstrapFacts,
    BootstrapHealth,
    BootstrapNode,
    extend_streak,
)
from gpuledger.domain.fact import Fact, Handlers
from gpuledger.events.device import DeviceHealthChanged
from gpuledger.events.node import (
    CARDS_PER_NODE_MAX,
    ComponentPod,
    NodeComponentsObserved,
    NodeDevicesObserved,
    NodeMonitoringObserved,
)
from gpuledger.events.publishing import Rule
from gpuledger.events.settings import HEARTBEATS_MAX
from gpuledger.events.subjects import origin_of

HEALTH_OF_NODE_MAX: Final = 2 * CARDS_PER_NODE_MAX
"""How many cards' health is kept of a node, that of absent ones included, where `Rule.BOUNDS` is enforced."""

_UNIX = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def heartbeat_times(row: BootstrapNode) -> list[datetime]:
    """Times of heartbeats, the oldest first: the k-th from the end is when the last k in a row began."""
    return [_UNIX + int(text) * _MICROSECOND for text in row.heartbeats.split(",") if text]


def heartbeats_text(heartbeats: Iterable[datetime]) -> str:
    """Times of heartbeats in the form of a node's row."""
    return ",".join(str((heartbeat - _UNIX) // _MICROSECOND) for heartbeat in heartbeats)


def unbroken_heartbeats(row: BootstrapNode) -> list[datetime]:
    """The heartbeats since the last one that was missed, the oldest first."""
    return [heartbeat for heartbeat in heartbeat_times(row) if row.stale_at is None or heartbeat > row.stale_at]


def verdict_when_failed(step: str | None) -> ValidatorVerdict:
    """The verdict of a validator that failed at this step.

    GPU Operator's has steps before and after the toolkit's, which fail where driver and toolkit work: without a Fabric
    Manager, for instance, or without an instance on a card that has MIG enabled.
    """
    return _VERDICTS_WHEN_FAILED.get(step, ValidatorVerdict.VALIDATION_FAILED)


_VERDICTS_WHEN_FAILED = {
    None: ValidatorVerdict.DRIVER_MISSING,
    DRIVER_STEP: ValidatorVerdict.DRIVER_MISSING,
    TOOLKIT_STEP: ValidatorVerdict.TOOLKIT_MISSING,
    PLUGIN_STEP: ValidatorVerdict.FINE,
}


def verdict_when_stuck(step: str | None) -> ValidatorVerdict:
    """The verdict of a validator that neither finishes nor fails, and has been at this step for too long."""
    return ValidatorVerdict.DRIVER_MISSING if step == WATCHING_STEP else verdict_when_failed(step)


def node_row(state: BootstrapFacts, node: str) -> BootstrapNode:
    """The node's row, a new one where there is none."""
    return state.node.get(node) or BootstrapNode(intern(node))


def put_node(state: BootstrapFacts, row: BootstrapNode) -> None:
    """Put the row and mark the node."""
    state.node.put(row)
    state.touch(row.node)


def later(previous: datetime | None, time: datetime) -> datetime:
    """The later of two times."""
    return time if previous is None else max(previous, time)


def forget_observations(state: BootstrapFacts, node: str, time: datetime) -> None:
    """Forget what watchers and agents reported up to this time about a node that the inventory does not have."""
    for component in state.component.where("node", node):
        if component.reported_at <= time:
            state.component.delete((node, component.component))
    for health in state.health.where("node", node):
        if health.reported_at <= time:
            state.health.delete((node, health.card))
    row = node_row(state, node)
    kept = BootstrapNode(
        row.node,
        components_at=_after(row.components_at, time),
        verdict=row.verdict if _after(row.verdict_at, time) else None,
        verdict_at=_after(row.verdict_at, time),
        heartbeats=heartbeats_text(heartbeat for heartbeat in heartbeat_times(row) if heartbeat > time),
        stale_at=_after(row.stale_at, time),
        driver_missing=row.driver_missing if _after(row.driver_reported_at, time) else None,
        driver_reported_at=_after(row.driver_reported_at, time),
        decided_at=row.decided_at,
    )
    state.node.put(kept)
    if state.phase.get(node) is None:
        forget_empty(state, node)


def forget_empty(state: BootstrapFacts, node: str) -> None:
    """Drop the row of a node that the inventory does not have, if nothing is reported about it."""
    row = state.node.get(node)
    if row is not None and row == BootstrapNode(row.node, decided_at=row.decided_at):
        state.node.delete(node)


def _after(time: datetime | None, end: datetime) -> datetime | None:
    return time if time is not None and time > end else None


def _components_observed(state: BootstrapFacts, fact: Fact, data: NodeComponentsObserved) -> None:
    node, time = fact.event.subject, fact.event.time
    previous = state.component.where("node", node)
    if not data.pods and not previous:
        return  # A node that never had components needs no row.
    row = node_row(state, node)
    if not data.pods and row.is_gone:
        forget_observations(state, node, time)
        return
    pods = _without_waiting_for_plugins(data.pods)
    names: dict[str, None] = dict.fromkeys(pod.component for pod in pods)
    observed_pods = {name: _of_component(pods, name) for name in names}
    for component in previous:
        _observe_component(state, row, component.component, observed_pods.pop(component.component, None), time)
    for name, pod in observed_pods.items():
        _observe_component(state, row, name, pod, time)
    put_node(state, _with_verdict(row, pods, time)._replace(components_at=later(row.components_at, time)))


def _without_waiting_for_plugins(pods: Iterable[ComponentPod]) -> list[ComponentPod]:
    """The pods, with a validator's as ready that is at its last step, unless another one is not yet, or no longer.

    Such another one takes its place: pods of a node that were evicted stay where they were.
    """
    validators = [pod for pod in pods if pod.component == Component.VALIDATOR.value]
    others = [pod for pod in pods if pod.component != Component.VALIDATOR.value]
    elsewhere = [pod for pod in validators if pod.step != PLUGIN_STEP]
    passed = [ComponentPod(component=pod.component, pod=pod.pod, ready=True) for pod in validators]
    return [*others, *(elsewhere or passed)]


def _of_component(pods: Iterable[ComponentPod], name: str) -> ComponentPod:
    """The pod that represents a component: a ready one, else a failing one."""
    return min(
        (pod for pod in pods if pod.component == name), key=lambda pod: (not pod.ready, not pod.failing, pod.pod)
    )


def _observe_component(
    state: BootstrapFacts, row: BootstrapNode, name: str, pod: ComponentPod | None, time: datetime
) -> None:
    previous = state.component.get((row.node, name))
    streak = None if previous is None else previous.streak
    if previous is None and row.components_at is not None and row.components_at > time:
        streak = extend_streak(None, False, row.components_at)  # A later report no longer names it.
    streak = extend_streak(streak, pod is not None and pod.ready, time)
    if previous is not None and previous.reported_at > time:
        failing, step = previous.failing, previous.step
    elif pod is None or streak.reported_at > time:
        failing, step = False, None
    else:
        failing, step = pod.failing and not pod.ready, pod.step
    text = None if step is None else intern(step)
    state.component.put(BootstrapComponent(row.node, intern(name), *streak, failing, text))


def _with_verdict(row: BootstrapNode, pods: Iterable[ComponentPod], time: datetime) -> BootstrapNode:
    """Store the validator's verdict, if it gave one; a pod that waits or is gone gives none."""
    if row.verdict_at is not None and row.verdict_at > time:
        return row
    own = [pod for pod in pods if pod.component == Component.VALIDATOR.value]
    if not own:
        return row
    pod = _of_component(own, Component.VALIDATOR)
    if not pod.ready and not pod.failing:
        return row
    verdict = ValidatorVerdict.FINE if pod.ready else verdict_when_failed(pod.step)
    return row._replace(verdict=verdict.value, verdict_at=time)


def _monitoring_observed(state: BootstrapFacts, fact: Fact, data: NodeMonitoringObserved) -> None:
    node, time = fact.event.subject, fact.event.time
    row = node_row(state, node)
    if data.fresh:
        heartbeats, stale_at = _with_fresh(row, time), row.stale_at
    else:
        heartbeats, stale_at = _with_stale(row, time), later(row.stale_at, time)
    put_node(state, row._replace(heartbeats=heartbeats_text(heartbeats), stale_at=stale_at))


def _with_fresh(row: BootstrapNode, time: datetime) -> list[datetime]:
    """A heartbeat joins the last run; the other members of an earlier run are unknown."""
    if row.stale_at is not None and time <= row.stale_at:
        return heartbeat_times(row)
    return _after_run(heartbeat_times(row), sorted({*unbroken_heartbeats(row), time})[-HEARTBEATS_MAX:])


def _with_stale(row: BootstrapNode, time: datetime) -> list[datetime]:
    """A missed heartbeat ends the last run, or splits it where the report is late."""
    heartbeats, run = heartbeat_times(row), unbroken_heartbeats(row)
    older = heartbeats[: len(heartbeats) - len(run)]
    previous = [*older, *older[-1:] * len(run)]  # Any part of an earlier, longer run is a run too.
    for part in (
        [heartbeat for heartbeat in run if heartbeat < time],
        [heartbeat for heartbeat in run if heartbeat > time],
    ):
        previous = _after_run(previous, part)
    return previous


def _after_run(heartbeats: list[datetime], run: list[datetime]) -> list[datetime]:
    """Heartbeats with a further run, which is now the latest of its length and of every smaller one."""
    return [*heartbeats[: max(0, len(heartbeats) - len(run))], *run]


def _devices_observed(state: BootstrapFacts, fact: Fact, data: NodeDevicesObserved) -> None:
    """Store whether the agent finds a driver; the inventory stores the cards."""
    node, time = fact.event.subject, fact.event.time
    row = node_row(state, node)
    if row.driver_reported_at is not None and row.driver_reported_at > time:
        return
    state.node.put(row._replace(driver_missing=data.driver_missing, driver_reported_at=time))
    if data.driver_missing != bool(row.driver_missing):
        state.touch(row.node)


def _health_changed(state: BootstrapFacts, fact: Fact, data: DeviceHealthChanged) -> None:
    node, card, time = intern(origin_of(fact.event.source).name), intern(fact.event.subject), fact.event.time
    previous = state.health.get((node, card))
    is_latest = previous is None or previous.reported_at <= time
    streak = extend_streak(None if previous is None else previous.streak, data.healthy, time)
    kind, message = (data.kind, data.message) if is_latest or previous is None else (previous.kind, previous.message)
    state.health.put(BootstrapHealth(node, card, *streak, kind, message))
    if Rule.BOUNDS in fact.rules and len(state.health.by["node"].get(node)) > HEALTH_OF_NODE_MAX:
        oldest = min(state.health.where("node", node), key=lambda row: (row.reported_at, row.card))
        state.health.delete((node, oldest.card))
    state.touch(node)


OBSERVATION_HANDLERS: Handlers = {
    NodeComponentsObserved: _components_observed,
    NodeMonitoringObserved: _monitoring_observed,
    NodeDevicesObserved: _devices_observed,
    DeviceHealthChanged: _health_changed,
}
