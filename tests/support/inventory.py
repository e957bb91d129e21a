"""The inventory for tests: facts of watchers and agents, the real decider, and its decisions."""

from typing import Any

from gpuledger.deciders.inventory.projection import InventoryProjection
from gpuledger.domain.inventory.facts import InventoryFacts
from gpuledger.domain.inventory.state import GpuDevice, GpuNode
from gpuledger.domain.inventory.status import node_status
from gpuledger.events.device import Card, DeviceMarked
from gpuledger.events.envelope import Decoded
from gpuledger.events.node import NodeDevicesObserved, NodeFeaturesObserved, NodeObserved, PciDevice
from gpuledger.events.payload import Payload
from gpuledger.events.settings import SettingsChanged
from gpuledger.ledger.api import Message
from gpuledger.projection.definition import Numbering
from gpuledger.projection.fold import Fold
from support.events import GENERATION, event, message

NFD = "v0.17.3"
MODULE = "gpu-control-plane"


def labels(*devices: str, vendor: str = "10de", pci_class: str = "0300", **others: str) -> dict[str, str]:
    """A node's labels for these PCI devices; others by their names after `nvidia.com/`, `_` for `.`."""
    found = {f"nvidia.com/{name.replace('_', '.')}": value for name, value in others.items()}
    for index, device in enumerate(devices):
        facts = {"vendor": vendor, "device": device, "class": pci_class}
        found.update({f"gpu.deckhouse.io/device.{index:02d}.{name}": value for name, value in facts.items()})
    return found


def observed(*devices: str, nfd_version: str | None = NFD, **others: str) -> NodeObserved:
    """A Node with these PCI devices in its labels."""
    return NodeObserved(uid="u", labels=labels(*devices, **others), nfd_version=nfd_version)


def features(*devices: str, nfd_version: str | None = NFD) -> NodeFeaturesObserved:
    """A NodeFeature with these PCI devices."""
    listed = [
        PciDevice(index=index, pci_vendor="10de", pci_device=device, pci_class="0302")
        for index, device in enumerate(devices)
    ]
    return NodeFeaturesObserved(devices=tuple(listed), nfd_version=nfd_version)


def card(uuid: str | None, slot: int = 0, device: str = "2203", **facts: Any) -> Card:
    """A card in the node's slot of that number."""
    address = f"00000000:{0x17 + slot:02X}:00.0"
    return Card(uuid=uuid, pci_address=address, pci_vendor="10de", pci_device=device, **facts)


def cards_seen(*cards: Card) -> NodeDevicesObserved:
    """What an agent sees."""
    return NodeDevicesObserved(cards=cards)


def source_of(data: Payload, subject: str) -> str:
    """The source of such a fact."""
    if isinstance(data, NodeDevicesObserved):
        return f"/nodes/{subject}/agent"
    if isinstance(data, DeviceMarked):
        return "/watchers/gpudevices"
    return "/watchers/moduleconfig" if isinstance(data, SettingsChanged) else "/watchers/nodes"


class RecordedInventory:
    """The decider, and the log with its facts and decisions."""

    def __init__(self) -> None:
        self.fold = Fold(InventoryProjection(), GENERATION, numbering=Numbering("own", 1))
        self.log: list[Message] = []
        self._numbers: dict[str, int] = {}

    @property
    def state(self) -> InventoryFacts:
        state = self.fold.state
        assert isinstance(state, InventoryFacts)
        return state

    def record(self, at: float, subject: str, data: Payload, *, source: str | None = None) -> list[Decoded]:
        """Tell a fact, and return what was decided, which comes back from the log at once."""
        publisher = source or source_of(data, subject)
        number = self._numbers[publisher] = self._numbers.get(publisher, 0) + 1
        self._record(event(data, subject, number=number, at=at, source=publisher))
        decided = self.fold.take_decided()
        for decision in decided:
            self._record(decision)
        assert self.fold.outstanding() == []
        return decided

    def _record(self, one: Decoded) -> None:
        self.log.append(message(one, len(self.log) + 1))
        self.fold.apply(self.log[-1])

    def devices(self, node: str | None = None) -> list[GpuDevice]:
        """The GPUDevices, by name."""
        rows = self.state.device.rows.values()
        return sorted(row for row in rows if node in (None, row.node))

    def names(self) -> list[str]:
        """The GPUDevices' names."""
        return [row.name for row in self.devices()]

    def node(self, node: str) -> GpuNode:
        """The node's row."""
        return self.state.node.rows[node]

    def conditions(self, node: str) -> dict[str, tuple[str, str]]:
        """Status and reason of the node's conditions."""
        rows = self.state.condition.where("node", node)
        return {row.type: (row.status, row.reason) for row in rows}

    def status(self, node: str) -> dict[str, Any]:
        """The status of the node's GPUNodeState."""
        return node_status(self.node(node), self.state.condition.where("node", node))


def kinds(decided: list[Decoded]) -> list[str]:
    """What was decided, without versions: `device.detected`."""
    return [f"{one.data.AGGREGATE}.{one.data.EVENT}" for one in decided]
