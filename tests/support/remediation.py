"""Remedies, and a log of reports, isolations and outcomes with what the decider of remediation makes of it."""

from datetime import datetime, timedelta
from typing import Any

import orjson

from gpuledger.deciders.remediation.projection import RemediationProjection
from gpuledger.domain.fact import ns_of_time
from gpuledger.domain.remediation.state import Remediations
from gpuledger.events.envelope import Decoded, Event
from gpuledger.events.health import NodeHealthReported
from gpuledger.events.maintenance import (
    Isolation,
    NodeDrainChanged,
    NodeDrainFinished,
    NodeDrainSuperseded,
    NodeIsolationApplied,
    NodeIsolationChanged,
    NodeMaintenanceReleased,
    NodeMaintenanceRequested,
)
from gpuledger.events.node import NodeLabelled, NodeUnlabelled
from gpuledger.events.payload import Payload
from gpuledger.events.position import ORIGIN
from gpuledger.events.quarantine import QUARANTINE
from gpuledger.events.remediation import (
    REMEDIATION,
    RemediationAssessed,
    RemediationAttentionRequested,
    RemediationCreated,
    RemediationFinished,
    RemediationRequested,
    RemediationRulesApplied,
    RemediationSuperseded,
)
from gpuledger.ledger.api import Message
from gpuledger.projection.definition import Numbering
from gpuledger.projection.enforced import EnforcedRule, EnforcedRules
from gpuledger.projection.fold import Fold
from support.events import GENERATION, START, message
from support.quarantine import OWNER, labelled, reported, rules

OWN = Numbering("own", 1)
TEMPLATE = {"apiVersion": "example.com/v1", "kind": "Reboot", "spec": {"node": "${node}", "why": "${action}"}}
RESET_TEMPLATE = {"apiVersion": "example.com/v1", "kind": "GPUReset", "spec": {"device": "${device}"}}
DONE = {"condition": "Done", "status": "True"}
BROKEN = {"condition": "Broken", "status": "True"}
REBOOT: dict[str, Any] = {
    "name": "reboot", "group": "restart", "actions": ["RESTART_BM"], "resource": "reboots",
    "template": orjson.dumps(TEMPLATE).decode(), "succeeded": DONE, "failed": BROKEN, "timeout_s": 600,
    "escalate_to": "replace",
}  # fmt: skip
RESET: dict[str, Any] = {
    **REBOOT, "name": "reset", "scope": "device", "actions": ["COMPONENT_RESET"], "resource": "gpuresets",
    "template": orjson.dumps(RESET_TEMPLATE).decode(), "escalate_to": "reboot",
}  # fmt: skip
REPLACE: dict[str, Any] = {
    **REBOOT, "name": "replace", "group": "replace", "actions": ["REPLACE_VM"], "custom_actions": ["swap"],
    "escalate_to": None,
}  # fmt: skip


def remedies(*found: dict[str, Any], count: int = 3, period_s: int = 86400, **fields: Any) -> RemediationRulesApplied:
    """A document; without remedies one of a reset, a reboot and a replacement."""
    return RemediationRulesApplied.model_validate(
        {
            "digest": "b" * 64,
            "file": "remedies.yaml",
            "remedies": found or (RESET, REBOOT, REPLACE),
            "attempts": {"count": count, "period_s": period_s},
            **fields,
        }
    )


def fault(*entities: str, action: str = "RESTART_BM", **fields: Any) -> NodeHealthReported:
    """A fatal report about GPUs that recommends an action."""
    return reported(*entities, action=action, **fields)


def card(number: int, action: str = "COMPONENT_RESET", **fields: Any) -> NodeHealthReported:
    """A fatal report about a card by its UUID."""
    uuid = f"GPU-{number}"
    return reported(entities=[{"type": "GPU_UUID", "value": uuid}], devices=[uuid], action=action, **fields)


def source_of(node: str, data: Payload) -> str:
    """Who records it."""
    sources: dict[str, tuple[type[Payload], ...]] = {
        f"/nodes/{node}/agent": (NodeHealthReported,),
        "/watchers/nodes": (NodeLabelled, NodeUnlabelled),
        "/services/maintenance": (NodeIsolationChanged, NodeDrainChanged),
        "/services/nodewriter": (NodeIsolationApplied, NodeDrainFinished, NodeDrainSuperseded),
        "/services/health": (NodeMaintenanceRequested, NodeMaintenanceReleased),
        "/services/remediator": (RemediationCreated, RemediationFinished, RemediationSuperseded),
    }
    return next((source for source, kinds in sources.items() if isinstance(data, kinds)), "/operators/eva")


class RemediationLog:
    """A log in memory, folded as it grows; decisions are recorded at once, those about time too while it `runs`."""

    def __init__(self, document: RemediationRulesApplied | None = None) -> None:
        self.log: list[tuple[Decoded, datetime]] = []
        self.fold = self.new_fold()
        self.runs = True
        self._numbers: dict[str, int] = {}
        for node in ("n1", "n2"):
            self.record(node, labelled(f"uid-{node}"), 0)
        self.record(QUARANTINE, rules(), 0)
        self.record(REMEDIATION, document or remedies(), 0)

    def new_fold(self) -> Fold:
        """A fold from nothing; its types are in force."""
        in_force = EnforcedRules([EnforcedRule(NodeHealthReported.TYPE, 1, ORIGIN)])
        return Fold(RemediationProjection(), GENERATION, numbering=OWN, enforced=in_force)

    @property
    def state(self) -> Remediations:
        state = self.fold.state
        assert isinstance(state, Remediations)
        return state

    def record(
        self,
        subject: str,
        data: Payload,
        at_s: float,
        *,
        source: str | None = None,
        recorded_s: float | None = None,
        imported: bool = False,
    ) -> list[Decoded]:
        """Record a fact of that second; returns the decisions that follow, but for assessments, recorded as well."""
        source = source or source_of(subject, data)
        number = self._numbers[source] = self._numbers.get(source, 0) + 1
        event = Event(f"{source}/{number}", source, data.TYPE, subject, at(at_s), data, "q", number, imported=imported)
        recorded_at = at(at_s if recorded_s is None else recorded_s)
        self._append(event, recorded_at)
        return self._take(recorded_at)

    def pass_time(self, now_s: float) -> list[Decoded]:
        """Have the decider look what is due."""
        self.runs = True
        return self._take(at(now_s))

    def set_aside(self, node: str, at_s: float, *, drains: bool = False) -> list[Decoded]:
        """The node is cordoned because of its faults; what is decided when it is."""
        self.record(node, NodeMaintenanceRequested(owner=OWNER, reason="Unhealthy"), at_s)
        self.record(node, NodeIsolationChanged(uid=f"uid-{node}", isolation=Isolation(unschedulable=True)), at_s)
        intent = self.last(NodeIsolationChanged).id
        if drains:
            drained = [{"owner": "operators/eva", "since": at(at_s), "drain": {}}]
            self.record(node, NodeDrainChanged.model_validate({"uid": f"uid-{node}", "drains": drained}), at_s)
        return self.record(node, NodeIsolationApplied(intent=intent, written=True), at_s)

    def finish(self, request: Decoded, result: str, at_s: float) -> list[Decoded]:
        """The object of a remediation has its outcome; what is decided then."""
        self.record(request.subject, RemediationCreated(intent=request.id, uid="o1"), at_s)
        data = RemediationFinished.model_validate({"intent": request.id, "result": result})
        return self.record(request.subject, data, at_s)

    def last(self, kind: type[Payload]) -> Decoded:
        """The last event of a type."""
        return [event for event, _ in self.log if isinstance(event.data, kind)][-1]

    def requests(self) -> list[RemediationRequested]:
        """All requests of the log."""
        return [event.data for event, _ in self.log if isinstance(event.data, RemediationRequested)]

    def fault_states(self, node: str) -> list[str]:
        """The states of a node's faults."""
        return [row.state for row in sorted(self.state.fault.where("node", node))]

    def messages(self, after: int = 0) -> list[Message]:
        """The log as messages, whose sequences follow that one."""
        return [_message(event, recorded_at, place) for place, (event, recorded_at) in enumerate(self.log, after + 1)]

    def _append(self, event: Decoded, recorded_at: datetime) -> None:
        self.log.append((event, recorded_at))
        self.fold.apply(_message(event, recorded_at, len(self.log)))

    def _take(self, now: datetime) -> list[Decoded]:
        taken: list[Decoded] = []
        for _ in range(2):
            if self.runs:
                self.fold.due(now)
            while decided := self.fold.take_decided():
                for event in decided:
                    self._append(event, now)
                taken += decided
        return [event for event in taken if not isinstance(event.data, RemediationAssessed)]


def at(second: float) -> datetime:
    """A time of the log."""
    return START + timedelta(seconds=second)


def _message(event: Decoded, recorded_at: datetime, sequence: int) -> Message:
    return message(event, sequence)._replace(recorded_ns=ns_of_time(recorded_at))


# What a log records of a node that is set aside, and what is decided then.


def requested(decided: list[Decoded]) -> RemediationRequested:
    (found,) = decided
    assert isinstance(found.data, RemediationRequested)
    return found.data


def attention(decided: list[Decoded]) -> RemediationAttentionRequested:
    (found,) = decided
    assert isinstance(found.data, RemediationAttentionRequested)
    return found.data


def drained(log: RemediationLog, node: str, at_s: float) -> str:
    """The quarantine has a node drained; the intent."""
    data = NodeMaintenanceRequested.model_validate({"owner": OWNER, "reason": "Unhealthy", "drain": {}})
    log.record(node, data, at_s)
    return drain(log, node, at_s, OWNER)


def cordoned(log: RemediationLog, node: str, at_s: float) -> list[Decoded]:
    """The node is cordoned; what is decided then."""
    log.record(node, NodeIsolationChanged(uid=f"uid-{node}", isolation=Isolation(unschedulable=True)), at_s)
    return log.record(node, NodeIsolationApplied(intent=log.last(NodeIsolationChanged).id, written=True), at_s)


def drain(log: RemediationLog, node: str, at_s: float, owner: str) -> str:
    drains = [{"owner": owner, "since": "2026-01-01T00:00:00Z", "drain": {}}]
    log.record(node, NodeDrainChanged.model_validate({"uid": f"uid-{node}", "drains": drains}), at_s)
    return log.last(NodeDrainChanged).id
