"""Folds remedies, faults, and how far nodes are set aside into the state of the remediation. Pure.

A report is judged by the remedies and the rules of quarantine in force where it stands in the log. A fault is ready for
its remedy once its node is set aside for it and drained; whatever makes it ready is what the service then assesses.
What was imported is history, and counts for nothing.
"""

from datetime import datetime
from sys import intern
from typing import Final

from gpuledger.domain.fact import Fact, Handlers, counted_as_recorded, is_late, storable
from gpuledger.domain.health.codes import is_cleared, with_reported
from gpuledger.domain.health.own_reports import card_report
from gpuledger.domain.inventory.state import json_text
from gpuledger.domain.quarantine.checks import (
    ACTS,
    About,
    Check,
    about,
    check_of,
    codes_of,
    counted_time,
    healthy_of,
    key_text,
)
from gpuledger.domain.quarantine.freshness import is_fresh
from gpuledger.domain.quarantine.inputs import variables
from gpuledger.domain.quarantine.rows import is_card
from gpuledger.domain.quarantine.rules import document_text as quarantine_text
from gpuledger.domain.quarantine.state import OWNER_PREFIX
from gpuledger.domain.remediation import rows
from gpuledger.domain.remediation.readiness import faults_ended, review
from gpuledger.domain.remediation.rules import document_text
from gpuledger.domain.remediation.state import QUARANTINE_DOCUMENT, Remediations
from gpuledger.domain.remediation.treatment import TREATMENT_HANDLERS
from gpuledger.events.device import DeviceDetached, DeviceHealthChanged
from gpuledger.events.health import NodeHealthReported
from gpuledger.events.maintenance import (
    NodeDrainChanged,
    NodeDrainFinished,
    NodeDrainSuperseded,
    NodeIsolationApplied,
    NodeIsolationChanged,
    NodeIsolationFailed,
    NodeIsolationSuperseded,
    NodeMaintenanceReleased,
    NodeMaintenanceRequested,
)
from gpuledger.events.node import NodeLabelled, NodeUnlabelled
from gpuledger.events.publishing import SourceKind, source_kind
from gpuledger.events.quarantine import QuarantineRulesApplied
from gpuledger.events.remediation import REMEDIATION, RemediationRulesApplied
from gpuledger.events.subjects import NODE, origin_of

_NO_LABELS: Final = json_text({})


def _rules_applied(state: Remediations, fact: Fact, data: RemediationRulesApplied) -> None:
    _put_document(state, fact, REMEDIATION, data, document_text(data))


def _quarantine_applied(state: Remediations, fact: Fact, data: QuarantineRulesApplied) -> None:
    _put_document(state, fact, QUARANTINE_DOCUMENT, data, quarantine_text(data))


def _put_document(
    state: Remediations, fact: Fact, key: str, data: RemediationRulesApplied | QuarantineRulesApplied, text: str
) -> None:
    if not fact.event.imported:
        applied_at = counted_as_recorded(fact.event, fact.recorded_ns)
        state.document.put(rows.RemediationDocument(key, data.digest, data.file, applied_at, fact.event.id, text))


# What is reported.


def _reported(state: Remediations, fact: Fact, data: NodeHealthReported) -> None:
    state.forget(counted_as_recorded(fact.event, fact.recorded_ns))
    if fact.event.imported or data.strategy != ACTS:
        return
    if data.healthy:
        _healthy(state, fact, data)
    elif not data.quarantine.skip:
        _unhealthy(state, fact, data)


def _card_reported(state: Remediations, fact: Fact, data: DeviceHealthChanged) -> None:
    """The verdict of a node's agent on a card, as a monitor would report it."""
    node = origin_of(fact.event.source)
    if node.kind == NODE:
        event = fact.event._replace(subject=node.name)
        _reported(state, fact._replace(event=event), card_report(fact.event.subject, data))


def _unhealthy(state: Remediations, fact: Fact, data: NodeHealthReported) -> None:
    remedies, rules = state.remedies(), state.quarantine_rules()
    if remedies is None or rules is None or remedies.of_action(data.action, data.custom_action or "") is None:
        return
    evaluation = rules.evaluate(variables(fact.event, data, state.labels_of, rules.event_fields))
    if names := evaluation.names(data):
        for one in about(data):
            _put_fault(state, fact, data, one, json_text(names))
        state.touch(fact.event.subject)
        review(state, fact, fact.event.subject)


def _put_fault(state: Remediations, fact: Fact, data: NodeHealthReported, one: About, rulesets: str) -> None:
    node, check, time = intern(fact.event.subject), check_of(data), counted_time(fact)
    before = state.fault.get((node, *check, one.entity))
    standing = {} if before is None else before.code_times()
    cleared = {} if before is None else before.cleared_times()
    codes = [
        one for one in codes_of(data) if not is_late(standing.get(one), time) and not is_cleared(cleared, one, time)
    ]
    if not codes:
        return
    standing = with_reported(standing, codes, time)
    if before is not None and before.state != rows.HEALTHY and is_late(before.changed_at, time):
        state.fault.put(before.with_codes(standing))
        return
    recorded_at = counted_as_recorded(fact.event, fact.recorded_ns)
    observed_at = time if data.first_at is None else min(time, storable(data.first_at))
    if before is None and not state.has_room(node):
        return
    kept = "" if before is None else before.cleared
    if before is None or before.state in (rows.HEALTHY, rows.STALE):
        before = rows.RemediationFault(
            node, *check, *one, _device(one), fact.event.id, data.action, data.custom_action or "", rulesets, False,
            time, observed_at, recorded_at, rows.WAITING, "", "", "", None, "", kept,
        )  # fmt: skip
    row = before._replace(changed_at=time, observed_at=observed_at, recorded_at=recorded_at).with_codes(standing)
    if row.state == rows.TREATED and _came_back(state, row, time):
        row = row._replace(state=rows.WAITING, report=fact.event.id, remedy="")
    if is_fresh(recorded_at, state.quarantine_age(), observed_at):
        row = row._replace(is_accepted=row.is_accepted or state.is_requested(row))
    state.fault.put(row)


def _device(one: About) -> str:
    """The card by its UUID, as events take it; a monitor may write anything there."""
    return one.entity if one.entity.startswith("GPU-") and is_card(one.entity) else ""


def _came_back(state: Remediations, row: rows.RemediationFault, time: datetime) -> bool:
    """Whether a report comes after the remediation of its fault had succeeded."""
    found = state.remediation.get(row.remediation)
    return found is None or (found.state == rows.SUCCEEDED and found.ended_at is not None and found.ended_at < time)


def _healthy(state: Remediations, fact: Fact, data: NodeHealthReported) -> None:
    node, time, healthy = fact.event.subject, counted_time(fact), healthy_of(data)
    for row in sorted(state.fault.where("node", node)):
        check = Check(row.monitor, row.check_name)
        if healthy.concerns(check, row.entity, row.alias):
            state.clear_fault(row, healthy.codes, time)
    faults_ended(state, node)


def _detached(state: Remediations, fact: Fact, data: DeviceDetached) -> None:
    """A card left its slot, whose name begins with that of the node, and its faults with it."""
    if fact.event.imported:
        return
    node, card, time = data.slot.partition("/")[0], key_text(fact.event.subject), counted_time(fact)
    for row in state.standing(node):
        if row.entity == card:
            state.clear_fault(row, (), time)
    faults_ended(state, node)


# How far nodes are set aside.


def _labelled(state: Remediations, fact: Fact, data: NodeLabelled) -> None:
    _put_node(state, fact, data.uid, json_text(data.labels))


def _unlabelled(state: Remediations, fact: Fact, _data: NodeUnlabelled) -> None:
    _put_node(state, fact, None, _NO_LABELS)


def _put_node(state: Remediations, fact: Fact, uid: str | None, labels: str) -> None:
    """A Node that is gone takes its faults along, as it does in the quarantine."""
    node, time = intern(fact.event.subject), fact.event.time
    before = state.node.get(node)
    if before is None or not is_late(before.observed_at, time):
        row = before or _new_node(node, time)
        if before is not None and before.uid != uid:
            row = _new_node(node, time)
            for fault in state.standing(node):
                if uid is None or fault.changed_at < time:
                    state.end_fault(fault, time)
            faults_ended(state, node)
        row = row._replace(uid=uid, labels=labels, observed_at=time)
        state.node.put(row)
        state.node_ends.note(row)
        review(state, fact, node)
    state.node_ends.forget(fact)


def _new_node(node: str, time: datetime) -> rows.RemediationNode:
    return rows.RemediationNode(node, None, _NO_LABELS, time, "", False, False, "", False)


def _requested(state: Remediations, fact: Fact, data: NodeMaintenanceRequested) -> None:
    if fact.event.imported or source_kind(fact.event.source) is not SourceKind.HEALTH:
        return
    node, ruleset = intern(fact.event.subject), data.owner.removeprefix(OWNER_PREFIX)
    at = counted_as_recorded(fact.event, fact.recorded_ns)
    drain = rows.NOTHING_DRAINED if data.drain is None else rows.drain_text(data.drain.devices, rows.DRAIN_REQUESTED)
    state.quarantined.put(rows.QuarantinedNode(node, ruleset, fact.event.time, drain))
    if data.drain is not None:
        _drain_requested(state, fact, node)
    for row in state.standing(node):
        is_of_it = ruleset in row.ruleset_names() and state.is_requested(row)
        if is_of_it and is_fresh(at, state.quarantine_age(), row.observed_at, row.recorded_at):
            state.fault.put(row._replace(is_accepted=True))
    review(state, fact, node)


def _drain_requested(state: Remediations, fact: Fact, node: str) -> None:
    """The intent to drain follows from the request: until it is there, the request stands for it."""
    row = state.node.get(node)
    if row is not None and row.uid is not None:
        state.node.put(row._replace(drain=fact.event.id, is_drained=False))
        faults_ended(state, node)


def _released(state: Remediations, fact: Fact, data: NodeMaintenanceReleased) -> None:
    """A fault that an operator has overridden gets no remedy until it comes back."""
    node, ruleset = fact.event.subject, data.owner.removeprefix(OWNER_PREFIX)
    before = state.quarantined.get((node, ruleset)) if data.owner.startswith(OWNER_PREFIX) else None
    if fact.event.imported or before is None or is_late(before.requested_at, fact.event.time):
        return
    state.quarantined.delete((node, ruleset))
    for row in state.standing(node):
        if state.is_released(node, [row]):
            after = rows.STALE if row.state == rows.ATTENTION else row.state
            state.fault.put(row._replace(is_accepted=False, state=after))
    review(state, fact, node)
    faults_ended(state, node)


def _isolation_changed(state: Remediations, fact: Fact, data: NodeIsolationChanged) -> None:
    row = state.node.get(fact.event.subject)
    if row is not None:
        keeps_away = data.isolation.unschedulable or bool(data.isolation.taints)
        state.node.put(row._replace(isolation=fact.event.id, keeps_pods_away=keeps_away, is_applied=False))
        review(state, fact, row.node)


def _isolation_settled(
    state: Remediations,
    fact: Fact,
    data: NodeIsolationApplied | NodeIsolationFailed | NodeIsolationSuperseded,
) -> None:
    row = state.node.get(fact.event.subject)
    if row is not None and row.isolation == data.intent:
        state.node.put(row._replace(is_applied=isinstance(data, NodeIsolationApplied)))
        review(state, fact, row.node)


def _drain_changed(state: Remediations, fact: Fact, data: NodeDrainChanged) -> None:
    """Where a drain is cancelled whose request stands, nobody worked on it in time: pods have still to leave."""
    row = state.node.get(fact.event.subject)
    if row is None:
        return
    for request in state.quarantined.where("node", row.node):
        if request.awaits_drain() and request.is_covered_by(data.drains):
            state.quarantined.put(request.with_drain(rows.DRAINING))
    state.end_drains(row.node, rows.GIVEN_UP, but_for=data.drains)
    if data.drains:
        state.node.put(row._replace(drain=fact.event.id, is_drained=False))
    else:
        is_lapsed = row.is_draining() and any(one.awaits_drain() for one in state.quarantined.where("node", row.node))
        state.node.put(row._replace(drain=rows.GIVEN_UP if is_lapsed else "", is_drained=False))
    faults_ended(state, row.node)
    review(state, fact, row.node)


def _drain_finished(state: Remediations, fact: Fact, data: NodeDrainFinished) -> None:
    row = state.node.get(fact.event.subject)
    if row is not None and row.drain == data.intent:
        state.node.put(row._replace(is_drained=True))
        state.end_drains(row.node, rows.DRAINED)
        review(state, fact, row.node)


def _drain_superseded(state: Remediations, fact: Fact, data: NodeDrainSuperseded) -> None:
    """The newest drain of a Node that is there came to nothing; an older one, or a Node that is gone, has a newer."""
    row = state.node.get(fact.event.subject)
    if row is not None and row.drain == data.intent and data.reason not in ("Newer", "NodeGone"):
        state.node.put(row._replace(drain=rows.GIVEN_UP, is_drained=False))
        state.end_drains(row.node, rows.GIVEN_UP)
        state.touch(row.node)
        review(state, fact, row.node)


HANDLERS: Handlers = {
    RemediationRulesApplied: _rules_applied,
    QuarantineRulesApplied: _quarantine_applied,
    NodeHealthReported: _reported,
    DeviceHealthChanged: _card_reported,
    DeviceDetached: _detached,
    NodeLabelled: _labelled,
    NodeUnlabelled: _unlabelled,
    NodeMaintenanceRequested: _requested,
    NodeMaintenanceReleased: _released,
    NodeIsolationChanged: _isolation_changed,
    NodeIsolationApplied: _isolation_settled,
    NodeIsolationFailed: _isolation_settled,
    NodeIsolationSuperseded: _isolation_settled,
    NodeDrainChanged: _drain_changed,
    NodeDrainFinished: _drain_finished,
    NodeDrainSuperseded: _drain_superseded,
    **TREATMENT_HANDLERS,
}
"""Assessments have no handler: `RemediationProjection.observed` folds them where they stand in the log."""
