"""Reports on devices for tests: two nodes' agents, and the log with what they report and `inventory` decides."""

from typing import Any
from zlib import crc32

from gpuledger.deciders.inventory.projection import InventoryProjection
from gpuledger.domain.inventory.facts import InventoryFacts
from gpuledger.events.device import Card
from gpuledger.events.envelope import Decoded
from gpuledger.events.node import NodeDevicesObserved, NodeObserved
from gpuledger.events.payload import Payload
from gpuledger.events.publishing import RULE_VERSIONS, Rule
from gpuledger.events.rule import RuleEnforced
from gpuledger.ledger.api import Message
from gpuledger.projection.definition import Numbering
from gpuledger.projection.fold import Fold
from support.events import GENERATION, event, message

UUID = "GPU-1"
HOME, AWAY = "/nodes/n1/agent", "/nodes/n2/agent"


FIRST_SLOT = "0000:17:00.0"


def card(uuid: str | None = UUID, address: str = FIRST_SLOT) -> Card:
    """A card in a slot of its node."""
    return Card(uuid=uuid, pci_address=address, pci_vendor="10de", pci_device="2335", pci_class="0302")


def own_slot(uuid: str) -> str:
    """An address that no other card of a test has."""
    return f"{crc32(uuid.encode()) >> 16:04x}:{crc32(uuid.encode()) & 0xFF:02x}:00.0"


def restarted(fold: Fold) -> Fold:
    """A fold that begins with the rows alone, as they come back from their store, in another order."""
    state, before = InventoryFacts(), dict[str, Any](fold.state.tables())
    for name, table in state.tables().items():
        table.load(sorted(before[name].rows.values(), key=str, reverse=True))
    return Fold(
        InventoryProjection(), GENERATION, numbering=fold.numbering, state=state, seen=fold.seen,
        sequence=fold.sequence, enforced=fold.enforced, expected=fold.outstanding(),
    )  # fmt: skip


class Log:
    """A log with the facts of a test, and what `inventory` decides by them."""

    def __init__(self, *, enforced: bool = True, version: int = RULE_VERSIONS[Rule.DEVICE_REPORTS]) -> None:
        self.messages: list[Message] = []
        self.inventory = Fold(InventoryProjection(), GENERATION, numbering=Numbering("own", 1))
        self._numbers: dict[str, int] = {}
        self.delay_s = 7 * 24 * 3_600
        """How long after the start the log begins, so that no event is recorded before it happened."""

        if enforced:
            self.add("/services/sources", Rule.DEVICE_REPORTS, RuleEnforced(version=version))

    def add(self, source: str, subject: str, data: Payload, at: float = 0) -> list[Decoded]:
        """Record a fact, and then what `inventory` decides."""
        number = self._numbers[source] = self._numbers.get(source, 0) + 1
        return self._put(event(data, subject, number=number, at=at, source=source))

    def _put(self, one: Decoded) -> list[Decoded]:
        recorded = message(one, len(self.messages) + 1)
        recorded = recorded._replace(recorded_ns=recorded.recorded_ns + self.delay_s * 1_000_000_000)
        self.messages.append(recorded)
        self.inventory.apply(recorded)
        decided = self.inventory.take_decided()
        for decision in decided:
            self._put(decision)
        return decided

    @property
    def state(self) -> InventoryFacts:
        """What `inventory` has folded."""
        state = self.inventory.state
        assert isinstance(state, InventoryFacts)
        return state

    def card_on(self, node: str, uuid: str | None = UUID, at: float = 0) -> None:
        """The node exists, and its agent finds a card."""
        self.add("/watchers/nodes", node, NodeObserved(uid=f"uid-{node}", nfd_version="0.17.0"), at)
        self.survey(node, uuid, at=at)

    def survey(self, node: str, *uuids: str | None, at: float = 0) -> list[Decoded]:
        """The node's agent finds these cards, each in a slot of its own; `UUID` or one without a UUID in the first."""
        cards = tuple(card(uuid, FIRST_SLOT if uuid in (UUID, None) else own_slot(uuid)) for uuid in uuids)
        return self.add(f"/nodes/{node}/agent", node, NodeDevicesObserved(cards=cards), at)
