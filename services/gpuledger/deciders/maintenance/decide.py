"""Decides how each node is set aside, from what all owners want of it together. Pure.

There is one intent about a Node at a time, and a new one only where the desired isolation is another than that of the
last one. Where an owner repeats its request, or the last intent came to nothing, it is decided anew: that is how
somebody asks again. What lapsed meanwhile takes no part in that. About a Node that does not exist nothing is decided
until it does.
"""

from collections.abc import Iterator
from datetime import datetime

from gpuledger.domain.fact import Fact, counted_as_recorded
from gpuledger.domain.maintenance.folds import record_expiry
from gpuledger.domain.maintenance.lapses import joined, lapse_stale, lapse_stale_drains
from gpuledger.domain.maintenance.rows import (
    FAILED,
    NOT_ISOLATED,
    SUPERSEDED,
    NodeIsolation,
    drains_text,
    isolation_text,
)
from gpuledger.domain.maintenance.state import Maintenance, merged, merged_drains
from gpuledger.events.maintenance import OWNERS_MAX, NodeDrainChanged, NodeIsolationChanged, NodeMaintenanceExpired
from gpuledger.projection.definition import Causation, Decision

EXPIRIES_PER_CALL_MAX = 1000
"""The most expiries that are recorded per call, by node and owner; the others follow with the next call."""


def on_fact(state: Maintenance, fact: Fact) -> Iterator[Decision]:
    """The decisions that follow from a fact that was just folded."""
    yield from _decisions(state, Causation(fact), counted_as_recorded(fact.event, fact.recorded_ns))


def _decisions(state: Maintenance, causation: Causation, at: datetime) -> Iterator[Decision]:
    for node, renews in state.take_touched().items():
        change, current = next_isolation(state, node, at, renews=renews), state.isolation.get(node)
        if change is not None:
            yield causation.decision(node, change, current and current.changed_at)
        drain, before = next_drain(state, node, at), state.drain.get(node)
        if drain is not None:
            yield causation.decision(node, drain, before and before.changed_at)


def on_expired(state: Maintenance, fact: Fact, data: NodeMaintenanceExpired) -> Iterator[Decision]:
    """The decisions that follow from a recorded expiry, at its place in the log.

    They are as old as its recording: who comes to an expiry late gives the node back all the same.
    """
    record_expiry(state, fact, data)
    recorded_at = counted_as_recorded(fact.event, fact.recorded_ns)
    yield from _decisions(state, Causation(fact, recorded_at), recorded_at)


def on_due(state: Maintenance, now: datetime) -> Iterator[Decision]:
    """Record the expiry of requests whose end has passed."""
    expired = [
        (row.node, row.owner, row.expires_at)
        for row in state.request.rows.values()
        if row.ended_at is None and row.expires_at is not None and row.expires_at <= now
    ]
    for node, owner, expires in sorted(expired)[:EXPIRIES_PER_CALL_MAX]:
        cause = f"expired/{node}/{owner}/{expires.isoformat()}"
        yield Decision(cause, None, node, expires, NodeMaintenanceExpired(owner=owner, expires=expires))


def next_isolation(state: Maintenance, node: str, at: datetime, *, renews: bool) -> NodeIsolationChanged | None:
    """The next intent about a node as of a time; None if there is nothing new to decide."""
    found = state.node.get(node)
    if found is None or found.uid is None:
        return None
    lapse_stale(state, node, at)
    requests = state.requests_about(node)
    desired = merged(requests)
    current = state.isolation.get(node)
    if current is not None and current.uid != found.uid:
        current = None
    is_same = isolation_text(desired) == (NOT_ISOLATED if current is None else current.isolation)
    if is_same and not (renews or _came_to_nothing(current)):
        joined(state, node, at)
        return None
    owners = tuple(row.owner for row in requests if not row.has_lapsed or row.standing != NOT_ISOLATED)
    return NodeIsolationChanged(uid=found.uid, isolation=desired, owners=owners[:OWNERS_MAX])


def next_drain(state: Maintenance, node: str, at: datetime) -> NodeDrainChanged | None:
    """The next intent to drain a node as of a time, or to stop; None if there is nothing new to decide.

    A drain that is over begins anew only where its owner requests it again.
    """
    found = state.node.get(node)
    if found is None or found.uid is None:
        return None
    lapse_stale_drains(state, node, at)
    requests, current = state.requests_about(node), state.drain.get(node)
    drains = merged_drains(requests)
    if current is None:
        is_new = bool(drains)
    elif current.uid == found.uid and current.is_over():
        is_new = bool(drains) or not any(current.includes(row) for row in requests)
    else:
        is_new = current.uid != found.uid or drains_text(drains) != current.drains
    return NodeDrainChanged(uid=found.uid, drains=drains) if is_new else None


def _came_to_nothing(current: NodeIsolation | None) -> bool:
    return current is not None and current.result in (FAILED, SUPERSEDED)
