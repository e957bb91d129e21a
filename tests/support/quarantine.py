"""Reports of health monitors and rules about them, and a log of them with what the decider makes of it."""

from datetime import datetime, timedelta
from typing import Any

from gpuledger.deciders.health.projection import HealthProjection
from gpuledger.domain.quarantine.state import Quarantine
from gpuledger.events.envelope import Decoded, Event
from gpuledger.events.health import NodeHealthReported
from gpuledger.events.maintenance import NodeMaintenanceReleased, NodeMaintenanceRequested
from gpuledger.events.node import NodeLabelled, NodeUnlabelled
from gpuledger.events.payload import Payload
from gpuledger.events.position import ORIGIN
from gpuledger.events.quarantine import (
    QUARANTINE,
    NodeFaultAssessed,
    QuarantineBreakerReset,
    QuarantineRulesApplied,
)
from gpuledger.ledger.api import Message
from gpuledger.projection.definition import Numbering
from gpuledger.projection.enforced import EnforcedRule, EnforcedRules
from gpuledger.projection.fold import Fold
from support.events import GENERATION, START, message

OWN = Numbering("own", 1)
GPU_FATAL = "GPU fatal error ruleset"
OWNER = f"health/{GPU_FATAL}"
FATAL_RULESET: dict[str, Any] = {
    "name": GPU_FATAL,
    "priority": 100,
    "match": {
        "all": [
            {"kind": "HealthEvent", "expression": "event.isFatal && event.componentClass == 'GPU'"},
            {
                "kind": "Node",
                "expression": "!('example.com/managed' in node.metadata.labels "
                "&& node.metadata.labels['example.com/managed'] == 'false')",
            },
        ]
    },
    "cordon": True,
}


def rules(*rulesets: dict[str, Any], max_event_age_s: int = 600, **breaker: int) -> QuarantineRulesApplied:
    """A document; without rulesets that of fatal errors of GPUs."""
    return QuarantineRulesApplied.model_validate(
        {
            "digest": "a" * 64,
            "file": "rules.yaml",
            "rulesets": rulesets or (FATAL_RULESET,),
            "breaker": {"percentage": 100, **breaker},
            "max_event_age_s": max_event_age_s,
        }
    )


def reported(*entities: str, healthy: bool = False, **fields: Any) -> NodeHealthReported:
    """A report about GPUs by their indexes: a fatal one, unless it is healthy."""
    return NodeHealthReported.model_validate(
        {
            "monitor": "gpu-health-monitor",
            "check": "GpuXidError",
            "component": "GPU",
            "healthy": healthy,
            "fatal": not healthy,
            "entities": [{"type": "GPU", "value": one} for one in entities],
            **fields,
        }
    )


def labelled(uid: str = "u1", **labels: str) -> NodeLabelled:
    return NodeLabelled(uid=uid, labels={"kubernetes.io/os": "linux", **labels})


def given_back(owner: str = OWNER) -> NodeMaintenanceReleased:
    return NodeMaintenanceReleased(owner=owner, reason="by hand")


def source_of(node: str, data: Payload) -> str:
    """Who records it."""
    if isinstance(data, NodeHealthReported):
        return f"/nodes/{node}/agent"
    return "/watchers/nodes" if isinstance(data, NodeLabelled | NodeUnlabelled) else "/operators/eva"


class QuarantineLog:
    """A log in memory, folded as it grows; decisions are recorded at once, those about time too while it `runs`."""

    def __init__(self, *nodes: str, document: QuarantineRulesApplied | None = None) -> None:
        self.log: list[tuple[Decoded, float]] = []
        self.fold = self.new_fold()
        self.runs = True
        self._numbers: dict[str, int] = {}
        for node in nodes:
            self.record(node, labelled(f"uid-{node}"), 0)
        if document is not None:
            self.record(QUARANTINE, document, 0)

    def new_fold(self, projection: HealthProjection | None = None) -> Fold:
        """A fold from nothing; its types are in force."""
        in_force = EnforcedRules([EnforcedRule(NodeHealthReported.TYPE, 1, ORIGIN)])
        return Fold(projection or HealthProjection(), GENERATION, numbering=OWN, enforced=in_force)

    @property
    def state(self) -> Quarantine:
        state = self.fold.state
        assert isinstance(state, Quarantine)
        return state

    def record(
        self,
        subject: str,
        data: Payload,
        at_s: float,
        *,
        recorded_s: float | None = None,
        imported: bool = False,
        source: str | None = None,
    ) -> list[Decoded]:
        """Record a fact of that second; returns the requests, releases and openings that follow, recorded as well."""
        source = source or source_of(subject, data)
        number = self._numbers[source] = self._numbers.get(source, 0) + 1
        event_id = f"{source}/{number}"
        event = Event(event_id, source, data.TYPE, subject, at(at_s), data, "q", number, imported=imported)
        recorded = at_s if recorded_s is None else recorded_s
        self._append(event, recorded)
        return self._take(recorded)

    def pass_time(self, now_s: float) -> list[Decoded]:
        """Have the decider look what is due."""
        self.runs = True
        return self._take(now_s)

    def reset(self, at_s: float) -> list[Decoded]:
        return self.record(QUARANTINE, QuarantineBreakerReset(reason="looked at"), at_s)

    def requests(self, node: str | None = None) -> list[NodeMaintenanceRequested]:
        """All requests of the log."""
        data = [event.data for event, _ in self.log if node in (None, event.subject)]
        return [one for one in data if isinstance(one, NodeMaintenanceRequested)]

    def set_aside(self) -> set[str]:
        """The nodes that a request in force is about."""
        return {node for node, _ in self.state.request.rows if self.state.in_force(node)}

    def fault_states(self, node: str) -> list[str]:
        """The states of a node's faults."""
        return [row.state for row in self.state.fault.where("node", node)]

    def messages(self, after: int = 0) -> list[Message]:
        """The log as messages, whose sequences follow that one."""
        return [_message(event, at_s, place) for place, (event, at_s) in enumerate(self.log, after + 1)]

    def _append(self, event: Decoded, recorded_s: float) -> None:
        self.log.append((event, recorded_s))
        self.fold.apply(_message(event, recorded_s, len(self.log)))

    def _take(self, now_s: float) -> list[Decoded]:
        taken: list[Decoded] = []
        if self.runs:
            self.fold.due(at(now_s))
        while decided := self.fold.take_decided():
            for event in decided:
                self._append(event, now_s)
            taken += decided
        return [event for event in taken if not isinstance(event.data, NodeFaultAssessed)]


def at(second: float) -> datetime:
    """A time of the log."""
    return START + timedelta(seconds=second)


def _message(event: Decoded, recorded_s: float, sequence: int) -> Message:
    recorded_ns = (at(recorded_s) - at(0)) // timedelta(microseconds=1) * 1000 + int(START.timestamp()) * 10**9
    return message(event, sequence)._replace(recorded_ns=recorded_ns)
