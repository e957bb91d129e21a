"""A log of facts about machine configuration in memory, and what the decider of the rollout makes of it."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from gpuledger.deciders.rollout.projection import RolloutProjection
from gpuledger.domain.fact import ns_of_time
from gpuledger.domain.machineconfig.rows import ConfigNodeRow, ConfigPoolStatusRow
from gpuledger.domain.machineconfig.state import Rollout
from gpuledger.events.envelope import Decoded, Event
from gpuledger.events.machine_config import (
    MachineConfigDefined,
    MachineConfigGone,
    MachineConfigPoolDefined,
    MachineConfigPoolGone,
    MachineConfigWaitEnded,
    NodeConfigChanged,
    NodeConfigReported,
    NodeMachineGone,
    NodeMachineObserved,
)
from gpuledger.events.maintenance import (
    Drain,
    Isolation,
    NodeDrainChanged,
    NodeDrainFinished,
    NodeDrainSuperseded,
    NodeIsolationApplied,
    NodeIsolationChanged,
    NodeIsolationFailed,
    NodeMaintenanceReleased,
    NodeMaintenanceRequested,
    OwnedDrain,
)
from gpuledger.events.node import NodeGone, NodeLabelled, NodeObserved, NodeUnlabelled
from gpuledger.events.payload import Payload
from gpuledger.events.position import ORIGIN
from gpuledger.ledger.api import Message
from gpuledger.projection.definition import Numbering, Projection
from gpuledger.projection.enforced import EnforcedRule, EnforcedRules
from gpuledger.projection.fold import Fold
from support.events import GENERATION, START, message

OWN = Numbering("own", 1)
P = TypeVar("P", bound=Payload)


def at(second: float) -> datetime:
    """A time of the log."""
    return START + timedelta(seconds=second)


def new_fold(projection: Projection | None = None, **more: Any) -> Fold:
    """A fold in which the reports of agents are in force."""
    in_force = EnforcedRules([EnforcedRule(NodeConfigReported.TYPE, 1, ORIGIN)])
    return Fold(projection or RolloutProjection(), GENERATION, numbering=OWN, enforced=in_force, **more)


def reloaded(fold: Fold, projection: Projection | None = None) -> Fold:
    """The fold of a process that goes on from the rows of another one."""
    state = RolloutProjection().new_state()
    for name, table in state.tables().items():
        table.load(sorted(fold.state.tables()[name].rows.values(), key=str))
    more = {"state": state, "seen": fold.seen, "sequence": fold.sequence, "expected": fold.outstanding()}
    again = new_fold(projection, **more)
    again.renumber((), fold.numbering)
    return again


def source_of(subject: str, data: Payload) -> str:
    """Who records it."""
    sources: dict[str, tuple[type[Payload], ...]] = {
        "/watchers/machineconfigs": (MachineConfigDefined, MachineConfigGone),
        "/watchers/machineconfigpools": (MachineConfigPoolDefined, MachineConfigPoolGone),
        "/watchers/nodes": (NodeLabelled, NodeUnlabelled, NodeObserved, NodeGone, NodeMachineObserved, NodeMachineGone),
        "/services/maintenance": (NodeIsolationChanged, NodeDrainChanged),
    }
    if isinstance(data, NodeConfigReported):
        return f"/nodes/{subject}/agent"
    return next((source for source, kinds in sources.items() if isinstance(data, kinds)), "/services/nodewriter")


def message_of(event: Decoded, recorded_at: datetime, sequence: int) -> Message:
    """The event as the log has it at a sequence, recorded then."""
    return message(event, sequence)._replace(recorded_ns=ns_of_time(recorded_at))


def machine(node: str, created_s: float = 0, **fields: Any) -> NodeMachineObserved:
    """The Node of a machine."""
    return NodeMachineObserved.model_validate({"uid": f"uid-{node}", "created": at(created_s), **fields})


class RolloutLog:
    """A log in memory, folded as it grows; decisions are recorded at once."""

    def __init__(self, *, runs_on: str | None = None) -> None:
        self.log: list[tuple[Decoded, datetime]] = []
        self.projection = RolloutProjection(runs_on)
        self.fold = new_fold(self.projection)
        self._numbers: dict[str, int] = {}

    @property
    def state(self) -> Rollout:
        state = self.fold.state
        assert isinstance(state, Rollout)
        return state

    def record(self, subject: str, data: Payload, at_s: float, **more: Any) -> list[Decoded]:
        """Record a fact of that second; returns the decisions that follow."""
        source = more.pop("source", None) or source_of(subject, data)
        recorded_at = at(more.pop("recorded_s", at_s))
        number = self._numbers[source] = self._numbers.get(source, 0) + 1
        event = Event(f"{source}/{number}", source, data.TYPE, subject, at(at_s), data, "rollout", number, **more)
        self._append(event, recorded_at)
        return self._take(recorded_at)

    def pass_time(self, now_s: float) -> list[Decoded]:
        """Have the decider look what is due; returns what it decides, but for the ends of waits."""
        self.fold.due(at(now_s))
        return self._take(at(now_s))

    def node(self, name: str, at_s: float, *, labels: dict[str, str] | None = None, **fields: Any) -> list[Decoded]:
        """A Node appears."""
        self.record(name, NodeLabelled(uid=f"uid-{name}", labels=labels or {}), at_s)
        return self.record(name, machine(name, **fields), at_s)

    def reports(self, node: str, at_s: float, *, state: str = "done", **fields: Any) -> list[Decoded]:
        """The agent of a node reports; without other fields that it has what it is to have."""
        desired = self.row(node).desired_revision
        given = {"state": state, "revision": desired, "current_revision": desired, **fields}
        return self.record(node, NodeConfigReported.model_validate(given), at_s)

    def decides_isolation(self, node: str, at_s: float, *, unschedulable: bool) -> None:
        """The maintenance service decides that the node is set aside, because of the last request, or given back."""
        cause = self.last(NodeMaintenanceRequested if unschedulable else NodeMaintenanceReleased, node)
        data = NodeIsolationChanged(uid=f"uid-{node}", isolation=Isolation(unschedulable=unschedulable))
        self.record(node, data, at_s, causation_id=cause.id)

    def isolated(self, node: str, at_s: float, *, unschedulable: bool = True) -> list[Decoded]:
        """The maintenance service has the node set aside or given back, and that is carried out."""
        self.decides_isolation(node, at_s, unschedulable=unschedulable)
        return self.record(node, NodeIsolationApplied(intent=self.last(NodeIsolationChanged).id, written=True), at_s)

    def drains(self, node: str, at_s: float) -> str:
        """The node is set aside, and its drain begins; the intent."""
        self.isolated(node, at_s)
        request = self.last(NodeMaintenanceRequested, node)
        assert isinstance(request.data, NodeMaintenanceRequested)
        owned = OwnedDrain(owner=request.data.owner, since=request.time, drain=request.data.drain or Drain())
        self.record(node, NodeDrainChanged(uid=f"uid-{node}", drains=(owned,)), at_s)
        return self.last(NodeDrainChanged).id

    def drained(self, node: str, at_s: float) -> list[Decoded]:
        """The node is set aside and drained; what is decided then."""
        intent = self.drains(node, at_s)
        return self.record(node, NodeDrainFinished(intent=intent), at_s)

    def uncordoned_by_hand(self, node: str, at_s: float) -> list[Decoded]:
        """Somebody uncordons a node that is drained."""
        intent = self.last(NodeDrainChanged).id
        return self.record(node, NodeDrainSuperseded(intent=intent, reason="NotCordoned"), at_s)

    def isolation_fails(self, node: str, at_s: float, *, unschedulable: bool) -> list[Decoded]:
        """The API server refuses to have the node set aside, or given back."""
        self.decides_isolation(node, at_s, unschedulable=unschedulable)
        return self.record(node, NodeIsolationFailed(intent=self.last(NodeIsolationChanged).id, reason="No"), at_s)

    def row(self, node: str) -> ConfigNodeRow:
        """A node's row."""
        row = self.state.node.get(node)
        assert row is not None
        return row

    def status(self, pool: str) -> ConfigPoolStatusRow:
        """A pool's row."""
        row = self.state.status.get(pool)
        assert row is not None
        return row

    def last(self, kind: type[Payload], subject: str | None = None) -> Decoded:
        """The last event of a type, perhaps about something."""
        found = [event for event, _ in self.log if isinstance(event.data, kind)]
        return [event for event in found if subject in (None, event.subject)][-1]

    def messages(self, after: int = 0) -> list[Message]:
        """The log as messages, whose sequences follow that one."""
        return [message_of(event, recorded_at, place) for place, (event, recorded_at) in enumerate(self.log, after + 1)]

    def _append(self, event: Decoded, recorded_at: datetime) -> None:
        self.log.append((event, recorded_at))
        self.fold.apply(message_of(event, recorded_at, len(self.log)))

    def _take(self, now: datetime) -> list[Decoded]:
        taken: list[Decoded] = []
        while decided := self.fold.take_decided():
            for event in decided:
                self._append(event, now)
            taken += decided
        return [event for event in taken if not isinstance(event.data, MachineConfigWaitEnded)]


def data_of(decided: Sequence[Decoded], kind: type[P]) -> list[P]:
    """The decisions of a type."""
    return [event.data for event in decided if isinstance(event.data, kind)]


def phases(decided: Sequence[Decoded]) -> list[tuple[str, str]]:
    """The nodes whose update has come further, and how far."""
    return [(event.subject, event.data.phase) for event in decided if isinstance(event.data, NodeConfigChanged)]


def released(decided: Sequence[Decoded]) -> list[str]:
    """The nodes that are given back."""
    return [event.subject for event in decided if isinstance(event.data, NodeMaintenanceReleased)]
