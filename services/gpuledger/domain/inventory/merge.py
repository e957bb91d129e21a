"""Merges the reports on a node's cards into its devices: one for each card, whoever reported it first.

Each card of the agent is a device. Node Feature Discovery only counts cards of a vendor and model, so each card that it
counts beyond the agent's is a provisional device. The result depends on the facts in force, and of a card that several
nodes report on which of them has it.
"""

from collections import Counter
from collections.abc import Iterable, Set
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from gpuledger.api.labels import VENDOR_NVIDIA
from gpuledger.domain.inventory.claims import owner_of, replaced_cards
from gpuledger.domain.inventory.facts import (
    FEATURES,
    OF_AGENTS,
    CardReport,
    InventoryFacts,
    InventoryNode,
    has_uuid,
    identified_at,
    is_current,
    is_of_current_node,
)
from gpuledger.events.device import Hardware

Kind = tuple[str, str]
"""PCI vendor and device: the model of a card."""

PRECISIONS = (("fp32", (0, 0)), ("fp16", (5, 3)), ("bf16", (8, 0)), ("fp8", (8, 9)))
"""From which compute capability on the hardware computes natively in a precision (CUDA programming guide)."""


class DesiredDevice(NamedTuple):
    """A device that the inventory of a node should have."""

    card: str
    provisional: bool
    device_index: int
    address: str | None
    kind: Kind
    missing: bool
    hardware: Hardware


class NodeDevices(NamedTuple):
    """A node's devices, how many are visible now, and how many of those the agent does not see."""

    devices: list[DesiredDevice]
    visible: int
    unseen_by_agent: int


NO_DEVICES = NodeDevices([], 0, 0)


class _NodeCards(NamedTuple):
    """The reports on a node's cards since its Node object was last deleted."""

    row: InventoryNode
    cards: dict[str, CardReport]
    """The agent's, by id; a report by address alone belongs to the card that was last at that address."""

    replaced: list[CardReport]
    """Cards of the agent's that others have taken the place of; Node Feature Discovery may still count them."""

    visible: frozenset[str]
    counted: dict[str, CardReport]
    """Node Feature Discovery's, by provisional id."""

    visible_kinds: frozenset[Kind]


def devices_of(state: InventoryFacts, node: str) -> NodeDevices:
    """The devices that a node has, in the order of their places; a card that was replaced is none of them."""
    row = state.node_facts.get(node)
    if row is None or not row.exists:
        return NO_DEVICES
    node_cards = _cards_of(row, state.report.where("node", node), replaced_cards(state, node))
    own = [_of_agent(node_cards, card) for card in node_cards.cards.values() if owner_of(state, card.card) == node]
    beyond = _beyond(node_cards)
    counted = [_counted(node_cards, card) for card in beyond]
    lacking = sum(card.card in node_cards.visible for card in beyond) if row.agent_at is not None else 0
    visible = sum(not device.missing for device in own) + sum(device.card in node_cards.visible for device in counted)
    devices = [*sorted(own, key=_place), *sorted(counted, key=_place)]
    return NodeDevices(devices, visible, lacking)


def _cards_of(row: InventoryNode, reports: Iterable[CardReport], replaced: Set[str]) -> _NodeCards:
    every = [report for report in reports if is_of_current_node(row, report)]
    gone = [report for report in every if report.reporter in OF_AGENTS and report.card in replaced]
    alive = [report for report in every if report not in gone]
    named = identified_at(alive)
    cards: dict[str, CardReport] = {}
    counted: dict[str, CardReport] = {}
    visible, kinds = set(), set()
    for report in sorted(alive, key=_trust):
        card = report
        if report.reporter in OF_AGENTS:
            card = report if has_uuid(report) else named.get(report.pci_address or "", report)
            cards[card.card] = card
        else:
            counted[card.card] = card
        if is_current(row, report):
            visible.add(card.card)
            kinds.add(_kind(report))
    return _NodeCards(row, cards, gone, frozenset(visible), counted, frozenset(kinds))


def _trust(report: CardReport) -> tuple[bool, bool, str, datetime]:
    """Sorts the most trusted reporter last, and of one card the latest report, so that it prevails."""
    return (report.reporter in OF_AGENTS, report.reporter == FEATURES, report.card, report.reported_at)


def _beyond(node_cards: _NodeCards) -> list[CardReport]:
    """Cards that Node Feature Discovery counts beyond the agent's of each kind.

    One that may be a card that was replaced since, or was counted before it was, is beyond only as far as there are
    more cards than the agent sees.
    """
    seen, replaced = Counter(map(_kind, node_cards.cards.values())), Counter(map(_kind, node_cards.replaced))
    excess = {card.card: card.rank - seen[_kind(card)] for card in node_cards.counted.values()}
    beyond = [card for card in node_cards.counted.values() if excess[card.card] > replaced[_kind(card)]]
    doubtful = [
        card
        for card in node_cards.counted.values()
        if 0 < excess[card.card] <= replaced[_kind(card)] and card.card in node_cards.visible
    ]
    counted = sum(card in node_cards.visible for card in node_cards.counted)
    unseen = counted - len(node_cards.cards) - sum(card.card in node_cards.visible for card in beyond)
    return [*beyond, *sorted(doubtful)[: max(unseen, 0)]]


def _of_agent(node_cards: _NodeCards, card: CardReport) -> DesiredDevice:
    facts = orjson.loads(card.hardware)
    like = [counted for counted in node_cards.counted.values() if _kind(counted) == _kind(card)]
    for counted in like:
        pci_class = orjson.loads(counted.hardware).get("pci_class")
        if pci_class is not None:
            facts.setdefault("pci_class", pci_class)
    missing = card.card not in node_cards.visible
    return DesiredDevice(card.card, False, 0, card.pci_address, _kind(card), missing, _hardware(node_cards, facts))


def _counted(node_cards: _NodeCards, card: CardReport) -> DesiredDevice:
    lists_others = any(other in node_cards.visible for other in node_cards.counted)
    missing = lists_others and card.card not in node_cards.visible
    hardware = _hardware(node_cards, orjson.loads(card.hardware))
    return DesiredDevice(card.card, True, card.device_index, None, _kind(card), missing, hardware)


def _hardware(node_cards: _NodeCards, facts: dict[str, Any]) -> Hardware:
    """A card's hardware, completed with facts of the labels where these can only describe cards of this kind."""
    if facts["pci_vendor"] == VENDOR_NVIDIA and _labels_describe(node_cards, (VENDOR_NVIDIA, facts["pci_device"])):
        gone_at = node_cards.row.gone_at.timestamp() if node_cards.row.gone_at is not None else None
        for name, (at, value) in orjson.loads(node_cards.row.hardware_facts).items():
            if gone_at is None or at > gone_at:
                facts.setdefault(name, value)
    if "precision" not in facts and "compute_major" in facts:
        capability = (facts["compute_major"], facts.get("compute_minor", 0))
        facts["precision"] = tuple(name for name, since in PRECISIONS if capability >= since)
    return Hardware.model_validate(facts)


def _labels_describe(node_cards: _NodeCards, kind: Kind) -> bool:
    kinds = {one for one in node_cards.visible_kinds if one[0] == VENDOR_NVIDIA}
    if not kinds:
        kinds = {_kind(one) for one in (*node_cards.cards.values(), *node_cards.counted.values())}
    return kinds == {kind}


def _kind(report: CardReport) -> Kind:
    return (report.pci_vendor, report.pci_device)


def _place(device: DesiredDevice) -> tuple[str, int, str]:
    return (device.address or "", device.device_index, device.card)
