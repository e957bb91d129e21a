"""Resumes a fleet that was started before, from what the ledger has of it and from the pods in the cluster.

The caller resolves what ledger and cluster disagree on.
"""

from collections.abc import Iterable, Mapping, Set
from typing import Final, NamedTuple

from gpuledger.edge.kube.client import Object
from gpuledger.events.device import Card
from gpuledger.tools.simulation import names
from gpuledger.tools.simulation.allocation import RunningPod, SimulatedPod, Start
from gpuledger.tools.simulation.checks.pods import checks_of
from gpuledger.tools.simulation.fleet import Fleet, SlotId
from gpuledger.tools.simulation.objects import requested_resource
from gpuledger.tools.simulation.preparation import NodeProgress
from gpuledger.tools.simulation.recorded import RecordedFleet, number_of
from gpuledger.tools.simulation.workload import FAILED, SUCCEEDED, Chance, Rates, duration_s

FINISHED: Final = (SUCCEEDED, FAILED)


class LeftoverNodes(NamedTuple):
    """The names of a cluster's simulated nodes, and of those among them that do not belong to this fleet."""

    nodes: tuple[str, ...]
    foreign: tuple[str, ...]


def leftover_nodes(fleet: Fleet, nodes: Iterable[Object]) -> LeftoverNodes:
    """The nodes that earlier runs left in a cluster; foreign ones are neither simulated nor changed."""
    simulated = (node for node in nodes if (node.get("spec", {}).get("providerID") or "").startswith(names.PROVIDER))
    found = tuple(sorted(node["metadata"]["name"] for node in simulated))
    return LeftoverNodes(found, tuple(name for name in found if name not in fleet.nodes))


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
        name, phase = name_of(live), live.get("status", {}).get("phase", "")
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
        uuid = recorded.last_cards.get((slot_id.node, fleet.nodes[slot_id.node].addresses[slot_id.slot]))
        life = lives[slot_id] = 0 if uuid is None else fleet.life_of(slot_id, uuid) or 0
        if uuid is None or uuid in recorded.cards.get(slot_id.node, ()):
            cards[slot_id] = fleet.card(slot_id, life)
        if uuid in recorded.failed:
            failed.add(slot_id)
    return cards, lives, frozenset(failed)


def name_of(live: Object) -> str:
    """What the simulation calls a pod."""
    return names.pod_in(live["metadata"].get("namespace", names.DEMO_NAMESPACE), live["metadata"]["name"])


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
    amount, of_user = units * milli[resource], not is_own_pod(live)
    return SimulatedPod(
        name_of(live), owner, resource, units, amount, runs_s, outcome, of_user=of_user, checks=checks_of(live)
    )
