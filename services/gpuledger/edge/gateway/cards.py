"""The cards of nodes, as their agents last reported them, so that a report names cards as those of the socket do.

A node without an agent has no cards here, and while the ledger cannot be asked no node has; such reports keep the names
that their monitors use.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import structlog

from gpuledger.edge.gateway.bounds import GatewayBounds
from gpuledger.events.envelope import parse, with_payload
from gpuledger.events.errors import EventError
from gpuledger.events.node import NodeDevicesObserved
from gpuledger.events.position import is_origin
from gpuledger.events.subjects import NODE, ROOT, escape
from gpuledger.ledger.api import Ledger
from gpuledger.ledger.errors import LedgerError

log = structlog.get_logger("gpuledger.gateway")


class ReportedInstance(NamedTuple):
    """A MIG instance of a card."""

    uuid: str


class ReportedCard(NamedTuple):
    """A card as its node's agent reported it."""

    address: str
    uuid: str | None
    instances: tuple[ReportedInstance, ...]


class _CachedCards(NamedTuple):
    cards: tuple[ReportedCard, ...]
    until_s: float


class NodeCards:
    """The cards by node, each kept for a while."""

    def __init__(self, ledger: Ledger, bounds: GatewayBounds, monotonic: Callable[[], float]) -> None:
        self._ledger = ledger
        self._bounds = bounds
        self._monotonic = monotonic
        self._kept: OrderedDict[str, _CachedCards] = OrderedDict()

    async def of(self, node: str) -> tuple[ReportedCard, ...]:
        """The cards of a node; none where its agent has reported none, or the ledger does not answer in time."""
        now_s = self._monotonic()
        kept = self._kept.get(node)
        if kept is not None and kept.until_s > now_s:
            return kept.cards
        try:
            async with asyncio.timeout(self._bounds.cards_timeout_s):
                cards = await self._read(node)
        except (LedgerError, EventError, TimeoutError) as error:
            log.warning("gateway.cards-unknown", node=node, reason=str(error) or "the ledger does not answer in time")
            cards = () if kept is None else kept.cards
        self._kept.pop(node, None)
        self._kept[node] = _CachedCards(cards, now_s + self._bounds.cards_life_s)
        if len(self._kept) > self._bounds.nodes_max:
            self._kept.popitem(last=False)
        return cards

    async def _read(self, node: str) -> tuple[ReportedCard, ...]:
        name, model = escape(node), NodeDevicesObserved
        last = await self._ledger.last_sequence(f"{ROOT}.{NODE}.{name}.{model.AGGREGATE}.{name}.{model.EVENT}")
        message = None if is_origin(last) else await self._ledger.message_at(last)
        data = None if message is None else with_payload(parse(message.data)).data
        return cards_of(data) if isinstance(data, NodeDevicesObserved) else ()


def cards_of(data: NodeDevicesObserved) -> tuple[ReportedCard, ...]:
    """The cards in an agent's report, in the order of their addresses, in which drivers number them."""
    cards = [
        ReportedCard(
            one.pci_address.lower(), one.uuid, tuple(ReportedInstance(instance.uuid) for instance in one.mig_instances)
        )
        for one in data.cards
    ]
    return tuple(sorted(cards))
