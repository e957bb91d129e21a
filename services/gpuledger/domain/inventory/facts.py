"""The facts of the `inventory` decider: reports on nodes and their cards from Kubernetes watchers and node agents.

Of each kind of fact the latest by event time is in force, whatever the order of recording; a late fact still adds the
cards that it reports. Nothing here is merged or decided.
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
    PciGpus,
    gpus_among,
    hardware_facts,
    is_new_enough,
    mention_gpus,
    pci_address,
    pci_devices,
    pci_id,
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
"""The reporters of cards, the most trusted first."""

_JUST_BEFORE = timedelta(microseconds=1)
_TRACES = (f'"{LABEL_DEVICE_PREFIX}', f'"{NFD_LABEL_PREFIX}')
"""Fragments of a node's labels, as JSON, that only Node Feature Discovery sets."""


_HARDWARE = set(Hardware.model_fields)
"""The fields of a card that its device keeps; its current partitions and links are not among them."""


class InventoryNode(NamedTuple):
    """The latest facts about a node, each kind with its time; `labels` and `hardware_facts` are JSON objects.

    `gone_at` is when the Node object was last deleted, `gpus_reported_at` when anything last reported GPUs here.
    `hardware_facts` holds each hardware fact of the labels with its time, also after the labels are gone. `incomplete`
    counts the entries of the NodeFeature that lack a vendor, model or class.
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
    gpus_reported_at: datetime | None
    hardware_facts: str

    @property
    def has_gpus(self) -> bool:
        """Whether anything has reported GPUs since the Node object was last deleted."""
        reported_at = self.gpus_reported_at
        return reported_at is not None and (self.gone_at is None or self.gone_at < reported_at)


class CardReport(NamedTuple):
    """The last report of a card by one reporter; `rank` counts a node's cards of one vendor and model from 1.

    The agent identifies its cards and has no ranks. `hardware` is a JSON object.
    """

    node: str
    reporter: str
    card: str
    reported_at: datetime
    rank: int
    device_index: int
    pci_address: str | None
    pci_vendor: str
    pci_device: str
    hardware: str


class NfdCount(NamedTuple):
    """How many nodes exist, and on how many of them Node Feature Discovery is new enough or too old."""

    module: str
    nodes: int
    new_enough: int
    too_old: int


class ReportHour(NamedTuple):
    """How many of an agent's reports were rejected in the latest hour of recording in which one was."""

    node: str
    hour: datetime
    rejected: int


INVENTORY_NODE = TableSpec("inventory_node", InventoryNode, ("node",))
INVENTORY_CARD_REPORT = TableSpec("inventory_card_report", CardReport, ("node", "reporter", "card"))
INVENTORY_NFD = TableSpec("inventory_nfd", NfdCount, ("module",))
INVENTORY_REPORT_HOUR = TableSpec("inventory_report_hour", ReportHour, ("node",))
SPECS: tuple[TableSpec[Any], ...] = (
    *DECIDED_SPECS,
    INVENTORY_NODE,
    INVENTORY_CARD_REPORT,
    INVENTORY_NFD,
    INVENTORY_REPORT_HOUR,
)


class InventoryFacts(Inventory):
    """The state of the `inventory` decider: facts and decisions."""

    def __init__(self) -> None:
        super().__init__()
        self.node_facts = Table(INVENTORY_NODE)
        self.report = Table(INVENTORY_CARD_REPORT, "node", "card")
        self.nfd = Table(INVENTORY_NFD)
        self.report_hour = Table(INVENTORY_REPORT_HOUR)

    def nfd_count(self) -> NfdCount:
        """On how many nodes Node Feature Discovery was found."""
        return self.nfd.get(MODULE_CONFIG) or NfdCount(MODULE_CONFIG, 0, 0, 0)


def is_current(row: InventoryNode, report: CardReport) -> bool:
    """Whether the reporter's latest report still includes the card."""
    if report.reporter == AGENT:
        return report.reported_at == row.agent_at
    if report.reporter == FEATURES:
        return row.has_features and report.reported_at == row.features_at
    return row.exists and report.reported_at == row.node_at


def is_of_current_node(row: InventoryNode, report: CardReport) -> bool:
    """Whether the card was reported since the Node object was last deleted, or still is."""
    return row.gone_at is None or report.reported_at > row.gone_at or is_current(row, report)


def _observed(state: InventoryFacts, fact: Fact, data: NodeObserved) -> None:
    time, row = fact.event.time, _row(state, fact.event.subject)
    listing = gpus_among(pci_devices(data.labels))
    if _is_latest(row.node_at, time):
        row = row._replace(exists=True, node_at=time, labels=json_text(data.labels), nfd_version=data.nfd_version)
    row = _with_hardware_facts(row, data.labels, time)
    _put(state, _with_gpus(row, time) if mention_gpus(data.labels) else row)
    _report_listed(state, row.node, LABELS, listing, time)


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
    row = _with_hardware_facts(row, data.labels, time)
    _put(state, _with_gpus(row, time) if listing.gpus or mention_gpus(data.labels) else row)
    _report_listed(state, row.node, FEATURES, listing, time)


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
    _put(state, _with_gpus(row, time) if data.cards else row)
    _supersede(state, node, AGENT, time)
    for card in sorted(data.cards, key=_place, reverse=True):
        _store(state, _sighting_of_card(node, card, time))
    _forget(state, _row(state, node))


def _place(card: Card) -> tuple[str, str]:
    return (pci_address(card.pci_address), card.uuid or "")


def _sighting_of_card(node: str, card: Card, time: datetime) -> CardReport:
    address, vendor, device = pci_address(card.pci_address), pci_id(card.pci_vendor), pci_id(card.pci_device)
    normal = {"pci_address": address, "pci_vendor": vendor, "pci_device": device}
    if card.pci_class is not None:
        normal["pci_class"] = pci_id(card.pci_class)
    hardware = card.model_copy(update=normal).model_dump(exclude_none=True, include=_HARDWARE)
    key = card.uuid or place_of(node, address)
    return CardReport(
        intern(node), AGENT, intern(key), time, 0, 0, address, intern(vendor), intern(device), json_text(hardware)
    )


def _report_listed(state: InventoryFacts, node: str, reporter: str, listing: PciGpus, time: datetime) -> None:
    _supersede(state, node, reporter, time)
    ranks: dict[tuple[str, str], int] = {}
    for gpu in listing.gpus:
        vendor, device = intern(gpu.pci_vendor or ""), intern(gpu.pci_device or "")
        rank = ranks[vendor, device] = ranks.get((vendor, device), 0) + 1
        card = intern(provisional_card(node, vendor, device, rank))
        hardware = Hardware(pci_address=gpu.pci_address, pci_vendor=vendor, pci_device=device, pci_class=gpu.pci_class)
        text = intern(json_text(hardware.model_dump(exclude_none=True)))
        _store(
            state,
            CardReport(intern(node), reporter, card, time, rank, gpu.index, gpu.pci_address, vendor, device, text),
        )
    _forget(state, _row(state, node))


def _supersede(state: InventoryFacts, node: str, reporter: str, time: datetime) -> None:
    """Age the reporter's earlier reports of this very time, which this one replaces."""
    for report in state.report.where("node", node):
        if report.reporter == reporter and report.reported_at == time:
            state.report.put(report._replace(reported_at=time - _JUST_BEFORE))


def _store(state: InventoryFacts, report: CardReport) -> None:
    previous = state.report.get(state.report.key_of(report))
    if previous is None or _is_latest(previous.reported_at, report.reported_at):
        state.report.put(report)


def _forget(state: InventoryFacts, row: InventoryNode) -> None:
    """Drop the cards that nobody has reported since the Node object was deleted."""
    if row.gone_at is not None:
        for report in state.report.where("node", row.node):
            if not is_of_current_node(row, report):
                state.report.delete(state.report.key_of(report))


def _row(state: InventoryFacts, node: str) -> InventoryNode:
    previous = state.node_facts.get(node)
    if previous is not None:
        return previous
    return InventoryNode(intern(node), True, None, None, "{}", None, False, None, None, 0, None, None, "{}")


def _is_latest(previous: datetime | None, time: datetime) -> bool:
    return previous is None or previous <= time


def _with_gpus(row: InventoryNode, time: datetime) -> InventoryNode:
    return row._replace(gpus_reported_at=time) if _is_latest(row.gpus_reported_at, time) else row


def _with_hardware_facts(row: InventoryNode, labels: Mapping[str, str], time: datetime) -> InventoryNode:
    """Store each hardware fact of the labels, the latest by time."""
    facts = hardware_facts(labels)
    if not facts:
        return row
    previous, at = orjson.loads(row.hardware_facts), time.timestamp()
    for name, value in facts.items():
        if name not in previous or previous[name][0] <= at:
            previous[name] = [at, value]
    return row._replace(hardware_facts=intern(json_text(previous)))


def _put(state: InventoryFacts, row: InventoryNode) -> None:
    """Put the row, and update the count of Node Feature Discovery."""
    was, now = _nfd(state.node_facts.get(row.node)), _nfd(row)
    state.node_facts.put(row)
    if was != now:
        count = state.nfd_count()
        state.nfd.put(NfdCount(MODULE_CONFIG, *(n - a + b for n, a, b in zip(count[1:], was, now, strict=True))))


def _nfd(row: InventoryNode | None) -> tuple[int, int, int]:
    """A node's part of the count: whether it exists, and whether its version is new enough or too old."""
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
