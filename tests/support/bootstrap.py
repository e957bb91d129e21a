"""The preparation of nodes for tests: facts of watchers, agents, inventory and pools, folded by the real decider."""

from datetime import datetime, timedelta
from typing import Any, Literal

from gpuledger.deciders.bootstrap.projection import BootstrapProjection
from gpuledger.domain.bootstrap.facts import BootstrapFacts
from gpuledger.domain.inventory.status import shown_state
from gpuledger.events.device import (
    Description,
    DeviceAssignmentChanged,
    DeviceDescribed,
    DeviceDetected,
    DeviceHealthChanged,
    DeviceIdentified,
    DeviceWithdrawn,
    Hardware,
)
from gpuledger.events.envelope import Decoded, Event
from gpuledger.events.module import ModulePrerequisiteChanged
from gpuledger.events.node import (
    ComponentPod,
    Condition,
    NodeBootstrapChanged,
    NodeComponentsObserved,
    NodeDevicesObserved,
    NodeInventoryChanged,
    NodeInventoryWithdrawn,
    NodeMonitoringObserved,
)
from gpuledger.events.payload import Payload
from gpuledger.events.settings import SettingsChanged
from gpuledger.ledger.api import Message
from gpuledger.projection.definition import Numbering
from gpuledger.projection.fold import Fold
from support.events import EPOCH, GENERATION, START, message

MODULE = "gpu-control-plane"
NODE = "w1"
Step = tuple[str, str]
"""Who came into which phase or state: `("w1", "Validating")`."""

ALL_READY = dict.fromkeys(("validator", "gfd", "dcgm", "dcgm_exporter"), "ready")


def second(number: float) -> datetime:
    """A time some seconds after the start of all tests."""
    return START + timedelta(seconds=number)


def inventory(*, managed: bool = True, complete: bool = True, present: bool = True) -> NodeInventoryChanged:
    """What the inventory keeps of a node."""
    disabled: Literal["True", "False"] = "False" if managed else "True"
    completed: Literal["True", "False"] = "True" if complete else "False"
    conditions = (
        Condition(type="InventoryComplete", status=completed, reason="Decided"),
        Condition(type="ManagedDisabled", status=disabled, reason="Decided"),
    )
    return NodeInventoryChanged(present=present, conditions=conditions)


def detected(card: str, node: str = NODE, *, address: str | None = None, **others: Any) -> DeviceDetected:
    """A GPUDevice on the node."""
    return DeviceDetected(hardware=Hardware(pci_address=address), managed=True, node=node, card=card, **others)


def described(*, address: str | None = None, **others: bool) -> DeviceDescribed:
    """What a GPUDevice shows; others are flags such as `missing`."""
    return DeviceDescribed(**dict(Description(hardware=Hardware(pci_address=address), managed=True, **others)))


def components(**pods: str) -> NodeComponentsObserved:
    """Pods by component, `_` for `-`: `ready`, `waiting` or `failing`, a step after a colon where there is one."""
    return NodeComponentsObserved(pods=tuple(_pod(name.replace("_", "-"), recorded) for name, recorded in pods.items()))


def _pod(name: Any, recorded: str) -> ComponentPod:
    standing, _, step = recorded.partition(":")
    return ComponentPod(
        component=name, pod=f"{name}-x", ready=standing == "ready", failing=standing == "failing", step=step or None
    )


def all_ready(**others: str) -> NodeComponentsObserved:
    """Every component ready, but for others."""
    return components(**{**ALL_READY, **others})


def heartbeat(*, fresh: bool = True) -> NodeMonitoringObserved:
    """An agent's report on the heartbeat."""
    return NodeMonitoringObserved(fresh=fresh)


def cards(*, driver: bool = True) -> NodeDevicesObserved:
    """What the node's agent sees, with a driver that answers or without."""
    return NodeDevicesObserved(driver_missing=not driver)


def assigned(phase: Literal["Pending", "Assigned", "Unassigning"] | None) -> DeviceAssignmentChanged:
    """A pool's decision about a device."""
    return DeviceAssignmentChanged(pool=None if phase is None else "p", phase=phase, reason="Decided")


_SERVICES: dict[type[Payload], str] = {
    NodeComponentsObserved: "/watchers/components",
    SettingsChanged: "/watchers/moduleconfig",
    DeviceAssignmentChanged: "/services/pools",
    **dict.fromkeys(
        (
            DeviceDetected,
            DeviceDescribed,
            DeviceIdentified,
            DeviceWithdrawn,
            NodeInventoryChanged,
            NodeInventoryWithdrawn,
            ModulePrerequisiteChanged,
        ),
        "/services/inventory",
    ),
}


def source_of(data: Payload, subject: str) -> str:
    """The source of such a fact."""
    if isinstance(data, DeviceHealthChanged):
        return f"/nodes/{NODE}/agent"
    return _SERVICES.get(type(data)) or f"/nodes/{subject}/agent"


class Prepared:
    """The decider, and the log with its facts and decisions."""

    def __init__(self) -> None:
        self.fold = Fold(BootstrapProjection(), GENERATION, numbering=Numbering("own", 1))
        self.log: list[Message] = []
        self._numbers: dict[str, int] = {}
        self.record(0, MODULE, ModulePrerequisiteChanged(met=True, reason="Decided"))

    @property
    def state(self) -> BootstrapFacts:
        state = self.fold.state
        assert isinstance(state, BootstrapFacts)
        return state

    def record(self, at: float, subject: str, data: Payload, *, source: str | None = None) -> list[Decoded]:
        """Record a fact at a second, and return the decisions, which come back from the log at once."""
        self._record(self.event(at, subject, data, source=source))
        return self._record_decided()

    def event(self, at: float, subject: str, data: Payload, *, source: str | None = None) -> Decoded:
        """The next event of the source of such facts."""
        source_name = source or source_of(data, subject)
        number = self._numbers[source_name] = self._numbers.get(source_name, 0) + 1
        return Event(f"{source_name}#{number}", source_name, data.TYPE, subject, second(at), data, EPOCH, number)

    def race(self, until: float, at: float, subject: str, data: Payload) -> list[Decoded]:
        """Record a fact between a decision on what is due and the recording of that decision."""
        self.fold.due(second(until))
        due = self.fold.take_decided()
        self._record(self.event(at, subject, data))
        further = self.fold.take_decided()
        for decision in (*due, *further):
            self._record(decision)
        return [*due, *further, *self._record_decided()]

    def wait(self, until: float) -> list[Decoded]:
        """Ask what is due at a second."""
        self.fold.due(second(until))
        return self._record_decided()

    def _record_decided(self) -> list[Decoded]:
        decided: list[Decoded] = []
        while further := self.fold.take_decided():
            decided.extend(further)
            for decision in further:
                self._record(decision)
        assert self.fold.outstanding() == []
        return decided

    def _record(self, one: Decoded) -> None:
        self.log.append(message(one, len(self.log) + 1))
        self.fold.apply(self.log[-1])

    def phase(self, node: str = NODE) -> str | None:
        """The node's phase."""
        row = self.state.phase.get(node)
        return None if row is None else row.phase

    def conditions(self, node: str = NODE) -> dict[str, tuple[str, str]]:
        """Status and reason of the node's conditions."""
        return {row.type: (row.status, row.reason) for row in self.state.preparation.where("node", node)}

    def device(self, name: str) -> tuple[str, str]:
        """State and reason of a device."""
        row = self.state.state.get(name)
        return ("Discovered", "") if row is None else (row.state, row.reason)

    def shown(self, name: str) -> str:
        """The state that a GPUDevice shows, where one that leaves its pool was Assigned."""
        return shown(self.device(name)[0], self.state.device.rows[name].assignment)


def shown(so_far: str, phase: str | None) -> str:
    """The state that a GPUDevice shows, where one that leaves its pool was Assigned."""
    return shown_state(so_far, phase, was_assigned=phase == "Unassigning")


def prepared(*devices: str, facts: NodeComponentsObserved | None = None, heartbeat_count: int = 3) -> Prepared:
    """A node with devices, the inventory at second 1, its components at 2, and heartbeats from 3 on."""
    node = Prepared()
    for name in devices:
        node.record(1, name, detected(f"GPU-{name}"))
    node.record(1, NODE, inventory())
    if facts is not None:
        node.record(2, NODE, facts)
    for number in range(heartbeat_count):
        node.record(3 + number, NODE, heartbeat())
    return node


def ready(*devices: str) -> Prepared:
    """A node that is ready, with devices."""
    return prepared(*devices, facts=all_ready())


def steps(decided: list[Decoded]) -> list[Step]:
    """The phases and states that were come into, in order; what only changed conditions has none."""
    found: list[Step] = []
    for one in decided:
        name = getattr(one.data, "phase" if isinstance(one.data, NodeBootstrapChanged) else "state", None)
        if name is not None and (one.subject, name) not in found[-1:]:
            found.append((one.subject, name))
    return found
