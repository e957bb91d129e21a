"""From what was said to the devices that a node has: one for each card, whoever told of it first.

The agent's cards are devices by themselves. Node Feature Discovery only counts cards of a vendor and model, so what it
counts beyond the agent's is a provisional device each. The result follows from the facts in force alone.
"""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from gpuledger.api.labels import VENDOR_NVIDIA
from gpuledger.domain.inventory.device_names import place_of
from gpuledger.domain.inventory.facts import (
    AGENT,
    FEATURES,
    InventoryFacts,
    InventoryNode,
    Sighting,
    is_current,
    is_of_this_life,
)
from gpuledger.events.device import Hardware

Kind = tuple[str, str]
"""PCI vendor and device: the model of a card."""

PRECISIONS = (("fp32", (0, 0)), ("fp16", (5, 3)), ("bf16", (8, 0)), ("fp8", (8, 9)))
"""From which compute capability on the hardware computes natively in a precision (CUDA programming guide)."""


class Wanted(NamedTuple):
    """A device that a node has."""

    card: str
    provisional: bool
    device_index: int
    address: str | None
    kind: Kind
    missing: bool
    hardware: Hardware


class View(NamedTuple):
    """A node's devices, and what of them is in sight: how many cards now, and how many that only NFD counts."""

    devices: list[Wanted]
    in_sight: int
    unseen_by_agent: int


NOTHING = View([], 0, 0)


class _Seen(NamedTuple):
    """What is told of a node's cards in its present life."""

    row: InventoryNode
    cards: dict[str, Sighting]
    """The agent's, by id; those that are in sight by address only are their cards' own."""

    in_sight: frozenset[str]
    counted: dict[str, Sighting]
    """Node Feature Discovery's, by provisional id."""

    kinds_in_sight: frozenset[Kind]


def devices_of(state: InventoryFacts, node: str) -> View:
    """The devices that a node has, in the order of their places."""
    row = state.said.get(node)
    if row is None or not row.exists:
        return NOTHING
    seen = _seen(row, state.sighting.where("node", node))
    own = [_of_agent(seen, card) for card in seen.cards.values() if owner_of(state, card.card) == node]
    counted = [_counted(seen, card) for card in _beyond(seen)]
    lacking = sum(card.card in seen.in_sight for card in _beyond(seen)) if row.agent_at is not None else 0
    in_sight = sum(not device.missing for device in own) + sum(device.card in seen.in_sight for device in counted)
    devices = [*sorted(own, key=_place), *sorted(counted, key=_place)]
    return View(devices, in_sight, lacking)


def owner_of(state: InventoryFacts, card: str) -> str | None:
    """The node that has the agent's card: of those that see it the one that said so last, else the last that did."""
    claims = [claim for sighting in state.sighting.where("card", card) if (claim := _claim(state, sighting))]
    return max(claims)[2] if claims else None


def sharing(state: InventoryFacts, node: str) -> set[str]:
    """The other nodes that saw a card of this one."""
    cards = [sighting.card for sighting in state.sighting.where("node", node) if sighting.teller == AGENT]
    return {key[0] for card in cards for key in state.sighting.by["card"].get(card)} - {node}


def _claim(state: InventoryFacts, sighting: Sighting) -> tuple[bool, datetime, str] | None:
    row = state.said.get(sighting.node)
    if row is None or not row.exists or sighting.teller != AGENT or not is_of_this_life(row, sighting):
        return None
    return (is_current(row, sighting), sighting.seen_at, sighting.node)


def _seen(row: InventoryNode, sightings: Iterable[Sighting]) -> _Seen:
    alive = [sighting for sighting in sightings if is_of_this_life(row, sighting)]
    named: dict[str, Sighting] = {}
    for sighting in alive:
        if sighting.teller == AGENT and _has_uuid(sighting) and sighting.pci_address:
            known = named.get(sighting.pci_address)
            if known is None or (known.seen_at, known.card) < (sighting.seen_at, sighting.card):
                named[sighting.pci_address] = sighting
    cards: dict[str, Sighting] = {}
    counted: dict[str, Sighting] = {}
    in_sight, kinds = set(), set()
    for sighting in sorted(alive, key=_trust):
        card = sighting
        if sighting.teller == AGENT:
            card = sighting if _has_uuid(sighting) else named.get(sighting.pci_address or "", sighting)
            cards[card.card] = card
        else:
            counted[card.card] = card
        if is_current(row, sighting):
            in_sight.add(card.card)
            kinds.add(_kind(sighting))
    return _Seen(row, cards, frozenset(in_sight), counted, frozenset(kinds))


def _trust(sighting: Sighting) -> tuple[bool, bool, str]:
    """Whoever is believed most comes last, and so stays."""
    return (sighting.teller == AGENT, sighting.teller == FEATURES, sighting.card)


def _has_uuid(sighting: Sighting) -> bool:
    return sighting.card != place_of(sighting.node, sighting.pci_address or "")


def _beyond(seen: _Seen) -> list[Sighting]:
    """What is counted beyond the agent's cards of each kind."""
    known: dict[Kind, int] = defaultdict(int)
    for card in seen.cards.values():
        known[_kind(card)] += 1
    return [card for card in seen.counted.values() if card.rank > known[_kind(card)]]


def _of_agent(seen: _Seen, card: Sighting) -> Wanted:
    facts = orjson.loads(card.hardware)
    like = [counted for counted in seen.counted.values() if _kind(counted) == _kind(card)]
    for counted in like:
        pci_class = orjson.loads(counted.hardware).get("pci_class")
        if pci_class is not None:
            facts.setdefault("pci_class", pci_class)
    missing = card.card not in seen.in_sight
    return Wanted(card.card, False, 0, card.pci_address, _kind(card), missing, _hardware(seen, facts))


def _counted(seen: _Seen, card: Sighting) -> Wanted:
    lists_others = any(other in seen.in_sight for other in seen.counted)
    missing = lists_others and card.card not in seen.in_sight
    hardware = _hardware(seen, orjson.loads(card.hardware))
    return Wanted(card.card, True, card.device_index, None, _kind(card), missing, hardware)


def _hardware(seen: _Seen, facts: dict[str, Any]) -> Hardware:
    """What is known of a card, the labels' facts filled in where they can only mean cards like this one."""
    if facts["pci_vendor"] == VENDOR_NVIDIA and _labels_mean(seen, (VENDOR_NVIDIA, facts["pci_device"])):
        gone_at = seen.row.gone_at.timestamp() if seen.row.gone_at is not None else None
        for name, (at, value) in orjson.loads(seen.row.learnt).items():
            if gone_at is None or at > gone_at:
                facts.setdefault(name, value)
    if "precision" not in facts and "compute_major" in facts:
        capability = (facts["compute_major"], facts.get("compute_minor", 0))
        facts["precision"] = tuple(name for name, since in PRECISIONS if capability >= since)
    return Hardware.model_validate(facts)


def _labels_mean(seen: _Seen, kind: Kind) -> bool:
    kinds = {one for one in seen.kinds_in_sight if one[0] == VENDOR_NVIDIA}
    if not kinds:
        kinds = {_kind(one) for one in (*seen.cards.values(), *seen.counted.values())}
    return kinds == {kind}


def _kind(sighting: Sighting) -> Kind:
    return (sighting.pci_vendor, sighting.pci_device)


def _place(device: Wanted) -> tuple[str, int, str]:
    return (device.address or "", device.device_index, device.card)
