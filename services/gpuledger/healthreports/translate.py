"""Turns what a health monitor sends, NVSentinel's `HealthEvents`, into facts about the node. Pure.

A request is taken as a whole or refused with the name of the first field that is wrong. The bounds of the fields are
those of the event's payload and stand nowhere else. A report that is dated later than now counts as of now: an agent's
events never go back in time, so that one from the future would carry all later ones with it.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from gpuledger.events.health import Behaviour, NodeHealthReported
from gpuledger.events.nvsentinel import STRATEGIES, WIRE_NAMES, action_name
from gpuledger.events.payload import truncated
from gpuledger.events.publishing import EVENT_AHEAD_MAX
from gpuledger.healthreports.errors import InvalidReportError, ReportDeniedError
from gpuledger.healthreports.healthevents_pb2 import (
    BehaviourOverrides,
    HealthEvent,
    HealthEvents,
    RecommendedAction,
)
from gpuledger.healthreports.impacted import NamedCard, impacted

EVENTS_MAX: Final = 1_000
"""How many events a request may hold."""

REPORT_BYTES_MAX: Final = 256 * 1024
"""How large a report may be as JSON: NATS takes messages of 1 MiB by default, and state and spool have to hold it."""


class HealthReport(NamedTuple):
    """A report as the payload of an event, and when it was true, by the monitor's clock; None: it does not say.

    `data.first_at` is the same time, but not later than now.
    """

    data: NodeHealthReported
    at: datetime | None


class ReportContext(NamedTuple):
    """What reports are about and who sends them: a node, its cards, and the reporter (None: a process of the node)."""

    node: str
    cards: Sequence[NamedCard]
    reporter: str | None


def translate(request: HealthEvents, context: ReportContext, now: datetime) -> list[HealthReport]:
    """All reports of a request, in order.

    Raises:
        InvalidReportError: a field is invalid, or there is too much; the message begins with the field's name.
        ReportDeniedError: a report is about another node.
    """
    reports = []
    for place, event in places(request):
        if event.nodeName not in ("", context.node):
            raise ReportDeniedError(
                f"{place}.nodeName is {event.nodeName[:80]!r}, but this agent takes reports about its own node alone, "
                f"{context.node!r}. Send the report to the agent of that node."
            )
        reports.append(translate_event(event, place, context, now))
    return reports


def places(request: HealthEvents) -> list[tuple[str, HealthEvent]]:
    """The events of a request, each with the place that messages call it by.

    Raises:
        InvalidReportError: there are too many.
    """
    if len(request.events) > EVENTS_MAX:
        raise InvalidReportError(f"events: there are {len(request.events)}; send {EVENTS_MAX} at most in a request.")
    return [(f"events[{index}]", event) for index, event in enumerate(request.events)]


def translate_event(event: HealthEvent, place: str, context: ReportContext, now: datetime) -> HealthReport:
    """The report about the context's node, whatever node the event names.

    Raises:
        InvalidReportError: a field is invalid, or there is too much; the message begins with the field's name.
    """
    nul = next((name for name, text in _texts(event) if "\0" in text), None)
    if nul is not None:
        raise InvalidReportError(f"{place}.{nul}: it holds a NUL character, which no event can keep.")
    at = _time(event, place, now)
    try:
        data = _payload(event, place, context, min(at or now, now))
    except ValidationError as error:
        raise InvalidReportError(_words(place, error)) from error
    size = len(data.model_dump_json().encode())
    if size > REPORT_BYTES_MAX:
        raise InvalidReportError(f"{place}: it has {size} bytes as JSON; {REPORT_BYTES_MAX} are allowed.")
    return HealthReport(data, at)


def _payload(event: HealthEvent, place: str, context: ReportContext, first_at: datetime) -> NodeHealthReported:
    """The payload; raises ValidationError where a field is not within its bounds."""
    fields: dict[str, Any] = {
        "monitor": event.agent,
        "reporter": context.reporter,
        "check": event.checkName,
        "component": event.componentClass or None,
        "healthy": event.isHealthy,
        "fatal": event.isFatal,
        "message": truncated(event.message.replace("\0", "\\0")),
        "action": action_name(event.recommendedAction),
        "custom_action": _custom_action(event, place),
        "codes": tuple(event.errorCode),
        "entities": tuple({"type": one.entityType, "value": one.entityValue} for one in event.entitiesImpacted),
        "devices": impacted(((one.entityType, one.entityValue) for one in event.entitiesImpacted), context.cards),
        "metadata": dict(event.metadata),
        "strategy": STRATEGIES.get(event.processingStrategy, "store-only"),
        "quarantine": _behaviour(event.quarantineOverrides),
        "drain": _behaviour(event.drainOverrides),
        "report": event.id or None,
        "first_at": first_at,
    }
    return NodeHealthReported.model_validate(fields)


def _time(event: HealthEvent, place: str, now: datetime) -> datetime | None:
    """When it was true; None where that was never set, as in Go's zero time or 1970 itself."""
    stamp = event.generatedTimestamp
    if stamp.seconds <= 0:
        return None
    try:
        at = stamp.ToDatetime(UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidReportError(
            f"{place}.generatedTimestamp: {stamp.seconds} s, {stamp.nanos} ns is no time."
        ) from error
    if at > now + EVENT_AHEAD_MAX:
        raise InvalidReportError(
            f"{place}.generatedTimestamp: {at.isoformat()} is more than {EVENT_AHEAD_MAX} ahead of the clock here, "
            f"{now.isoformat()}. Set the clocks."
        )
    return at


def _custom_action(event: HealthEvent, place: str) -> str | None:
    if event.recommendedAction != RecommendedAction.CUSTOM:
        return None
    if not event.customRecommendedAction:
        raise InvalidReportError(f"{place}.customRecommendedAction: it is empty; CUSTOM needs it to name the action.")
    return event.customRecommendedAction


def _behaviour(overrides: BehaviourOverrides) -> Behaviour:
    return Behaviour(force=overrides.force, skip=overrides.skip)


def _texts(event: HealthEvent) -> Iterator[tuple[str, str]]:
    """Every text but the message, by the name of its field."""
    for name in ("agent", "componentClass", "checkName", "id", "customRecommendedAction"):
        yield name, getattr(event, name)
    yield from ((f"errorCode[{index}]", code) for index, code in enumerate(event.errorCode))
    for index, entity in enumerate(event.entitiesImpacted):
        yield f"entitiesImpacted[{index}]", f"{entity.entityType}{entity.entityValue}"
    yield from (("metadata", f"{key}{value}") for key, value in event.metadata.items())


def _words(place: str, error: ValidationError) -> str:
    """The first thing that is wrong, by the name of its field on the wire."""
    first = error.errors(include_url=False)[0]
    return f"{place}{''.join(map(_step, first['loc']))}: {first['msg']}."


def _step(step: int | str) -> str:
    return f"[{step}]" if isinstance(step, int) else f".{WIRE_NAMES.get(step, step)[:80]}"
