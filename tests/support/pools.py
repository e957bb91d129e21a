"""Pools for tests: facts of people, watchers, agents and services for the real decider, and what it decides."""

import os
from typing import Any

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.deciders.pools.projection import PoolsProjection
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.events.device import (
    DeviceAssignmentChanged,
    DeviceDescribed,
    DeviceDetected,
    DeviceMarked,
    DevicePoolApplied,
    DevicePoolRefused,
    DevicePoolReleased,
    DeviceStateChanged,
    DeviceWithdrawn,
    Hardware,
)
from gpuledger.events.envelope import Decoded, decode
from gpuledger.events.maintenance import Isolation, NodeIsolationChanged
from gpuledger.events.module import ModulePrerequisiteChanged
from gpuledger.events.node import Condition, NodeBootstrapChanged, NodeBootstrapWithdrawn
from gpuledger.events.payload import Payload
from gpuledger.events.pool import PoolDefined, PoolGone
from gpuledger.events.settings import SettingsChanged
from gpuledger.ledger.api import Message, Outgoing
from gpuledger.projection.definition import Numbering
from gpuledger.projection.fold import Fold
from support.events import GENERATION, event, message
from support.ledgers import new_ledger

ASKED, ASKED_CLUSTER = "gpu.deckhouse.io/assignment", "cluster.gpu.deckhouse.io/assignment"
MET = ModulePrerequisiteChanged(met=True, reason="PrerequisitesMet")
A100 = Hardware(product="NVIDIA A100-PCIE-40GB", pci_vendor="10de", pci_device="20b5", mig_capable=True)

_FROM_INVENTORY = (DeviceDetected, DeviceDescribed, DeviceWithdrawn, ModulePrerequisiteChanged)
_FROM_BOOTSTRAP = (DeviceStateChanged, NodeBootstrapChanged, NodeBootstrapWithdrawn)
_WATCHER_OF = {
    DeviceMarked: "gpudevices",
    PoolDefined: "gpupools",
    PoolGone: "gpupools",
    SettingsChanged: "moduleconfig",
}


def detected(node: str, hardware: Hardware = A100, **shown: Any) -> DeviceDetected:
    """A GPUDevice of the node."""
    return DeviceDetected(hardware=hardware, node=node, card="card", managed=shown.pop("managed", True), **shown)


def described(hardware: Hardware = A100, **shown: Any) -> DeviceDescribed:
    """What a GPUDevice shows now."""
    return DeviceDescribed(hardware=hardware, managed=shown.pop("managed", True), **shown)


def marked(pool: str | None = None, *, cluster: str | None = None, **labels: str) -> DeviceMarked:
    """The annotations that request a GPUPool or a ClusterGPUPool, and labels."""
    given = {ASKED: pool, ASKED_CLUSTER: cluster}
    return DeviceMarked(labels=labels, annotations={key: value for key, value in given.items() if value is not None})


def pool(**fields: Any) -> PoolDefined:
    """A pool of whole cards, but for the given fields."""
    return PoolDefined(**{"uid": "u", "unit": "Card", **fields})


def prepared(*, ready: bool = True) -> NodeBootstrapChanged:
    """A node whose devices may be pooled, or not any more."""
    condition = Condition(type="ReadyForPooling", status="True" if ready else "False", reason="r")
    return NodeBootstrapChanged(phase="Ready" if ready else "ValidatingFailed", conditions=(condition,))


def state(name: Any) -> DeviceStateChanged:
    """How far a device is prepared."""
    return DeviceStateChanged(state=name, reason="r")


def applied(pool_id: str, partitions: int | None = None) -> DevicePoolApplied:
    """The agent has set a device up."""
    return DevicePoolApplied(pool=pool_id, partitions=partitions)


def refused(pool_id: str, reason: str = "MIGNotEnabled", text: str = "") -> DevicePoolRefused:
    """The agent cannot set a device up."""
    return DevicePoolRefused(pool=pool_id, reason=reason, message=text)


def released(pool_id: str) -> DevicePoolReleased:
    """The agent has taken a device back."""
    return DevicePoolReleased(pool=pool_id)


class PoolsLog:
    """The decider, and the log with recorded facts and its decisions. Devices are named `<node>-<k>`."""

    def __init__(self) -> None:
        self.fold = Fold(PoolsProjection(), GENERATION, numbering=Numbering("own", 1))
        self.log: list[Message] = []
        self.clock = 0.0
        self._numbers: dict[str, int] = {}

    @property
    def state(self) -> PoolFacts:
        found = self.fold.state
        assert isinstance(found, PoolFacts)
        return found

    def record(
        self, subject: str, data: Payload, *, at: float | None = None, source: str | None = None
    ) -> list[Decoded]:
        """Record a fact, an hour after the last unless `at` is given; return the decisions, which come back."""
        self.clock += 1
        one = self.event(subject, data, self.clock if at is None else at, source)
        self._record(one)
        decided = self.fold.take_decided()
        for decision in decided:
            self._record(decision)
        assert self.fold.outstanding() == []
        return decided

    def event(self, subject: str, data: Payload, at: float, source: str | None = None) -> Decoded:
        """The fact as its source's next event."""
        publisher = source or source_of(subject, data)
        number = self._numbers[publisher] = self._numbers.get(publisher, 0) + 1
        return event(data, subject, number=number, at=at, source=publisher)

    def _record(self, one: Decoded) -> None:
        self.log.append(message(one, len(self.log) + 1))
        self.fold.apply(self.log[-1])

    def begin(self, *nodes: str, devices: int = 1) -> "PoolsLog":
        """The module works, and these nodes have devices that may be pooled."""
        self.record(MODULE_CONFIG, MET)
        for node in nodes:
            self.record(node, prepared())
            for number in range(devices):
                self.record(f"{node}-{number}", detected(node))
                self.record(f"{node}-{number}", state("Ready"))
        return self

    def assign(self, device: str, pool_id: str, partitions: int | None = None) -> "PoolsLog":
        """People request the pool, and the agent sets the device up."""
        name = pool_id.rpartition("/")[2]
        self.record(device, marked(name) if "/" in pool_id else marked(cluster=name))
        self.record(device, applied(pool_id, partitions))
        return self

    def of(self, device: str) -> tuple[str | None, str | None]:
        """The device's pool, and how far it is."""
        row = self.state.assignment.get(device)
        return (None, None) if row is None else (row.pool, row.phase)

    def why(self, device: str) -> str | None:
        """Why the device's assignment is as it is."""
        row = self.state.assignment.get(device)
        return None if row is None else row.reason

    def total(self, pool_id: str) -> int | None:
        """What the pool offers."""
        return self.state.total.rows[pool_id].total

    def conditions(self, pool_id: str) -> dict[str, tuple[str, str]]:
        """Status and reason of the pool's conditions."""
        return {row.type: (row.status, row.reason) for row in self.state.condition.where("pool", pool_id)}


def isolated(*, aside: bool = True) -> NodeIsolationChanged:
    """The node is to be cordoned, or not any more."""
    return NodeIsolationChanged(uid="u1", isolation=Isolation(unschedulable=aside))


def source_of(subject: str, data: Payload) -> str:
    """The source of such a fact."""
    if isinstance(data, _FROM_INVENTORY):
        return "/services/inventory"
    if isinstance(data, _FROM_BOOTSTRAP):
        return "/services/bootstrap"
    if isinstance(data, NodeIsolationChanged):
        return "/services/maintenance"
    if isinstance(data, DevicePoolApplied | DevicePoolRefused | DevicePoolReleased):
        return f"/nodes/{subject.rpartition('-')[0]}/agent"
    return f"/watchers/{_WATCHER_OF.get(type(data), 'nodes')}"


def steps(decided: list[Decoded]) -> list[tuple[str, str | None, str | None]]:
    """What was decided of devices: device, pool and phase."""
    return [
        (one.subject, one.data.pool, one.data.phase) for one in decided if isinstance(one.data, DeviceAssignmentChanged)
    ]


async def publish(pools: PoolsLog) -> None:
    """Tell the ledger of the environment all but that the module works; without it nobody decides anything more."""
    published = ((one, decode(one.data)) for one in pools.log)
    messages = [Outgoing(one.subject, event.id, one.data) for one, event in published if event.data != MET]
    async with new_ledger(os.environ["NATS_URL"]) as ledger:
        await ledger.publish_many(messages)


def restored(fold: Fold) -> Fold:
    """The fold of pools as it goes on after a restart: with the rows alone, as they come back from their store."""
    state, before = PoolFacts(), dict(fold.state.tables())
    for name, table in state.tables().items():
        table.load(sorted(before[name].rows.values(), key=str))
    return Fold(
        PoolsProjection(),
        GENERATION,
        state=state,
        seen=fold.seen,
        numbering=fold.numbering,
        sequence=fold.sequence,
    )
