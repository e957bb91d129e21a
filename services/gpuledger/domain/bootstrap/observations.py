"""How what watchers and agents say becomes rows of the preparation; the order of recording does not matter.

An agent speaks of its own node only, and of that node's cards. Its looks come in the order of their times: for those
that do not, what counts now is right all the same, but not always which looks were in a row before the last loss.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from sys import intern

from gpuledger.api.phases import DRIVER_STEP, WATCHING_STEP, Component, ValidatorVerdict
from gpuledger.domain.bootstrap.facts import BootstrapComponent, BootstrapFacts, BootstrapHealth, BootstrapNode
from gpuledger.domain.bootstrap.streaks import told
from gpuledger.domain.fact import Fact, Handlers
from gpuledger.events.device import DeviceHealthChanged
from gpuledger.events.node import ComponentPod, NodeComponentsObserved, NodeDevicesObserved, NodeMonitoringObserved
from gpuledger.events.settings import HEARTBEATS_MAX
from gpuledger.events.subjects import origin_of

_UNIX = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def look_times(row: BootstrapNode) -> list[datetime]:
    """Times of fresh looks, the oldest first: the k-th from the end is when the last k in a row began."""
    return [_UNIX + int(text) * _MICROSECOND for text in row.looks.split(",") if text]


def looks_text(looks: Iterable[datetime]) -> str:
    """Times as a node's row keeps them."""
    return ",".join(str((look - _UNIX) // _MICROSECOND) for look in looks)


def beats_of(row: BootstrapNode) -> list[datetime]:
    """The fresh looks since the last one that was not, the oldest first."""
    return [look for look in look_times(row) if row.stale_at is None or look > row.stale_at]


def failed_at_step(step: str | None) -> ValidatorVerdict:
    """What a validator that gets no further than this step tells."""
    return ValidatorVerdict.DRIVER_MISSING if step in (None, DRIVER_STEP) else ValidatorVerdict.TOOLKIT_MISSING


def stuck_at_step(step: str | None) -> ValidatorVerdict:
    """What a validator tells that has not come to an end for too long, and does not fail."""
    return ValidatorVerdict.DRIVER_MISSING if step == WATCHING_STEP else failed_at_step(step)


def node_row(state: BootstrapFacts, node: str) -> BootstrapNode:
    """The node's row, a new one where there is none."""
    return state.node.get(node) or BootstrapNode(intern(node))


def put_node(state: BootstrapFacts, row: BootstrapNode) -> None:
    """Put the row, and note that the node is touched."""
    state.node.put(row)
    state.touch(row.node)


def later(known: datetime | None, time: datetime) -> datetime:
    """The later of two times."""
    return time if known is None else max(known, time)


def forget_said(state: BootstrapFacts, node: str, time: datetime) -> None:
    """Forget what watchers and agents said of a node that is not known, up to this time."""
    for component in state.component.where("node", node):
        if component.told_at <= time:
            state.component.delete((node, component.component))
    for health in state.health.where("node", node):
        if health.told_at <= time:
            state.health.delete((node, health.card))
    row = node_row(state, node)
    kept = BootstrapNode(
        row.node,
        components_at=_after(row.components_at, time),
        verdict=row.verdict if _after(row.verdict_at, time) else None,
        verdict_at=_after(row.verdict_at, time),
        looks=looks_text(look for look in look_times(row) if look > time),
        stale_at=_after(row.stale_at, time),
        driver_missing=row.driver_missing if _after(row.driver_told_at, time) else None,
        driver_told_at=_after(row.driver_told_at, time),
        decided_at=row.decided_at,
    )
    state.node.put(kept)
    if state.phase.get(node) is None:
        forget_blank(state, node)


def forget_blank(state: BootstrapFacts, node: str) -> None:
    """Drop the row of a node that is not known, and of which nobody says anything."""
    row = state.node.get(node)
    if row is not None and row == BootstrapNode(row.node, decided_at=row.decided_at):
        state.node.delete(node)


def _after(time: datetime | None, end: datetime) -> datetime | None:
    return time if time is not None and time > end else None


def _components_observed(state: BootstrapFacts, fact: Fact, data: NodeComponentsObserved) -> None:
    node, time = fact.event.subject, fact.event.time
    known = state.component.where("node", node)
    if not data.pods and not known:
        return  # Nothing was there, and nothing is: a node that has no components needs no row.
    row = node_row(state, node)
    if not data.pods and row.is_gone:
        forget_said(state, node, time)
        return
    names: dict[str, None] = dict.fromkeys(pod.component for pod in data.pods)
    seen = {name: _of_component(data.pods, name) for name in names}
    for component in known:
        _see(state, row, component.component, seen.pop(component.component, None), time)
    for name, pod in seen.items():
        _see(state, row, name, pod, time)
    put_node(state, _judged(row, data.pods, time)._replace(components_at=later(row.components_at, time)))


def _of_component(pods: Iterable[ComponentPod], name: str) -> ComponentPod:
    """The pod that counts of those of a component: one that is ready, else one that fails."""
    return min(
        (pod for pod in pods if pod.component == name), key=lambda pod: (not pod.ready, not pod.failing, pod.pod)
    )


def _see(state: BootstrapFacts, row: BootstrapNode, name: str, pod: ComponentPod | None, time: datetime) -> None:
    known = state.component.get((row.node, name))
    streak = None if known is None else known.streak
    if known is None and row.components_at is not None and row.components_at > time:
        streak = told(None, False, row.components_at)  # What was said later does not name it any more.
    streak = told(streak, pod is not None and pod.ready, time)
    if known is not None and known.told_at > time:
        failing, step = known.failing, known.step
    elif pod is None or streak.told_at > time:
        failing, step = False, None
    else:
        failing, step = pod.failing and not pod.ready, pod.step
    text = None if step is None else intern(step)
    state.component.put(BootstrapComponent(row.node, intern(name), *streak, failing, text))


def _judged(row: BootstrapNode, pods: Iterable[ComponentPod], time: datetime) -> BootstrapNode:
    """Keep the validator's verdict, where it gave one; a pod that waits or is gone says nothing."""
    if row.verdict_at is not None and row.verdict_at > time:
        return row
    own = [pod for pod in pods if pod.component == Component.VALIDATOR.value]
    if not own:
        return row
    pod = _of_component(own, Component.VALIDATOR)
    if not pod.ready and not pod.failing:
        return row
    verdict = ValidatorVerdict.FINE if pod.ready else failed_at_step(pod.step)
    return row._replace(verdict=verdict.value, verdict_at=time)


def _monitoring_observed(state: BootstrapFacts, fact: Fact, data: NodeMonitoringObserved) -> None:
    node, time = fact.event.subject, fact.event.time
    row = node_row(state, node)
    if data.fresh:
        looks, stale_at = _with_fresh(row, time), row.stale_at
    else:
        looks, stale_at = _with_stale(row, time), later(row.stale_at, time)
    put_node(state, row._replace(looks=looks_text(looks), stale_at=stale_at))


def _with_fresh(row: BootstrapNode, time: datetime) -> list[datetime]:
    """A fresh look joins the last run; of an earlier run it is not known what else was in it."""
    if row.stale_at is not None and time <= row.stale_at:
        return look_times(row)
    return _after_run(look_times(row), sorted({*beats_of(row), time})[-HEARTBEATS_MAX:])


def _with_stale(row: BootstrapNode, time: datetime) -> list[datetime]:
    """A look that is not fresh ends the last run, or parts it where it is told late."""
    looks, run = look_times(row), beats_of(row)
    older = looks[: len(looks) - len(run)]
    known = [*older, *older[-1:] * len(run)]  # Of a longer run of before, any part is a run too.
    for part in ([look for look in run if look < time], [look for look in run if look > time]):
        known = _after_run(known, part)
    return known


def _after_run(looks: list[datetime], run: list[datetime]) -> list[datetime]:
    """What is known after a further run: it is the last one of its own length and less."""
    return [*looks[: max(0, len(looks) - len(run))], *run]


def _devices_observed(state: BootstrapFacts, fact: Fact, data: NodeDevicesObserved) -> None:
    """Keep whether the agent finds a driver; the cards themselves are the inventory's."""
    node, time = fact.event.subject, fact.event.time
    row = node_row(state, node)
    if row.driver_told_at is not None and row.driver_told_at > time:
        return
    state.node.put(row._replace(driver_missing=data.driver_missing, driver_told_at=time))
    if data.driver_missing != bool(row.driver_missing):
        state.touch(row.node)


def _health_changed(state: BootstrapFacts, fact: Fact, data: DeviceHealthChanged) -> None:
    node, card, time = intern(origin_of(fact.event.source).name), intern(fact.event.subject), fact.event.time
    known = state.health.get((node, card))
    is_latest = known is None or known.told_at <= time
    streak = told(None if known is None else known.streak, data.healthy, time)
    kind, message = (data.kind, data.message) if is_latest or known is None else (known.kind, known.message)
    state.health.put(BootstrapHealth(node, card, *streak, kind, message))
    state.touch(node)


SEEN_HANDLERS: Handlers = {
    NodeComponentsObserved: _components_observed,
    NodeMonitoringObserved: _monitoring_observed,
    NodeDevicesObserved: _devices_observed,
    DeviceHealthChanged: _health_changed,
}
