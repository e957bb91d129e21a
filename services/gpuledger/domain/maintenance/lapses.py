"""What becomes of each request: decided on, applied, or lapsed because nothing came of it in time. Pure.

Nothing that was asked for long ago may be carried out because somebody asks for something else today. So a request
whose decision came to nothing lapses: what stands applied of it stays, the rest waits until its owner makes it again.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from gpuledger.domain.maintenance.rows import (
    APPLIED,
    FINISHED,
    NOT_ISOLATED,
    SUPERSEDED,
    MaintenanceRequest,
    NodeDrain,
    NodeIsolation,
)
from gpuledger.domain.maintenance.state import Maintenance

INTENT_AGE_MAX: Final = timedelta(hours=1)
"""How old an intent may be to be carried out, and so a request that is decided anew for somebody else's sake."""

HISTORY: Final = ("Expired", "Imported")
"""Why an intent is not carried out where only its owners may ask for it again."""


def begin_anew(state: Maintenance, node: str) -> None:
    """There is another Node, or none: nothing stands applied. What has lapsed stays so."""

    def anew(row: MaintenanceRequest) -> MaintenanceRequest:
        result = "" if row.drain_result == FINISHED else row.drain_result
        return row._replace(decided_at=None, standing=NOT_ISOLATED, drain_result=result)

    _update(state, node, anew)


def decided(state: Maintenance, node: str, at: datetime) -> None:
    """A decision has all requests about the node."""
    _update(state, node, lambda row: row._replace(decided_at=row.decided_at or at))


def applied(state: Maintenance, node: str) -> None:
    """The newest decision about the node was carried out."""
    _update(state, node, lambda row: row._replace(standing=row.isolation) if row.is_pending() else row)


def joined(state: Maintenance, node: str, at: datetime) -> None:
    """The last decision about the node says what new requests want as well."""
    current = state.isolation.get(node)
    if current is not None:
        decided(state, node, at)
        if current.result == APPLIED:
            applied(state, node)


def lapse_with(state: Maintenance, intent: NodeIsolation, at: datetime) -> bool:
    """An intent was too old: its requests lapse. Returns whether there are fresh ones, which joined it later."""

    def is_of_intent(row: MaintenanceRequest) -> bool:
        return row.is_pending() and row.decided_at is not None and row.decided_at <= intent.changed_at

    _update(state, intent.node, lambda row: row._replace(has_lapsed=row.has_lapsed or is_of_intent(row)))
    lapse_stale(state, intent.node, at)
    return any(row.is_pending() for row in state.requests_about(intent.node))


def lapse_stale(state: Maintenance, node: str, at: datetime) -> None:
    """Requests lapse of whose decision nothing came for too long."""

    def is_stale(row: MaintenanceRequest) -> bool:
        return row.is_pending() and row.decided_at is not None and at - row.decided_at > INTENT_AGE_MAX

    _update(state, node, lambda row: row._replace(has_lapsed=row.has_lapsed or is_stale(row)))


def lapse_stale_drains(state: Maintenance, node: str, at: datetime) -> None:
    """Drains are over that nobody has worked on for too long."""
    current = state.drain.get(node)
    reported_at = None if current is None else current.reported_at

    def lapsed(row: MaintenanceRequest) -> MaintenanceRequest:
        if not row.wants_drain() or row.decided_at is None:
            return row
        fresh_at = row.decided_at if reported_at is None else max(row.decided_at, reported_at)
        return row._replace(drain_result=SUPERSEDED) if at - fresh_at > INTENT_AGE_MAX else row

    _update(state, node, lapsed)


def drain_over(state: Maintenance, drain: NodeDrain, result: str, *, is_of_node: bool = False) -> None:
    """The drains of an intent are over; only their owners can begin them anew. `is_of_node`: not those of devices."""

    def over(row: MaintenanceRequest) -> MaintenanceRequest:
        is_over = drain.includes(row) and not (is_of_node and row.drained_devices())
        return row._replace(drain_result=result) if is_over else row

    _update(state, drain.node, over)


def _update(state: Maintenance, node: str, change: Callable[[MaintenanceRequest], MaintenanceRequest]) -> None:
    for row in state.requests_about(node):
        after = change(row)
        if after != row:
            state.request.put(after)
