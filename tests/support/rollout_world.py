"""A world in which a rollout happens: nodes with agents, services that lag behind the log, and what people do to them.

All chance is in one seed. Each service folds as much of the log as chance has it; what is decided stands at the head of
the log, behind facts that nobody has folded yet. What is true of a machine and what is recorded of it are kept apart.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from gpuledger.deciders.rollout.timeouts import waits
from gpuledger.events.machine_config import (
    MachineConfigGone,
    MachineConfigPoolGone,
    MachineConfigWaitEnded,
    NodeMachineGone,
    RolloutControllerPlaced,
)
from gpuledger.events.node import NodeGone, NodeLabelled, NodeObserved, NodeUnlabelled
from gpuledger.events.pod import PodGone, PodObserved
from support.machine_configs import config_file, config_pool, machine_config
from support.rollout import new_fold, reloaded
from support.rollout_nodes import Nodes
from support.rollout_stage import Machine

POOLS = ("a", "b")
ZONE = "topology.kubernetes.io/zone"
_BY_CLOCK = (MachineConfigWaitEnded, RolloutControllerPlaced)
"""What a service decides because of time or of its place, and no fold of the log by itself."""

AGENT_ERRORS_MAX = 3
QUIET_STEP_S = 31.0
QUIET_ROUNDS_MAX = 600
"""How often everybody does all that is to be done, with time passing in between, until nothing happens any more."""


class World(Nodes):
    """All of it: everybody acts by chance, and at last leaves everything alone."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.begin()

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
        chance, self.chance = self.chance, _Always()
        self.write_nodes()
        self.chance = chance


class _Always(Random):
    """Chance that lets everything happen, and nothing fail."""

    def random(self) -> float:
        """Between what is due and what fails."""
        return 0.5
