"""Which MIG instances each card has now, by profile, as the agents of their nodes report. Pure.

No decision depends on it and no projection keeps it: instances come and go with every change of a card's layout. Labels
of a node only count the instances of all its cards, so they say nothing of one card. A node's latest report by event
time is in force.
"""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from sys import intern
from typing import Final, NamedTuple

import orjson

from gpuledger.domain.fact import Fact, Handlers, TableState, is_late
from gpuledger.domain.inventory.state import json_text
from gpuledger.domain.inventory.status import NO_INSTANCES
from gpuledger.domain.table import Table, TableSpec
from gpuledger.events.node import NodeDevicesObserved, NodeInventoryWithdrawn

REPORTS_MEMOIZED_MAX: Final = 256
"""How many nodes' reports are kept ready to read: the status of each card of a node needs its own part."""


class NodeInstances(NamedTuple):
    """The instances of a node's cards: a JSON object of counts by profile, by the UUIDs of cards that have any."""

    node: str
    reported_at: datetime
    cards: str


NODE_INSTANCES: Final = TableSpec("mig_instances", NodeInstances, ("node",))
NO_CARDS: Final = "{}"


class MigInstances(TableState):
    """The instances of all cards."""

    def __init__(self) -> None:
        self.node = Table(NODE_INSTANCES)
        self.node.never_written()
        self._touched: dict[str, None] = {}

    def take_touched(self) -> dict[str, None]:
        """The nodes whose cards' instances changed since the last call."""
        touched, self._touched = self._touched, {}
        return touched

    def of_card(self, node: str, uuid: str | None) -> Mapping[str, int]:
        """How many instances of each profile a card has; none where its node's agent reports none."""
        row = self.node.get(node)
        return NO_INSTANCES if row is None or uuid is None else _cards(row.cards).get(uuid, NO_INSTANCES)

    def report(self, node: str, at: datetime, cards: Mapping[str, Mapping[str, int]]) -> None:
        """The node's agent reports these instances, unless a later report of it is there."""
        before = self.node.get(node)
        if is_late(before and before.reported_at, at):
            return
        text = intern(json_text(cards))
        self.node.put(NodeInstances(intern(node), at, text))
        if (NO_CARDS if before is None else before.cards) != text:
            self._touched[node] = None

    def forget(self, node: str) -> None:
        """The node is gone."""
        self.node.delete(node)


@lru_cache(maxsize=REPORTS_MEMOIZED_MAX)
def _cards(text: str) -> Mapping[str, Mapping[str, int]]:
    cards: Mapping[str, Mapping[str, int]] = orjson.loads(text)
    return cards


def _observed(state: MigInstances, fact: Fact, data: NodeDevicesObserved) -> None:
    cards = {
        card.uuid: counted
        for card in data.cards
        if card.uuid is not None and (counted := Counter(one.profile for one in card.mig_instances))
    }
    state.report(fact.event.subject, fact.event.time, cards)


def _withdrawn(state: MigInstances, fact: Fact, _data: NodeInventoryWithdrawn) -> None:
    state.forget(fact.event.subject)


HANDLERS: Handlers = {NodeDevicesObserved: _observed, NodeInventoryWithdrawn: _withdrawn}
