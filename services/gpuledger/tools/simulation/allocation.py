"""The slots of the simulated fleet, with a first-fit scheduler of pods on them. Pure, and without time.

Each unit of a card belongs to at most one pod, and no pod gets a card that is out of service.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gpuledger.events.device import Card
from gpuledger.tools.simulation.checks.pods import PodChecks
from gpuledger.tools.simulation.fleet import Fleet, GpuUnit, SlotId
from gpuledger.tools.simulation.preparation import NodeProgress

FIRST_NETWORK: Final = 64
"""The network of the first 256 nodes' pods is 10.64.0.0/16."""

ADDRESSES_PER_SLOT: Final = 8
"""A card has at most seven units."""


class SimulatedPod(NamedTuple):
    """A pod that requests units of one resource; `gpu_milli` is its whole request.

    It runs for `duration_s` simulated seconds and then ends with `outcome`, unless one of its cards fails. A pod that
    is `of_user` was created by somebody else, who has to delete it. `checks` are those that it goes through before.
    """

    name: str
    owner: str
    resource: str
    units: int
    gpu_milli: int
    duration_s: float
    outcome: str
    of_user: bool = False
    checks: PodChecks | None = None


class Share(NamedTuple):
    """How much of a card, by its UUID, a pod holds, in thousandths."""

    card: str
    gpu_milli: int


class RunningPod(NamedTuple):
    """A pod on its node, with its shares of cards."""

    pod: SimulatedPod
    node: str
    shares: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class Start:
    """The state in which a plan begins: the card of each slot and its life (no card: the slot is empty), and the pods.

    `failed` are slots whose card is out of service, `finished` are pods that have ended and still exist, `prepared` is
    the progress of each node; a missing node is not prepared at all.
    """

    cards: Mapping[SlotId, Card]
    lives: Mapping[SlotId, int]
    failed: frozenset[SlotId] = frozenset()
    running: tuple[RunningPod, ...] = ()
    pending: tuple[SimulatedPod, ...] = ()
    finished: tuple[SimulatedPod, ...] = ()
    next_number: int = 1
    prepared: Mapping[str, NodeProgress] = field(default_factory=dict)


@dataclass(slots=True)
class FleetSlot:
    """A slot and the card in it; `holders` are the pods that have its units.

    A card that is in service but not `offered` keeps its pods and gets no more.
    """

    slot_id: SlotId
    units: tuple[GpuUnit, ...]
    life: int
    card: Card | None
    in_service: bool = True
    holders: list[str | None] = field(default_factory=list)
    offered: bool = True

    @property
    def is_open(self) -> bool:
        """Whether pods can get its units."""
        return self.card is not None and self.in_service and self.offered

    def free(self, resource: str) -> Iterator[int]:
        """The free units of a resource."""
        if self.is_open:
            for index, unit in enumerate(self.units):
                if unit.resource == resource and self.holders[index] is None:
                    yield index


class FleetAllocation:
    """The fleet's slots, and the pods that run in it; nodes that are `cordoned` or `down` get no more of them."""

    def __init__(self, fleet: Fleet, start: Start) -> None:
        self._fleet = fleet
        self.slots = {slot_id: _slot(fleet, start, slot_id) for slot_id in fleet.slot_ids()}
        self.running: dict[str, RunningPod] = {}
        self.cordoned: set[str] = set()
        self.down: set[str] = set()
        self._of_node: dict[str, list[FleetSlot]] = {name: [] for name in fleet.nodes}
        for slot in self.slots.values():
            self._of_node[slot.slot_id.node].append(slot)
        self._free = {name: self._count(name) for name in fleet.nodes}

    def cards(self, node: str) -> dict[int, Card]:
        """The node's cards by slot."""
        return {slot.slot_id.slot: slot.card for slot in self._of_node[node] if slot.card is not None}

    def in_service(self, node: str) -> list[int]:
        """The node's slots whose card can be used."""
        return [slot.slot_id.slot for slot in self._of_node[node] if slot.card is not None and slot.in_service]

    def schedule(self, pod: SimulatedPod, nodes: Iterable[str] | None = None) -> RunningPod | None:
        """Put the pod on the first node that has room and takes pods; None where there is none."""
        closed = self.cordoned | self.down
        for node in self._preferred(pod, self._fleet.nodes if nodes is None else nodes):
            if node not in closed and self._free[node][pod.resource] >= pod.units:
                return self._hold(pod, node, self._first_free(node, pod))
        return None

    def take_over(self, running_pod: RunningPod) -> bool:
        """Give a pod its former units again; False where they do not exist or are not free."""
        units = self._units_of(running_pod)
        if units is not None:
            self._hold(running_pod.pod, running_pod.node, units)
        return units is not None

    def release(self, pod: str) -> RunningPod | None:
        """Release the units of a pod; None where it does not run."""
        running_pod = self.running.pop(pod, None)
        if running_pod is not None:
            for slot in self._of_node[running_pod.node]:
                slot.holders = [None if holder == pod else holder for holder in slot.holders]
            self._free[running_pod.node] = self._count(running_pod.node)
        return running_pod

    def holders(self, slot_id: SlotId) -> list[str]:
        """The pods that have units of the card in a slot, each once."""
        return list(dict.fromkeys(holder for holder in self.slots[slot_id].holders if holder is not None))

    def has_faulty(self, running_pod: RunningPod) -> bool:
        """Whether a card of a pod is out of service."""
        cards = {share.card for share in running_pod.shares}
        slots = self._of_node[running_pod.node]
        return any(one.card is not None and one.card.uuid in cards and not one.in_service for one in slots)

    def address(self, running_pod: RunningPod) -> str:
        """The address of a pod in the cluster's network, which no other running pod has: that of its first unit."""
        node = list(self._of_node).index(running_pod.node)
        held = (slot for slot in self._of_node[running_pod.node] if running_pod.pod.name in slot.holders)
        slot = next(held)
        unit = ADDRESSES_PER_SLOT * slot.slot_id.slot + slot.holders.index(running_pod.pod.name)
        return f"10.{FIRST_NETWORK + node // 256}.{node % 256}.{unit + 1}"

    def set_service(self, slot_id: SlotId, *, in_service: bool) -> None:
        """Take the card in a slot out of service, or put it back."""
        self.slots[slot_id].in_service = in_service
        self._free[slot_id.node] = self._count(slot_id.node)

    def set_offered(self, slot_id: SlotId, *, offered: bool) -> None:
        """Stop offering the card in a slot to pods, or offer it again."""
        self.slots[slot_id].offered = offered
        self._free[slot_id.node] = self._count(slot_id.node)

    def remove(self, slot_id: SlotId) -> Card:
        """Take the card out of a slot."""
        slot = self.slots[slot_id]
        card, slot.card = slot.card, None
        assert card is not None, "only a card that is there is removed"
        assert not any(slot.holders), "a card that is held stays"
        return card

    def insert(self, slot_id: SlotId) -> Card:
        """Put the slot's next card in."""
        slot = self.slots[slot_id]
        assert slot.card is None, "a slot holds one card"
        slot.life += 1
        slot.offered = True
        card = slot.card = self._fleet.card(slot_id, slot.life)
        self.set_service(slot_id, in_service=True)
        return card

    def usable(self) -> list[SlotId]:
        """The slots whose card is there and in service."""
        return [slot_id for slot_id, slot in self.slots.items() if slot.card is not None and slot.in_service]

    def _preferred(self, pod: SimulatedPod, nodes: Iterable[str]) -> Iterable[str]:
        """The nodes in the order in which the pod is to get one: those first that have no other pod of its gang."""
        gang = None if pod.checks is None else pod.checks.gang
        if gang is None:
            return nodes
        taken = {
            one.node for one in self.running.values() if one.pod.checks is not None and one.pod.checks.gang == gang
        }
        return sorted(nodes, key=lambda node: node in taken)

    def _count(self, node: str) -> Counter[str]:
        return Counter(
            unit.resource
            for slot in self._of_node[node]
            if slot.is_open
            for unit, holder in zip(slot.units, slot.holders, strict=True)
            if holder is None
        )

    def _first_free(self, node: str, pod: SimulatedPod) -> list[tuple[FleetSlot, int]]:
        free = [(slot, index) for slot in self._of_node[node] for index in slot.free(pod.resource)]
        return free[: pod.units]

    def _hold(self, pod: SimulatedPod, node: str, units: list[tuple[FleetSlot, int]]) -> RunningPod:
        shares: Counter[str] = Counter()
        for slot, index in units:
            assert slot.card is not None, "only cards are held"
            assert slot.card.uuid is not None, "every card of a fleet has a UUID"
            slot.holders[index] = pod.name
            shares[slot.card.uuid] += slot.units[index].gpu_milli
        running_pod = RunningPod(pod, node, tuple(Share(card, milli) for card, milli in shares.items()))
        self.running[pod.name] = running_pod
        self._free[node] = self._count(node)
        return running_pod

    def _units_of(self, running_pod: RunningPod) -> list[tuple[FleetSlot, int]] | None:
        units: list[tuple[FleetSlot, int]] = []
        slots = {slot.card.uuid: slot for slot in self._of_node.get(running_pod.node, ()) if slot.card is not None}
        for share in running_pod.shares:
            slot = slots.get(share.card)
            free = [] if slot is None else list(slot.free(running_pod.pod.resource))
            if slot is None or not free:
                return None
            count = -(-share.gpu_milli // slot.units[free[0]].gpu_milli)
            if count > len(free):
                return None
            units += [(slot, index) for index in free[:count]]
        return units or None


def _slot(fleet: Fleet, start: Start, slot_id: SlotId) -> FleetSlot:
    units = fleet.nodes[slot_id.node].units(slot_id.slot)
    card, life = start.cards.get(slot_id), start.lives.get(slot_id, 0)
    return FleetSlot(slot_id, units, life, card, slot_id not in start.failed, [None] * len(units))
