"""What the ledger has of a simulated fleet: the card of each slot, each agent's last number, and each pod's shares.

Nothing of it is stored anywhere else, but in snapshots, so that a start reads only what came since the last one.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import orjson

from gpuledger.domain.table import TableSpec
from gpuledger.events.device import DeviceFailed, DeviceHealthChanged
from gpuledger.events.envelope import Decoded, decode, stands_under
from gpuledger.events.errors import EventError
from gpuledger.events.node import NodeDevicesObserved, NodeMonitoringObserved
from gpuledger.events.subjects import NODE, ROOT, SERVICE, origin_of
from gpuledger.events.workload import WorkloadEnded, WorkloadScheduled
from gpuledger.ledger.api import Message
from gpuledger.projection.snapshot import Layout, Row
from gpuledger.tools.simulation import names
from gpuledger.tools.simulation.agents import WORKLOADS, source_of
from gpuledger.tools.simulation.allocation import Share
from gpuledger.tools.simulation.failures import FATAL

AGENTS: Final = f"{ROOT}.{NODE}.>"
"""The subjects of agents' events. Among those of earlier builds are workloads, which an agent may no longer publish."""

RECORDED_WORKLOADS: Final = f"{ROOT}.{SERVICE}.{origin_of(WORKLOADS).name}.{WorkloadScheduled.AGGREGATE}.>"
"""The subjects of the fleet's workloads, all later than those that agents published."""

SNAPSHOT_PREFIX: Final = "simulation:"
"""How the names of simulations' snapshots begin; their epoch follows."""

VERSION: Final = 1
"""Of the rows in snapshots; another fold of the same log is another version."""

_NUMBER = re.compile(r".+-(\d{6,12})").fullmatch


class OpenWorkload(NamedTuple):
    """A workload that runs according to the ledger."""

    node: str
    shares: tuple[Share, ...]


class RecordedSource(NamedTuple):
    """A source and its last number."""

    source: str
    number: int


class RecordedSlot(NamedTuple):
    """The UUID of the card that was seen last at an address of a node."""

    node: str
    address: str
    card: str


class RecordedNode(NamedTuple):
    """A node's present cards (a JSON array of UUIDs), and how many heartbeats its agent recorded in a row."""

    node: str
    cards: str | None
    heartbeats: int | None


class FailedCard(NamedTuple):
    """The UUID of a card that has failed."""

    card: str


class OpenPod(NamedTuple):
    """A pod that runs according to the ledger; its shares are a JSON array of cards and thousandths."""

    pod: str
    node: str
    shares: str


class RecordedTotals(NamedTuple):
    """How many events the fleet recorded, and the last number of a pod."""

    epoch: str
    events: int
    last_number: int


SOURCE: Final = TableSpec("simulated_source", RecordedSource, ("source",))
SLOT: Final = TableSpec("simulated_slot", RecordedSlot, ("node", "address"))
NODES: Final = TableSpec("simulated_node", RecordedNode, ("node",))
FAILED_CARD: Final = TableSpec("simulated_failure", FailedCard, ("card",))
OPEN_POD: Final = TableSpec("simulated_pod", OpenPod, ("pod",))
TOTALS: Final = TableSpec("simulated_totals", RecordedTotals, ("epoch",))


@dataclass(slots=True)
class RecordedFleet:
    """The fleet according to the ledger, whatever its size is now.

    `numbers` has the last number of each source, `cards` the UUIDs in each node, `last_cards` the one last seen at each
    node and address, `heartbeats` how many a node's agent recorded in a row.
    """

    events: int = 0
    last_number: int = 0
    numbers: dict[str, int] = field(default_factory=dict)
    cards: dict[str, set[str]] = field(default_factory=dict)
    last_cards: dict[tuple[str, str], str] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    open: dict[str, OpenWorkload] = field(default_factory=dict)
    heartbeats: dict[str, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """About how many rows it is."""
        return len(self.numbers) + len(self.last_cards) + len(self.cards) + len(self.failed) + len(self.open)

    def take(self, messages: Iterable[Message], epoch: str) -> None:
        """Fold what the agents of this epoch recorded, and its workloads."""
        for event in _own(messages, epoch):
            self._take(event)

    def _take(self, event: Decoded) -> None:
        node, data = origin_of(event.source).name, event.data
        self.events += 1
        self.numbers[event.source] = max(self.numbers.get(event.source, 0), event.number)
        if isinstance(data, NodeDevicesObserved):
            self.cards[node] = {card.uuid for card in data.cards if card.uuid}
            for card in data.cards:
                if card.uuid:
                    self._take_card((node, card.pci_address), card.uuid)
        elif isinstance(data, DeviceFailed) and data.kind in FATAL:
            self.failed.add(event.subject)
        elif isinstance(data, DeviceHealthChanged):
            (self.failed.discard if data.healthy else self.failed.add)(event.subject)
            self.heartbeats[node] = 0
        elif isinstance(data, NodeMonitoringObserved):
            self.heartbeats[node] = self.heartbeats.get(node, 0) + 1 if data.fresh else 0
        elif isinstance(data, WorkloadScheduled):
            shares = tuple(Share(share.device, share.gpu_milli) for share in data.devices)
            self._take_pod(event.subject, OpenWorkload(data.node or "", shares))
        elif isinstance(data, WorkloadEnded):
            self._take_pod(event.subject, None)

    def _take_card(self, place: tuple[str, str], card: str) -> None:
        """A card is in its place; of one that was replaced there nothing matters any more."""
        before, self.last_cards[place] = self.last_cards.get(place), card
        if before is not None and before != card:
            self.failed.discard(before)

    def _take_pod(self, workload: str, now_open: OpenWorkload | None) -> None:
        pod = names.pod_of(workload)
        if pod is None:
            return
        self.last_number = max(self.last_number, number_of(pod))
        if now_open is None:
            self.open.pop(pod, None)
        else:
            self.open[pod] = now_open


def _own(messages: Iterable[Message], epoch: str) -> Iterator[Decoded]:
    """The events of this simulation; others may record events on nodes of the same names."""
    mark = epoch.encode()
    for message in messages:
        try:
            event = decode(message.data) if mark in message.data else None
        except EventError:
            continue
        if event is None or event.epoch != epoch or not stands_under(event, message.subject):
            continue
        if event.source in (WORKLOADS, source_of(origin_of(event.source).name)):
            yield event


def number_of(pod: str) -> int:
    """The number at the end of a pod's name; 0 where there is none."""
    match = _NUMBER(pod)
    return int(match[1]) if match else 0


def fleet_layout(epoch: str) -> Layout:
    """The layout of the snapshots of a simulation."""
    return Layout(f"{SNAPSHOT_PREFIX}{epoch}", VERSION, (SOURCE, SLOT, NODES, FAILED_CARD, OPEN_POD, TOTALS))


def rows_of_fleet(fleet: RecordedFleet, epoch: str) -> dict[str, list[Row]]:
    """The fleet as rows."""
    nodes = dict.fromkeys([*fleet.cards, *fleet.heartbeats])
    return {
        SOURCE.name: [RecordedSource(*one) for one in fleet.numbers.items()],
        SLOT.name: [RecordedSlot(*place, card) for place, card in fleet.last_cards.items()],
        NODES.name: [RecordedNode(node, _cards(fleet.cards.get(node)), fleet.heartbeats.get(node)) for node in nodes],
        FAILED_CARD.name: [FailedCard(card) for card in sorted(fleet.failed)],
        OPEN_POD.name: [OpenPod(pod, one.node, _text(one.shares)) for pod, one in fleet.open.items()],
        TOTALS.name: [RecordedTotals(epoch, fleet.events, fleet.last_number)],
    }


def fleet_of_rows(rows: Mapping[str, Iterable[Row]]) -> RecordedFleet:
    """The fleet of such rows."""
    ((_, events, last_number),) = rows[TOTALS.name]
    nodes = list(rows[NODES.name])
    return RecordedFleet(
        events,
        last_number,
        numbers=dict(rows[SOURCE.name]),
        cards={node: set(orjson.loads(cards)) for node, cards, _ in nodes if cards is not None},
        last_cards={(node, address): card for node, address, card in rows[SLOT.name]},
        failed={card for (card,) in rows[FAILED_CARD.name]},
        open={pod: OpenWorkload(node, _shares(shares)) for pod, node, shares in rows[OPEN_POD.name]},
        heartbeats={node: beats for node, _, beats in nodes if beats is not None},
    )


def _cards(cards: set[str] | None) -> str | None:
    return None if cards is None else orjson.dumps(sorted(cards)).decode()


def _text(shares: tuple[Share, ...]) -> str:
    return orjson.dumps([list(share) for share in shares]).decode()


def _shares(text: str) -> tuple[Share, ...]:
    return tuple(Share(*one) for one in orjson.loads(text))
