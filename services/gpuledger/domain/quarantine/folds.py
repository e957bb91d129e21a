"""Folds rules, reports, Nodes, requests and the breaker into the state of the quarantine. Pure.

A report is judged by the rules and labels in force where it stands in the log. Of reports about one entity the latest
by event time holds. What was imported is history, and counts for nothing.
"""

from collections.abc import Collection
from datetime import datetime
from sys import intern

from gpuledger.domain.fact import Fact, Handlers, counted_as_recorded, is_late, storable
from gpuledger.domain.health.codes import codes_text, with_reported, without_cleared
from gpuledger.domain.health.entities import NODE_ENTITY
from gpuledger.domain.health.own_reports import card_report
from gpuledger.domain.inventory.state import json_text
from gpuledger.domain.quarantine import rows
from gpuledger.domain.quarantine.checks import (
    ACTS,
    CARD_LEFT,
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
from gpuledger.domain.quarantine.rules import FORCED, RulesInForce, document_text
from gpuledger.domain.quarantine.state import FAULTS_PER_NODE_MAX, OWNER_PREFIX, Quarantine
from gpuledger.events.device import DeviceDetached, DeviceHealthChanged
from gpuledger.events.health import NodeHealthReported
from gpuledger.events.maintenance import NodeMaintenanceReleased, NodeMaintenanceRequested
from gpuledger.events.node import NodeLabelled, NodeUnlabelled
from gpuledger.events.publishing import SourceKind, source_kind
from gpuledger.events.quarantine import (
    QUARANTINE,
    QuarantineBreakerOpened,
    QuarantineBreakerReset,
    QuarantineRulesApplied,
)
from gpuledger.events.subjects import NODE, origin_of

_NO_LABELS = json_text({})


def _rules_applied(state: Quarantine, fact: Fact, data: QuarantineRulesApplied) -> None:
    if fact.event.imported:
        return
    applied_at = counted_as_recorded(fact.event, fact.recorded_ns)
    state.rules_row.put(
        rows.QuarantineRules(QUARANTINE, data.digest, data.file, applied_at, fact.event.id, document_text(data))
    )
    for ruleset in list(state.count.rows):
        state.count.delete(ruleset)
    for one in data.rulesets:
        state.count.put(rows.RulesetCount(one.name, 0, 0, 0, "", None))


def _reported(state: Quarantine, fact: Fact, data: NodeHealthReported) -> None:
    rules = state.rules()
    _forget(state, fact)
    if rules is None or fact.event.imported or data.strategy != ACTS:
        return
    if data.healthy:
        _healthy(state, fact, data)
    elif not data.quarantine.skip:
        _unhealthy(state, fact, data, rules)


def _unhealthy(state: Quarantine, fact: Fact, data: NodeHealthReported, rules: RulesInForce) -> None:
    evaluation = rules.evaluate(variables(fact.event, data, state.labels_of, rules.event_fields))
    for name, failure in evaluation.failed.items():
        count = _count(state, name)
        state.count.put(count._replace(failed=count.failed + 1, failure=failure, failed_at=fact.event.time))
    for name in [one.name for one in evaluation.matched] or ([FORCED] if data.quarantine.force else []):
        count = _count(state, name)
        state.count.put(count._replace(matched=count.matched + 1))
    for name in evaluation.names(data):
        for one in about(data):
            _put_fault(state, fact, data, name, one)


def _count(state: Quarantine, ruleset: str) -> rows.RulesetCount:
    return state.count.get(ruleset) or rows.RulesetCount(ruleset, 0, 0, 0, "", None)


def _put_fault(state: Quarantine, fact: Fact, data: NodeHealthReported, ruleset: str, about: About) -> None:
    entity, alias = about
    node, time, report, check = intern(fact.event.subject), counted_time(fact), fact.event.id, check_of(data)
    before = state.fault.get((node, ruleset, *check, entity))
    standing = {} if before is None else before.code_times()
    codes = [
        one
        for one in codes_of(data)
        if not is_late(standing.get(one), time) and not _is_cleared(state, node, check, entity, one, time)
    ]
    if not codes or _is_over(state, node, check, entity, time):
        return
    standing = with_reported(standing, codes, time)
    if before is not None and is_late(before.changed_at, time):
        state.fault.put(before.with_codes(standing))
        return
    recorded_at = counted_as_recorded(fact.event, fact.recorded_ns)
    observed_at = time if data.first_at is None else min(time, storable(data.first_at))
    if before is not None and before.state != rows.STALE:
        row = before._replace(changed_at=time, observed_at=observed_at, recorded_at=recorded_at)
        state.fault.put(row.with_codes(standing))
        return
    if before is None and len(state.fault.by["node"].get(node)) >= FAULTS_PER_NODE_MAX:
        count = _count(state, ruleset)
        state.count.put(count._replace(dropped=count.dropped + 1))
        return
    row = rows.NodeFault(
        node, intern(ruleset), *check, entity, alias, report, report, time, time, observed_at, recorded_at,
        rows.PENDING, codes_text(standing),
    )  # fmt: skip
    if is_fresh(recorded_at, state.max_event_age(), observed_at):
        state.fault.put(row)
        state.pend(node, report)
    else:
        state.outdate([row])


def _is_over(state: Quarantine, node: str, check: Check, entity: str, time: datetime) -> bool:
    """Whether what a report of this time says is over: something was healthy after that, or the Node was gone."""
    found = state.node.get(node)
    if found is not None and is_late(found.former_ended_at, time):
        return True
    keys = (*((*check, one) for one in {entity, NODE_ENTITY}), (*CARD_LEFT, entity))
    healthy = (state.healthy.get((node, *key)) for key in keys)
    return any(row is not None and is_late(row.healthy_at, time) for row in healthy)


def _is_cleared(state: Quarantine, node: str, check: Check, entity: str, code: str, time: datetime) -> bool:
    """Whether what a report of this time says of a code is over: the code alone was cleared after that."""
    cleared = (state.healthy_code.get((node, *check, one, code)) for one in (entity, NODE_ENTITY))
    return any(row is not None and is_late(row.healthy_at, time) for row in cleared)


def _card_reported(state: Quarantine, fact: Fact, data: DeviceHealthChanged) -> None:
    """The verdict of a node's agent on a card, as a monitor would report it."""
    node = origin_of(fact.event.source)
    if node.kind == NODE:
        event = fact.event._replace(subject=node.name)
        _reported(state, fact._replace(event=event), card_report(fact.event.subject, data))


def _healthy(state: Quarantine, fact: Fact, data: NodeHealthReported) -> None:
    """End what is healthy again: an agent that has just started, or lacks a card, cannot say which one that is."""
    node, time = fact.event.subject, counted_time(fact)
    healthy = healthy_of(data)
    for row in state.fault.where("node", node):
        if healthy.concerns(Check(row.monitor, row.check_name), row.entity, row.alias):
            _clear(state, row, healthy.codes, time)
    about = [(intern(node), *healthy.check, one) for one in sorted(healthy.entities)]
    if healthy.codes:
        cleared = [rows.HealthyCode(*one, code, time) for one in about for code in sorted(healthy.codes)]
        state.note_cleared(node, cleared)
    else:
        state.note_healthy(node, [rows.HealthyCheck(*one, time) for one in about])


def _clear(state: Quarantine, row: rows.NodeFault, codes: Collection[str], time: datetime) -> None:
    """Clear codes of a fault, or all where none are named; without any it is over."""
    before = row.code_times()
    after = without_cleared(before, codes, time)
    if not after:
        state.fault.delete(state.fault.key_of(row))
        state.touch(row.node, row)
    elif after != before:
        state.fault.put(row.with_codes(after))


def _detached(state: Quarantine, fact: Fact, data: DeviceDetached) -> None:
    """A card left its slot, whose name begins with that of the node, and its faults with it."""
    if fact.event.imported:
        return
    node, card, time = intern(data.slot.partition("/")[0]), key_text(fact.event.subject), counted_time(fact)
    _forget(state, fact)
    for row in state.fault.where("node", node):
        if row.entity == card:
            _clear(state, row, (), time)
    state.note_healthy(node, [rows.HealthyCheck(node, *CARD_LEFT, card, time)])


def _labelled(state: Quarantine, fact: Fact, data: NodeLabelled) -> None:
    _put_node(state, fact, data.uid, json_text(data.labels))


def _unlabelled(state: Quarantine, fact: Fact, _data: NodeUnlabelled) -> None:
    _put_node(state, fact, None, _NO_LABELS)


def _put_node(state: Quarantine, fact: Fact, uid: str | None, labels: str) -> None:
    node, time = intern(fact.event.subject), fact.event.time
    before = state.node.get(node)
    if before is None or not is_late(before.observed_at, time):
        row = before or rows.QuarantineNode(node, uid, labels, time, None, None if uid else time)
        former_ended_at = row.former_ended_at if row.uid in (None, uid) else time
        row = row._replace(uid=uid, labels=labels, observed_at=time, former_ended_at=former_ended_at)
        state.put_node(row)
        state.node_ends.note(row)
        if uid is None:
            _end_faults(state, node)
        elif before is not None and before.uid != uid:
            _end_faults(state, node, time)
    state.node_ends.forget(fact)


def _end_faults(state: Quarantine, node: str, before: datetime | None = None) -> None:
    """A Node is gone, and its faults with it; another one has only those that were reported since it is there."""
    for row in state.fault.where("node", node):
        codes = {} if before is None else {one: at for one, at in row.code_times().items() if at >= before}
        if codes:
            state.fault.put(row.with_codes(codes))
        else:
            state.fault.delete(state.fault.key_of(row))
    state.touch(node)


def _requested(state: Quarantine, fact: Fact, data: NodeMaintenanceRequested) -> None:
    """A request of ours: what it is for stands in the state already."""
    if source_kind(fact.event.source) is not SourceKind.HEALTH:
        return
    node, ruleset, at = intern(fact.event.subject), data.owner.removeprefix(OWNER_PREFIX), fact.event.time
    cause, version = fact.event.causation_id or "", data.rules or ""
    state.request.put(rows.QuarantineRequest(node, ruleset, cause, version, at, None, by_hand=False))
    found = state.node.get(node)
    if found is not None and (data.cordon or data.taints or data.drain):
        state.put_node(found._replace(quarantined_at=at))


def _released(state: Quarantine, fact: Fact, data: NodeMaintenanceReleased) -> None:
    if fact.event.imported or not data.owner.startswith(OWNER_PREFIX):
        return
    node, ruleset, time = fact.event.subject, data.owner.removeprefix(OWNER_PREFIX), fact.event.time
    request = state.request.get((node, ruleset))
    if request is None or request.ended_at is not None or is_late(request.requested_at, time):
        return
    by_hand = source_kind(fact.event.source) is not SourceKind.HEALTH
    state.request.put(request._replace(ended_at=time, by_hand=by_hand))
    state.ends().note(node, time)
    if by_hand:
        state.settle(state.standing(node, ruleset), rows.OVERRIDDEN)


def _breaker_opened(state: Quarantine, fact: Fact, data: QuarantineBreakerOpened) -> None:
    before = state.breaker.get(QUARANTINE)
    state.breaker.put(
        rows.QuarantineBreaker(
            QUARANTINE, fact.event.time, data.node, data.report, data.ruleset, data.quarantined, data.nodes,
            before and before.reset_at, "" if before is None else before.reset_by,
        )
    )  # fmt: skip


def _breaker_reset(state: Quarantine, fact: Fact, _data: QuarantineBreakerReset) -> None:
    """The window begins anew, and what was held back is assessed anew: only what is still fresh counts."""
    if fact.event.imported:
        return
    reset_at, reset_by = counted_as_recorded(fact.event, fact.recorded_ns), fact.event.source.removeprefix("/")
    state.breaker.put(rows.QuarantineBreaker(QUARANTINE, None, "", "", "", 0, 0, reset_at, reset_by))
    state.empty_window()
    for row in sorted(row for row in state.fault.rows.values() if row.state == rows.HELD):
        state.fault.put(row._replace(state=rows.PENDING, cause=fact.event.id))
        state.pend(row.node, fact.event.id)


def _forget(state: Quarantine, fact: Fact) -> None:
    state.forget(counted_as_recorded(fact.event, fact.recorded_ns))


HANDLERS: Handlers = {
    QuarantineRulesApplied: _rules_applied,
    QuarantineBreakerOpened: _breaker_opened,
    QuarantineBreakerReset: _breaker_reset,
    NodeHealthReported: _reported,
    DeviceHealthChanged: _card_reported,
    DeviceDetached: _detached,
    NodeLabelled: _labelled,
    NodeUnlabelled: _unlabelled,
    NodeMaintenanceRequested: _requested,
    NodeMaintenanceReleased: _released,
}
"""Assessments have no handler: `HealthProjection.observed` folds them where they stand in the log."""
