"""What happens on Nodes in a story about a rollout: they are cordoned, drained and annotated, and their agents work."""

from datetime import timedelta
from typing import Any

from gpuledger.events.envelope import Decoded
from gpuledger.events.machine_config import (
    NodeConfigChanged,
    NodeConfigReported,
    NodeMachineObserved,
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
from support.rollout import at
from support.rollout_stage import Machine, Stage

POOLS = ("a", "b")
ZONE = "topology.kubernetes.io/zone"
LATE_MAX_S = 20.0
"""How late the status writer, an agent's work and its report may each be: together less than an agent may take.

Who has heard nothing from an agent for so long takes it that the agent was never at what it is not to do any more.
"""


class Nodes(Stage):
    """A stage on which Nodes are written, and agents work and report."""

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
            facts = {"state": state, "revision": revision, "current_revision": machine.current, "error": error}
            data = NodeConfigReported.model_validate({**facts, "desired_set_at": machine.seen[1]})
            event = self.made(machine.name, data)
            machine.untold.append(event._replace(time=event.time + timedelta(microseconds=event.number)))

    def deliver(self, machine: Machine) -> None:
        """A report comes into the log."""
        if machine.untold:
            event = self.chance.choice(machine.untold)
            self.append(event)
            if self.chance.random() < 0.8:
                machine.untold.remove(event)

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
