"""The hops from a report to its outcome on a node, each an event with its latency behind the one before. Pure.

A chain follows what events name as their cause, so what another service records of the same cause becomes a hop of it
without a word here.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from gpuledger.events.device import DeviceHealthChanged, DeviceReportAccepted
from gpuledger.events.health import NodeHealthReported
from gpuledger.events.maintenance import (
    DrainState,
    NodeDrainChanged,
    NodeDrainFinished,
    NodeDrainProgressed,
    NodeDrainSuperseded,
    NodeDrainTimedOut,
    NodeIsolationApplied,
    NodeIsolationChanged,
    NodeIsolationFailed,
    NodeIsolationSuperseded,
    NodeMaintenanceExpired,
    NodeMaintenanceReleased,
    NodeMaintenanceRequested,
)
from gpuledger.events.payload import Payload
from gpuledger.events.quarantine import NodeFaultAssessed, QuarantineBreakerReset
from gpuledger.events.remediation import (
    RemediationAssessed,
    RemediationAttentionRequested,
    RemediationCancelled,
    RemediationCreated,
    RemediationFinished,
    RemediationObjectDeleted,
    RemediationRequested,
    RemediationRetryRequested,
    RemediationSuperseded,
)
from gpuledger.tools.explain.node_events import NodeEvents, Recorded, Span

Document = dict[str, Any]

_NAMES: Final[dict[type[Payload], str]] = {
    DeviceReportAccepted: "accepted",
    NodeFaultAssessed: "assessed",
    QuarantineBreakerReset: "breaker reset",
    NodeMaintenanceRequested: "requested",
    NodeMaintenanceReleased: "released",
    NodeMaintenanceExpired: "expired",
    NodeIsolationFailed: "refused",
    NodeIsolationSuperseded: "not carried out",
    NodeDrainChanged: "drain decided",
    NodeDrainProgressed: "draining",
    NodeDrainTimedOut: "drain timed out",
    NodeDrainFinished: "drained",
    NodeDrainSuperseded: "drain ended",
    RemediationAssessed: "remedy assessed",
    RemediationRequested: "remedy requested",
    RemediationCreated: "remedy created",
    RemediationFinished: "remedy finished",
    RemediationCancelled: "remedy cancelled",
    RemediationSuperseded: "remedy not created",
    RemediationAttentionRequested: "needs attention",
    RemediationRetryRequested: "retry requested",
    RemediationObjectDeleted: "remedy object deleted",
}
"""What a hop is called; one of another type is called as its event."""


def chain(events: NodeEvents, span: Span) -> list[Document]:
    """The hops of a request: what led to it, what was done, and its end, in the order of the log."""
    request = span.request
    found = dict[str, Recorded]()
    cause = events.cause_of(request)
    if cause is not None:
        found |= _with_verdict(events, cause)
        if (assessment := events.assessed.get(cause.event.id)) is not None:
            found[assessment.recorded.event.id] = assessment.recorded
    found |= _followed(events, [request, *_retries(events, span)])
    if span.end is not None:
        healthy = events.by_id.get(span.end.event.causation_id or "")
        found |= {} if healthy is None else _with_verdict(events, healthy)
        found |= _followed(events, [span.end])
    return _in_order(events, found)


def _retries(events: NodeEvents, span: Span) -> Iterator[Recorded]:
    """What operators have had tried again while the request was in force: nothing that happened led to that."""
    is_in_force = False
    for one in events.about():
        if one is span.end:
            return
        is_in_force = is_in_force or one is span.request
        if is_in_force and isinstance(one.event.data, RemediationRetryRequested):
            yield one


def joined(events: NodeEvents, span: Span, hops: list[Document]) -> list[Document]:
    """The decision that stood already and says what is requested, with its outcome; none where there was another."""
    if any(one["type"] == NodeIsolationChanged.TYPE for one in hops):
        return []
    return _in_order(events, _standing(events, span.request))


def _in_order(events: NodeEvents, found: dict[str, Recorded]) -> list[Document]:
    places = {event_id: at for at, event_id in enumerate(events.by_id)}
    return list(_hops(events, sorted(_thinned(found.values()), key=lambda one: places[one.event.id])))


def _with_verdict(events: NodeEvents, report: Recorded) -> dict[str, Recorded]:
    """A report, and the event that accepts it where it is an agent's on a card."""
    verdict = events.accepted.get(report.event.id)
    return {one.event.id: one for one in (report, verdict) if one is not None}


def _followed(events: NodeEvents, roots: list[Recorded]) -> dict[str, Recorded]:
    """The events about the node that follow from these, which stand before them; no request of another ruleset."""
    found = {one.event.id: one for one in roots}
    for one in events.about():
        is_other = isinstance(one.event.data, NodeMaintenanceRequested | NodeMaintenanceReleased)
        if one.event.causation_id in found and not is_other:
            found[one.event.id] = one
    return found


def _standing(events: NodeEvents, request: Recorded) -> dict[str, Recorded]:
    """The intent that a request joined, because it says what is requested already, and its outcome."""
    before: Recorded | None = None
    for one in events.about():
        if one is request:
            break
        if isinstance(one.event.data, NodeIsolationChanged):
            before = one
    if before is None or not isinstance(before.event.data, NodeIsolationChanged):
        return {}
    return {} if before.event.data.isolation.is_none() else _followed(events, [before])


def _thinned(found: Iterable[Recorded]) -> Iterator[Recorded]:
    """Of the reports on a drain's progress the first and the last; there may be many."""
    progress = dict[str, list[Recorded]]()
    for one in found:
        if isinstance(one.event.data, NodeDrainProgressed):
            progress.setdefault(one.event.data.intent, []).append(one)
        else:
            yield one
    for reports in progress.values():
        yield from reports[:1] if len(reports) == 1 else (reports[0], reports[-1])


def _hops(events: NodeEvents, found: list[Recorded]) -> Iterator[Document]:
    before: Recorded | None = None
    for one in found:
        since = one.event.time if before is None else before.recorded_at
        yield {
            "hop": _name(events, one),
            "time": one.event.time,
            "recorded": one.recorded_at,
            "latencyMs": round((one.recorded_at - since).total_seconds() * 1000, 3),
            "position": one.position,
            "event": one.event.id,
            "type": one.event.type,
            "by": one.event.source,
            "detail": _detail(one.event.data),
        }
        before = one


def _remedy_detail(data: Payload) -> str:
    match data:
        case RemediationRequested():
            return f"{data.remedy}: {data.object.kind}/{data.object.name}"
        case RemediationFinished():
            return ": ".join(filter(None, (data.result, data.message)))
        case RemediationAttentionRequested():
            return f"{data.reason}: {data.message}"
        case RemediationRetryRequested():
            return data.reason
    return ""


def _name(events: NodeEvents, one: Recorded) -> str:
    data = one.event.data
    if isinstance(data, NodeHealthReported | DeviceHealthChanged):
        return "healthy" if data.healthy else "reported"
    if isinstance(data, NodeIsolationChanged):
        return "decided to give back" if data.isolation.is_none() else "decided"
    if isinstance(data, NodeIsolationApplied):
        intent = events.by_id.get(data.intent)
        changed = None if intent is None else intent.event.data
        if not isinstance(changed, NodeIsolationChanged):
            return "applied"
        if changed.isolation.is_none():
            return "given back"
        return "cordoned" if changed.isolation.unschedulable else "applied"
    return _NAMES.get(type(data), data.EVENT)


def _detail(data: Payload) -> str:
    match data:
        case NodeHealthReported():
            text = f"{data.monitor} {data.check}: {data.message or ', '.join(data.codes)}".rstrip(": ")
        case DeviceHealthChanged():
            text = ": ".join(filter(None, (data.kind, data.message)))
        case NodeMaintenanceRequested():
            text = f"{data.owner}: {data.reason}"
        case NodeMaintenanceReleased():
            text = f"{data.owner}: {data.reason}"
        case NodeIsolationChanged():
            text = ", ".join(_isolation(data)) or "uncordon, without taints and labels of ours"
        case DrainState():
            waiting = "; ".join(f"{pod.namespace}/{pod.pod} {pod.state}" for pod in data.pods)
            text = f"{data.left} pods left" + (f": {waiting}" if waiting else "")
        case NodeIsolationApplied():
            text = "the Node was changed" if data.written else "the Node was so already"
        case NodeIsolationFailed() | NodeIsolationSuperseded() | NodeDrainSuperseded():
            text = ": ".join(filter(None, (data.reason, data.message)))
        case _:
            text = _remedy_detail(data)
    return text


def _isolation(data: NodeIsolationChanged) -> Iterator[str]:
    isolation = data.isolation
    if isolation.unschedulable:
        yield "cordon"
    yield from (f"taint {one.key}={one.value}:{one.effect}" for one in isolation.taints)
    yield from (f"label {key}={value}" for key, value in isolation.labels.items())
