"""Resumes a fleet that was started before, from the ledger and from the pods in the cluster.

The ledger has the card of each slot, the last number of each agent, and the shares of each pod; nothing else is stored
anywhere. The caller resolves what ledger and cluster disagree on.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gpuledger.edge.kube.client import Object
from gpuledger.events.device import Card, DeviceFailed, DeviceHealthChanged
from gpuledger.events.envelope import Decoded, decode, stands_under
from gpuledger.events.errors import EventError
from gpuledger.events.node import NodeDevicesObserved, NodeMonitoringObserved
from gpuledger.events.subjects import NODE, ROOT, SERVICE, origin_of
from gpuledger.events.workload import WorkloadEnded, WorkloadScheduled
from gpuledger.ledger.api import Ledger, Message
from gpuledger.tools.simulation import names
from gpuledger.tools.simulation.agents import WORKLOADS, epoch_of, source_of
from gpuledger.tools.simulation.allocation import RunningPod, Share, SimulatedPod, Start
from gpuledger.tools.simulation.failures import FATAL
from gpuledger.tools.simulation.fleet import Fleet, SlotId
from gpuledger.tools.simulation.objects import requested_resource
from gpuledger.tools.simulation.preparation import NodeProgress
from gpuledger.tools.simulation.workload import FAILED, SUCCEEDED, Chance, Rates, duration_s

AGENTS: Final = f"{ROOT}.{NODE}.>"
"""The subjects of agents' events. Among those of earlier builds are workloads, which an agent may no longer publish."""

RECORDED_WORKLOADS: Final = f"{ROOT}.{SERVICE}.{origin_of(WORKLOADS).name}.{WorkloadScheduled.AGGREGATE}.>"
"""The subjects of the fleet's workloads, all later than those that agents published."""

FINISHED: Final = (SUCCEEDED, FAILED)
_NUMBER = re.compile(r".+-(\d{6,12})").fullmatch


class OpenWorkload(NamedTuple):
    """A workload that runs according to the ledger."""

    node: str
    shares: tuple[Share, ...]


@dataclass(slots=True)
class RecordedFleet:
    """The fleet according to the ledger.

    `numbers` has the last number of each source, `last_cards` the UUID last seen in each slot, `heartbeats` how many a
    node's agent recorded in a row.
    """

    events: int = 0
    last_number: int = 0
    numbers: dict[str, int] = field(default_factory=dict)
    cards: dict[str, set[str]] = field(default_factory=dict)
    last_cards: dict[SlotId, str] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    open: dict[str, OpenWorkload] = field(default_factory=dict)
    heartbeats: dict[str, int] = field(default_factory=dict)


class LeftoverNodes(NamedTuple):
    """The names of a cluster's simulated nodes, and of those among them that do not belong to this fleet."""

    nodes: tuple[str, ...]
    foreign: tuple[str, ...]


def leftover_nodes(fleet: Fleet, nodes: Iterable[Object]) -> LeftoverNodes:
    """The nodes that earlier runs left in a cluster; foreign ones are neither simulated nor changed."""
    simulated = (node for node in nodes if (node.get("spec", {}).get("providerID") or "").startswith(names.PROVIDER))
    found = tuple(sorted(node["metadata"]["name"] for node in simulated))
    return LeftoverNodes(found, tuple(name for name in found if name not in fleet.nodes))


async def recorded_of(ledger: Ledger, fleet: Fleet) -> RecordedFleet:
    """Read the events of the fleet's agents, and its workloads."""
    recorded = RecordedFleet()
    nodes = fleet.nodes.values()
    slot_ids = {(node.name, address): slot for node in nodes for slot, address in enumerate(node.addresses)}
    for subjects in (AGENTS, RECORDED_WORKLOADS):
        async for batch in ledger.history(subject_filter=subjects):
            for event in _own(batch, fleet):
                _take(recorded, event, slot_ids)
    return recorded


def _own(batch: Iterable[Message], fleet: Fleet) -> Iterator[Decoded]:
    """The events of this simulation; others may record events on nodes of the same names."""
    epoch, sources = epoch_of(fleet.seed), {WORKLOADS, *map(source_of, fleet.nodes)}
    for message in batch:
        try:
            event = decode(message.data) if epoch.encode() in message.data else None
        except EventError:
            continue
        is_own = event is not None and event.epoch == epoch and event.source in sources
        if event is not None and is_own and stands_under(event, message.subject):
            yield event


def _take(recorded: RecordedFleet, event: Decoded, slot_ids: dict[tuple[str, str], int]) -> None:
    node, data = origin_of(event.source).name, event.data
    recorded.events += 1
    recorded.numbers[event.source] = max(recorded.numbers.get(event.source, 0), event.number)
    if isinstance(data, NodeDevicesObserved):
        _take_cards(recorded, node, data, slot_ids)
    elif isinstance(data, DeviceFailed) and data.kind in FATAL:
        recorded.failed.add(event.subject)
    elif isinstance(data, DeviceHealthChanged):
        (recorded.failed.discard if data.healthy else recorded.failed.add)(event.subject)
        recorded.heartbeats[node] = 0
    elif isinstance(data, NodeMonitoringObserved):
        recorded.heartbeats[node] = recorded.heartbeats.get(node, 0) + 1 if data.fresh else 0
    elif isinstance(data, WorkloadScheduled):
        shares = tuple(Share(share.device, share.gpu_milli) for share in data.devices)
        _take_pod(recorded, event.subject, OpenWorkload(data.node or "", shares))
    elif isinstance(data, WorkloadEnded):
        _take_pod(recorded, event.subject, None)


def _take_cards(
    recorded: RecordedFleet, node: str, data: NodeDevicesObserved, slot_ids: dict[tuple[str, str], int]
) -> None:
    recorded.cards[node] = {card.uuid for card in data.cards if card.uuid}
    for card in data.cards:
        slot = slot_ids.get((node, card.pci_address))
        if slot is not None and card.uuid:
            recorded.last_cards[SlotId(node, slot)] = card.uuid


def _take_pod(recorded: RecordedFleet, workload: str, now_open: OpenWorkload | None) -> None:
    pod = names.pod_of(workload)
    if pod is None:
        return
    recorded.last_number = max(recorded.last_number, number_of(pod))
    if now_open is None:
        recorded.open.pop(pod, None)
    else:
        recorded.open[pod] = now_open


def number_of(pod: str) -> int:
    """The number at the end of a pod's name; 0 where there is none."""
    match = _NUMBER(pod)
    return int(match[1]) if match else 0


class ResumeState(NamedTuple):
    """The start of a plan, and pods on which ledger and cluster disagree.

    `over` are pods that run only according to the ledger, with the phase in which they ended; `stray` are pods that
    are bound, but whose shares the ledger does not have.
    """

    start: Start
    over: dict[str, str]
    stray: list[str]


VANISHED: Final = "Unknown"
"""The phase of a pod that is gone and whose end nobody saw."""


def resume_state(
    fleet: Fleet,
    recorded: RecordedFleet,
    pods: Iterable[Object],
    ready: Mapping[str, Set[str]],
    chance: Chance,
    rates: Rates,
) -> ResumeState:
    """The state from which to resume; `ready` are the components of each node with a ready pod."""
    running: list[RunningPod] = []
    pending: list[SimulatedPod] = []
    finished: list[SimulatedPod] = []
    stray: list[str] = []
    over = dict.fromkeys(recorded.open, VANISHED)
    last_number = recorded.last_number
    for live in pods:
        name, phase = live["metadata"]["name"], live.get("status", {}).get("phase", "")
        last_number = max(last_number, number_of(name))
        pod, opened = pod_from(fleet, live, chance, rates), recorded.open.get(name)
        if phase in FINISHED:
            if name in over:
                over[name] = phase
            finished += [pod] if pod is not None and not pod.of_user else []
        elif pod is None:
            continue
        elif not live["spec"].get("nodeName"):
            pending.append(pod)
        elif opened is not None and opened.node == live["spec"]["nodeName"] and not is_terminating(live):
            running.append(RunningPod(pod, opened.node, opened.shares))
            del over[name]
        elif live["spec"]["nodeName"] in fleet.nodes:
            stray.append(name)
    cards = _cards(fleet, recorded)
    prepared = {
        node: NodeProgress(frozenset(ready.get(node, ())), recorded.heartbeats.get(node, 0)) for node in fleet.nodes
    }
    return ResumeState(
        Start(*cards, tuple(running), tuple(pending), tuple(finished), last_number + 1, prepared),
        over,
        stray,
    )


def _cards(fleet: Fleet, recorded: RecordedFleet) -> tuple[dict[SlotId, Card], dict[SlotId, int], frozenset[SlotId]]:
    cards: dict[SlotId, Card] = {}
    lives: dict[SlotId, int] = {}
    failed: set[SlotId] = set()
    for slot_id in fleet.slot_ids():
        uuid = recorded.last_cards.get(slot_id)
        life = lives[slot_id] = 0 if uuid is None else fleet.life_of(slot_id, uuid) or 0
        if uuid is None or uuid in recorded.cards.get(slot_id.node, ()):
            cards[slot_id] = fleet.card(slot_id, life)
        if uuid in recorded.failed:
            failed.add(slot_id)
    return cards, lives, frozenset(failed)


def is_terminating(live: Object) -> bool:
    """Whether a pod is being deleted."""
    return bool(live["metadata"].get("deletionTimestamp"))


def is_own_pod(live: Object) -> bool:
    """Whether the simulation created the pod."""
    return bool((live["metadata"].get("labels") or {}).get(names.MANAGED_BY) == names.SCHEDULER)


def pod_from(fleet: Fleet, live: Object, chance: Chance, rates: Rates) -> SimulatedPod | None:
    """A pod of the cluster as a simulated one; None where it requests nothing that the fleet has."""
    requested, milli = requested_resource(live), fleet.gpu_milli
    if requested is None or requested[0] not in milli:
        return None
    resource, units = requested
    metadata = live["metadata"]
    marks, owner = metadata.get("annotations") or {}, (metadata.get("labels") or {}).get(names.TEAM, "")
    given = str(marks.get(names.DURATION, ""))
    runs_s = float(given) if given.isascii() and given.isdigit() and len(given) < 10 else duration_s(chance, rates)
    outcome = FAILED if marks.get(names.OUTCOME) == FAILED else SUCCEEDED
    return SimulatedPod(
        metadata["name"], owner, resource, units, units * milli[resource], runs_s, outcome, not is_own_pod(live)
    )
