"""The cards of nodes, as their agents last reported them, so that a report names cards as those of the socket do.

A node without an agent has no cards here, and while the ledger cannot be asked no node has; such reports keep the names
that their monitors use.
"""

from collections.abc import Callable
from typing import NamedTuple

from gpuledger.edge.gateway.bounds import GatewayBounds
from gpuledger.edge.gateway.newest_facts import FactReader, NewestFacts
from gpuledger.events.envelope import parse, with_payload
from gpuledger.events.node import NodeDevicesObserved
from gpuledger.events.subjects import NODE, ROOT, escape
from gpuledger.ledger.api import Ledger


class ReportedInstance(NamedTuple):
    """A MIG instance of a card."""

    uuid: str


class ReportedCard(NamedTuple):
    """A card as its node's agent reported it."""

    address: str
    uuid: str | None
    instances: tuple[ReportedInstance, ...]


ReportedCards = tuple[ReportedCard, ...]


def node_cards(ledger: Ledger, bounds: GatewayBounds, monotonic: Callable[[], float]) -> NewestFacts[ReportedCards]:
    """The cards by node."""
    reader: FactReader[ReportedCards] = FactReader("gateway.cards-unknown", _subject, _read, ())
    return NewestFacts(ledger, reader, bounds, monotonic)


def _subject(node: str) -> str:
    name, model = escape(node), NodeDevicesObserved
    return f"{ROOT}.{NODE}.{name}.{model.AGGREGATE}.{name}.{model.EVENT}"


def _read(_node: str, raw: bytes) -> ReportedCards:
    data = with_payload(parse(raw)).data
    return cards_of(data) if isinstance(data, NodeDevicesObserved) else ()


def cards_of(data: NodeDevicesObserved) -> ReportedCards:
    """The cards in an agent's report, in the order of their addresses, in which drivers number them."""
    cards = [
        ReportedCard(
            one.pci_address.lower(), one.uuid, tuple(ReportedInstance(instance.uuid) for instance in one.mig_instances)
        )
        for one in data.cards
    ]
    return tuple(sorted(cards))
