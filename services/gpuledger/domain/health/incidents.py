"""Joins the reports on one entity of a check into incidents, in event time. Pure.

An incident lasts from an unhealthy report to the next healthy one, or until the node or card leaves. Unhealthy reports
in between belong to it, whatever their codes.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final

from gpuledger.domain.health.entities import NODE_ENTITY
from gpuledger.domain.health.rows import (
    CARD_LEFT,
    CODES_SEPARATOR,
    HEALTHY,
    NODE_GONE,
    Departure,
    HealthCheck,
    HealthReport,
    Incident,
)
from gpuledger.events.health import CODES_MAX
from gpuledger.events.payload import BIGINT_MAX
from gpuledger.events.position import is_after
from gpuledger.events.recommended_action import NO_ACTION

CAUSE_LENGTH_MAX: Final = 256
ID_LENGTH: Final = 16


def incident_id(scope: str, entity: str, opened_at: datetime) -> str:
    """The id of an incident: it changes only where another report of the same entity turns out to be its first."""
    text = "\0".join((scope, entity, opened_at.astimezone(UTC).isoformat()))
    return sha256(text.encode()).hexdigest()[:ID_LENGTH]


def joined_codes(codes: Iterable[str]) -> str:
    """Codes in one text, each once and sorted; the first `CODES_MAX` of more."""
    clean = {code.replace(CODES_SEPARATOR, ";") for code in codes if code}
    return CODES_SEPARATOR.join(sorted(clean)[:CODES_MAX])


def cause_of(report: HealthReport) -> str:
    """What a report gives as the cause: its message, else its codes; the beginning of a long one."""
    return (report.message or report.codes)[:CAUSE_LENGTH_MAX]


def merged(one: HealthReport, other: HealthReport) -> HealthReport:
    """The row of two reports of one time on one entity.

    Of a healthy and an unhealthy one the later recorded holds. Two that agree are one, the same in whatever order.
    """
    later, earlier = (one, other) if is_after(one.position, other.position) else (other, one)
    if later.healthy != earlier.healthy:
        return later
    shown = max(one, other, key=_weight)
    return shown._replace(
        position=later.position,
        recorded_at=min(one.recorded_at, other.recorded_at),
        codes=_all_codes(one.codes, other.codes),
        reports=_sum(one.reports, other.reports),
    )


def begun(check: HealthCheck, report: HealthReport) -> Incident:
    """The incident that an unhealthy report begins."""
    cause = cause_of(report)
    return Incident(
        report.scope,
        report.entity,
        report.reported_at,
        incident_id(report.scope, report.entity, report.reported_at),
        check.node,
        check.monitor,
        check.check_name,
        report.device,
        report.component,
        report.position,
        report.recorded_at,
        None,
        None,
        report.reported_at,
        report.reports,
        report.fatal,
        report.codes,
        cause,
        cause,
        report.action,
    )


def extended(incident: Incident, report: HealthReport) -> Incident:
    """The incident with a later unhealthy report."""
    return incident._replace(
        last_at=report.reported_at,
        reports=_sum(incident.reports, report.reports),
        fatal=incident.fatal or report.fatal,
        codes=_all_codes(incident.codes, report.codes),
        last_cause=cause_of(report),
        action=incident.action if report.action == NO_ACTION else report.action,
    )


def ended(incident: Incident, at: datetime, by: str) -> Incident:
    """The incident, ended."""
    return incident._replace(ended_at=at, ended_by=by)


def departed(departure: Departure) -> str:
    """What a departure ends incidents by."""
    return CARD_LEFT if departure.device else NODE_GONE


def incidents_of(
    check: HealthCheck, reports: Sequence[HealthReport], departures: Sequence[Departure]
) -> list[Incident]:
    """All incidents of a check, from all of its reports and what left its node."""
    whole = [report for report in reports if report.entity == NODE_ENTITY and report.healthy]
    by_entity: dict[str, list[HealthReport]] = {}
    for report in reports:
        by_entity.setdefault(report.entity, []).append(report)
    return [
        incident
        for entity, own in by_entity.items()
        for incident in _of_entity(check, own if entity == NODE_ENTITY else [*own, *whole], departures)
    ]


def _of_entity(
    check: HealthCheck, reports: Sequence[HealthReport], departures: Sequence[Departure]
) -> Iterable[Incident]:
    in_force: dict[datetime, HealthReport] = {}
    for report in reports:
        other = in_force.get(report.reported_at)
        if other is None or is_after(report.position, other.position):
            in_force[report.reported_at] = report
    devices = {NODE_ENTITY, *(report.device for report in reports if report.device is not None)}
    left = {one.left_at: departed(one) for one in sorted(departures, reverse=True) if one.device in devices}
    current: Incident | None = None
    for time in sorted(in_force.keys() | left.keys()):
        if current is not None and time in left:
            yield ended(current, time, left[time])
            current = None
        found = in_force.get(time)
        if found is None:
            continue
        if found.healthy:
            if current is not None:
                yield ended(current, time, HEALTHY)
            current = None
        else:
            current = begun(check, found) if current is None else extended(current, found)
    if current is not None:
        yield current


def _all_codes(one: str, other: str) -> str:
    if one == other or not other:
        return one
    return joined_codes((*one.split(CODES_SEPARATOR), *other.split(CODES_SEPARATOR)))


def _sum(one: int, other: int) -> int:
    return min(one + other, BIGINT_MAX)


def _weight(report: HealthReport) -> tuple[object, ...]:
    return (
        report.fatal,
        report.action,
        report.message,
        report.component or "",
        report.strategy,
        report.reporter or "",
        report.event_id,
    )
