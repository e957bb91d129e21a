"""A world in which a rollout happens: nodes with agents, services that lag behind the log, and what people do to them.

All chance is in one seed. Each service folds as much of the log as chance has it; what is decided stands at the head of
the log, behind facts that nobody has folded yet. What is true of a machine and what is recorded of it are kept apart.
"""

from collections.abc import Callable
from datetime import datetime
from random import Random
from typing import Any

from gpuledger.deciders.maintenance.projection import MaintenanceProjection
from gpuledger.deciders.rollout.budget import is_unavailable, max_unavailable
from gpuledger.deciders.rollout.projection import RolloutProjection
from gpuledger.deciders.rollout.timeouts import waits
from gpuledger.domain.machineconfig.state import IDLE, Rollout
from gpuledger.events.envelope import Decoded, Event
from gpuledger.events.machine_config import (
    MachineConfigGone,
    MachineConfigPoolGone,
    MachineConfigWaitEnded,
    NodeConfigChanged,
    NodeConfigReported,
    NodeMachineGone,
    NodeMachineObserved,
    RolloutControllerPlaced,
)
from gpuledger.events.maintenance import (
    Isolation,
    NodeDrainChanged,
    NodeDrainFinished,
    NodeDrainProgressed,
    NodeDrainSuperseded,
    NodeIsolationApplied,
    NodeIsolationChanged,
    NodeIsolationFailed,
    NodeIsolationSuperseded,
)
from gpuledger.events.node import NodeGone, NodeLabelled, NodeObserved, NodeUnlabelled
from gpuledger.events.payload import Payload
from gpuledger.events.pod import PodGone, PodObserved
from gpuledger.ledger.api import Message
from gpuledger.projection.definition import Projection
from support.machine_configs import config_file, config_pool, machine_config
from support.rollout import at, message_of, new_fold, reloaded, source_of

POOLS = ("a", "b")
ZONE = "topology.kubernetes.io/zone"
_BY_CLOCK = (MachineConfigWaitEnded, RolloutControllerPlaced)
"""What a service decides because of time or of its place, and no fold of the log by itself."""

AGENT_ERRORS_MAX = 3
LATE_MAX_S = 20.0
"""How late the status writer, an agent's work and its report may each be: together less than an agent may take.

Who has heard nothing from an agent for so long takes it that the agent was never at what it is not to do any more.
"""

QUIET_STEP_S = 31.0
QUIET_ROUNDS_MAX = 600
"""How often everybody does all that is to be done, with time passing in between, until nothing happens any more."""


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


class World:
    """All of it. `moves` says whether nodes come, go and change their pools."""

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
        self.begin()

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
            busy = {
                node
                for node, row in rows.items()
                if row.phase != IDLE or (self.machines[node].is_unavailable and self.machines[node].uid == row.uid)
            }
            assert len(busy) <= max_unavailable(definition.max_unavailable, len(members)), (pool, busy)

    def check(self) -> None:
        """What is unavailable through the rollout counts, whatever anybody has seen of it."""
        for name, machine in self.machines.items():
            row = self.state.node.get(name)
            if machine.is_unavailable and row is not None and row.uid == machine.uid and row.pool is not None:
                assert is_unavailable(self.state, row), (name, row, vars(machine))

    # People, and what befalls machines.

    def begin(self) -> None:
        """A pool and some nodes."""
        for number in range(self.chance.randint(2, 5)):
            self.add_machine(f"n{number}")
        for pool in POOLS[: self.chance.randint(1, 2)]:
            self.define(pool)
        self.configure()

    def add_machine(self, name: str) -> None:
        """A machine, new or made anew."""
        before = self.machines.get(name)
        machine = self.machines[name] = Machine(name, before.number + 1 if before else 0)
        machine.labels = {"pool": self.chance.choice(POOLS)}
        if self.chance.random() < 0.7:
            machine.labels[ZONE] = self.chance.choice("xyz")
        if self.chance.random() < 0.5:
            machine.current, machine.state = "rendered-a-older", "done"
        self.isolations.pop(name, None)
        self.drains.pop(name, None)
        self.record(name, NodeObserved(uid=machine.uid))
        self.label(machine)
        self.observe(machine)

    def label(self, machine: Machine) -> None:
        self.record(machine.name, NodeLabelled(uid=machine.uid, labels=machine.labels))

    def observe(self, machine: Machine) -> None:
        """A watcher records the Node as it is."""
        data = NodeMachineObserved(
            uid=machine.uid,
            created=at(machine.number),
            unschedulable=machine.cordoned_by_us or machine.cordoned_by_hand,
            current_revision=machine.current,
            agent_state=machine.state,
        )
        self.record(machine.name, data)

    def lose_machine(self, machine: Machine) -> None:
        machine.exists, machine.cordoned_by_us, machine.works_on = False, False, None
        for data in (NodeGone(), NodeUnlabelled(), NodeMachineGone()):
            self.record(machine.name, data)
        machine.untold = []

    def define(self, pool: str, **fields: Any) -> None:
        """A pool, as somebody wants it now."""
        given = {
            "node_selector": {"labels": {"pool": pool}},
            "debounce_s": self.chance.choice((0, 0, 20)),
            "apply_timeout_s": self.chance.choice((120, 240)),
            "max_unavailable": self.chance.choice(("1", "1", "2", "30%", "50%")),
            "drain_timeout_s": self.chance.choice((60, 90)),
            "paused": self.chance.random() < 0.3,
            "history_limit": self.chance.choice((0, 1, 2)),
            "prefers_idle": self.chance.random() < 0.3,
            "pinned_revision": self.chance.choice((None, None, *sorted(self.state.rendered.rows))),
        }
        if self.moves and self.chance.random() < 0.15:
            given["node_selector"] = {"labels": {}}
        self.pools[pool] = given | fields
        self.record(pool, config_pool(uid=pool, **self.pools[pool]))

    def configure(self) -> None:
        """A MachineConfig, changed or gone."""
        if self.chance.random() < 0.1:
            self.record("sysctl", MachineConfigGone())
        elif self.chance.random() < 0.1:
            self.record("other", machine_config(config_file("/proc/refused")))
        else:
            self.record("other", MachineConfigGone())
            self.record("sysctl", machine_config(config_file(content=self.chance.choice("123"))))

    def interfere(self) -> None:
        """Somebody does something, or something breaks."""
        machine = self.chance.choice(list(self.machines.values()))
        deeds: list[Callable[[], object]] = [
            self.configure,
            self.configure,
            lambda: self.define(self.chance.choice(list(self.pools))),
            lambda: self.hand(machine, cordons=not machine.cordoned_by_hand),
            lambda: self.hand(machine, cordons=False),
            lambda: setattr(machine, "blocks", not machine.blocks),
            lambda: setattr(machine, "errors", self.chance.randint(1, AGENT_ERRORS_MAX)),
            lambda: self.hold(machine),
            self.restart,
        ]
        if self.moves:
            deeds += [lambda: self.move(machine), lambda: self.replace(machine), self.withdraw_pool]
        self.chance.choice(deeds)()

    def hand(self, machine: Machine, *, cordons: bool) -> None:
        """Somebody cordons or uncordons a Node, whoever has cordoned it before."""
        if machine.exists:
            machine.cordoned_by_hand = cordons
            machine.cordoned_by_us = machine.cordoned_by_us and cordons

    def hold(self, machine: Machine) -> None:
        pod = f"ns/{machine.name}"
        holds = self.chance.random() < 0.5
        data = PodObserved(uid="p", node=machine.name, requests={"nvidia.com/gpu": 1}) if holds else PodGone()
        self.record(pod, data, "/watchers/pods")

    def move(self, machine: Machine) -> None:
        if machine.exists:
            machine.labels = {**machine.labels, "pool": self.chance.choice(("a", "b", "none"))}
            self.label(machine)

    def replace(self, machine: Machine) -> None:
        if machine.exists:
            self.lose_machine(machine)
        else:
            self.add_machine(machine.name)

    def withdraw_pool(self) -> None:
        pool = self.chance.choice(list(self.pools))
        self.record(pool, MachineConfigPoolGone())
        if self.chance.random() < 0.7:
            self.define(pool)

    def restart(self) -> None:
        """The service begins anew from its rows or from the log, perhaps on another node."""
        node = self.chance.choice(("", *self.machines))
        projection, fold = self._new_rollout(node), self.rollout.fold
        if self.chance.random() < 0.5:
            self.rollout.fold = reloaded(fold, projection)
        else:
            self.rollout.fold = again = new_fold(projection)
            again.apply_all(self.log[: self.rollout.cursor])
            again.take_decided()
            waits_over = {one.id for one in fold.outstanding() if isinstance(one.data, _BY_CLOCK)}
            assert {one.id for one in again.outstanding()} == {one.id for one in fold.outstanding()} - waits_over
            again.adopt(one for one in fold.outstanding() if one.id in waits_over)
            again.renumber((), fold.numbering)
        self.rollout.projection = projection

    # What writes to Nodes.

    def write_nodes(self) -> None:
        """The writer of Nodes learns of intents, and carries some out."""
        for event in self.events[self.writer_cursor :]:
            if isinstance(event.data, NodeIsolationChanged):
                before = self.isolations.pop(event.subject, None)
                if before is not None:
                    superseded = NodeIsolationSuperseded(intent=before.id, reason="Newer")
                    self.record(event.subject, superseded)
                self.isolations[event.subject] = event
            elif isinstance(event.data, NodeDrainChanged):
                self.drains.pop(event.subject, None)
                if event.data.drains:
                    self.drains[event.subject] = event
        self.writer_cursor = len(self.events)
        for node in sorted(self.isolations):
            if self.chance.random() < 0.7:
                self.isolate(node, self.isolations.pop(node))
        for node in sorted(self.drains):
            if node not in self.isolations and self.chance.random() < 0.7:
                self.drain(node, self.drains[node])

    def isolate(self, node: str, intent: Decoded, *, may_fail: bool = True) -> None:
        machine = self.machines[node]
        assert isinstance(intent.data, NodeIsolationChanged)
        draw = self.chance.random() if may_fail else 1.0
        if not machine.exists or machine.uid != intent.data.uid:
            self.record(node, NodeIsolationSuperseded(intent=intent.id, reason="NodeGone"))
        elif draw < 0.05:
            self.record(node, NodeIsolationFailed(intent=intent.id, reason="Forbidden"))
        elif draw < 0.1:
            self.record(node, NodeIsolationSuperseded(intent=intent.id, reason="Expired"))
        else:
            machine.cordoned_by_us = intent.data.isolation.unschedulable and not machine.cordoned_by_hand
            was = Isolation(unschedulable=machine.cordoned_by_hand)
            self.record(node, NodeIsolationApplied(intent=intent.id, written=True, was=was))

    def drain(self, node: str, intent: Decoded) -> None:
        machine = self.machines[node]
        assert isinstance(intent.data, NodeDrainChanged)
        if not machine.exists or machine.uid != intent.data.uid:
            self.record(node, NodeDrainSuperseded(intent=intent.id, reason="NodeGone"))
            del self.drains[node]
        elif not (machine.cordoned_by_us or machine.cordoned_by_hand):
            self.record(node, NodeDrainSuperseded(intent=intent.id, reason="NotCordoned"))
            del self.drains[node]
        elif machine.blocks:
            self.record(node, NodeDrainProgressed(intent=intent.id, left=1))
        else:
            self.record(node, NodeDrainFinished(intent=intent.id))
            del self.drains[node]

    def annotate(self, count: int) -> None:
        """The status writer writes to Nodes what so many of the next events say."""
        for event in self.events[self.status_cursor : self.status_cursor + count]:
            self.status_cursor += 1
            machine = self.machines.get(event.subject)
            if isinstance(event.data, NodeConfigChanged) and machine is not None and machine.uid == event.data.uid:
                machine.desired = (event.data.desired_revision, event.data.desired_set_at)
                machine.desired_at = self.now

    # Agents.

    def work(self, machine: Machine) -> None:
        """An agent does its next step."""
        desired, _ = machine.desired
        if not machine.exists:
            return
        is_new, machine.seen = machine.seen != machine.desired, machine.desired
        if desired is None:
            if machine.works_on is not None or machine.state not in ("idle", "done"):
                machine.works_on = None
                self.tell(machine, "idle")
        elif machine.works_on is None and machine.current == desired:
            if is_new and self.answers:
                self.tell(machine, "done")
        elif machine.works_on != desired:
            machine.works_on = desired
            self.tell(machine, "applying")
        elif machine.errors:
            machine.errors -= 1
            self.tell(machine, "error")
        else:
            machine.current, machine.works_on = desired, None
            self.tell(machine, "done")

    def hurry(self) -> None:
        """What is late by as much as may be comes now."""
        late = at(self.now - LATE_MAX_S)
        while self.status_cursor < len(self.events) and self.log_times[self.status_cursor] < late:
            self.annotate(1)
        for machine in self.machines.values():
            if machine.seen != machine.desired and machine.desired_at < self.now - LATE_MAX_S:
                self.work(machine)
            while machine.untold and machine.untold[0].time < late:
                self.append(machine.untold.pop(0))
            if machine.exists and machine.told_at < self.now - LATE_MAX_S and not self.relays:
                self.observe(machine)

    def tell(self, machine: Machine, state: Any) -> None:
        """An agent reports; that comes into the log some time later, perhaps twice, perhaps not in order."""
        machine.state, machine.told_at = state, self.now
        if self.relays:
            revision = machine.works_on or machine.desired[0]
            error = "it does not work" if state == "error" else ""
            data = NodeConfigReported(state=state, revision=revision, current_revision=machine.current, error=error)
            machine.untold.append(self.made(machine.name, data))

    def deliver(self, machine: Machine) -> None:
        """A report comes into the log."""
        if machine.untold:
            event = self.chance.choice(machine.untold)
            self.append(event)
            if self.chance.random() < 0.8:
                machine.untold.remove(event)

    # The course of it all.

    def run(self, steps: int) -> None:
        """So many things happen."""
        for _ in range(steps):
            self.now += self.chance.choice((0, 0.1, 1, 5, 15))
            self.hurry()
            self.step()
            self.check()

    def step(self) -> None:
        machine = self.chance.choice(list(self.machines.values()))
        draw = self.chance.random()
        if draw < 0.25:
            self.follow(self.rollout, self.chance.randint(1, 12))
        elif draw < 0.4:
            self.follow(self.maintenance, self.chance.randint(1, 12))
        elif draw < 0.5:
            self.write_nodes()
        elif draw < 0.6:
            self.annotate(self.chance.randint(1, 20))
        elif draw < 0.72:
            self.work(machine)
        elif draw < 0.8:
            self.deliver(machine)
        elif draw < 0.87:
            self.pass_time(self.rollout)
        elif draw < 0.93:
            if machine.exists:
                self.observe(machine)
        else:
            self.interfere()

    def settle(self) -> None:
        """People leave everything alone, nothing breaks any more, and everybody does what is to be done."""
        for machine in self.machines.values():
            machine.blocks, machine.errors = False, 0
            self.hand(machine, cordons=machine.cordoned_by_us)
            machine.cordoned_by_hand = False
        for _ in range(QUIET_ROUNDS_MAX):
            before = len(self.events)
            self._everybody()
            self.check()
            if len(self.events) == before and not list(waits(self.state)):
                return
            self.now += QUIET_STEP_S
        raise AssertionError(f"It does not come to rest: {list(waits(self.state))}, {self.events[-5:]}")

    def _everybody(self) -> None:
        for _ in range(3):
            for service in (self.rollout, self.maintenance):
                self.pass_time(service)
                self.follow(service, len(self.log))
            self._write_all()
            self.annotate(len(self.events))
            for machine in self.machines.values():
                self.work(machine)
                self.check()
                while machine.untold:
                    self.append(machine.untold.pop(0))
        for machine in self.machines.values():
            row = self.state.node.get(machine.name)
            cordoned = machine.cordoned_by_us or machine.cordoned_by_hand
            is_old = row is not None and row.unschedulable != cordoned
            if machine.exists and (is_old or not self.relays):
                if (
                    not is_old
                    and row is not None
                    and (row.current_revision, row.agent_state)
                    == (
                        machine.current,
                        machine.state,
                    )
                ):
                    continue
                self.observe(machine)

    def _write_all(self) -> None:
        chance, self.chance = self.chance, _Always()  # type: ignore[assignment] - it is asked for numbers alone
        self.write_nodes()
        self.chance = chance


class _Always:
    """Chance that lets everything happen, and nothing fail."""

    def __init__(self) -> None:
        self._draws = 0

    def random(self) -> float:
        """Between what is due and what fails."""
        return 0.5
