"""Records quarantine rules and resets of the breaker in the name of the user of the terminal, and shows the state."""

from collections.abc import Iterator

from gpuledger.deciders.health.projection import HealthProjection
from gpuledger.domain.maintenance.drain_modes import summary
from gpuledger.domain.quarantine.rows import HELD, OVERRIDDEN, NodeFault
from gpuledger.domain.quarantine.state import Quarantine
from gpuledger.events.position import Position
from gpuledger.events.quarantine import (
    QUARANTINE,
    QuarantineBreakerReset,
    QuarantineRulesApplied,
    QuarantineRuleset,
)
from gpuledger.tools.applied_documents import Applied, apply_document
from gpuledger.tools.errors import RequestError
from gpuledger.tools.operators import record
from gpuledger.tools.queries.backend import Backend, current
from gpuledger.tools.queries.found_rows import RowDict


async def apply(backend: Backend, document: QuarantineRulesApplied) -> Applied:
    """Put the rules of a document that was checked into force, unless they are."""
    return await apply_document(backend, document, QUARANTINE)


async def reset(backend: Backend, reason: str) -> Position:
    """Close the breaker.

    Raises:
        RequestError: it is not open.
    """
    if not (await current_state(backend)).is_open():
        raise RequestError("The circuit breaker is closed", "There is nothing to reset")
    return await record(backend.ledger, QUARANTINE, QuarantineBreakerReset(reason=reason))


async def current_state(backend: Backend) -> Quarantine:
    """The rules, faults, requests and breaker of now."""
    state: Quarantine = await current(backend, HealthProjection())
    return state


def rule_rows(state: Quarantine) -> Iterator[RowDict]:
    """A row of each ruleset in force, in the order of the document."""
    rules, row = state.rules(), state.rules_row.get(QUARANTINE)
    if rules is None or row is None:
        return
    for one in rules.document.rulesets:
        count = state.count.get(one.name)
        yield {
            "ruleset": one.name,
            "enabled": one.enabled,
            "priority": one.priority,
            "actions": _actions(one),
            "matched": 0 if count is None else count.matched,
            "failed": 0 if count is None else count.failed,
            "failure": (count and count.failure) or None,
            "dropped": 0 if count is None else count.dropped,
            "version": row.digest,
            "file": row.file,
            "applied_at": row.applied_at,
        }


def _actions(one: QuarantineRuleset) -> list[str]:
    return [
        *(["cordon"] if one.cordon else []),
        *(f"taint {taint.key}={taint.value}:{taint.effect}" for taint in one.taints),
        *(f"label {key}={value}" for key, value in one.labels.items()),
        *([] if one.drain is None else [f"drain {_scope(one)}{summary(one.drain)}"]),
    ]


def _scope(one: QuarantineRuleset) -> str:
    return "" if one.drain_scope == "node" else f"of the {one.drain_scope}, "


def status_row(state: Quarantine) -> RowDict:
    """The breaker, and how many nodes are set aside and held back."""
    breaker, rules = state.breaker.get(QUARANTINE), state.rules_row.get(QUARANTINE)
    is_open = breaker is not None and breaker.opened_at is not None
    faults = state.fault.rows.values()
    return {
        "breaker": "Open" if is_open else "Closed",
        "since": None if breaker is None else breaker.opened_at or breaker.reset_at,
        "reset_by": (breaker and breaker.reset_by) or None,
        "detail": _opened_by(state),
        "nodes": state.existing(),
        "set_aside": len({row.node for row in state.request.rows.values() if row.ended_at is None}),
        "held_back": len({row.node for row in faults if row.state == HELD}),
        "faults": len(faults),
        "failing_rulesets": sum(row.failed > 0 for row in state.count.rows.values()),
        "version": None if rules is None else rules.digest,
    }


def _opened_by(state: Quarantine) -> str | None:
    breaker = state.breaker.get(QUARANTINE)
    if breaker is None or breaker.opened_at is None:
        return None
    return (
        f"{breaker.node} would have been {breaker.quarantined} of {breaker.nodes} nodes, by {breaker.ruleset!r} "
        f"(report {breaker.report})"
    )


def fault_rows(state: Quarantine) -> Iterator[RowDict]:
    """A row of each standing fault, by node, with what is done about it."""
    for row in sorted(state.fault.rows.values()):
        yield {
            "node": row.node,
            "ruleset": row.ruleset,
            "monitor": row.monitor,
            "check": row.check_name,
            "entity": row.entity or None,
            "state": row.state.capitalize(),
            "reported_at": row.reported_at,
            "last_at": row.changed_at,
            "report": row.report,
            "owner": None if row.state == OVERRIDDEN else _owner(state, row),
        }


def _owner(state: Quarantine, row: NodeFault) -> str | None:
    """The owner of the request in force for a fault."""
    is_requested = any(one.ruleset == row.ruleset for one in state.in_force(row.node))
    return f"health/{row.ruleset}" if is_requested else None
