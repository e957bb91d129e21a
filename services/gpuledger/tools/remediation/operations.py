"""Records remedies in the name of the user of the terminal, and shows what was done about which node."""

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

import orjson

from gpuledger.deciders.remediation.projection import RemediationProjection
from gpuledger.domain.remediation.rows import (
    ATTENTION,
    HEALTHY,
    SUPERSEDED,
    WAITING,
    Remediation,
    RemediationFault,
    RemediationNode,
)
from gpuledger.domain.remediation.state import Remediations
from gpuledger.events.position import Position
from gpuledger.events.remediation import REMEDIATION, RemediationRetryRequested, RemediationRulesApplied
from gpuledger.tools.applied_documents import Applied, apply_document
from gpuledger.tools.errors import RequestError
from gpuledger.tools.operators import record
from gpuledger.tools.queries.backend import Backend, current
from gpuledger.tools.queries.found_rows import RowDict

ID_SHOWN_MIN = 4
"""How many characters of an id are enough to ask for it, if no other begins so."""


class Retry(NamedTuple):
    """Another attempt for the faults of a node, or of a remediation: how many they are, and where it was recorded."""

    node: str
    remediation: str | None
    faults: int
    recorded: Position | None


async def apply(backend: Backend, document: RemediationRulesApplied) -> Applied:
    """Put the remedies of a document that was checked into force, unless they are."""
    return await apply_document(backend, document, REMEDIATION)


async def retry(backend: Backend, given: str, reason: str) -> Retry:
    """Record that the remedies of a node, or one of an id, may be tried again.

    Raises:
        RequestError: there is no such node and no such remediation, or no fault of it waits for a person.
    """
    found = retried(await current_state(backend), given)
    data = RemediationRetryRequested(remediation=found.remediation, reason=reason)
    return found._replace(recorded=await record(backend.ledger, found.node, data))


def retried(state: Remediations, given: str) -> Retry:
    """What may be tried again for a node or an id; raises as `retry` does."""
    is_node = given in state.node.rows
    one = None if is_node else _one(state, given, f"There is neither a node nor a remediation {given}")
    node = given if one is None else one.node
    standing = state.standing(node)
    faults = [row for row in standing if one is None or row.remediation == one.intent]
    count = sum(state.may_be_retried(row) for row in faults)
    if not count:
        what = f"No fault of {node} waits for a person" if one is None else f"No fault waits for a person after {given}"
        raise RequestError(what, _hint(state, node))
    return Retry(node, None if one is None else one.intent, count, None)


def _hint(state: Remediations, node: str) -> str:
    if state.not_drained(node):
        return f"Its drain was given up: {_ask_for_drain(node)}"
    return "`gpuledger remediation list` has what each node waits for"


def _ask_for_drain(node: str) -> str:
    return f"ask for it again with `gpuledger node drain {node} --reason TEXT`"


async def current_state(backend: Backend) -> Remediations:
    """The remedies, faults and remediations of now."""
    state: Remediations = await current(backend, RemediationProjection())
    return state


def rule_rows(state: Remediations) -> Iterator[RowDict]:
    """A row of each remedy in force, in the order of the document."""
    remedies, row = state.remedies(), state.document.get(REMEDIATION)
    if remedies is None or row is None:
        return
    limits = remedies.document.attempts
    for one in remedies.document.remedies:
        template = orjson.loads(one.template)
        yield {
            "remedy": one.name,
            "group": one.group,
            "scope": one.scope.capitalize(),
            "actions": [*one.actions, *(f"CUSTOM {action}" for action in one.custom_actions)],
            "object": f"{template['kind']}.{template['apiVersion']}",
            "timeout_s": one.timeout_s,
            "escalate_to": one.escalate_to,
            "retention_s": one.retention_s,
            "attempts": f"{limits.count} in {limits.period_s} s",
            "version": row.digest,
            "file": row.file,
            "applied_at": row.applied_at,
        }


def rows_of(state: Remediations) -> Iterator[RowDict]:
    """A row of each remediation, and of each node that waits for one or for a person, by node and time."""
    found = [(row.node, row.requested_at, remediation_row(row)) for row in state.remediation.rows.values()]
    found += [(node, since, row) for node, since, row in _unrequested(state)]
    for _, _, row in sorted(found, key=lambda one: one[:2]):
        yield row


def remediation_row(row: Remediation) -> RowDict:
    """What became of a remediation."""
    return {
        "id": row.intent,
        "node": row.node,
        "remedy": row.remedy,
        "state": _word(row.state),
        "object": f"{row.kind}/{row.name}",
        "requested_at": row.requested_at,
        "created_at": row.created_at,
        "ended_at": row.ended_at,
        "attempt": row.attempt,
        "group": row.remedy_group,
        "device": row.device or None,
        "action": row.action,
        "follows": row.follows or None,
        "namespace": row.namespace or None,
        "api_version": row.api_version,
        "detail": ": ".join(filter(None, (row.reason, row.message))) or None,
        "faults": orjson.loads(row.faults),
    }


def one_row(state: Remediations, given: str) -> RowDict:
    """The remediation of an id, or of the only id that begins so.

    Raises:
        RequestError: there is none, or more than one.
    """
    return remediation_row(_one(state, given, f"There is no remediation {given}"))


def _one(state: Remediations, given: str, otherwise: str) -> Remediation:
    found = [row for row in state.remediation.rows.values() if row.intent == given or row.intent.startswith(given)]
    if len(given) < ID_SHOWN_MIN or not found:
        raise RequestError(otherwise, "`gpuledger remediation list` has the nodes and the ids")
    if len(found) > 1:
        raise RequestError(f"{len(found)} remediations have an id that begins with {given}", "Give more of it")
    return found[0]


def _unrequested(state: Remediations) -> Iterator[tuple[str, datetime, RowDict]]:
    for row in state.attention.rows.values():
        detail = f"{row.reason}: {row.message}"
        shown = _empty(row.node, row.remedy, "Attention")
        yield row.node, row.since, {**shown, "group": row.remedy_group or None, "detail": detail}
    for fault in state.fault.rows.values():
        if fault.state not in (HEALTHY, ATTENTION) and not _is_treated(state, fault):
            remedy = state.remedy_of(fault)
            shown = _empty(fault.node, None if remedy is None else remedy.name, _word(fault.state))
            yield fault.node, fault.changed_at, {**shown, "action": fault.action, "detail": _reason(state, fault)}


def _is_treated(state: Remediations, fault: RemediationFault) -> bool:
    found = state.remediation.get(fault.remediation)
    return fault.state not in (WAITING, "pending", "stale") and found is not None and found.state != SUPERSEDED


def _reason(state: Remediations, fault: RemediationFault) -> str:
    what = f"{fault.monitor} reports {fault.check_name} of {fault.entity or 'the node'} (report {fault.report})"
    node = state.node.get(fault.node)
    if fault.state != WAITING:
        return what
    if state.is_released(fault.node, [fault]):
        return f"{what}; the node is not set aside for it"
    if state.remedy_of(fault) is None:
        return f"{what}; the document in force has no remedy for {fault.custom_action or fault.action}"
    if not fault.is_accepted:
        return f"{what}; a ruleset has still to request its drain, or another report has to come"
    return f"{what}; {_lacks(state, node, fault)}"


def _lacks(state: Remediations, node: RemediationNode | None, fault: RemediationFault) -> str:
    """What a node that is set aside for a fault is not yet."""
    if node is None or not (node.is_applied and node.keeps_pods_away):
        return "the node is not cordoned yet"
    if fault in state.not_drained(fault.node):
        return f"the drain of the node was given up: {_ask_for_drain(node.node)}"
    return "another remedy is under way" if state.is_quarantined(fault) else "the node is not drained yet"


def _empty(node: str, remedy: str | None, state: str) -> RowDict:
    names = (
        "object", "requested_at", "created_at", "ended_at", "attempt", "group", "device", "action", "follows",
        "namespace", "api_version", "detail",
    )  # fmt: skip
    return {"id": None, "node": node, "remedy": remedy, "state": state, **dict.fromkeys(names), "faults": []}


def _word(state: str) -> str:
    return "".join(part.capitalize() for part in state.split("-"))
