"""Decides which remedy a node gets that is set aside because of a fault, and what follows a failure. Pure.

What makes a node ready for a remedy leads to nothing by itself: the service first records that it has come to it. The
ledger's time-stamp of that record says whether it was fresh then, as in the quarantine. So a service that was away for
days, and one whose rows are built anew, have no node rebooted for what is over.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, Literal, NamedTuple

from gpuledger.domain.fact import Fact, counted_as_recorded
from gpuledger.domain.quarantine.freshness import is_fresh
from gpuledger.domain.remediation import rows
from gpuledger.domain.remediation.rules import object_of
from gpuledger.domain.remediation.state import Remediations
from gpuledger.domain.remediation.templates import FAULT_LENGTH_MAX
from gpuledger.events.payload import Payload
from gpuledger.events.remediation import (
    DRAINING,
    NOT_DRAINED,
    RemediationAssessed,
    RemediationAttentionRequested,
    RemediationCancelled,
    RemediationRequested,
    Remedy,
    TreatedFault,
)
from gpuledger.projection.definition import Causation, Decision

ASSESSMENTS_PER_CALL_MAX: Final = 1000
"""The most assessments that are recorded per call, the first ones first; the others follow with the next call."""

ASK_FOR_DRAIN: Final = "Ask for it again with `gpuledger node drain`."


def on_due(state: Remediations, now: datetime) -> Iterator[Decision]:
    """Record that the service has come to the nodes that are ready for a remedy."""
    pending, due = state.pending(), 0
    for node, cause in list(pending):
        if not state.waiting(node, cause):
            del pending[node, cause]
        elif due < ASSESSMENTS_PER_CALL_MAX:
            due += 1
            yield Decision(cause, None, node, now, RemediationAssessed(cause=cause))


def on_assessed(state: Remediations, fact: Fact, data: RemediationAssessed) -> Iterator[Decision]:
    """The decisions about a node's faults, at the place of the log where the service has come to them."""
    node, at = fact.event.subject, counted_as_recorded(fact.event, fact.recorded_ns)
    max_age, fresh = state.max_event_age(), []
    for row in state.waiting(node, data.cause):
        if row.ready_at is not None and is_fresh(at, max_age, row.ready_at) and state.remedy_of(row) is not None:
            fresh.append(row)
        else:
            state.fault.put(row._replace(state=rows.STALE, is_accepted=False, cause="", ready_at=None))
    yield from _Requests(state, fact, at).of(fresh)


def on_fact(state: Remediations, fact: Fact) -> Iterator[Decision]:
    """Cancel what is no longer needed, and has not begun as far as the ledger has it; have a person ask for drains."""
    causation = Causation(fact, counted_as_recorded(fact.event, fact.recorded_ns))
    for node in state.take_touched():
        found = state.node.get(node)
        for row in state.open_about(node):
            if row.state != rows.REQUESTED or row.reason or found is None or found.uid != row.uid:
                continue  # It has begun, or is cancelled; and who creates objects finds out that a Node is gone.
            reason = _needless(state, node, row.intent) or (DRAINING if found.is_draining() else None)
            if reason is not None:
                yield causation.decision(node, RemediationCancelled(intent=row.intent, reason=reason), row.requested_at)
        if (attention := _not_drained(state, node)) is not None:
            yield causation.decision(node, attention)


def _not_drained(state: Remediations, node: str) -> RemediationAttentionRequested | None:
    """Where a drain was given up, the remedies that wait for it wait for ever: once for each, a person is asked."""
    faults = state.not_drained(node)
    if not faults or any(row.reason == NOT_DRAINED for row in state.attention.where("node", node)):
        return None
    first = state.remedy_of(faults[0])
    assert first is not None, "only faults with a remedy wait for it"
    message = f"The drain of {node} was given up with pods left, and {first.name} waits for it. {ASK_FOR_DRAIN}"
    return RemediationAttentionRequested(
        group=first.group, remedy=first.name, reason=NOT_DRAINED, message=message, faults=_treated(faults)
    )


def _treated(faults: list[rows.RemediationFault]) -> tuple[TreatedFault, ...]:
    return tuple(
        TreatedFault(monitor=one.monitor, check=one.check_name, entity=one.entity, report=one.report) for one in faults
    )


def _needless(state: Remediations, node: str, intent: str) -> Literal["Healthy", "Released"] | None:
    faults = state.faults_of(intent, node)
    if not faults:
        return "Healthy"
    return "Released" if state.is_released(node, faults) else None


class _Case(NamedTuple):
    """Faults of a node for which there is one remedy, for one card or (empty) the whole node."""

    remedy: Remedy
    device: str
    faults: list[rows.RemediationFault]

    @property
    def treated(self) -> tuple[TreatedFault, ...]:
        """The faults as events have them."""
        return _treated(self.faults)


class _Requests:
    """What is requested for a node's fresh faults, the widest remedies first; each counts for the next one."""

    def __init__(self, state: Remediations, fact: Fact, at: datetime) -> None:
        self._state = state
        self._node = fact.event.subject
        self._assessment = fact.event.id
        self._causation = Causation(fact, at)
        self._at = at

    def of(self, faults: list[rows.RemediationFault]) -> Iterator[Decision]:
        """The decisions about faults."""
        for case in self._cases(faults):
            if self._shares(case):
                continue
            problem = self._problem(case)
            data: Payload = self._request(case) if problem is None else problem
            decision = self._causation.decision(self._node, data)
            yield decision._replace(correlation_id=case.faults[0].report)

    def _cases(self, faults: list[rows.RemediationFault]) -> list[_Case]:
        found: dict[tuple[bool, str, str], _Case] = {}
        for row in faults:
            remedy = self._state.remedy_of(row)
            assert remedy is not None, "it was found when the fault was assessed"
            device = row.device if remedy.scope == "device" else ""
            key = (remedy.scope == "device", remedy.name, device)
            found.setdefault(key, _Case(remedy, device, [])).faults.append(row)
        return [found[key] for key in sorted(found)]

    def _shares(self, case: _Case) -> bool:
        """Whether a remediation of the group is under way that covers the faults, or that has to end first."""
        under_way = [row for row in self._state.open_about(self._node) if row.remedy_group == case.remedy.group]
        covering = [row for row in under_way if not row.device or row.device == case.device]
        is_wider = case.remedy.scope == "node"
        if not covering and not (is_wider and under_way):
            return False
        shared = next((row.intent for row in covering if not row.reason), None)
        for fault in case.faults:
            to = rows.WAITING if shared is None else rows.TREATED
            after = fault._replace(state=to, remediation=shared or fault.remediation, cause="", ready_at=None)
            self._state.fault.put(after)
        return True

    def _problem(self, case: _Case) -> RemediationAttentionRequested | None:
        """Why a person has to look, if there is nothing that may be done."""
        remedy, limits = case.remedy, self._limits()
        before = self._state.remediation.get(case.faults[0].remediation)
        was_done = before is not None and before.state != rows.SUPERSEDED
        if before is not None and was_done and before.remedy == remedy.name == case.faults[0].remedy:
            if before.state == rows.REFUSED:
                message = f"The API server refused the object of {remedy.name} for {self._node}; nothing was tried."
                return self._attention(case, "Refused", message)
            message = f"{remedy.name} of {self._node} came to nothing ({before.state}), and escalates to no remedy."
            return self._attention(case, "NoEscalation", message)
        if remedy.scope == "device" and not case.device:
            message = f"{remedy.name} is for one card, and the reports do not name one by its UUID."
            return self._attention(case, "NoDevice", message)
        since = self._at - timedelta(seconds=limits[1])
        if self._state.attempts(self._node, since) >= limits[0]:
            message = f"{self._node} had {limits[0]} remedies within {limits[1]} s, and {remedy.name} would be next."
            return self._attention(case, "AttemptsExhausted", message)
        return None

    def _limits(self) -> tuple[int, int]:
        remedies = self._state.remedies()
        assert remedies is not None, "there is a remedy"
        return remedies.document.attempts.count, remedies.document.attempts.period_s

    def _attention(
        self, case: _Case, reason: Literal["AttemptsExhausted", "NoEscalation", "NoDevice", "Refused"], message: str
    ) -> RemediationAttentionRequested:
        return RemediationAttentionRequested(
            group=case.remedy.group, remedy=case.remedy.name, reason=reason, message=message, faults=case.treated
        )

    def _request(self, case: _Case) -> RemediationRequested:
        remedy, first, node = case.remedy, case.faults[0], self._state.node.get(self._node)
        remedies = self._state.remedies()
        assert node is not None and node.uid is not None and remedies is not None, "the node is set aside"  # noqa: PT018
        values = {
            "node": self._node,
            "nodeUID": node.uid,
            "device": case.device,
            "fault": first.report[:FAULT_LENGTH_MAX],
            "action": first.custom_action or first.action,
        }
        seed = f"{self._assessment}/{remedy.name}/{case.device}"
        return RemediationRequested(
            uid=node.uid,
            remedy=remedy.name,
            group=remedy.group,
            scope=remedy.scope,
            device=case.device or None,
            action=first.action,
            faults=case.treated,
            attempt=self._state.attempts(self._node, self._at - timedelta(seconds=self._limits()[1])) + 1,
            follows=first.remediation or None,
            rules=remedies.document.digest,
            object=object_of(remedy, seed, values),
            succeeded=remedy.succeeded,
            failed=remedy.failed,
            timeout_s=remedy.timeout_s,
            retention_s=remedy.retention_s,
        )
