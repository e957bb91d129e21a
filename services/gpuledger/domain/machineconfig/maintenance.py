"""Folds how far the maintenance of nodes is that the rollout requests: cordoned, drained, given back. Pure.

Requests and outcomes are recorded by different services, so one of an earlier request may come after a later one. What
counts is matched by ids: the isolation that the request has led to, those after it, and the drains that name it.
"""

from gpuledger.domain.fact import Fact, Handlers
from gpuledger.domain.machineconfig.rows import ConfigMaintenanceRow
from gpuledger.domain.machineconfig.state import Rollout
from gpuledger.domain.maintenance.lapses import HISTORY
from gpuledger.domain.maintenance.rows import DRAINING, FINISHED, SUPERSEDED
from gpuledger.events.maintenance import (
    NodeDrainChanged,
    NodeDrainFinished,
    NodeDrainProgressed,
    NodeDrainSuperseded,
    NodeDrainTimedOut,
    NodeIsolationApplied,
    NodeIsolationChanged,
    NodeIsolationFailed,
    NodeIsolationSuperseded,
)

NODE_GONE = "NodeGone"
"""Why an isolation is not carried out of a Node that another one has replaced, of which nothing is said by that."""

NO_LONGER_REQUESTED = "Nobody drains the Node: its maintenance service no longer has the request."


def _isolation_changed(state: Rollout, fact: Fact, data: NodeIsolationChanged) -> None:
    row, cordons = state.maintenance.get(fact.event.subject), data.isolation.unschedulable
    if row is not None:
        is_answered = row.is_answered or fact.event.causation_id == row.request
        after = row._replace(intent=fact.event.id, intent_cordons=cordons, is_answered=is_answered, failed_at=None)
        _put(state, after._replace(may_be_cordoned=row.may_be_cordoned or cordons))


def _isolation_applied(state: Rollout, fact: Fact, data: NodeIsolationApplied) -> None:
    row = _of_isolation(state, fact, data.intent)
    if row is not None and row.is_answered and not row.intent_cordons:
        _put(state, row._replace(may_be_cordoned=False, failed_at=None))


def _isolation_failed(state: Rollout, fact: Fact, data: NodeIsolationFailed) -> None:
    row = _of_isolation(state, fact, data.intent)
    if row is not None:
        _put(state, row._replace(failed_at=fact.event.time, message=f"{data.reason}: {data.message}"))


def _isolation_superseded(state: Rollout, fact: Fact, data: NodeIsolationSuperseded) -> None:
    row = _of_isolation(state, fact, data.intent)
    if row is None:
        return
    if data.reason in HISTORY:
        _put(state, row._replace(failed_at=fact.event.time, message=data.message))
    elif data.reason == NODE_GONE:
        is_over = row.requested_at is None and row.is_answered and not row.intent_cordons
        _put(state, row._replace(intent="", is_answered=False, may_be_cordoned=row.may_be_cordoned and not is_over))


def _drain_changed(state: Rollout, fact: Fact, data: NodeDrainChanged) -> None:
    row = state.maintenance.get(fact.event.subject)
    if row is None or row.requested_at is None or row.drain == FINISHED:
        return
    if any((one.owner, one.since) == (row.owner, row.requested_at) for one in data.drains):
        _put(state, row._replace(drain_intent=fact.event.id, drain="", message="", is_answered=True))
    elif row.drain_intent:
        _put(state, row._replace(drain_intent="", drain=SUPERSEDED, message=NO_LONGER_REQUESTED))


def _drain_progressed(state: Rollout, fact: Fact, data: NodeDrainProgressed | NodeDrainTimedOut) -> None:
    row = _of_drain(state, fact, data.intent)
    if row is not None:
        blocked = "; ".join(f"{one.namespace}/{one.pod}: {one.state}" for one in data.pods)
        _put(state, row._replace(drain=DRAINING, pods_left=data.left, message=blocked))


def _drain_finished(state: Rollout, fact: Fact, data: NodeDrainFinished) -> None:
    row = _of_drain(state, fact, data.intent)
    if row is not None:
        _put(state, row._replace(drain=FINISHED, pods_left=0, message=""))
        state.touch_node(row.node)


def _drain_superseded(state: Rollout, fact: Fact, data: NodeDrainSuperseded) -> None:
    row = _of_drain(state, fact, data.intent)
    if row is not None and data.reason not in ("Newer", NODE_GONE):
        _put(state, row._replace(drain=SUPERSEDED, message=f"{data.reason}: {data.message}"))


def _of_isolation(state: Rollout, fact: Fact, intent: str) -> ConfigMaintenanceRow | None:
    row = state.maintenance.get(fact.event.subject)
    return row if row is not None and row.intent == intent else None


def _of_drain(state: Rollout, fact: Fact, intent: str) -> ConfigMaintenanceRow | None:
    row = state.maintenance.get(fact.event.subject)
    is_of_request = row is not None and row.requested_at is not None and row.drain_intent == intent
    return row if is_of_request else None


def _put(state: Rollout, row: ConfigMaintenanceRow) -> None:
    """Put a row; whether the node is available may depend on it."""
    before = state.maintenance.get(row.node)
    state.put_maintenance(row)
    if before is None or before.may_be_cordoned != row.may_be_cordoned:
        state.touch_node(row.node)


MAINTENANCE_HANDLERS: Handlers = {
    NodeIsolationChanged: _isolation_changed,
    NodeIsolationApplied: _isolation_applied,
    NodeIsolationFailed: _isolation_failed,
    NodeIsolationSuperseded: _isolation_superseded,
    NodeDrainChanged: _drain_changed,
    NodeDrainProgressed: _drain_progressed,
    NodeDrainTimedOut: _drain_progressed,
    NodeDrainFinished: _drain_finished,
    NodeDrainSuperseded: _drain_superseded,
}
