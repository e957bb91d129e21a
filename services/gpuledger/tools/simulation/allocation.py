"""Who holds what of which card: the simulated fleet's slots, and a first-fit scheduler over them.

Pure and without time. A unit of a card is held by one pod at most, and a card out of service is given to nobody.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from gpuledger.events.device import Card
from gpuledger.tools.simulation.fleet import Fleet, Place, Unit
from gpuledger.tools.simulation.preparation import NEW, Prepared


class Pod(NamedTuple):
    """A pod that asks for units of one resource. `gpu_milli` is the whole of what it asks for.

    It runs for `duration_s` simulated seconds and then ends as `outcome` says, unless a card of its fails. What is
    `of_user` was created by somebody else, and is theirs to delete.
    """

    name: str
    owner: str
    resource: str
    units: int
    gpu_milli: int
    duration_s: float
    outcome: str
    of_user: bool = False


class Share(NamedTuple):
    """How much of a card, by its UUID, a pod holds, in thousandths."""

    card: str
    gpu_milli: int


class Held(NamedTuple):
    """A pod on its node, with what it holds there."""

    pod: Pod
    node: str
    shares: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class Start:
    """How a fleet is found: the card of each slot and its life (no card: the slot is empty), and the pods.

    `failed` are slots whose card is out of service, `finished` are pods that have ended and are still there, `prepared`
    says of nodes how far they are; one that is not among them is not prepared at all.
    """

    cards: Mapping[Place, Card]
    lives: Mapping[Place, int]
    failed: frozenset[Place] = frozenset()
    running: tuple[Held, ...] = ()
    pending: tuple[Pod, ...] = ()
    finished: tuple[Pod, ...] = ()
    next_number: int = 1
    prepared: Mapping[str, Prepared] = field(default_factory=dict)


def new_fleet(fleet: Fleet) -> Start:
    """A fleet on its first day."""
    places = fleet.places()
    cards = {place: fleet.card(place, 0) for place in places}
    return Start(cards, dict.fromkeys(places, 0), prepared=dict.fromkeys(fleet.nodes, NEW))


@dataclass(slots=True)
class Slot:
    """A slot and the card in it; `holders` are the pods that hold its units.

    A card that is in service and not `offered` keeps its pods and gets no more.
    """

    place: Place
    units: tuple[Unit, ...]
    life: int
    card: Card | None
    in_service: bool = True
    holders: list[str | None] = field(default_factory=list)
    offered: bool = True

    @property
    def is_open(self) -> bool:
        """Whether its units can be given."""
        return self.card is not None and self.in_service and self.offered

    def free(self, resource: str) -> Iterator[int]:
        """The units of a resource that can be given."""
        if self.is_open:
            for index, unit in enumerate(self.units):
                if unit.resource == resource and self.holders[index] is None:
                    yield index


class Allocation:
    """The fleet's slots, and the pods that run in it."""

    def __init__(self, fleet: Fleet, start: Start) -> None:
        self._fleet = fleet
        self.slots = {place: _slot(fleet, start, place) for place in fleet.places()}
        self.running: dict[str, Held] = {}
        self._of_node: dict[str, list[Slot]] = {name: [] for name in fleet.nodes}
        for slot in self.slots.values():
            self._of_node[slot.place.node].append(slot)
        self._free = {name: self._count(name) for name in fleet.nodes}

    def cards(self, node: str) -> dict[int, Card]:
        """The node's cards by slot."""
        return {slot.place.slot: slot.card for slot in self._of_node[node] if slot.card is not None}

    def in_service(self, node: str) -> list[int]:
        """The node's slots whose card can be used."""
        return [slot.place.slot for slot in self._of_node[node] if slot.card is not None and slot.in_service]

    def schedule(self, pod: Pod, nodes: Iterable[str] | None = None) -> Held | None:
        """Put the pod on the first node that has room; None where there is none."""
        for node in self._fleet.nodes if nodes is None else nodes:
            if self._free[node][pod.resource] >= pod.units:
                return self._hold(pod, node, self._first_free(node, pod))
        return None

    def take_over(self, held: Held) -> bool:
        """Have a pod hold again what it held; False where that is not there or not free."""
        units = self._units_of(held)
        if units is not None:
            self._hold(held.pod, held.node, units)
        return units is not None

    def release(self, pod: str) -> Held | None:
        """Take back what a pod holds; None where it does not run."""
        held = self.running.pop(pod, None)
        if held is not None:
            for slot in self._of_node[held.node]:
                slot.holders = [None if holder == pod else holder for holder in slot.holders]
            self._free[held.node] = self._count(held.node)
        return held

    def holders(self, place: Place) -> list[str]:
        """The pods that hold something of the card in a slot, each once."""
        return list(dict.fromkeys(holder for holder in self.slots[place].holders if holder is not None))

    def set_service(self, place: Place, *, in_service: bool) -> None:
        """Take the card in a slot out of service, or put it back."""
        self.slots[place].in_service = in_service
        self._free[place.node] = self._count(place.node)

    def set_offered(self, place: Place, *, offered: bool) -> None:
        """Give no more of the card in a slot, or give it again."""
        self.slots[place].offered = offered
        self._free[place.node] = self._count(place.node)

    def remove(self, place: Place) -> Card:
        """Take the card out of a slot."""
        slot = self.slots[place]
        card, slot.card = slot.card, None
        assert card is not None, "only a card that is there is removed"
        assert not any(slot.holders), "a card that is held stays"
        return card

    def insert(self, place: Place) -> Card:
        """Put the slot's next card in."""
        slot = self.slots[place]
        assert slot.card is None, "a slot holds one card"
        slot.life += 1
        slot.offered = True
        card = slot.card = self._fleet.card(place, slot.life)
        self.set_service(place, in_service=True)
        return card

    def usable(self) -> list[Place]:
        """The slots whose card is there and in service."""
        return [place for place, slot in self.slots.items() if slot.card is not None and slot.in_service]

    def _count(self, node: str) -> Counter[str]:
        return Counter(
            unit.resource
            for slot in self._of_node[node]
            if slot.is_open
            for unit, holder in zip(slot.units, slot.holders, strict=True)
            if holder is None
        )

    def _first_free(self, node: str, pod: Pod) -> list[tuple[Slot, int]]:
        free = [(slot, index) for slot in self._of_node[node] for index in slot.free(pod.resource)]
        return free[: pod.units]

    def _hold(self, pod: Pod, node: str, units: list[tuple[Slot, int]]) -> Held:
        shares: Counter[str] = Counter()
        for slot, index in units:
            assert slot.card is not None, "only cards are held"
            assert slot.card.uuid is not None, "every card of a fleet has a UUID"
            slot.holders[index] = pod.name
            shares[slot.card.uuid] += slot.units[index].gpu_milli
        held = Held(pod, node, tuple(Share(card, milli) for card, milli in shares.items()))
        self.running[pod.name] = held
        self._free[node] = self._count(node)
        return held

    def _units_of(self, held: Held) -> list[tuple[Slot, int]] | None:
        units: list[tuple[Slot, int]] = []
        slots = {slot.card.uuid: slot for slot in self._of_node.get(held.node, ()) if slot.card is not None}
        for share in held.shares:
            slot = slots.get(share.card)
            free = [] if slot is None else list(slot.free(held.pod.resource))
            if slot is None or not free:
                return None
            count = -(-share.gpu_milli // slot.units[free[0]].gpu_milli)
            if count > len(free):
                return None
            units += [(slot, index) for index in free[:count]]
        return units or None


def _slot(fleet: Fleet, start: Start, place: Place) -> Slot:
    units = fleet.nodes[place.node].units(place.slot)
    card, life = start.cards.get(place), start.lives.get(place, 0)
    return Slot(place, units, life, card, place not in start.failed, [None] * len(units))
