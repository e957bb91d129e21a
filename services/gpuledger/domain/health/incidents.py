"""Joins the reports on one entity of a check into incidents, in event time. Pure.

An incident lasts from an unhealthy report until healthy ones have cleared each code that was reported since, or until
the node or card leaves. Unhealthy reports in between belong to it, whatever their codes.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final

from gpuledger.domain.health.codes import NO_CODE, clears
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

    Of a healthy one that clears all codes and any other the later recorded holds. Else they are one, the same in
    whatever order: what either reports unhealthy stands, and the codes that only one clears are cleared.
    """
    later = one if is_after(one.position, other.position) else other
    if _clears_all(one) != _clears_all(other):
        return later
    agreeing = [row for row in (one, other) if row.healthy == (one.healthy and other.healthy)]
    shown = max(agreeing, key=_weight)
    return shown._replace(
        position=later.position,
        recorded_at=min(row.recorded_at for row in agreeing),
        codes=_all_codes(agreeing[0].codes, agreeing[-1].codes),
        reports=_sum(one.reports, other.reports) if len(agreeing) > 1 else shown.reports,
        unhealthy_codes=_union(*(_split(row.unhealthy_codes) for row in agreeing)),
        healthy_codes=_all_codes(one.healthy_codes, other.healthy_codes),
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
        report.unhealthy_codes,
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
        standing=_union(
            _left(incident, report) if report.healthy_codes else _split(incident.standing),
            _split(report.unhealthy_codes),
        ),
    )


def after_healthy(incident: Incident, report: HealthReport) -> Incident:
    """The incident after a later healthy report, which ends it where no code is left."""
    left = _left(incident, report)
    return incident._replace(standing=_union(left)) if left else ended(incident, report.reported_at, HEALTHY)


def ended(incident: Incident, at: datetime, by: str) -> Incident:
    """The incident, ended."""
    return incident._replace(ended_at=at, ended_by=by, standing="")


def on_others(report: HealthReport) -> bool:
    """Whether a report without entities clears something of all entities of its check."""
    return report.entity == NODE_ENTITY and (report.healthy or report.healthy_codes != "")


def departed(departure: Departure) -> str:
    """What a departure ends incidents by."""
    return CARD_LEFT if departure.device else NODE_GONE


def incidents_of(
    check: HealthCheck, reports: Sequence[HealthReport], departures: Sequence[Departure]
) -> list[Incident]:
    """All incidents of a check, from all of its reports and what left its node."""
    whole = [report._replace(healthy=True) for report in reports if on_others(report)]
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
        in_force[report.reported_at] = report if other is None else merged(other, report)
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
            current = None if current is None else after_healthy(current, found)
            if current is not None and current.ended_at is not None:
                yield current
                current = None
        else:
            current = begun(check, found) if current is None else extended(current, found)
    if current is not None:
        yield current


def _clears_all(report: HealthReport) -> bool:
    return report.healthy and not report.healthy_codes


def _left(incident: Incident, report: HealthReport) -> list[str]:
    """The codes that stand of an incident after a healthy report."""
    cleared = _split(report.healthy_codes) if report.healthy_codes else []
    return [code for code in _split(incident.standing) if not clears(cleared, code)]


def _split(codes: str) -> list[str]:
    """The codes of a text; of an empty one that of reports without codes."""
    return codes.split(CODES_SEPARATOR)


def _union(*codes: Iterable[str]) -> str:
    """Codes in one text, that of reports without codes among them; it stands for those that do not fit."""
    every = sorted({code for some in codes for code in some})
    return CODES_SEPARATOR.join(every if len(every) <= CODES_MAX else sorted({NO_CODE, *every[: CODES_MAX - 1]}))


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
