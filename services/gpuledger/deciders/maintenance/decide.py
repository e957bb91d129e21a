"""Decides how each node is set aside, from what all owners want of it together. Pure.

There is one intent about a Node at a time, and a new one only where the desired isolation is another than that of the
last one. Where an owner repeats its request, or the last intent came to nothing, the same is decided anew: that is how
somebody asks again. About a Node that does not exist nothing is decided until it does.
"""

from collections.abc import Iterator
from datetime import datetime

from gpuledger.domain.fact import Fact
from gpuledger.domain.maintenance.folds import record_expiry
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
    causation = Causation(fact)
    for node, renews in state.take_touched().items():
        change, current = next_isolation(state, node, renews=renews), state.isolation.get(node)
        if change is not None:
            yield causation.decision(node, change, current and current.changed_at)
        drain, before = next_drain(state, node), state.drain.get(node)
        if drain is not None:
            yield causation.decision(node, drain, before and before.changed_at)


def on_expired(state: Maintenance, fact: Fact, data: NodeMaintenanceExpired) -> Iterator[Decision]:
    """The decisions that follow from a recorded expiry, at its place in the log."""
    record_expiry(state, fact, data)
    yield from on_fact(state, fact)


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


def next_isolation(state: Maintenance, node: str, *, renews: bool) -> NodeIsolationChanged | None:
    """The next intent about a node; None if there is nothing new to decide."""
    found = state.node.get(node)
    if found is None or found.uid is None:
        return None
    requests = state.requests_about(node)
    desired = merged(requests)
    current = state.isolation.get(node)
    if current is not None and current.uid != found.uid:
        current = None
    is_same = isolation_text(desired) == (NOT_ISOLATED if current is None else current.isolation)
    if is_same and not (renews or _came_to_nothing(current)):
        return None
    owners = tuple(row.owner for row in requests[:OWNERS_MAX])
    return NodeIsolationChanged(uid=found.uid, isolation=desired, owners=owners)


def next_drain(state: Maintenance, node: str) -> NodeDrainChanged | None:
    """The next intent to drain a node, or to stop; None if there is nothing new to decide.

    One that was superseded is decided anew with the next fact about the node.
    """
    found = state.node.get(node)
    if found is None or found.uid is None:
        return None
    drains, current = merged_drains(state.requests_about(node)), state.drain.get(node)
    is_same = drains_text(drains) == ("[]" if current is None else current.drains)
    is_about_it = current is None or (current.uid == found.uid and current.progress != SUPERSEDED)
    return None if is_same and is_about_it else NodeDrainChanged(uid=found.uid, drains=drains)


def _came_to_nothing(current: NodeIsolation | None) -> bool:
    return current is not None and current.result in (FAILED, SUPERSEDED)
