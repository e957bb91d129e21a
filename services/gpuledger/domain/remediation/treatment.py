"""Folds what is done about faults, and what comes of it, into the state of the remediation. Pure."""

from sys import intern
from typing import Final

from gpuledger.domain.fact import Fact, Handlers, counted_as_recorded
from gpuledger.domain.inventory.state import json_text
from gpuledger.domain.quarantine.freshness import is_fresh
from gpuledger.domain.remediation import rows
from gpuledger.domain.remediation.readiness import faults_ended, review
from gpuledger.domain.remediation.state import Remediations
from gpuledger.events.remediation import (
    DRAINING,
    NOT_DRAINED,
    RemediationAttentionRequested,
    RemediationCancelled,
    RemediationCreated,
    RemediationFinished,
    RemediationRequested,
    RemediationRetryRequested,
    RemediationSuperseded,
    TreatedFault,
)

_RESULTS: Final = {
    "Succeeded": rows.SUCCEEDED, "Failed": rows.FAILED, "TimedOut": rows.TIMED_OUT, "Refused": rows.REFUSED,
}  # fmt: skip


def _remediation_requested(state: Remediations, fact: Fact, data: RemediationRequested) -> None:
    node, intent, obj = intern(fact.event.subject), fact.event.id, data.object
    faults = json_text([one.model_dump(mode="json") for one in data.faults])
    state.remediation.put(
        rows.Remediation(
            intent, node, data.uid, data.remedy, data.group, data.device or "", data.action, data.attempt,
            data.follows or "", faults, obj.api_version, obj.kind, obj.namespace or "", obj.name, rows.REQUESTED,
            fact.event.time, None, None, "", "", "",
        )
    )  # fmt: skip
    for row in _treated(state, node, data.faults):
        state.fault.put(row._replace(state=rows.TREATED, remediation=intent, cause="", ready_at=None))


def _treated(state: Remediations, node: str, faults: tuple[TreatedFault, ...]) -> list[rows.RemediationFault]:
    found = (state.fault.get((node, one.monitor, one.check, one.entity)) for one in faults)
    return [row for row in found if row is not None and row.state != rows.HEALTHY]


def _attention_requested(state: Remediations, fact: Fact, data: RemediationAttentionRequested) -> None:
    node, is_for_drain = intern(fact.event.subject), data.reason == NOT_DRAINED
    group = rows.NO_GROUP if is_for_drain else data.group
    state.attention.put(rows.RemediationAttention(node, group, data.remedy, data.reason, data.message, fact.event.time))
    if is_for_drain:
        return  # The faults go on to wait: another drain is all that they need.
    for row in _treated(state, node, data.faults):
        state.fault.put(row._replace(state=rows.ATTENTION, cause="", ready_at=None))


def _cancelled(state: Remediations, _fact: Fact, data: RemediationCancelled) -> None:
    row = state.remediation.get(data.intent)
    if row is not None and row.is_open():
        state.remediation.put(row._replace(reason=data.reason))


def _created(state: Remediations, fact: Fact, data: RemediationCreated) -> None:
    row = state.remediation.get(data.intent)
    if row is not None and row.is_open():
        state.remediation.put(row._replace(state=rows.CREATED, created_at=fact.event.time, object_uid=data.uid))


def _finished(state: Remediations, fact: Fact, data: RemediationFinished) -> None:
    """What comes to nothing is followed by the remedy that it escalates to, or by a person."""
    row = state.remediation.get(data.intent)
    if row is None or not row.is_open():
        return
    result = _RESULTS[data.result]
    state.end(row._replace(state=result, ended_at=fact.event.time, message=data.message))
    if result != rows.SUCCEEDED:
        _escalate(state, fact, row, is_tried=result != rows.REFUSED)
    review(state, fact, row.node)


def _escalate(state: Remediations, fact: Fact, row: rows.Remediation, *, is_tried: bool) -> None:
    remedies = state.remedies()
    remedy = None if remedies is None else remedies.by_name.get(row.remedy)
    for fault in state.faults_of(row.intent, row.node):
        if is_tried and remedy is not None and remedy.escalate_to is not None:
            state.fault.put(fault._replace(state=rows.WAITING, remedy=remedy.escalate_to))
        else:
            at = min(fact.event.time, counted_as_recorded(fact.event, fact.recorded_ns))
            state.pend(fault._replace(state=rows.PENDING, remedy=row.remedy, cause=fact.event.id, ready_at=at))


def _superseded(state: Remediations, fact: Fact, data: RemediationSuperseded) -> None:
    """Nothing was done. A fault that stands waits for its next report, which is fresh, or for the drain before it."""
    row = state.remediation.get(data.intent)
    if row is None or not row.is_open():
        return
    state.end(row._replace(state=rows.SUPERSEDED, ended_at=fact.event.time, reason=data.reason, message=data.message))
    for fault in state.faults_of(row.intent, row.node):
        if row.reason == DRAINING:
            state.fault.put(fault._replace(state=rows.WAITING, remedy=row.remedy))
        else:
            state.fault.put(fault._replace(state=rows.STALE, is_accepted=False))
    review(state, fact, row.node)


def _retry_requested(state: Remediations, fact: Fact, data: RemediationRetryRequested) -> None:
    """What came to nothing may be tried again: the remedy that was last, and as many attempts as the document allows.

    A fault that went stale counts again too, where its node is set aside for it, and one that its remedy did not end.
    """
    event, recorded_at = fact.event, counted_as_recorded(fact.event, fact.recorded_ns)
    if event.imported or not is_fresh(recorded_at, state.max_event_age(), event.time):
        return
    node = intern(event.subject)
    for row in state.standing(node):
        is_meant = data.remediation in (None, row.remediation)
        if is_meant and state.may_be_retried(row):
            state.fault.put(row._replace(state=rows.WAITING, remediation="", is_accepted=True))
    for done in state.remediation.where("node", node):
        if not done.is_open() and done.state != rows.SUPERSEDED:
            state.remediation.put(done._replace(reason=rows.RETRIED))
    faults_ended(state, node)
    review(state, fact, node)


TREATMENT_HANDLERS: Handlers = {
    RemediationRequested: _remediation_requested,
    RemediationAttentionRequested: _attention_requested,
    RemediationCancelled: _cancelled,
    RemediationCreated: _created,
    RemediationFinished: _finished,
    RemediationSuperseded: _superseded,
    RemediationRetryRequested: _retry_requested,
}
