"""What was said of nodes and their cards: by watchers of Kubernetes objects and by agents, each for itself.

Of each kind of fact the latest by event time is in force, whatever the order of recording; a late fact still adds the
cards that it tells of. Nothing here is merged or decided.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from sys import intern
from typing import Any, NamedTuple

import orjson

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.api.labels import LABEL_DEVICE_PREFIX, NFD_LABEL_PREFIX
from gpuledger.domain.fact import Fact, Handlers
from gpuledger.domain.inventory.device_names import place_of, provisional_card
from gpuledger.domain.inventory.labels import (
    Listing,
    gpus_among,
    hardware_facts,
    is_new_enough,
    pci_address,
    pci_devices,
    pci_id,
    tells_of_gpus,
)
from gpuledger.domain.inventory.state import DECIDED_HANDLERS, DECIDED_SPECS, Inventory, json_text
from gpuledger.domain.table import Table, TableSpec
from gpuledger.events.device import Card, Hardware
from gpuledger.events.node import (
    NodeDevicesObserved,
    NodeFeaturesGone,
    NodeFeaturesObserved,
    NodeGone,
    NodeObserved,
)

AGENT, FEATURES, LABELS = "agent", "features", "labels"
"""Who tells of a card, the one that is believed most first."""

_JUST_BEFORE = timedelta(microseconds=1)
_TRACES = (f'"{LABEL_DEVICE_PREFIX}', f'"{NFD_LABEL_PREFIX}')
"""What only Node Feature Discovery puts among a node's labels, as their JSON has it."""


_HARDWARE = set(Hardware.model_fields)
"""What of a card is kept with its device; how it is divided and linked at the moment is not."""


class InventoryNode(NamedTuple):
    """What was last said of a node, each kind of fact with its time; `labels` and `learnt` are JSON objects.

    `gone_at` is when the Node object last went; `told_at` when anything last told of GPUs here. `learnt` keeps each
    hardware fact of the labels with its time, and outlives the labels. `incomplete` counts entries of the NodeFeature
    that do not say what they are.
    """

    node: str
    exists: bool
    node_at: datetime | None
    gone_at: datetime | None
    labels: str
    nfd_version: str | None
    has_features: bool
    features_at: datetime | None
    features_nfd_version: str | None
    incomplete: int
    agent_at: datetime | None
    told_at: datetime | None
    learnt: str


class Sighting(NamedTuple):
    """A card that somebody told of, as last told; `rank` counts a node's cards of one vendor and model from 1.

    The agent tells cards apart by itself and has no ranks. `hardware` is a JSON object.
    """

    node: str
    teller: str
    card: str
    seen_at: datetime
    rank: int
    device_index: int
    pci_address: str | None
    pci_vendor: str
    pci_device: str
    hardware: str


class NfdCount(NamedTuple):
    """How many existing nodes there are, and on how many Node Feature Discovery is new enough, or too old."""

    module: str
    nodes: int
    new_enough: int
    too_old: int


INVENTORY_NODE = TableSpec("inventory_node", InventoryNode, ("node",))
INVENTORY_SIGHTING = TableSpec("inventory_sighting", Sighting, ("node", "teller", "card"))
INVENTORY_NFD = TableSpec("inventory_nfd", NfdCount, ("module",))
SPECS: tuple[TableSpec[Any], ...] = (INVENTORY_NODE, INVENTORY_SIGHTING, INVENTORY_NFD, *DECIDED_SPECS)


class InventoryFacts(Inventory):
    """The state of the inventory's decider: what was said, and what was decided."""

    def __init__(self) -> None:
        super().__init__()
        self.said = Table(INVENTORY_NODE)
        self.sighting = Table(INVENTORY_SIGHTING, "node", "card")
        self.nfd = Table(INVENTORY_NFD)

    def tables(self) -> Mapping[str, Table[Any]]:
        """Every table, by name."""
        own: tuple[Table[Any], ...] = (self.said, self.sighting, self.nfd)
        return {**{table.spec.name: table for table in own}, **super().tables()}

    def nfd_count(self) -> NfdCount:
        """Where Node Feature Discovery was seen."""
        return self.nfd.get(MODULE_CONFIG) or NfdCount(MODULE_CONFIG, 0, 0, 0)


def is_current(row: InventoryNode, sighting: Sighting) -> bool:
    """Whether who told of the card still does."""
    if sighting.teller == AGENT:
        return sighting.seen_at == row.agent_at
    if sighting.teller == FEATURES:
        return row.has_features and sighting.seen_at == row.features_at
    return row.exists and sighting.seen_at == row.node_at


def is_of_this_life(row: InventoryNode, sighting: Sighting) -> bool:
    """Whether the card was told of since the Node object last went, or still is."""
    return row.gone_at is None or sighting.seen_at > row.gone_at or is_current(row, sighting)


def _observed(state: InventoryFacts, fact: Fact, data: NodeObserved) -> None:
    time, row = fact.event.time, _row(state, fact.event.subject)
    listing = gpus_among(pci_devices(data.labels))
    if _is_latest(row.node_at, time):
        row = row._replace(exists=True, node_at=time, labels=json_text(data.labels), nfd_version=data.nfd_version)
    row = _learn(row, data.labels, time)
    _put(state, _told(row, time) if tells_of_gpus(data.labels) else row)
    _see_listed(state, row.node, LABELS, listing, time)


def _gone(state: InventoryFacts, fact: Fact, _data: NodeGone) -> None:
    time, row = fact.event.time, _row(state, fact.event.subject)
    if _is_latest(row.gone_at, time):
        row = row._replace(gone_at=time)
    if _is_latest(row.node_at, time):
        row = row._replace(exists=False, node_at=time, labels="{}", nfd_version=None)
    _put(state, row)
    _forget(state, row)


def _features_observed(state: InventoryFacts, fact: Fact, data: NodeFeaturesObserved) -> None:
    time, row = fact.event.time, _row(state, fact.event.subject)
    listing = gpus_among(data.devices)
    if _is_latest(row.features_at, time):
        row = row._replace(
            has_features=True,
            features_at=time,
            features_nfd_version=data.nfd_version,
            incomplete=listing.incomplete,
        )
    row = _learn(row, data.labels, time)
    _put(state, _told(row, time) if listing.gpus or tells_of_gpus(data.labels) else row)
    _see_listed(state, row.node, FEATURES, listing, time)


def _features_gone(state: InventoryFacts, fact: Fact, _data: NodeFeaturesGone) -> None:
    time, row = fact.event.time, _row(state, fact.event.subject)
    if _is_latest(row.features_at, time):
        row = row._replace(has_features=False, features_at=time, features_nfd_version=None, incomplete=0)
    _put(state, row)
    _forget(state, row)


def _devices_observed(state: InventoryFacts, fact: Fact, data: NodeDevicesObserved) -> None:
    node, time = fact.event.subject, fact.event.time
    row = _row(state, node)
    if _is_latest(row.agent_at, time):
        row = row._replace(agent_at=time)
    _put(state, _told(row, time) if data.cards else row)
    _supersede(state, node, AGENT, time)
    for card in sorted(data.cards, key=_place, reverse=True):
        _see(state, _sighting_of_card(node, card, time))
    _forget(state, _row(state, node))


def _place(card: Card) -> tuple[str, str]:
    return (pci_address(card.pci_address), card.uuid or "")


def _sighting_of_card(node: str, card: Card, time: datetime) -> Sighting:
    address, vendor, device = pci_address(card.pci_address), pci_id(card.pci_vendor), pci_id(card.pci_device)
    normal = {"pci_address": address, "pci_vendor": vendor, "pci_device": device}
    if card.pci_class is not None:
        normal["pci_class"] = pci_id(card.pci_class)
    hardware = card.model_copy(update=normal).model_dump(exclude_none=True, include=_HARDWARE)
    key = card.uuid or place_of(node, address)
    return Sighting(
        intern(node), AGENT, intern(key), time, 0, 0, address, intern(vendor), intern(device), json_text(hardware)
    )


def _see_listed(state: InventoryFacts, node: str, teller: str, listing: Listing, time: datetime) -> None:
    _supersede(state, node, teller, time)
    ranks: dict[tuple[str, str], int] = {}
    for gpu in listing.gpus:
        vendor, device = intern(gpu.pci_vendor or ""), intern(gpu.pci_device or "")
        rank = ranks[vendor, device] = ranks.get((vendor, device), 0) + 1
        card = intern(provisional_card(node, vendor, device, rank))
        hardware = Hardware(pci_address=gpu.pci_address, pci_vendor=vendor, pci_device=device, pci_class=gpu.pci_class)
        text = intern(json_text(hardware.model_dump(exclude_none=True)))
        _see(
            state,
            Sighting(intern(node), teller, card, time, rank, gpu.index, gpu.pci_address, vendor, device, text),
        )
    _forget(state, _row(state, node))


def _supersede(state: InventoryFacts, node: str, teller: str, time: datetime) -> None:
    """Age what the teller said at this very time, because it says something else now."""
    for sighting in state.sighting.where("node", node):
        if sighting.teller == teller and sighting.seen_at == time:
            state.sighting.put(sighting._replace(seen_at=time - _JUST_BEFORE))


def _see(state: InventoryFacts, sighting: Sighting) -> None:
    known = state.sighting.get(state.sighting.key_of(sighting))
    if known is None or _is_latest(known.seen_at, sighting.seen_at):
        state.sighting.put(sighting)


def _forget(state: InventoryFacts, row: InventoryNode) -> None:
    """Drop the cards that nobody has told of since the Node object went."""
    if row.gone_at is not None:
        for sighting in state.sighting.where("node", row.node):
            if not is_of_this_life(row, sighting):
                state.sighting.delete(state.sighting.key_of(sighting))


def _row(state: InventoryFacts, node: str) -> InventoryNode:
    known = state.said.get(node)
    if known is not None:
        return known
    return InventoryNode(intern(node), True, None, None, "{}", None, False, None, None, 0, None, None, "{}")


def _is_latest(known: datetime | None, time: datetime) -> bool:
    return known is None or known <= time


def _told(row: InventoryNode, time: datetime) -> InventoryNode:
    return row._replace(told_at=time) if _is_latest(row.told_at, time) else row


def _learn(row: InventoryNode, labels: Mapping[str, str], time: datetime) -> InventoryNode:
    """Keep each hardware fact of the labels, the latest by time."""
    facts = hardware_facts(labels)
    if not facts:
        return row
    learnt, at = orjson.loads(row.learnt), time.timestamp()
    for name, value in facts.items():
        if name not in learnt or learnt[name][0] <= at:
            learnt[name] = [at, value]
    return row._replace(learnt=intern(json_text(learnt)))


def _put(state: InventoryFacts, row: InventoryNode) -> None:
    """Put the row, and count Node Feature Discovery anew where that changed."""
    was, now = _nfd(state.said.get(row.node)), _nfd(row)
    state.said.put(row)
    if was != now:
        count = state.nfd_count()
        state.nfd.put(NfdCount(MODULE_CONFIG, *(n - a + b for n, a, b in zip(count[1:], was, now, strict=True))))


def _nfd(row: InventoryNode | None) -> tuple[int, int, int]:
    """What a node adds to the count: that it exists, with a version that is new enough, or one that is too old."""
    if row is None or not row.exists:
        return (0, 0, 0)
    versions = [version for version in (row.features_nfd_version, row.nfd_version) if version is not None]
    if not versions and not row.has_features and not any(trace in row.labels for trace in _TRACES):
        return (1, 0, 0)
    new_enough = any(map(is_new_enough, versions)) if versions else True
    return (1, int(new_enough), int(not new_enough))


HANDLERS: Handlers = {
    NodeObserved: _observed,
    NodeGone: _gone,
    NodeFeaturesObserved: _features_observed,
    NodeFeaturesGone: _features_gone,
    NodeDevicesObserved: _devices_observed,
    **DECIDED_HANDLERS,
}
