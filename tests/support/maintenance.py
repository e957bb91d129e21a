"""Facts about the maintenance of nodes, and a log of them with what the decider makes of it."""

from datetime import datetime, timedelta
from typing import Any

from gpuledger.deciders.maintenance.projection import MaintenanceProjection
from gpuledger.domain.fact import ns_of_time
from gpuledger.domain.maintenance.state import Maintenance
from gpuledger.events.device import DeviceAssignmentChanged, DeviceWithdrawn
from gpuledger.events.envelope import Decoded, Event
from gpuledger.events.maintenance import (
    Isolation,
    NodeIsolationApplied,
    NodeIsolationChanged,
    NodeMaintenanceReleased,
    NodeMaintenanceRequested,
)
from gpuledger.events.node import NodeGone, NodeObserved
from gpuledger.events.payload import Payload
from gpuledger.ledger.api import Message
from gpuledger.projection.definition import Numbering
from gpuledger.projection.fold import Fold
from support.events import GENERATION, START, message

OPERATOR, WATCHERS, WRITER = "/operators/eva", "/watchers/nodes", "/services/nodewriter"
OWN = Numbering("own", 1)


def requested(owner: str = "operators/eva", **fields: Any) -> NodeMaintenanceRequested:
    """A request for a cordon, unless the fields say otherwise."""
    return NodeMaintenanceRequested.model_validate({"owner": owner, "reason": "repair", **fields})


def released(owner: str = "operators/eva") -> NodeMaintenanceReleased:
    return NodeMaintenanceReleased(owner=owner, reason="done")


def observed(uid: str = "u1") -> NodeObserved:
    return NodeObserved(uid=uid)


def applied(intent: Decoded, **was: Any) -> NodeIsolationApplied:
    """The outcome of an intent."""
    return NodeIsolationApplied(intent=intent.id, written=True, was=Isolation.model_validate(was))


def source_of(data: Payload) -> str:
    """Who records it."""
    if isinstance(data, NodeObserved | NodeGone):
        return WATCHERS
    if isinstance(data, DeviceAssignmentChanged | DeviceWithdrawn):
        return "/services/pools" if isinstance(data, DeviceAssignmentChanged) else "/services/inventory"
    return OPERATOR if isinstance(data, NodeMaintenanceRequested | NodeMaintenanceReleased) else WRITER


class MaintenanceLog:
    """A log in memory, folded as it grows; decisions are recorded at once."""

    def __init__(self) -> None:
        self.log: list[Decoded] = []
        self.fold = Fold(MaintenanceProjection(), GENERATION, numbering=OWN)
        self._numbers: dict[str, int] = {}
        self._recorded: list[datetime] = []

    @property
    def state(self) -> Maintenance:
        state = self.fold.state
        assert isinstance(state, Maintenance)
        return state

    def record(self, node: str, data: Payload, at_s: float, *, imported: bool = False) -> list[Decoded]:
        """Record a fact of that second; returns the intents and expiries that follow, recorded as well."""
        source = source_of(data)
        number = self._numbers[source] = self._numbers.get(source, 0) + 1
        event_id = f"{source}/{number}"
        event = Event(event_id, source, data.TYPE, node, at(at_s), data, "e", number, imported=imported)
        self._append(event, at(at_s))
        return self._take(at(at_s))

    def pass_time(self, now_s: float) -> list[Decoded]:
        """Have the decider look at the clock."""
        self.fold.due(at(now_s))
        return self._take(at(now_s))

    def intents(self) -> list[Decoded]:
        """All intents of the log."""
        return [event for event in self.log if isinstance(event.data, NodeIsolationChanged)]

    def messages(self, after: int = 0) -> list[Message]:
        """The log as messages, whose sequences follow that one."""
        pairs = enumerate(zip(self.log, self._recorded, strict=True), after + 1)
        return [_recorded(event, sequence, recorded_at) for sequence, (event, recorded_at) in pairs]

    def _append(self, event: Decoded, recorded_at: datetime) -> None:
        self.log.append(event)
        self._recorded.append(recorded_at)
        self.fold.apply(_recorded(event, len(self.log), recorded_at))

    def _take(self, recorded_at: datetime) -> list[Decoded]:
        taken: list[Decoded] = []
        while decided := self.fold.take_decided():
            for event in decided:
                self._append(event, recorded_at)
            taken += decided
        return taken


def _recorded(event: Decoded, sequence: int, recorded_at: datetime) -> Message:
    return message(event, sequence)._replace(recorded_ns=ns_of_time(recorded_at))


def at(second: float) -> datetime:
    """A time of the log."""
    return START + timedelta(seconds=second)
