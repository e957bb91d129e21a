"""Which MIG instances each card has now, by profile, as the agents of their nodes report. Pure.

No decision depends on it and no row keeps it: instances come and go with every change of a card's layout. Labels of a
node only count the instances of all its cards, so they say nothing of one card. A node's latest report by event time is
in force.
"""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from sys import intern
from typing import NamedTuple

from gpuledger.domain.fact import Fact, Handlers, is_late
from gpuledger.domain.inventory.status import NO_INSTANCES
from gpuledger.events.node import NodeDevicesObserved, NodeInventoryWithdrawn


class _NodeReport(NamedTuple):
    """The instances of a node's cards, by the cards' UUIDs; cards without any are left out."""

    at: datetime
    cards: Mapping[str, Mapping[str, int]]


class MigInstances:
    """The instances of all cards."""

    def __init__(self) -> None:
        self._nodes: dict[str, _NodeReport] = {}
        self._touched: dict[str, None] = {}

    def take_touched(self) -> dict[str, None]:
        """The nodes whose cards' instances changed since the last call."""
        touched, self._touched = self._touched, {}
        return touched

    def of_card(self, node: str, uuid: str | None) -> Mapping[str, int]:
        """How many instances of each profile a card has; none where its node's agent reports none."""
        report = self._nodes.get(node)
        return NO_INSTANCES if report is None or uuid is None else report.cards.get(uuid, NO_INSTANCES)

    def report(self, node: str, at: datetime, cards: Mapping[str, Mapping[str, int]]) -> None:
        """The node's agent reports these instances, unless a later report of it is there."""
        before = self._nodes.get(node)
        if is_late(before and before.at, at):
            return
        self._nodes[intern(node)] = _NodeReport(at, cards)
        if (before.cards if before is not None else {}) != cards:
            self._touched[node] = None

    def forget(self, node: str) -> None:
        """The node is gone."""
        self._nodes.pop(node, None)


def _observed(state: MigInstances, fact: Fact, data: NodeDevicesObserved) -> None:
    cards = {
        intern(card.uuid): {intern(name): count for name, count in counted.items()}
        for card in data.cards
        if card.uuid is not None and (counted := Counter(one.profile for one in card.mig_instances))
    }
    state.report(fact.event.subject, fact.event.time, cards)


def _withdrawn(state: MigInstances, fact: Fact, _data: NodeInventoryWithdrawn) -> None:
    state.forget(fact.event.subject)


HANDLERS: Handlers = {NodeDevicesObserved: _observed, NodeInventoryWithdrawn: _withdrawn}
