"""The document of `why node`: requests with their hops, standing reports and their outcomes, the answer. Pure."""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any, Final

from gpuledger.tools.explain.node_events import NodeEvents, Recorded, Span, outcome_of
from gpuledger.tools.explain.node_hops import chain, joined
from gpuledger.tools.explain.node_wording import answer, outcome_words

Document = dict[str, Any]

BY_RULES: Final = "health/"
ENDED_SHOWN_MAX: Final = 1
"""Requests that have ended are shown where none is in force, the last ones."""

_STATES: Final = {
    "cordoned": "cordoned",
    "applied": "set aside without a cordon",
    "drained": "cordoned and drained",
    "draining": "draining",
    "drain timed out": "draining beyond its time-out",
    "drain ended": "cordoned, its drain ended",
    "given back": "given back",
    "refused": "refused by the API server",
    "not carried out": "not carried out",
}
"""What a request has come to, by its last hop that says so."""

NOT_YET: Final = "not carried out yet"


def node_document(node: str, moment: str, recorded: Iterable[Recorded]) -> Document:
    """The explanation of a node, from the events about it in the order of the log."""
    events = NodeEvents(node, recorded)
    spans = events.in_force() or events.spans[-ENDED_SHOWN_MAX:]
    requests = [_request(events, one) for one in spans]
    reports = list(_reports(events))
    return {
        "subject": f"node {node}",
        "moment": moment,
        "setAside": bool(events.in_force()),
        "requests": requests,
        "reports": reports,
        "notes": list(_notes(requests)),
        "answer": answer(node, requests, reports),
    }


def _request(events: NodeEvents, span: Span) -> Document:
    hops, data, end = chain(events, span), span.data, span.end
    already = joined(events, span, hops)
    return {
        "owner": data.owner,
        "by": span.request.event.source.removeprefix("/"),
        "ruleset": data.owner.removeprefix(BY_RULES) if data.owner.startswith(BY_RULES) else None,
        "version": data.rules,
        "reason": data.reason,
        "message": data.message or None,
        "since": span.request.event.time,
        "expires": data.expires,
        "ended": None if end is None else end.event.time,
        "endedBy": None if end is None else end.event.source.removeprefix("/"),
        "state": _state([*already, *hops]),
        "latencyMs": _latency_ms(hops),
        "hops": hops,
        "joined": already,
    }


def _state(hops: list[Document]) -> str:
    return next((_STATES[one["hop"]] for one in reversed(hops) if one["hop"] in _STATES), NOT_YET)


def _latency_ms(hops: list[Document]) -> float | None:
    """From the recording of the first hop to that of the first outcome on the Node."""
    done = next((one for one in hops if one["hop"] in ("cordoned", "applied")), None)
    if done is None:
        return None
    since: timedelta = done["recorded"] - hops[0]["recorded"]
    return round(since.total_seconds() * 1000, 3)


def _reports(events: NodeEvents) -> Iterator[Document]:
    for (monitor, check, entity), found in sorted(events.standing.items()):
        report, outcome, span = outcome_of(events, found)
        one, data = report.recorded, report.data
        assessment = events.assessed.get(one.event.id)
        yield {
            "monitor": monitor,
            "check": check,
            "entity": entity or None,
            "codes": list(data.codes),
            "fatal": data.fatal,
            "message": data.message or None,
            "reports": len(found),
            "time": one.event.time,
            "recorded": one.recorded_at,
            "position": one.position,
            "event": one.event.id,
            "version": report.version or None,
            "outcome": outcome.value,
            "detail": outcome_words(report, outcome, span, assessment),
            "rulesets": [verdict._asdict() for verdict in report.verdicts],
        }


def _notes(requests: list[Document]) -> Iterator[str]:
    for one in requests:
        if one["joined"]:
            place = one["joined"][0]["position"]
            yield f"What {one['owner']} requests was in force already, by an earlier decision at {place}."
        drain = next((hop for hop in reversed(one["hops"]) if hop["hop"].startswith("drain")), None)
        if drain is not None and drain["hop"] in ("draining", "drain timed out") and drain["detail"]:
            yield f"The drain waits: {drain['detail']}."
