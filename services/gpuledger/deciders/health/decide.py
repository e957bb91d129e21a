"""Decides which nodes are set aside because of what health monitors report, and when they are given back. Pure.

A report of a fault leads to nothing by itself: the service first records that it has come to it. The ledger's
time-stamp of that record says whether the report was fresh then, in every fold of the log alike. So a service that was
away for days, and one whose rows are built anew, act on nothing old.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from gpuledger.domain.fact import Fact, counted_as_recorded
from gpuledger.domain.quarantine.freshness import is_fresh
from gpuledger.domain.quarantine.rows import ACCEPTED, HELD, NodeFault, QuarantineRequest
from gpuledger.domain.quarantine.rules import RulesInForce
from gpuledger.domain.quarantine.state import OWNER_PREFIX, Quarantine
from gpuledger.events.device import DeviceDetached, DeviceHealthChanged
from gpuledger.events.health import NodeHealthReported
from gpuledger.events.ids import derived_id
from gpuledger.events.maintenance import DRAINED_DEVICES_MAX, NodeMaintenanceReleased, NodeMaintenanceRequested
from gpuledger.events.payload import Payload, truncated
from gpuledger.events.quarantine import QUARANTINE as QUARANTINE_OF_ALL
from gpuledger.events.quarantine import NodeFaultAssessed, QuarantineBreakerOpened, QuarantineRuleset
from gpuledger.projection.definition import Decision

ASSESSMENTS_PER_CALL_MAX: Final = 1000
"""The most assessments that are recorded per call, the first ones first; the others follow with the next call."""

NO_CARD: Final = "No pod is drained: no report names a card by its UUID, and the drain is that of cards."


def on_due(state: Quarantine, now: datetime) -> Iterator[Decision]:
    """Record that the service has come to the faults that wait for it.

    A fault of a Node that does not exist yet waits until it does, or is too old.
    """
    pending, max_age = state.pending(), state.max_event_age()
    due, found = 0, dict[str, dict[str, list[NodeFault]]]()
    for node, cause in list(pending):
        if node not in found:
            found[node] = state.waiting(node)
        waiting = found[node].get(cause)
        if waiting is None:
            del pending[node, cause]
        elif state.exists(node) or all(now - row.observed_at > max_age for row in waiting):
            yield Decision(cause, None, node, now, NodeFaultAssessed(cause=cause))
            due += 1
            if due == ASSESSMENTS_PER_CALL_MAX:
                return


def on_assessed(state: Quarantine, fact: Fact, data: NodeFaultAssessed) -> Iterator[Decision]:
    """The decisions about a node's faults, at the place of the log where the service has come to them."""
    node, at = fact.event.subject, counted_as_recorded(fact.event, fact.recorded_ns)
    waiting, rules = state.waiting(node).get(data.cause, []), state.rules()
    fresh = [row for row in waiting if rules is not None and _counts(state, rules, row, at)]
    state.outdate([row for row in waiting if row not in fresh])
    if rules is not None and fresh:
        yield from _Requests(state, rules, fact, data.cause, at).of(fresh)


def on_fact(state: Quarantine, fact: Fact) -> Iterator[Decision]:
    """Release what no fault stands for any more, and drain no card on that is healthy again."""
    at, rules = counted_as_recorded(fact.event, fact.recorded_ns), state.rules()
    for node, ended in state.take_touched():
        causes, reason = _Causes(fact.event.id), _reason(fact.event.data)
        for request in state.in_force(node):
            if state.standing(node, request.ruleset):
                if rules is not None and (fewer := _for_fewer_cards(state, rules, request, ended)) is not None:
                    correlation = fact.event.correlation_id or fact.event.id
                    yield Decision(causes.of(fewer, node), correlation, node, max(at, request.requested_at), fewer)
            else:
                data = NodeMaintenanceReleased(owner=f"{OWNER_PREFIX}{request.ruleset}", reason=reason)
                correlation = fact.event.correlation_id or fact.event.id
                yield Decision(causes.of(data, node), correlation, node, max(at, request.requested_at), data)


def _for_fewer_cards(
    state: Quarantine, rules: RulesInForce, request: QuarantineRequest, ended: list[NodeFault]
) -> NodeMaintenanceRequested | None:
    """The request that drains no card any more whose faults have ended; None if it drains the same ones.

    Other rules than those that it was made by leave it as it is. Where only faults are left that lead to nothing, such
    as stale ones, no card is drained.
    """
    ruleset, accepted = rules.by_name.get(request.ruleset), state.accepted(request.node, request.ruleset)
    cards = {row.card() for row in accepted}
    left = (row.card() for row in ended if row.ruleset == request.ruleset and row.state == ACCEPTED)
    if ruleset is None or ruleset.drain_scope == "node" or all(card in {*cards, None} for card in left):
        return None
    if ruleset.drain is None or request.version != rules.document.digest:
        return None
    if accepted:
        return _request(rules, ruleset, accepted)
    without = ruleset.model_copy(update={"drain": None})
    return _request(rules, without, state.standing(request.node, request.ruleset))


def _reason(data: Payload) -> str:
    if isinstance(data, DeviceDetached):
        return "CardLeft"
    return "Healthy" if isinstance(data, NodeHealthReported | DeviceHealthChanged) else "NodeGone"


def _counts(state: Quarantine, rules: RulesInForce, row: NodeFault, at: datetime) -> bool:
    """Whether a fault may lead to a request: it is fresh in both times, and its Node and its rule are there."""
    fresh = is_fresh(at, state.max_event_age(), row.observed_at, row.recorded_at)
    return fresh and state.exists(row.node) and row.ruleset in rules.by_name


class _Causes:
    """The causes of decisions: the second one of a type about a node follows from the first, so that ids differ."""

    def __init__(self, cause: str) -> None:
        self._cause = cause
        self._following: dict[str, str] = {}

    def of(self, data: Payload, subject: str) -> str:
        cause = self._following.get(data.TYPE, self._cause)
        self._following[data.TYPE] = derived_id(cause, data.TYPE, subject)
        return cause


class _Requests:
    """What is requested for a node's fresh faults, ruleset by ruleset; each request counts for the next one."""

    def __init__(self, state: Quarantine, rules: RulesInForce, fact: Fact, cause: str, at: datetime) -> None:
        self._state = state
        self._rules = rules
        self._node = fact.event.subject
        self._assessment = fact.event.id
        self._cause = cause
        self._causes = _Causes(cause)
        self._at = at

    def of(self, faults: list[NodeFault]) -> Iterator[Decision]:
        """The requests for faults, and perhaps the opening of the breaker."""
        order = self._rules.order
        for name in sorted({row.ruleset for row in faults}, key=lambda name: (order.get(name, len(order)), name)):
            yield from self._of_ruleset(name, [row for row in faults if row.ruleset == name])

    def _of_ruleset(self, name: str, faults: list[NodeFault]) -> Iterator[Decision]:
        state = self._state
        ruleset = self._rules.by_name[name]
        if any(request.ruleset == name for request in state.in_force(self._node)):
            yield from self._of_more_faults(ruleset, faults)
            return
        first = _first(faults)
        if not state.is_open() and (opening := self._opening(ruleset, first)) is not None:
            # A reset is the cause for many nodes, and may lead to two openings; each assessment leads to one at most.
            yield Decision(self._assessment, self._cause, QUARANTINE_OF_ALL, self._at, opening)
        if state.is_open():
            state.settle(faults, HELD)
            return
        before = state.request.get((self._node, name))
        not_before = self._at if before is None or before.ended_at is None else max(self._at, before.ended_at)
        request = _request(self._rules, ruleset, faults)
        yield Decision(self._causes.of(request, self._node), self._cause, self._node, not_before, request)
        state.settle(faults, ACCEPTED)

    def _of_more_faults(self, ruleset: QuarantineRuleset, faults: list[NodeFault]) -> Iterator[Decision]:
        """A request of the ruleset is in force: it is made anew where there are further cards to drain."""
        state, standing = self._state, self._state.accepted(self._node, ruleset.name)
        further = {row.card() for row in faults} - {row.card() for row in standing} - {None}
        if ruleset.drain is not None and ruleset.drain_scope == "device" and further:
            if state.is_open():
                state.settle(faults, HELD)
                return
            request = _request(self._rules, ruleset, [*standing, *faults])
            yield Decision(self._causes.of(request, self._node), self._cause, self._node, self._at, request)
        state.settle(faults, ACCEPTED)

    def _opening(self, ruleset: QuarantineRuleset, first: NodeFault) -> QuarantineBreakerOpened | None:
        """The opening of the breaker, if one more node would be too many."""
        if not (ruleset.cordon or ruleset.taints or ruleset.drain):
            return None
        limits, nodes = self._rules.document.breaker, self._state.existing()
        quarantined = self._state.quarantined_with(self._node, self._at)
        if quarantined * 100 <= limits.percentage * nodes:
            return None
        return QuarantineBreakerOpened(
            node=self._node,
            report=first.report,
            ruleset=ruleset.name,
            version=self._rules.document.digest,
            quarantined=quarantined,
            nodes=nodes,
            percentage=limits.percentage,
            window_s=limits.window_s,
        )


def _first(faults: list[NodeFault]) -> NodeFault:
    return min(faults, key=lambda row: (row.reported_at, row))


def _request(rules: RulesInForce, ruleset: QuarantineRuleset, faults: list[NodeFault]) -> NodeMaintenanceRequested:
    first, drain = _first(faults), ruleset.drain
    entity = f" of {first.entity}" if first.entity else ""
    message = f"{first.monitor} reports {first.check_name}{entity} unhealthy (report {first.report})."
    if drain is not None and ruleset.drain_scope == "device":
        cards = sorted({card for row in faults if (card := row.card()) is not None})[:DRAINED_DEVICES_MAX]
        drain = drain.model_copy(update={"devices": tuple(cards)}) if cards else None
        message += "" if cards else f" {NO_CARD}"
    return NodeMaintenanceRequested(
        owner=f"{OWNER_PREFIX}{ruleset.name}",
        reason="Unhealthy",
        message=truncated(message),
        cordon=ruleset.cordon,
        taints=ruleset.taints,
        labels=ruleset.labels,
        rules=rules.document.digest,
        drain=drain,
    )
