"""Folds requests for maintenance, Nodes, decided isolations and their outcomes into rows. Pure.

Of one owner's requests and releases, and of what watchers record, the latest by event time is in force; decisions and
outcomes count in the order of the log. What was imported is history, and asks for nothing.
"""

from collections.abc import Iterable
from datetime import datetime
from sys import intern
from typing import Final

from gpuledger.domain.fact import Fact, Handlers, counted_as_recorded, is_late, storable
from gpuledger.domain.inventory.state import json_text
from gpuledger.domain.maintenance.lapses import (
    HISTORY,
    applied,
    begin_anew,
    decided,
    drain_over,
    lapse_with,
)
from gpuledger.domain.maintenance.rows import (
    APPLIED,
    DRAINING,
    FAILED,
    FINISHED,
    NO_DRAIN,
    NOT_ISOLATED,
    SUPERSEDED,
    TIMED_OUT,
    MaintenanceNode,
    MaintenanceRequest,
    NodeDrain,
    NodeIsolation,
    drains_text,
    isolation_text,
)
from gpuledger.domain.maintenance.state import Maintenance
from gpuledger.events.device import DeviceAssignmentChanged, DeviceWithdrawn
from gpuledger.events.maintenance import (
    Drain,
    DrainState,
    Isolation,
    LeavingPod,
    NodeDrainChanged,
    NodeDrainFinished,
    NodeDrainProgressed,
    NodeDrainSuperseded,
    NodeDrainTimedOut,
    NodeIsolationApplied,
    NodeIsolationChanged,
    NodeIsolationFailed,
    NodeIsolationSuperseded,
    NodeMaintenanceExpired,
    NodeMaintenanceReleased,
    NodeMaintenanceRequested,
)
from gpuledger.events.node import NodeGone, NodeObserved
from gpuledger.events.payload import truncated

POOLS_PREFIX: Final = "pools/"
"""How the owner of a device's evacuation begins; the name of its GPUDevice follows."""


def _requested(state: Maintenance, fact: Fact, data: NodeMaintenanceRequested) -> None:
    before = _latest(state, fact, fact.event.subject, data.owner)
    if before is None:
        return
    drains_node = data.drain is not None and not data.drain.devices
    is_cordoned = data.cordon or drains_node
    isolation = Isolation(unschedulable=is_cordoned, taints=data.taints, labels=data.labels)
    row = before._replace(
        changed_at=fact.event.time,
        requested_at=fact.event.time,
        reason=data.reason,
        message=data.message,
        isolation=isolation_text(isolation),
        expires_at=data.expires and storable(data.expires),
        ended_at=None,
        drain=NO_DRAIN if data.drain is None else json_text(data.drain.model_dump(mode="json")),
        decided_at=None,
        has_lapsed=False,
        drain_result="",
    )
    renews = drains_node or (before.requested_at is not None and before.ended_at is None)
    _put_request(state, fact, row, renews=renews)


def _released(state: Maintenance, fact: Fact, data: NodeMaintenanceReleased) -> None:
    before = _latest(state, fact, fact.event.subject, data.owner)
    if before is not None:
        row = before._replace(changed_at=fact.event.time, reason=data.reason, ended_at=fact.event.time)
        row = row._replace(standing=NOT_ISOLATED)
        _put_request(state, fact, row)


def _assignment_changed(state: Maintenance, fact: Fact, data: DeviceAssignmentChanged) -> None:
    """A device leaves its pool, and pods leave it: that is a request of the pools, until its next assignment."""
    owner, evacuation = f"{POOLS_PREFIX}{fact.event.subject}", data.evacuation
    _end_evacuation(state, fact, keeps=None if evacuation is None else evacuation.node)
    if evacuation is None:
        return
    drain = Drain(mode=evacuation.mode, devices=(evacuation.device,))
    request = NodeMaintenanceRequested(
        owner=owner,
        reason=data.reason,
        message=truncated(f"Leaves {data.pool}. {data.message}"),
        cordon=False,
        drain=drain,
    )
    event = fact.event._replace(subject=evacuation.node)
    _requested(state, fact._replace(event=event), request)


def _withdrawn(state: Maintenance, fact: Fact, _data: DeviceWithdrawn) -> None:
    _end_evacuation(state, fact)


def _end_evacuation(state: Maintenance, fact: Fact, keeps: str | None = None) -> None:
    """Release what pools requested for a device, but on one node."""
    owner = f"{POOLS_PREFIX}{fact.event.subject}"
    for row in state.request.where("owner", owner):
        if row.ended_at is None and row.node != keeps:
            event = fact.event._replace(subject=row.node)
            _released(state, fact._replace(event=event), NodeMaintenanceReleased(owner=owner, reason="Unassigned"))


def record_expiry(state: Maintenance, fact: Fact, data: NodeMaintenanceExpired) -> None:
    """A request is over, at this place of the log, unless its owner renewed or released it meanwhile."""
    row = state.request.get((fact.event.subject, data.owner))
    if row is not None and row.ended_at is None and row.expires_at == data.expires:
        _put_request(state, fact, row._replace(ended_at=data.expires, standing=NOT_ISOLATED))


def _latest(state: Maintenance, fact: Fact, node: str, owner: str) -> MaintenanceRequest | None:
    """The owner's row before a fact, or an empty one; None if the fact counts for nothing."""
    if fact.event.imported:
        return None
    node, time = intern(node), fact.event.time
    before = state.request.get((node, owner))
    if before is None:
        return MaintenanceRequest(
            node, intern(owner), time, None, "", "", NOT_ISOLATED, None, None, None, NOT_ISOLATED, False, NO_DRAIN, ""
        )  # fmt: skip
    return None if is_late(before.changed_at, time) else before


def _put_request(state: Maintenance, fact: Fact, row: MaintenanceRequest, *, renews: bool = False) -> None:
    state.request.put(row)
    if row.ended_at is not None:
        state.request_ends().add((row.node, row.owner), row.ended_at)
    _forget_requests(state, counted_as_recorded(fact.event, fact.recorded_ns))
    state.touch(row.node, renews=renews)


def _forget_requests(state: Maintenance, recorded_at: datetime) -> None:
    for key, ended_at in state.request_ends().pop_expired(recorded_at):
        row = state.request.get(key)
        if row is not None and row.ended_at == ended_at:
            state.request.delete(key)


def _observed(state: Maintenance, fact: Fact, data: NodeObserved) -> None:
    _put_node(state, fact, data.uid)


def _gone(state: Maintenance, fact: Fact, _data: NodeGone) -> None:
    _put_node(state, fact, None)


def _put_node(state: Maintenance, fact: Fact, uid: str | None) -> None:
    node, time = intern(fact.event.subject), fact.event.time
    before = state.node.get(node)
    if before is None or not is_late(before.observed_at, time):
        row = MaintenanceNode(node, uid, time)
        state.node.put(row)
        state.node_ends.note(row)
        if uid is None:
            state.isolation.delete(node)  # What was put on the Node went with it.
            state.drain.delete(node)
        if before is None or before.uid != uid:
            begin_anew(state, node)
            state.touch(node)
    state.node_ends.forget(fact)


def _isolation_changed(state: Maintenance, fact: Fact, data: NodeIsolationChanged) -> None:
    row = NodeIsolation(
        intern(fact.event.subject), data.uid, fact.event.id, fact.event.time, isolation_text(data.isolation),
        json_text(data.owners), None, "", "", None, NOT_ISOLATED,
    )  # fmt: skip
    state.isolation.put(row)
    decided(state, row.node, row.changed_at)


def _applied(state: Maintenance, fact: Fact, data: NodeIsolationApplied) -> None:
    if _settle(state, fact, data.intent, APPLIED, was=isolation_text(data.was)):
        applied(state, fact.event.subject)


def _failed(state: Maintenance, fact: Fact, data: NodeIsolationFailed) -> None:
    _settle(state, fact, data.intent, FAILED, data.reason, data.message)


def _superseded(state: Maintenance, fact: Fact, data: NodeIsolationSuperseded) -> None:
    settled = _settle(state, fact, data.intent, SUPERSEDED, data.reason, data.message)
    if settled and data.reason in HISTORY and lapse_with(state, settled, fact.event.time):
        state.touch(settled.node)


def _settle(
    state: Maintenance, fact: Fact, intent: str, result: str, reason: str = "", message: str = "", was: str = ""
) -> NodeIsolation | None:
    """Note the outcome of the newest intent; returns its row, or None for an older one."""
    row: NodeIsolation | None = None
    before = state.isolation.get(fact.event.subject)
    if before is not None and before.intent == intent:
        row = before._replace(
            result=result, reason=reason, message=message, settled_at=fact.event.time, was=was or before.was
        )
        state.isolation.put(row)
        state.isolation_ends.note(row)
    state.isolation_ends.forget(fact)
    return row


def _drain_changed(state: Maintenance, fact: Fact, data: NodeDrainChanged) -> None:
    node = intern(fact.event.subject)
    if data.drains:
        drains, before = drains_text(data.drains), state.drain.get(node)
        row = NodeDrain(node, data.uid, fact.event.id, fact.event.time, drains, "", 0, "[]", None, "", "")
        if before is not None and before.uid == data.uid and not before.is_over():
            row = row._replace(pods_left=before.pods_left, pods=before.pods, reported_at=before.reported_at)
        state.drain.put(row)
    else:
        state.drain.delete(node)


def _drain_progressed(state: Maintenance, fact: Fact, data: NodeDrainProgressed) -> None:
    before = _drain_of(state, fact, data.intent)
    if before is not None:
        progress = TIMED_OUT if before.progress == TIMED_OUT else DRAINING
        state.drain.put(_with_pods(before, fact, data)._replace(progress=progress))


def _drain_timed_out(state: Maintenance, fact: Fact, data: NodeDrainTimedOut) -> None:
    before = _drain_of(state, fact, data.intent)
    if before is not None:
        state.drain.put(_with_pods(before, fact, data)._replace(progress=TIMED_OUT))


def _drain_finished(state: Maintenance, fact: Fact, data: NodeDrainFinished) -> None:
    before = _drain_of(state, fact, data.intent)
    if before is not None:
        at = fact.event.time
        drain_over(state, before, FINISHED)
        state.drain.put(before._replace(progress=FINISHED, pods_left=0, pods=_pods_text(data.stays), reported_at=at))


def _drain_superseded(state: Maintenance, fact: Fact, data: NodeDrainSuperseded) -> None:
    before = _drain_of(state, fact, data.intent)
    if before is not None:
        if data.reason != "NodeGone":
            drain_over(state, before, SUPERSEDED, is_of_node=data.reason == "NotCordoned")
            state.touch(before.node)
        after = before._replace(progress=SUPERSEDED, reason=data.reason, message=data.message)
        state.drain.put(after._replace(reported_at=fact.event.time))


def _drain_of(state: Maintenance, fact: Fact, intent: str) -> NodeDrain | None:
    found = state.drain.get(fact.event.subject)
    return found if found is not None and found.intent == intent else None


def _with_pods(before: NodeDrain, fact: Fact, data: DrainState) -> NodeDrain:
    pods = _pods_text((*data.pods, *data.stays))
    return before._replace(pods_left=data.left, pods=pods, reported_at=fact.event.time)


def _pods_text(pods: Iterable[LeavingPod]) -> str:
    return json_text([pod.model_dump(mode="json") for pod in pods])


HANDLERS: Handlers = {
    NodeMaintenanceRequested: _requested,
    NodeMaintenanceReleased: _released,
    DeviceAssignmentChanged: _assignment_changed,
    DeviceWithdrawn: _withdrawn,
    NodeObserved: _observed,
    NodeGone: _gone,
    NodeIsolationChanged: _isolation_changed,
    NodeIsolationApplied: _applied,
    NodeIsolationFailed: _failed,
    NodeIsolationSuperseded: _superseded,
    NodeDrainChanged: _drain_changed,
    NodeDrainProgressed: _drain_progressed,
    NodeDrainTimedOut: _drain_timed_out,
    NodeDrainFinished: _drain_finished,
    NodeDrainSuperseded: _drain_superseded,
}
"""Recorded expiries have no handler: `MaintenanceProjection.observed` folds them where they stand in the log."""
