"""Replays recorded reports under other quarantine rules: which nodes would have been set aside, and when. Pure.

The service is assumed to have run all the time, so each report is assessed where it stands. What operators did counts
as it was recorded: releases by hand, and resets of the breaker.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Final, NamedTuple

from gpuledger.deciders.health.decide import on_assessed, on_due, on_fact
from gpuledger.deciders.health.projection import HealthProjection
from gpuledger.domain.fact import Fact, counted_as_recorded
from gpuledger.domain.quarantine.folds import HANDLERS
from gpuledger.domain.quarantine.rows import QuarantineRequest, RulesetCount
from gpuledger.domain.quarantine.state import OWNER_PREFIX, Quarantine
from gpuledger.events.device import DeviceHealthChanged
from gpuledger.events.envelope import Decoded, Event, with_payload
from gpuledger.events.health import NodeHealthReported
from gpuledger.events.maintenance import Drain, NodeMaintenanceReleased, NodeMaintenanceRequested
from gpuledger.events.payload import Payload
from gpuledger.events.position import ORIGIN
from gpuledger.events.publishing import SourceKind, source_kind
from gpuledger.events.quarantine import QUARANTINE, NodeFaultAssessed, QuarantineBreakerOpened, QuarantineRulesApplied
from gpuledger.projection.definition import Decision, Decisions, Observed
from gpuledger.tools.whatif.hypothetical import EARLIEST

SOURCE: Final = f"/services/{SourceKind.HEALTH}"
_OF_MAINTENANCE: Final = frozenset({NodeMaintenanceRequested.TYPE, NodeMaintenanceReleased.TYPE})
_EPOCH: Final = "what-if"


class SetAside(NamedTuple):
    """A node that a ruleset sets aside from a time on, until another (None: it still is), and how it is drained."""

    node: str
    ruleset: str
    since: datetime
    until: datetime | None
    drain: Drain | None = None


class Opening(NamedTuple):
    """An opening of the breaker."""

    at: datetime
    data: QuarantineBreakerOpened


class SetAsideNodes:
    """The nodes that requests set aside, in the order of the requests."""

    def __init__(self, in_force: Iterable[QuarantineRequest] = ()) -> None:
        self.rows = [SetAside(one.node, one.ruleset, one.requested_at, None) for one in in_force]
        self._open = {(one.node, one.ruleset): at for at, one in enumerate(self.rows)}

    def note_recorded(self, event: Decoded) -> None:
        """Take an event of the log in: requests count as the service's own alone, releases by whomever they are."""
        is_own = source_kind(event.source) is SourceKind.HEALTH
        if not event.imported and (is_own or isinstance(event.data, NodeMaintenanceReleased)):
            self.note(event.subject, event.time, event.data)

    def note(self, node: str, time: datetime, data: Payload) -> None:
        """Take an event in; only requests and releases of rules count."""
        if not isinstance(data, NodeMaintenanceRequested | NodeMaintenanceReleased):
            return
        if not data.owner.startswith(OWNER_PREFIX):
            return
        key = node, data.owner.removeprefix(OWNER_PREFIX)
        at = self._open.pop(key, None)
        if isinstance(data, NodeMaintenanceReleased):
            if at is not None:
                self.rows[at] = self.rows[at]._replace(until=max(time, self.rows[at].since))
        elif at is None:
            self._open[key] = len(self.rows)
            self.rows.append(SetAside(*key, time, None, data.drain))
        else:
            self._open[key] = at
            self.rows[at] = self.rows[at]._replace(drain=_widest(self.rows[at].drain, data.drain))


def _widest(before: Drain | None, after: Drain | None) -> Drain | None:
    """A drain of all the cards that a node's request was ever about."""
    if before is None or after is None:
        return before or after
    return after.model_copy(update={"devices": tuple(sorted({*before.devices, *after.devices}))})


class HypotheticalQuarantine:
    """The quarantine under a document of rules, from a moment on at which the Nodes are those of `recorded`."""

    def __init__(self, recorded: Quarantine, document: QuarantineRulesApplied) -> None:
        self.set_aside = SetAsideNodes()
        self.openings: list[Opening] = []
        self.reports = 0
        self._state = Quarantine()
        self._events = 0
        self._state.node.load(row._replace(quarantined_at=None) for row in recorded.node.rows.values())
        self._state.healthy.load(recorded.healthy.rows.values())
        self._state.healthy_code.load(recorded.healthy_code.rows.values())
        for table in self._state.tables().values():
            table.never_written()
        self._fold(self._event(Decision("", None, QUARANTINE, EARLIEST, document), "/operators/what-if"))

    @property
    def counts(self) -> dict[str, RulesetCount]:
        """How often each ruleset matched."""
        return self._state.count.rows

    def replay(self, fact: Fact) -> None:
        """Fold a recorded fact, and what follows from it under these rules; recorded rules count for nothing."""
        data = fact.event.data
        is_own = source_kind(fact.event.source) is SourceKind.HEALTH
        if isinstance(data, QuarantineRulesApplied) or is_own:
            return
        self.reports += isinstance(data, NodeHealthReported | DeviceHealthChanged)
        self._fold(fact)
        self.set_aside.note_recorded(fact.event)
        self._take(on_fact(self._state, fact))
        now = counted_as_recorded(fact.event, fact.recorded_ns)
        for assessment in list(on_due(self._state, now)):
            assert isinstance(assessment.data, NodeFaultAssessed), "nothing else is due"
            place = self._event(assessment)._replace(recorded_ns=fact.recorded_ns)
            place = place._replace(event=place.event._replace(recorded_at=fact.event.recorded_at))
            self._take(on_assessed(self._state, place, assessment.data))

    def _take(self, decisions: Decisions) -> None:
        for decision in decisions:
            self.set_aside.note(decision.subject, decision.time, decision.data)
            if isinstance(decision.data, QuarantineBreakerOpened):
                self.openings.append(Opening(decision.time, decision.data))
            self._fold(self._event(decision))

    def _event(self, decision: Decision, source: str = SOURCE) -> Fact:
        self._events += 1
        event = Event(
            f"{_EPOCH}-{self._events}", source, decision.data.TYPE, decision.subject, decision.time, decision.data,
            _EPOCH, self._events, decision.cause,
        )  # fmt: skip
        return Fact(event, ORIGIN, 0)

    def _fold(self, fact: Fact) -> None:
        HANDLERS[type(fact.event.data)](self._state, fact, fact.event.data)


class RecordedQuarantine(HealthProjection):
    """Folds the log as the service does, and passes on each fact, and each request and release that is in order."""

    observed_types = HealthProjection.observed_types | _OF_MAINTENANCE

    def __init__(self) -> None:
        self.pass_on: Callable[[Fact], None] = lambda _fact: None
        self.pass_on_recorded: Callable[[Decoded], None] = lambda _event: None

    def decide(self, state: Quarantine, fact: Fact) -> Decisions:
        """The decisions that follow from a fact."""
        self.pass_on(fact)
        return super().decide(state, fact)

    def observed(self, state: Quarantine, observed: Observed) -> Decisions:
        """The decisions that follow from an assessment."""
        if observed.event.type in _OF_MAINTENANCE:
            self.pass_on_recorded(with_payload(observed.event))
            return ()
        return super().observed(state, observed)


class Compared(NamedTuple):
    """A node that would have been set aside, or was, or both: what overlaps on one node is one."""

    node: str
    would: SetAside | None
    was: SetAside | None


def compared(would: list[SetAside], was: list[SetAside]) -> Iterator[Compared]:
    """What would have been beside what was, by time."""
    by_node: dict[str, list[SetAside]] = {}
    for one in was:
        by_node.setdefault(one.node, []).append(one)
    matched: set[SetAside] = set()
    rows = []
    for one in would:
        overlapping = [other for other in by_node.get(one.node, []) if _overlap(one, other)]
        other = min(overlapping, key=lambda other: (other.ruleset != one.ruleset, other.since), default=None)
        matched.update(overlapping)
        rows.append(Compared(one.node, one, other))
    rows += [Compared(one.node, None, one) for one in was if one not in matched]
    yield from sorted(rows, key=lambda row: (begun_at(row), row.node))


def begun_at(row: Compared) -> datetime:
    """When the node would have been set aside, or else was."""
    one = row.would or row.was
    assert one is not None, "it would have been, or was"
    return one.since


def _overlap(one: SetAside, other: SetAside) -> bool:
    return (one.until is None or other.since <= one.until) and (other.until is None or one.since <= other.until)
