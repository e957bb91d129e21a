"""The log of a story about a rollout, the services that follow it, its machines, and what must hold at any time.

What is true of a machine and what is recorded of it are kept apart: the property is about what is true.
"""

from datetime import datetime
from random import Random
from typing import Any

from gpuledger.deciders.maintenance.projection import MaintenanceProjection
from gpuledger.deciders.rollout.budget import is_unavailable, max_unavailable
from gpuledger.deciders.rollout.projection import RolloutProjection
from gpuledger.domain.machineconfig.rows import ConfigNodeRow
from gpuledger.domain.machineconfig.state import IDLE, Rollout
from gpuledger.events.envelope import Decoded, Event
from gpuledger.events.machine_config import (
    NodeConfigChanged,
)
from gpuledger.events.payload import Payload
from gpuledger.ledger.api import Message
from gpuledger.projection.definition import Projection
from support.rollout import at, message_of, new_fold, source_of

POOLS = ("a", "b")
ZONE = "topology.kubernetes.io/zone"


class Service:
    """A decider that follows the log."""

    def __init__(self, projection: Projection) -> None:
        self.projection = projection
        self.fold = new_fold(projection)
        self.cursor = 0


class Machine:
    """A machine: what is true of it, and what its agent has still to tell."""

    def __init__(self, name: str, number: int) -> None:
        self.name, self.number = name, number
        self.uid, self.exists = f"{name}-{number}", True
        self.labels: dict[str, str] = {}
        self.cordoned_by_us = self.cordoned_by_hand = self.blocks = False
        self.desired: tuple[str | None, Any] = (None, None)
        self.seen: tuple[str | None, Any] = (None, None)
        self.current: str | None = None
        self.works_on: str | None = None
        self.errors = 0
        self.state = "idle"
        self.untold: list[Decoded] = []
        self.desired_at = self.told_at = 0.0

    @property
    def is_unavailable(self) -> bool:
        """Whether the rollout keeps it from being of use."""
        return self.exists and (self.cordoned_by_us or self.works_on is not None)


class Stage:
    """The log, the services, and machines. `moves` says whether nodes come, go and change their pools."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.now = 100.0
        self.moves = self.chance.random() < 0.6
        self.relays = self.chance.random() < 0.8
        self.answers = self.chance.random() < 0.5
        self.log: list[Message] = []
        self.log_times: list[datetime] = []
        self.events: list[Decoded] = []
        self.numbers: dict[str, int] = {}
        self.rollout, self.maintenance = Service(self._new_rollout("")), Service(MaintenanceProjection())
        self.machines: dict[str, Machine] = {}
        self.pools: dict[str, dict[str, Any]] = {}
        self.writer_cursor = self.status_cursor = 0
        self.phases: dict[str, str] = {}
        self.desired: dict[str, str | None] = {}
        self.isolations: dict[str, Decoded] = {}
        self.drains: dict[str, Decoded] = {}

    def _new_rollout(self, node: str) -> RolloutProjection:
        return RolloutProjection(node)

    @property
    def state(self) -> Rollout:
        state = self.rollout.fold.state
        assert isinstance(state, Rollout)
        return state

    # The log.

    def record(self, subject: str, data: Payload, source: str = "") -> Decoded:
        """Somebody records something."""
        event = self.made(subject, data, source)
        self.append(event)
        return event

    def made(self, subject: str, data: Payload, source: str = "") -> Decoded:
        """An event of now."""
        source = source or source_of(subject, data)
        number = self.numbers[source] = self.numbers.get(source, 0) + 1
        return Event(f"{source}/{number}", source, data.TYPE, subject, at(self.now), data, "q", number)

    def append(self, event: Decoded) -> None:
        """An event comes into the log."""
        self.events.append(event)
        self.log_times.append(at(self.now))
        self.log.append(message_of(event, at(self.now), len(self.events)))

    def follow(self, service: Service, count: int) -> None:
        """A service folds so many messages, and records what it decides."""
        for message in self.log[service.cursor : service.cursor + count]:
            service.fold.apply(message)
            service.cursor += 1
            self.publish(service)

    def publish(self, service: Service) -> None:
        """A service records what it has decided."""
        decided = service.fold.take_decided()
        for event in decided:
            self.append(event)
        if service is self.rollout:
            self.check_begun(decided)

    def pass_time(self, service: Service) -> None:
        """A service looks at the clock."""
        service.fold.due(at(self.now))
        self.publish(service)

    # What is true, and what must hold.

    def check_begun(self, decided: list[Decoded]) -> None:
        """Where updates begin, no more nodes are unavailable than may be, those that people cordoned left out."""
        begun: set[str] = set()
        for one in decided:
            if isinstance(one.data, NodeConfigChanged):
                was_idle = self.phases.get(one.subject, IDLE) == IDLE
                self.phases[one.subject] = one.data.phase
                drifts = one.data.phase == "Applying" and one.data.desired_revision == self.desired.get(one.subject)
                self.desired[one.subject] = one.data.desired_revision
                if was_idle and one.data.phase != IDLE and one.data.pool is not None and not drifts:
                    begun.add(one.data.pool)
        for pool in begun:
            definition = self.state.definition(pool)
            if definition is None or definition.paused:
                continue
            members = self.state.membership.members(pool)
            rows = {node: self.state.node.rows[node] for node in members}
            busy = {node for node, row in rows.items() if row.phase != IDLE or self._takes_place(node, row)}
            assert len(busy) <= max_unavailable(definition.max_unavailable, len(members)), (pool, busy)

    def _takes_place(self, node: str, row: ConfigNodeRow) -> bool:
        machine = self.machines[node]
        return machine.is_unavailable and machine.uid == row.uid

    def check(self) -> None:
        """What is unavailable through the rollout counts, whatever anybody has seen of it."""
        for name, machine in self.machines.items():
            row = self.state.node.get(name)
            if machine.is_unavailable and row is not None and row.uid == machine.uid and row.pool is not None:
                assert is_unavailable(self.state, row), (name, row, vars(machine))
