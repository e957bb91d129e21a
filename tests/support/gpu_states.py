"""Facts and decisions about GPUs by bootstrap, pools, watchers and agents, and the desired state that follows."""

from collections import Counter
from typing import Any

from gpuledger.edge.statuswriter.desired.fold import DesiredProjection
from gpuledger.edge.statuswriter.desired.state import DesiredState
from gpuledger.edge.statuswriter.metrics.gpu import GpuMetrics
from gpuledger.events.device import DeviceAssignmentChanged, DeviceDetected, DeviceStateChanged, Hardware
from gpuledger.events.envelope import Decoded, Event
from gpuledger.events.node import Condition, NodeBootstrapChanged, NodeInventoryChanged
from gpuledger.events.payload import Payload
from gpuledger.events.pool import PoolChanged, PoolDefined
from gpuledger.events.publishing import SourceKind
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.runtime.clock import system_clock
from support.events import RecordedFact, SubjectFact, folded, log_of, numbered, outgoing

COMPLETE = Condition(type="InventoryComplete", status="True", reason="AllDevicesDescribed")
INCOMPLETE = Condition(type="InventoryComplete", status="False", reason="NoDevicesDiscovered", message="None.")
CARD = PoolDefined(uid="u1", unit="Card", slices_per_unit=4)
MIG = PoolDefined(uid="u1", unit="MIG", mig_profile="1g.10gb", slices_per_unit=2)
POOL, CLUSTER_POOL = "team/a", "c"
"""A GPUPool's id, and a ClusterGPUPool's."""


def source_of(data: Payload, node: str = "w1") -> str:
    """The source of such an event; an agent is that of the node."""
    kind = data.PUBLISH_RULE.publishers[0]
    if kind is SourceKind.AGENTS:
        return f"/nodes/{node}/agent"
    return "/watchers/kubernetes" if kind is SourceKind.WATCHERS else f"/services/{kind}"


def desired_state(*facts: SubjectFact) -> DesiredState:
    """The desired state after these facts, an hour apart."""
    numbers = enumerate(facts, 1)
    log = log_of(numbered([RecordedFact(source_of(data), subject, at, data) for at, (subject, data) in numbers]))
    state = folded(DesiredProjection(), log).state
    assert isinstance(state, DesiredState)
    return state


def found(*names: str, node: str = "w1") -> list[SubjectFact]:
    """A node with devices, as the inventory records it."""
    hardware = Hardware(pci_vendor="10de", pci_device="20b5", product="NVIDIA A100-PCIE-40GB")
    cards = [DeviceDetected(hardware=hardware, managed=True, node=node, card=f"GPU-{name}") for name in names]
    inventory = NodeInventoryChanged(present=True, conditions=(COMPLETE,))
    return [*zip(names, cards, strict=True), (node, inventory)]


def prepared(state: Any, reason: str = "Because", message: str = "") -> DeviceStateChanged:
    """How far a device is prepared."""
    return DeviceStateChanged(state=state, reason=reason, message=message)


def assigned(phase: Any, pool: str | None = POOL, reason: str = "AskedFor", **more: Any) -> DeviceAssignmentChanged:
    """Which pool a device belongs to."""
    return DeviceAssignmentChanged(pool=pool if phase else None, phase=phase, reason=reason, **more)


def phase(name: Any, *conditions: tuple[str, Any]) -> NodeBootstrapChanged:
    """How far a node's preparation is."""
    listed = tuple(Condition(type=kind, status=status, reason=f"{kind}Is{status}") for kind, status in conditions)
    return NodeBootstrapChanged(phase=name, conditions=listed)


def ready() -> NodeBootstrapChanged:
    """A node whose devices pools may take."""
    return phase("Ready", ("ReadyForPooling", "True"), ("DriverMissing", "False"))


def offers(total: int | None, *conditions: tuple[str, Any], generation: int = 1) -> PoolChanged:
    """The units that a pool offers, and its conditions."""
    listed = tuple(Condition(type=kind, status=status, reason=f"{kind}Is{status}") for kind, status in conditions)
    return PoolChanged(total=total, observed_generation=generation, conditions=listed)


class FactRecorder:
    """Records facts about GPUs from all sources."""

    def __init__(self, ledger: JetStreamLedger) -> None:
        self.ledger = ledger
        self._numbers: Counter[str] = Counter()

    async def record(self, *facts: SubjectFact) -> None:
        """Record facts with the present time."""
        await self.ledger.publish_many([outgoing(self._event(subject, data)) for subject, data in facts])

    def _event(self, subject: str, data: Payload) -> Decoded:
        source = source_of(data)
        self._numbers[source] += 1
        number = self._numbers[source]
        return Event(f"{source}#{number}", source, data.TYPE, subject, system_clock(), data, "e1", number)


def samples(state: DesiredState) -> dict[tuple[str, ...], float]:
    """Samples of the metrics of GPUs, by name and labels."""
    return {
        (one.name, *one.labels.values()): one.value
        for family in GpuMetrics(lambda: state).collect()
        for one in family.samples
    }
