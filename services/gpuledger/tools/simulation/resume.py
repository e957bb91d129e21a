"""How a fleet that was started before is found again: from the ledger, and from the pods that are there.

The ledger says which card sits where, how far each agent's numbering goes, and which pods hold what; nothing else is
kept anywhere. What was said of a pod that is gone is put right by whoever reads the result.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gpuledger.edge.kube.client import Object
from gpuledger.events.device import Card, DeviceFailed, DeviceHealthChanged
from gpuledger.events.envelope import Decoded, decode
from gpuledger.events.errors import EventError
from gpuledger.events.node import NodeDevicesObserved, NodeMonitoringObserved
from gpuledger.events.subjects import NODE, ROOT, parse_subject
from gpuledger.events.workload import WorkloadEnded, WorkloadScheduled
from gpuledger.ledger.api import Ledger, Message
from gpuledger.tools.simulation import names
from gpuledger.tools.simulation.agents import epoch_of, source_of
from gpuledger.tools.simulation.allocation import Held, Pod, Share, Start
from gpuledger.tools.simulation.failures import FATAL
from gpuledger.tools.simulation.fleet import Fleet, Place
from gpuledger.tools.simulation.objects import asked_for
from gpuledger.tools.simulation.preparation import Prepared
from gpuledger.tools.simulation.workload import FAILED, SUCCEEDED, Chance, Rates, duration_s

AGENTS: Final = f"{ROOT}.{NODE}.>"
"""The subjects that agents record under."""

FINISHED: Final = (SUCCEEDED, FAILED)
_NUMBER = re.compile(r".+-(\d{6,12})").fullmatch


class Open(NamedTuple):
    """A workload that the ledger has running."""

    node: str
    shares: tuple[Share, ...]


@dataclass(slots=True)
class Recorded:
    """What the ledger says of the fleet.

    `last_cards` are the UUIDs that were last seen at each place, `heartbeats` those told in a row by a node's agent.
    """

    events: int = 0
    last_number: int = 0
    numbers: dict[str, int] = field(default_factory=dict)
    cards: dict[str, set[str]] = field(default_factory=dict)
    last_cards: dict[Place, str] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    open: dict[str, Open] = field(default_factory=dict)
    heartbeats: dict[str, int] = field(default_factory=dict)


class Standing(NamedTuple):
    """The simulated nodes that a cluster has, by name, and those of them that are none of the fleet's."""

    nodes: tuple[str, ...]
    foreign: tuple[str, ...]


def standing(fleet: Fleet, nodes: Iterable[Object]) -> Standing:
    """What earlier runs left in a cluster; nobody simulates the foreign ones, and they stay as they are."""
    simulated = (node for node in nodes if (node.get("spec", {}).get("providerID") or "").startswith(names.PROVIDER))
    found = tuple(sorted(node["metadata"]["name"] for node in simulated))
    return Standing(found, tuple(name for name in found if name not in fleet.nodes))


async def recorded_of(ledger: Ledger, fleet: Fleet) -> Recorded:
    """Read what the fleet's agents have said so far."""
    recorded = Recorded()
    nodes = fleet.nodes.values()
    places = {(node.name, address): slot for node in nodes for slot, address in enumerate(node.addresses)}
    async for batch in ledger.history(subject_filter=AGENTS):
        for event in _own(batch, fleet):
            _take(recorded, event, places)
    return recorded


def _own(batch: Iterable[Message], fleet: Fleet) -> Iterator[Decoded]:
    """What this simulation said; others may say something of nodes of these names, and break their rules."""
    epoch = epoch_of(fleet.seed)
    for message in batch:
        try:
            node = parse_subject(message.subject).origin.name
            event = decode(message.data) if node in fleet.nodes and epoch.encode() in message.data else None
        except EventError:
            continue
        if event is not None and event.epoch == epoch and event.source == source_of(node):
            yield event


def _take(recorded: Recorded, event: Decoded, places: dict[tuple[str, str], int]) -> None:
    node, data = parse_node(event.source), event.data
    recorded.events += 1
    recorded.numbers[node] = max(recorded.numbers.get(node, 0), event.number)
    if isinstance(data, NodeDevicesObserved):
        _take_cards(recorded, node, data, places)
    elif isinstance(data, DeviceFailed) and data.kind in FATAL:
        recorded.failed.add(event.subject)
    elif isinstance(data, DeviceHealthChanged):
        (recorded.failed.discard if data.healthy else recorded.failed.add)(event.subject)
        recorded.heartbeats[node] = 0
    elif isinstance(data, NodeMonitoringObserved):
        recorded.heartbeats[node] = recorded.heartbeats.get(node, 0) + 1 if data.fresh else 0
    elif isinstance(data, WorkloadScheduled):
        shares = tuple(Share(share.device, share.gpu_milli) for share in data.devices)
        _take_pod(recorded, event.subject, Open(node, shares))
    elif isinstance(data, WorkloadEnded):
        _take_pod(recorded, event.subject, None)


def _take_cards(recorded: Recorded, node: str, data: NodeDevicesObserved, places: dict[tuple[str, str], int]) -> None:
    recorded.cards[node] = {card.uuid for card in data.cards if card.uuid}
    for card in data.cards:
        slot = places.get((node, card.pci_address))
        if slot is not None and card.uuid:
            recorded.last_cards[Place(node, slot)] = card.uuid


def _take_pod(recorded: Recorded, workload: str, now_open: Open | None) -> None:
    pod = names.pod_of(workload)
    if pod is None:
        return
    recorded.last_number = max(recorded.last_number, number_of(pod))
    if now_open is None:
        recorded.open.pop(pod, None)
    else:
        recorded.open[pod] = now_open


def parse_node(source: str) -> str:
    """The node whose agent a source is."""
    return source.split("/")[2]


def number_of(pod: str) -> int:
    """The number that a pod's name ends in; 0 where it ends in none."""
    match = _NUMBER(pod)
    return int(match[1]) if match else 0


class Found(NamedTuple):
    """The start of a plan, and what does not fit together.

    `over` are pods of which the ledger says that they run, with the phase that they ended in; `stray` are pods that
    are bound, but of which the ledger does not say what they hold.
    """

    start: Start
    over: dict[str, str]
    stray: list[str]


VANISHED: Final = "Unknown"
"""The phase of a pod that is not there any more and whose end nobody saw."""


def found(
    fleet: Fleet,
    recorded: Recorded,
    pods: Iterable[Object],
    ready: Mapping[str, Set[str]],
    chance: Chance,
    rates: Rates,
) -> Found:
    """Where the fleet stands; `ready` are the components of each node whose pods are."""
    running: list[Held] = []
    pending: list[Pod] = []
    finished: list[Pod] = []
    stray: list[str] = []
    over = dict.fromkeys(recorded.open, VANISHED)
    last_number = recorded.last_number
    for live in pods:
        name, phase = live["metadata"]["name"], live.get("status", {}).get("phase", "")
        last_number = max(last_number, number_of(name))
        pod, known = pod_from(fleet, live, chance, rates), recorded.open.get(name)
        if phase in FINISHED:
            if name in over:
                over[name] = phase
            finished += [pod] if pod is not None and not pod.of_user else []
        elif pod is None:
            continue
        elif not live["spec"].get("nodeName"):
            pending.append(pod)
        elif known is not None and known.node == live["spec"]["nodeName"] and not is_going(live):
            running.append(Held(pod, known.node, known.shares))
            del over[name]
        elif live["spec"]["nodeName"] in fleet.nodes:
            stray.append(name)
    cards = _cards(fleet, recorded)
    prepared = {
        node: Prepared(frozenset(ready.get(node, ())), recorded.heartbeats.get(node, 0)) for node in fleet.nodes
    }
    return Found(
        Start(*cards, tuple(running), tuple(pending), tuple(finished), last_number + 1, prepared),
        over,
        stray,
    )


def _cards(fleet: Fleet, recorded: Recorded) -> tuple[dict[Place, Card], dict[Place, int], frozenset[Place]]:
    cards: dict[Place, Card] = {}
    lives: dict[Place, int] = {}
    failed: set[Place] = set()
    for place in fleet.places():
        uuid = recorded.last_cards.get(place)
        life = lives[place] = 0 if uuid is None else fleet.life_of(place, uuid) or 0
        if uuid is None or uuid in recorded.cards.get(place.node, ()):
            cards[place] = fleet.card(place, life)
        if uuid in recorded.failed:
            failed.add(place)
    return cards, lives, frozenset(failed)


def is_going(live: Object) -> bool:
    """Whether somebody deleted a pod, and its kubelet is to end it."""
    return bool(live["metadata"].get("deletionTimestamp"))


def is_ours(live: Object) -> bool:
    """Whether a pod is one of the simulation's own users'."""
    return bool((live["metadata"].get("labels") or {}).get(names.MANAGED_BY) == names.SCHEDULER)


def pod_from(fleet: Fleet, live: Object, chance: Chance, rates: Rates) -> Pod | None:
    """The pod that an object of the cluster is; None where it asks for nothing that the fleet has."""
    asked, milli = asked_for(live), fleet.gpu_milli
    if asked is None or asked[0] not in milli:
        return None
    resource, units = asked
    metadata = live["metadata"]
    marks, owner = metadata.get("annotations") or {}, (metadata.get("labels") or {}).get(names.TEAM, "")
    said = str(marks.get(names.DURATION, ""))
    runs_s = float(said) if said.isascii() and said.isdigit() and len(said) < 10 else duration_s(chance, rates)
    outcome = FAILED if marks.get(names.OUTCOME) == FAILED else SUCCEEDED
    return Pod(metadata["name"], owner, resource, units, units * milli[resource], runs_s, outcome, not is_ours(live))
