"""The facts of the `inventory` decider as rows: the latest reports on nodes and their cards, and their counts. Pure."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.domain.inventory.device_names import place_of
from gpuledger.domain.inventory.state import DECIDED_SPECS, Inventory
from gpuledger.domain.table import Table, TableSpec
from gpuledger.domain.tombstones import RowEnds

AGENT, FEATURES, LABELS = "agent", "features", "labels"
"""The reporters of cards, the most trusted first."""

CLAIM = "claim"
"""The reporter of a card that the node's agent reports although another node has it."""

OF_AGENTS = (AGENT, CLAIM)


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

    def ended_at(self) -> datetime | None:
        """When anything was last heard of a node that is gone, with its NodeFeature; None while one of them exists."""
        times = (self.node_at, self.gone_at, self.features_at, self.agent_at, self.gpus_reported_at)
        is_gone = not self.exists and not self.has_features
        return max((time for time in times if time is not None), default=None) if is_gone else None

    @property
    def has_gpus(self) -> bool:
        """Whether anything has reported GPUs since the Node object was last deleted."""
        reported_at = self.gpus_reported_at
        return reported_at is not None and (self.gone_at is None or self.gone_at < reported_at)

    @property
    def is_surveyed(self) -> bool:
        """Whether the node's agent has reported its cards, if only that there are none, since the Node was deleted."""
        return self.agent_at is not None and (self.gone_at is None or self.gone_at < self.agent_at)


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


class Slot(NamedTuple):
    """The card with a UUID that the node's agent saw last at an address, and the first one, which named its device."""

    node: str
    pci_address: str
    card: str
    reported_at: datetime
    first_card: str


class NfdCount(NamedTuple):
    """How many nodes exist, on how many Node Feature Discovery is new enough or too old, and how many agents survey."""

    module: str
    nodes: int
    new_enough: int
    too_old: int
    surveyed: int


class ReportHour(NamedTuple):
    """How many of an agent's reports were rejected in the latest hour of recording in which one was."""

    node: str
    hour: datetime
    rejected: int


INVENTORY_NODE = TableSpec("inventory_node", InventoryNode, ("node",))
INVENTORY_CARD_REPORT = TableSpec("inventory_card_report", CardReport, ("node", "reporter", "card"))
INVENTORY_SLOT = TableSpec("inventory_slot", Slot, ("node", "pci_address"))
INVENTORY_NFD = TableSpec("inventory_nfd", NfdCount, ("module",))
INVENTORY_REPORT_HOUR = TableSpec("inventory_report_hour", ReportHour, ("node",))
SPECS: tuple[TableSpec[Any], ...] = (
    *DECIDED_SPECS,
    INVENTORY_NODE,
    INVENTORY_CARD_REPORT,
    INVENTORY_SLOT,
    INVENTORY_NFD,
    INVENTORY_REPORT_HOUR,
)


class InventoryFacts(Inventory):
    """The state of the `inventory` decider: facts and decisions."""

    def __init__(self) -> None:
        super().__init__()
        self.node_facts = Table(INVENTORY_NODE)
        self.node_ends = RowEnds(self.node_facts, InventoryNode.ended_at)
        self.report = Table(INVENTORY_CARD_REPORT, "node", "card")
        self.slot = Table(INVENTORY_SLOT, "node")
        self.nfd = Table(INVENTORY_NFD)
        self.report_hour = Table(INVENTORY_REPORT_HOUR)
        self.reports_version = 0
        """The version of `Rule.DEVICE_REPORTS` that is enforced where the fold stands."""

        self._claimed: list[str] = []

    def nfd_count(self) -> NfdCount:
        """On how many nodes Node Feature Discovery was found, and how many agents have surveyed."""
        return self.nfd.get(MODULE_CONFIG) or NfdCount(MODULE_CONFIG, 0, 0, 0, 0)

    def note_claims(self, cards: Iterable[str]) -> None:
        """Note that a survey claims cards that other nodes have, and that the survey before did not claim."""
        self._claimed = sorted(cards)

    def take_claims(self) -> list[str]:
        """The cards that the fact which was just folded claims anew."""
        claimed, self._claimed = self._claimed, []
        return claimed

    def drop_claim(self, node: str, card: str) -> None:
        """Drop a node's claim whose rejection is not recorded, so that the next survey claims the card anew."""
        self.report.delete((node, CLAIM, card))


def is_current(row: InventoryNode, report: CardReport) -> bool:
    """Whether the reporter's latest report still includes the card."""
    if report.reporter in OF_AGENTS:
        return report.reported_at == row.agent_at
    if report.reporter == FEATURES:
        return row.has_features and report.reported_at == row.features_at
    return row.exists and report.reported_at == row.node_at


def is_of_current_node(row: InventoryNode, report: CardReport) -> bool:
    """Whether the card was reported since the Node object was last deleted, or still is."""
    return row.gone_at is None or report.reported_at > row.gone_at or is_current(row, report)


def has_uuid(report: CardReport) -> bool:
    """Whether an agent's report names the card by its UUID, and not by its address alone."""
    return report.card != place_of(report.node, report.pci_address or "")


def identified_at(reports: Iterable[CardReport]) -> dict[str, CardReport]:
    """The card with a UUID that a node's agent reported last at each address."""
    found: dict[str, CardReport] = {}
    for report in reports:
        if report.reporter in OF_AGENTS and has_uuid(report) and report.pci_address:
            previous = found.get(report.pci_address)
            if previous is None or (previous.reported_at, previous.card) < (report.reported_at, report.card):
                found[report.pci_address] = report
    return found
