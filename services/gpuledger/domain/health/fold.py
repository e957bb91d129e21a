"""Folds what monitors and our agents report of health into incidents, in event time.

A report that is later than all others of its check needs the open incidents alone. Any other one reads the check's past
back and joins its reports again, so that rows do not depend on the order of recording. Silence ends nothing.
"""

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Final, NamedTuple

from gpuledger.domain.fact import AbsentRowsError, Fact, Handlers, Touched, counted_as_recorded
from gpuledger.domain.health.entities import NODE_ENTITY, Concerned, concerned
from gpuledger.domain.health.incidents import (
    after_healthy,
    begun,
    departed,
    ended,
    extended,
    incidents_of,
    joined_codes,
    merged,
)
from gpuledger.domain.health.own_reports import AGENT_CHECK, AGENT_COMPONENT, AGENT_MONITOR
from gpuledger.domain.health.rows import (
    INCIDENT,
    REPORT,
    Departure,
    Health,
    HealthCheck,
    HealthReport,
    Incident,
)
from gpuledger.events.device import DeviceDetached, DeviceFailed, DeviceHealthChanged
from gpuledger.events.health import NodeHealthReported
from gpuledger.events.node import NodeDecommissioned, NodeGone
from gpuledger.events.publishing import Rule
from gpuledger.events.recommended_action import NO_ACTION
from gpuledger.events.subjects import NODE, origin_of

CUSTOM_ACTION: Final = "CUSTOM"

CHECKS_OF_NODE_MAX: Final = 256
"""How many checks are kept of a node, where `Rule.BOUNDS` is enforced; reports of further ones are left out."""

OPEN_OF_NODE_MAX: Final = 2_048
"""How many incidents of a node may be open, where `Rule.BOUNDS` is enforced; no further one begins."""

_SCOPE_LENGTH: Final = 24
_SCOPES_KEPT_MAX: Final = 65_536
_BOUNDS: Final = Rule.BOUNDS  # Every event asks, and an enumeration takes long to find its member.


class Finding(NamedTuple):
    """What a report says of each of its entities: the columns of `HealthReport` from `healthy` on, but for `device`."""

    healthy: bool
    fatal: bool
    component: str | None
    codes: str
    message: str
    action: str
    strategy: str
    reporter: str | None
    reports: int
    unhealthy_codes: str
    healthy_codes: str


@lru_cache(maxsize=_SCOPES_KEPT_MAX)
def scope_of(node: str, monitor: str, check_name: str) -> str:
    """What stands for a check of a monitor on a node in keys, however long its names are."""
    return sha256("\0".join((node, monitor, check_name)).encode()).hexdigest()[:_SCOPE_LENGTH]


def touched(state: Health, fact: Fact) -> Touched:
    """The past of a check, where a report is not later than all others of it."""
    data = fact.event.data
    if isinstance(data, NodeHealthReported):
        scope = scope_of(fact.event.subject, data.monitor, data.check)
    elif isinstance(data, DeviceHealthChanged | DeviceFailed) and origin_of(fact.event.source).kind == NODE:
        scope = scope_of(origin_of(fact.event.source).name, AGENT_MONITOR, AGENT_CHECK)
    else:
        return ()
    check = state.check.rows.get(scope)
    return () if check is None or check.last_at < fact.event.time else _past(scope)


def _reported(state: Health, fact: Fact, data: NodeHealthReported) -> None:
    action = data.custom_action if data.action == CUSTOM_ACTION and data.custom_action else data.action
    codes = joined_codes(data.codes)
    found = Finding(
        data.healthy,
        data.fatal,
        data.component,
        codes,
        data.message,
        action,
        data.strategy,
        data.reporter,
        data.count,
        "" if data.healthy else codes,
        codes if data.healthy else "",
    )
    _take(state, fact, _check_of(state, fact, fact.event.subject, data.monitor, data.check), concerned(data), found)


def _health_changed(state: Health, fact: Fact, data: DeviceHealthChanged) -> None:
    _take_finding(state, fact, data.kind, data.message, data.action, healthy=data.healthy)


def _failed(state: Health, fact: Fact, data: DeviceFailed) -> None:
    """A failure that an agent found; those of imports name no node, and nothing ends them."""
    if origin_of(fact.event.source).kind == NODE:
        _take_finding(state, fact, data.kind, data.message or "", data.action, healthy=False)


def _left(state: Health, fact: Fact, _data: NodeDecommissioned | NodeGone) -> None:
    _depart(state, Departure(fact.event.subject, NODE_ENTITY, fact.event.time))


def _detached(state: Health, fact: Fact, data: DeviceDetached) -> None:
    """A card left its slot, whose name begins with that of the node."""
    _depart(state, Departure(data.slot.partition("/")[0], fact.event.subject, fact.event.time))


def _take_finding(
    state: Health, fact: Fact, kind: str | None, message: str, action: str | None, *, healthy: bool
) -> None:
    codes = joined_codes([kind or ""])
    standing = "" if healthy else codes
    found = Finding(
        healthy, not healthy, AGENT_COMPONENT, codes, message, action or NO_ACTION, "", None, 1, standing, ""
    )
    check = _check_of(state, fact, origin_of(fact.event.source).name, AGENT_MONITOR, AGENT_CHECK)
    _take(state, fact, check, (Concerned(fact.event.subject, fact.event.subject),), found)


def _check_of(state: Health, fact: Fact, node: str, monitor: str, check_name: str) -> HealthCheck:
    """The check, which is not put; a new one has no rows."""
    scope = scope_of(node, monitor, check_name)
    return state.check.rows.get(scope) or HealthCheck(scope, node, monitor, check_name, fact.event.time, 0, 0, 0)


def _reports(fact: Fact, check: HealthCheck, about: Iterable[Concerned], found: Finding) -> list[HealthReport]:
    event = fact.event
    came = (event.time, fact.sequence, counted_as_recorded(event, fact.recorded_ns), event.id, *found[:2])
    return [HealthReport._make((check.scope, one.entity, *came, one.device, *found[2:])) for one in about]


def _take(state: Health, fact: Fact, check: HealthCheck, about: Iterable[Concerned], found: Finding) -> None:
    """Take what was found of entities of a check."""
    open_, reports = _open_of(state, check.scope), _reports(fact, check, about, found)
    if _BOUNDS in fact.rules:
        reports = _within_bounds(state, check, reports, open_)
    if not reports:
        return
    if _are_next(state, check, reports, open_):
        _follow_all(state, check, reports, open_)
    else:
        _require([check], state)
        _insert(state, check, reports)


def _open_of(state: Health, scope: str) -> dict[str, Incident]:
    """The open incidents of a check by entity."""
    return {one.entity: one for one in state.incident.where("scope", scope) if one.ended_at is None}


def _within_bounds(
    state: Health, check: HealthCheck, reports: Sequence[HealthReport], open_: dict[str, Incident]
) -> list[HealthReport]:
    """The reports for which the node has room: those that begin nothing always have it."""
    checks = state.check.where("node", check.node)
    if check.report_rows == 0 and len(checks) >= CHECKS_OF_NODE_MAX:
        return []
    room = OPEN_OF_NODE_MAX - sum(one.open for one in checks)
    taken = []
    for report in reports:
        begins = not report.healthy and report.entity not in open_
        if not begins or room > 0:
            taken.append(report)
        room -= begins
    return taken


def _are_next(state: Health, check: HealthCheck, reports: Sequence[HealthReport], open_: dict[str, Incident]) -> bool:
    """Whether reports are later than all that matters for their entities."""
    time = reports[0].reported_at
    if any(one.left_at >= time for one in state.departure.where("node", check.node)):
        return False
    if check.report_rows == 0 or check.last_at < time:
        return True
    _require([check], state)
    if any(one.healthy_codes and one.reported_at >= time for one in state.report.where("scope", check.scope)):
        return False  # What it cleared is not to be seen from the open incidents.
    return all(
        report.entity != NODE_ENTITY and report.entity in open_ and open_[report.entity].last_at < time
        for report in reports
    )


def _follow_all(state: Health, check: HealthCheck, reports: Sequence[HealthReport], open_: dict[str, Incident]) -> None:
    """Take reports of one time that are later than all that matters for their entities."""
    began = over = 0
    for report in reports:
        state.report.put(report)
        if report.healthy:
            over += _end_healthy(state, report, open_)
        elif report.entity in open_:
            state.incident.put(extended(open_[report.entity], report))
        else:
            state.incident.put(begun(check, report))
            began += 1
    last_at = max(check.last_at, reports[0].reported_at)
    rows = (check.report_rows + len(reports), check.incident_rows + began, check.open + began - over)
    state.check.put(HealthCheck(check.scope, check.node, check.monitor, check.check_name, last_at, *rows))


def _end_healthy(state: Health, report: HealthReport, open_: dict[str, Incident]) -> int:
    """End what a healthy report is about; returns how many incidents that were."""
    over = 0
    for entity in list(open_) if report.entity == NODE_ENTITY else [report.entity] if report.entity in open_ else []:
        incident = open_.pop(entity)
        after = after_healthy(incident, report)
        over += after.ended_at is not None
        if after.ended_at is None:
            open_[entity] = after
        if after != incident:
            state.incident.put(after)
    return over


def _insert(state: Health, check: HealthCheck, reports: Iterable[HealthReport]) -> None:
    """Take reports that others of the check follow, whose rows are all in memory."""
    about = set()
    for report in reports:
        about.add(report.entity)
        before = state.report.get(state.report.key_of(report))
        state.report.put(report if before is None else merged(before, report))
        check = check._replace(
            report_rows=check.report_rows + (before is None), last_at=max(check.last_at, report.reported_at)
        )
    _rejoin(state, check, None if NODE_ENTITY in about else about)


def _rejoin(state: Health, check: HealthCheck, about: Collection[str] | None = None) -> None:
    """Join the reports of a check anew; only those `about` some entities, where these are given."""
    reports, former = state.report.where("scope", check.scope), state.incident.where("scope", check.scope)
    if about is not None:
        reports = [one for one in reports if one.entity in about or one.entity == NODE_ENTITY]
        former = [one for one in former if one.entity in about]
    joined = incidents_of(check, reports, state.departure.where("node", check.node))
    before = {state.incident.key_of(one): one for one in former}
    after = {state.incident.key_of(one): one for one in joined if about is None or one.entity in about}
    for key in before.keys() - after.keys():
        state.incident.delete(key)
    for key, incident in after.items():
        if before.get(key) != incident:
            state.incident.put(incident)
    more = len(after) - len(before)
    more_open = _open_count(after.values()) - _open_count(former)
    state.check.put(check._replace(incident_rows=check.incident_rows + more, open=check.open + more_open))


def _open_count(incidents: Iterable[Incident]) -> int:
    return sum(one.ended_at is None for one in incidents)


def _depart(state: Health, departure: Departure) -> None:
    """End what is open of a node or card that left; where reports came after that, join those again."""
    checks, others = state.check.where("node", departure.node), state.departure.where("node", departure.node)
    is_late = any(one.left_at >= departure.left_at for one in others)
    late = [check for check in checks if is_late or check.last_at >= departure.left_at]
    _require(late, state)
    state.departure.put(departure)
    for check in late:
        _rejoin(state, check)
    for check in checks:
        if check not in late:
            _end_open(state, check, departure)


def _end_open(state: Health, check: HealthCheck, departure: Departure) -> None:
    over = [one for one in _open_of(state, check.scope).values() if departure.device in (NODE_ENTITY, one.device)]
    for incident in over:
        state.incident.put(ended(incident, departure.left_at, departed(departure)))
    if over:
        state.check.put(check._replace(open=check.open - len(over)))


def _require(checks: Iterable[HealthCheck], state: Health) -> None:
    """Check that all rows of checks are in memory.

    Raises:
        AbsentRowsError: some have left it.
    """
    absent = [
        place
        for check in checks
        if len(state.report.by["scope"].get(check.scope)) < check.report_rows
        or len(state.incident.by["scope"].get(check.scope)) < check.incident_rows
        for place in _past(check.scope)
    ]
    if absent:
        raise AbsentRowsError(absent)


def _past(scope: str) -> list[tuple[str, str, str]]:
    return [(spec.name, "scope", scope) for spec in (REPORT, INCIDENT)]


HANDLERS: Handlers = {
    NodeHealthReported: _reported,
    DeviceHealthChanged: _health_changed,
    DeviceFailed: _failed,
    DeviceDetached: _detached,
    NodeGone: _left,
    NodeDecommissioned: _left,
}
