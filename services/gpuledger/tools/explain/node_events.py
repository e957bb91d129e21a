"""What the log has about a node, read once: its standing reports with how they were judged, and its requests. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from gpuledger.domain.health.codes import clears, reported_codes
from gpuledger.domain.health.entities import NODE_ENTITY, as_named, concerned
from gpuledger.domain.health.own_reports import card_report
from gpuledger.domain.quarantine.inputs import variables
from gpuledger.domain.quarantine.rules import RulesInForce, Verdict, names_of
from gpuledger.events.device import DeviceDetached, DeviceHealthChanged, DeviceReportAccepted, JudgedReport
from gpuledger.events.envelope import Decoded
from gpuledger.events.health import NodeHealthReported
from gpuledger.events.maintenance import NodeMaintenanceExpired, NodeMaintenanceReleased, NodeMaintenanceRequested
from gpuledger.events.node import NodeGone, NodeLabelled, NodeUnlabelled
from gpuledger.events.quarantine import (
    NodeFaultAssessed,
    QuarantineBreakerOpened,
    QuarantineBreakerReset,
    QuarantineRulesApplied,
)

STANDING_MAX: Final = 512
"""How many checks of entities that stand unhealthy are kept of a node, as the quarantine itself keeps faults."""

ACTS: Final = "execute-remediation"


class Recorded(NamedTuple):
    """An event with its position and when it was recorded."""

    event: Decoded
    position: str
    recorded_at: datetime


class Outcome(StrEnum):
    """What came of a report."""

    ACTED = "Acted"
    GIVEN_BACK = "GivenBack"
    STORE_ONLY = "StoreOnly"
    IMPORTED = "Imported"
    SKIPPED = "Skipped"
    NO_RULES = "NoRules"
    NO_MATCH = "NoMatch"
    NOT_ASSESSED = "NotAssessed"
    TOO_OLD = "TooOld"
    BREAKER_OPEN = "BreakerOpen"
    NO_NODE = "NoNode"
    NOT_REQUESTED = "NotRequested"


class Report(NamedTuple):
    """An unhealthy report as it was judged where it stands; `refused` is why no rule was asked."""

    recorded: Recorded
    data: NodeHealthReported
    refused: Outcome | None
    version: str
    max_age_s: int
    verdicts: tuple[Verdict, ...]
    rulesets: tuple[str, ...] = ()
    """What it counts for: the rulesets that it matches, or what its overrides make of these."""


class Assessment(NamedTuple):
    """Where the service came to a fault: whether there was such a Node, and whether the breaker was open."""

    recorded: Recorded
    exists: bool
    breaker: str | None


class Span(NamedTuple):
    """A request of an owner up to its end, the event that ended it; None while it is in force."""

    request: Recorded
    end: Recorded | None

    @property
    def data(self) -> NodeMaintenanceRequested:
        """What is requested."""
        assert isinstance(self.request.event.data, NodeMaintenanceRequested), "spans begin with requests"
        return self.request.event.data


class NodeEvents:
    """Everything about a node, from its events and those about quarantine in the order of the log."""

    def __init__(self, node: str, events: Iterable[Recorded]) -> None:
        self.node = node
        self.by_id: dict[str, Recorded] = {}
        self.spans: list[Span] = []
        self.standing: dict[tuple[str, str, str], list[Report]] = {}
        self._codes: dict[tuple[str, str, str], frozenset[str]] = {}
        self.assessed: dict[str, Assessment] = {}
        self._labels: Mapping[str, str] = {}
        self._exists = False
        self._breaker: str | None = None
        self._rules: RulesInForce | None = None
        self.accepted: dict[str, Recorded] = {}
        """The events that accept an agent's report on a card, by the report's id."""

        found = list(events)
        self._with_verdict = {one.event.data.report for one in found if isinstance(one.event.data, JudgedReport)}
        for one in found:
            self.by_id.setdefault(one.event.id, one)
            self._take(one)

    def about(self) -> Iterator[Recorded]:
        """The events about the node itself."""
        return (one for one in self.by_id.values() if one.event.subject == self.node)

    def in_force(self) -> list[Span]:
        """The requests in force, by their place in the log."""
        return [one for one in self.spans if one.end is None]

    def cause_of(self, request: Recorded) -> Recorded | None:
        """The fact that led to a request: the second of several follows from the first."""
        found: Recorded | None = request
        while found is not None and isinstance(found.event.data, NodeMaintenanceRequested):
            found = self.by_id.get(found.event.causation_id or "")
        return found

    def _take(self, one: Recorded) -> None:
        data, is_own = one.event.data, one.event.subject == self.node
        match data:
            case QuarantineRulesApplied() if not one.event.imported:
                self._rules = RulesInForce(data)
            case QuarantineBreakerOpened():
                self._opened(one, data)
            case QuarantineBreakerReset():
                self._breaker = None
            case NodeLabelled() if is_own:
                self._labels, self._exists = data.labels, True
            case NodeUnlabelled() | NodeGone() if is_own:
                self._labels, self._exists = {}, False
                self.standing.clear()
                self._codes.clear()
            case NodeFaultAssessed() if is_own:
                self.assessed[data.cause] = Assessment(one, self._exists, self._breaker)
            case NodeMaintenanceRequested() if is_own:
                self._end(data.owner, one)
                self.spans.append(Span(one, None))
            case NodeMaintenanceReleased() | NodeMaintenanceExpired() if is_own:
                self._end(data.owner, one)
            case _:
                self._take_report(one)

    def _take_report(self, one: Recorded) -> None:
        data = one.event.data
        if isinstance(data, NodeHealthReported):
            self._reported(one, one.event, data)
        elif isinstance(data, DeviceHealthChanged) and one.event.id not in self._with_verdict:
            self._card_reported(one, data)
        elif isinstance(data, DeviceReportAccepted) and (report := self.by_id.get(data.report)) is not None:
            self.accepted[data.report] = one
            if isinstance(report.event.data, DeviceHealthChanged):
                self._card_reported(report, report.event.data)
        elif isinstance(data, DeviceDetached):
            for key in [key for key in self.standing if key[2] == one.event.subject]:
                self._end_fault(key)

    def _opened(self, one: Recorded, data: QuarantineBreakerOpened) -> None:
        self._breaker = f"{data.node} would have been {data.quarantined} of {data.nodes} nodes"
        for cause, assessment in self.assessed.items():
            if assessment.recorded.event.id == one.event.causation_id:
                self.assessed[cause] = assessment._replace(breaker=self._breaker)

    def _end(self, owner: str, end: Recorded) -> None:
        """End the request of an owner, unless the end is older: that is one of a request before."""
        self.spans = [
            one._replace(end=end) if one.end is None and one.data.owner == owner and _is_no_earlier(end, one) else one
            for one in self.spans
        ]

    def _reported(self, one: Recorded, event: Decoded, data: NodeHealthReported) -> None:
        check = data.monitor, data.check
        if data.healthy:
            self._healthy(check, {about.entity for about in (*concerned(data), *as_named(data))}, data)
            return
        report = self._judged(one, event, data)
        for about in concerned(data):
            key = (*check, about.entity)
            if key in self.standing or len(self.standing) < STANDING_MAX:
                self.standing.setdefault(key, []).append(report)
                self._codes[key] = self._codes.get(key, frozenset()) | reported_codes(data.codes)

    def _card_reported(self, one: Recorded, data: DeviceHealthChanged) -> None:
        self._reported(one, one.event._replace(subject=self.node), card_report(one.event.subject, data))

    def _healthy(self, check: tuple[str, str], entities: set[str], data: NodeHealthReported) -> None:
        is_whole = NODE_ENTITY in entities and not data.devices
        for key in [key for key in self.standing if key[:2] == check and (is_whole or key[2] in entities)]:
            codes = frozenset(code for code in self._codes[key] if not clears(data.codes, code))
            if codes:
                self._codes[key] = codes
                self.standing[key] = [one for one in self.standing[key] if codes & reported_codes(one.data.codes)]
            else:
                self._end_fault(key)

    def _end_fault(self, key: tuple[str, str, str]) -> None:
        del self.standing[key], self._codes[key]

    def _judged(self, one: Recorded, event: Decoded, data: NodeHealthReported) -> Report:
        rules, refused = self._rules, _refusal(event, data)
        if refused is None and rules is None:
            refused = Outcome.NO_RULES
        if refused is not None or rules is None:
            return Report(one, data, refused, "", 0, ())
        labels = self._labels
        verdicts = tuple(rules.verdicts(variables(event, data, lambda _node: labels, rules.event_fields)))
        matched = [rules.by_name[verdict.ruleset] for verdict in verdicts if verdict.matched]
        names, document = tuple(names_of(matched, data)), rules.document
        return Report(one, data, None, document.digest, document.max_event_age_s, verdicts, names)


def _is_no_earlier(end: Recorded, span: Span) -> bool:
    return end.event.time >= span.request.event.time


def _refusal(event: Decoded, data: NodeHealthReported) -> Outcome | None:
    if event.imported:
        return Outcome.IMPORTED
    if data.strategy != ACTS:
        return Outcome.STORE_ONLY
    return Outcome.SKIPPED if data.quarantine.skip else None


def outcome_of(events: NodeEvents, reports: Sequence[Report]) -> tuple[Report, Outcome, Span | None]:
    """What came of the reports that stand on one entity of a check: the report that decides it, and the request."""
    owners = {f"health/{name}" for one in reports for name in one.rulesets}
    spans = [one for one in events.spans if one.data.owner in owners]
    ids = {one.recorded.event.id: one for one in reports}
    for span in reversed(spans):
        cause = events.cause_of(span.request)
        if span.end is None or (cause is not None and cause.event.id in ids):
            report = ids.get("" if cause is None else cause.event.id, reports[0])
            return report, _of_span(span), span
    judged = [one for one in reports if one.refused is None and one.rulesets]
    assessed = [one for one in judged if one.recorded.event.id in events.assessed]
    report = (assessed or judged or list(reports))[-1]
    return report, _not_acted(events, report), None


def _of_span(span: Span) -> Outcome:
    end = span.end
    is_by_hand = end is not None and end.event.source.startswith("/operators")
    return Outcome.GIVEN_BACK if is_by_hand else Outcome.ACTED


def _not_acted(events: NodeEvents, report: Report) -> Outcome:
    if report.refused is not None:
        return report.refused
    if not report.rulesets:
        return Outcome.NO_MATCH
    found = events.assessed.get(report.recorded.event.id)
    if found is None:
        return Outcome.NOT_ASSESSED
    if age_s(report, found) > report.max_age_s:
        return Outcome.TOO_OLD
    if not found.exists:
        return Outcome.NO_NODE
    return Outcome.BREAKER_OPEN if found.breaker else Outcome.NOT_REQUESTED


def age_s(report: Report, found: Assessment) -> float:
    """How old a report was when the service came to it, by the earlier of its times."""
    one = report.recorded
    observed_at = min(one.event.time, report.data.first_at or one.event.time)
    return (found.recorded.recorded_at - min(observed_at, one.recorded_at)).total_seconds()
