"""The cards of a node, as its agent last reported them."""

from datetime import UTC, datetime

from gpuledger.edge.gateway.bounds import GatewayBounds
from gpuledger.edge.gateway.cards import ReportedCard, node_cards
from gpuledger.events.device import Card
from gpuledger.events.envelope import Event, encode, nats_subject_of
from gpuledger.events.node import NodeDevicesObserved
from gpuledger.healthreports.impacted import impacted
from gpuledger.ledger.api import Outgoing
from gpuledger.ledger.memory import MemoryLedger

BOUNDS = GatewayBounds(facts_life_s=30.0, nodes_max=2)


def card(address: str, uuid: str) -> Card:
    return Card(pci_address=address, pci_vendor="10de", pci_device="2330", uuid=uuid)


async def observe(ledger: MemoryLedger, *cards: Card, number: int = 1) -> None:
    data = NodeDevicesObserved(cards=cards)
    event = Event(f"e{number}", "/nodes/n.1/agent", data.TYPE, "n.1", datetime.now(UTC), data, "e", number)
    await ledger.publish(Outgoing(nats_subject_of(event), event.id, encode(event)))


async def test_the_newest_report_counts_once_the_last_answer_is_old() -> None:
    ledger, now_s = MemoryLedger(), [0.0]
    cards = node_cards(ledger, BOUNDS, lambda: now_s[0])
    assert await cards.of("n.1") == ()
    await observe(ledger, card("0000:65:00.0", "GPU-b"), card("0000:17:00.0", "GPU-a"))
    assert await cards.of("n.1") == ()
    now_s[0] = 31.0
    found = await cards.of("n.1")
    assert found == (ReportedCard("0000:17:00.0", "GPU-a", ()), ReportedCard("0000:65:00.0", "GPU-b", ()))
    assert impacted([("PCI", "0000:65:00")], found) == ("GPU-b",)
    assert impacted([("GPU", "0")], found) == ("GPU-a",)
    assert await cards.of("n.2") == ()


async def test_of_so_many_nodes_are_answers_kept_and_no_more() -> None:
    """An answer that is forgotten is read anew, and then is the newest one."""
    ledger = MemoryLedger()
    cards = node_cards(ledger, BOUNDS, lambda: 0.0)
    assert await cards.of("n.1") == ()
    await observe(ledger, card("0000:17:00.0", "GPU-a"))
    assert [await cards.of(node) for node in ("n.1", "n.2", "n.3")] == [(), (), ()]
    assert await cards.of("n.1") == (ReportedCard("0000:17:00.0", "GPU-a", ()),)
