"""What happens in the simulated fleet, and when: a discrete-event plan. Pure; it knows no clock and does nothing.

Times are simulated seconds since the plan began. The same fleet, chance and start always give the same happenings, and
whoever carries them out has no choices left. What other people do to pods is told to the plan.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from gpuledger.events.device import Card
from gpuledger.tools.simulation.agenda import Agenda
from gpuledger.tools.simulation.allocation import Allocation, Held, Pod, Start
from gpuledger.tools.simulation.failures import Failures, Remedy
from gpuledger.tools.simulation.fleet import Fleet, Place
from gpuledger.tools.simulation.preparation import Preparation, PreparationHappening
from gpuledger.tools.simulation.workload import DAY_S, FAILED, Arrivals, Chance, Rates

PENDING_MAX: Final = 256
"""Pods that wait; while so many do, nobody submits another."""

DELETED: Final = "Deleted"
"""The outcome of a pod that somebody deleted while it ran."""


class PodArrived(NamedTuple):
    """Somebody creates a pod."""

    at_s: float
    pod: Pod


class PodScheduled(NamedTuple):
    """A pod gets a node, and units of its cards."""

    at_s: float
    held: Held


class PodEnded(NamedTuple):
    """A pod is over and holds nothing any more."""

    at_s: float
    held: Held
    outcome: str


class PodDeleted(NamedTuple):
    """Somebody deletes a pod that had ended."""

    at_s: float
    pod: Pod


class CardFailed(NamedTuple):
    """A card fails; `out_of_service` says that it can be used no more for now."""

    at_s: float
    place: Place
    card: Card
    kind: str
    message: str
    out_of_service: bool


class CardReturned(NamedTuple):
    """A card was reset and is in service again."""

    at_s: float
    place: Place
    card: Card


class CardRemoved(NamedTuple):
    """A card was taken out of its slot."""

    at_s: float
    place: Place
    card: Card


class CardInserted(NamedTuple):
    """A card was put into an empty slot."""

    at_s: float
    place: Place
    card: Card


FleetHappening = (
    PodArrived | PodScheduled | PodEnded | PodDeleted | CardFailed | CardReturned | CardRemoved | CardInserted
)
Happening = FleetHappening | PreparationHappening


class Plan:
    """What happens next, from a start on."""

    def __init__(self, fleet: Fleet, chance: Chance, rates: Rates, start: Start) -> None:
        self.allocation = Allocation(fleet, start)
        self._fleet = fleet
        self._chance = chance
        self._rates = rates
        self._arrivals = Arrivals(fleet, rates, chance, start.next_number)
        self._failures = Failures(chance, fleet.hot_places())
        self._failures_per_s = len(fleet.nodes) * rates.failures_per_1000_node_days / 1000 / DAY_S
        self._pending: dict[str, Pod] = {pod.name: pod for pod in start.pending}
        self._agenda: Agenda[Happening] = Agenda()
        self._note = self._agenda.note
        self._preparation = Preparation(self._agenda, rates.heartbeat_s)
        self.lost = self._begin(start)
        """Pods of the start that held what cannot be held; they are over."""

    @property
    def due_s(self) -> float:
        """When the next thing may happen."""
        return self._agenda.due_s

    @property
    def _now_s(self) -> float:
        return self._agenda.now_s

    def pods(self) -> list[str]:
        """The names of the pods that wait or run."""
        return [*self._pending, *self.allocation.running]

    def advance(self, to_s: float, most: int) -> list[Happening]:
        """What happens up to and including `to_s`, in order; at least `most` leave the rest for the next call."""
        return self._agenda.advance(to_s, most)

    def submitted(self, pod: Pod) -> list[Happening]:
        """Somebody else created a pod; what follows from that. A pod that is known already is passed over."""
        if (
            pod.name in self._pending
            or pod.name in self.allocation.running
            or pod.resource not in self._fleet.gpu_milli
        ):
            return []
        return self._place(pod)

    def vanished(self, name: str) -> list[Happening]:
        """Somebody else deleted a pod; what follows from that."""
        self._pending.pop(name, None)
        return self._end(name, DELETED)

    def withdraw(self, place: Place) -> None:
        """The card in a slot is given to nobody any more; who holds it keeps it."""
        self.allocation.set_offered(place, offered=False)

    def offer(self, place: Place) -> list[Happening]:
        """The card in a slot is given to whoever asks; what follows from that."""
        self.allocation.set_offered(place, offered=True)
        return self._retry(place.node)

    def _begin(self, start: Start) -> list[Held]:
        lost = [held for held in start.running if not self._resume(held)]
        for pod in start.finished:
            self._note(self._rates.finished_kept_s, self._delete, pod)
        for place, slot in self.allocation.slots.items():
            if slot.card is None:
                self._note(self._drawn_s(self._rates.insertion_mean_s), self._insert, place)
            elif not slot.in_service:
                self._note(self._drawn_s(self._rates.removal_mean_s), self._remove, place)
        self._note(0.0, self._retry, None)
        self._note(self._arrivals.pause_s(), self._arrive, None)
        self._note_failure()
        self._preparation.begin(start.prepared)
        return lost

    def _resume(self, held: Held) -> bool:
        taken = self.allocation.take_over(held)
        if taken:
            self._note(held.pod.duration_s, self._finish, held.pod)
        return taken

    def _note_failure(self) -> None:
        if self._failures_per_s:
            self._note(self._chance.expovariate(self._failures_per_s), self._fail, None)

    def _drawn_s(self, mean_s: float) -> float:
        return self._chance.expovariate(1 / mean_s)

    def _arrive(self, _nothing: None) -> list[Happening]:
        self._note(self._arrivals.pause_s(), self._arrive, None)
        if len(self._pending) >= PENDING_MAX:
            return []
        pod = self._arrivals.pod()
        return [PodArrived(self._now_s, pod), *self._place(pod)]

    def _place(self, pod: Pod, nodes: list[str] | None = None) -> list[Happening]:
        held = self.allocation.schedule(pod, nodes)
        if held is None:
            self._pending[pod.name] = pod
            return []
        self._pending.pop(pod.name, None)
        self._note(pod.duration_s, self._finish, pod)
        return [PodScheduled(self._now_s, held)]

    def _retry(self, node: str | None) -> list[Happening]:
        """Whoever waits and fits now, on a node that got room or (None) on any."""
        nodes = None if node is None else [node]
        return [happening for pod in list(self._pending.values()) for happening in self._place(pod, nodes)]

    def _finish(self, pod: Pod) -> list[Happening]:
        return self._end(pod.name, pod.outcome)

    def _end(self, name: str, outcome: str) -> list[Happening]:
        held = self.allocation.release(name)
        if held is None:
            return []
        if outcome != DELETED and not held.pod.of_user:
            self._note(self._rates.finished_kept_s, self._delete, held.pod)
        return [PodEnded(self._now_s, held, outcome), *self._retry(held.node)]

    def _delete(self, pod: Pod) -> list[Happening]:
        return [PodDeleted(self._now_s, pod)]

    def _fail(self, _nothing: None) -> list[Happening]:
        self._note_failure()
        failure = self._failures.next(self.allocation)
        if failure is None:
            return []
        place, xid = failure.place, failure.xid
        card = self.allocation.slots[place].card
        assert card is not None, "only a card that is there fails"
        if failure.remedy is not Remedy.NOTHING:
            self.allocation.set_service(place, in_service=False)
            self._mend(place, failure.remedy)
            self._preparation.count_anew(place.node)
        is_fatal = failure.remedy is not Remedy.NOTHING
        failed = CardFailed(self._now_s, place, card, xid.kind, xid.message, is_fatal)
        victims = self.allocation.holders(place) if is_fatal else self.allocation.holders(place)[:1]
        ended = [happening for pod in victims for happening in self._end(pod, FAILED)]
        return [failed, *ended]

    def _mend(self, place: Place, remedy: Remedy) -> None:
        if remedy is Remedy.RESET:
            self._note(self._drawn_s(self._rates.reset_mean_s), self._return, place)
        else:
            self._note(self._drawn_s(self._rates.removal_mean_s), self._remove, place)

    def _return(self, place: Place) -> list[Happening]:
        self.allocation.set_service(place, in_service=True)
        self._preparation.count_anew(place.node)
        card = self.allocation.slots[place].card
        assert card is not None, "a card that is reset stays in its slot"
        return [CardReturned(self._now_s, place, card), *self._retry(place.node)]

    def _remove(self, place: Place) -> list[Happening]:
        self._note(self._drawn_s(self._rates.insertion_mean_s), self._insert, place)
        return [CardRemoved(self._now_s, place, self.allocation.remove(place))]

    def _insert(self, place: Place) -> list[Happening]:
        card = self.allocation.insert(place)
        self._failures.replaced(place, self.allocation)
        return [CardInserted(self._now_s, place, card), *self._retry(place.node)]


def happenings(plan: Plan) -> Iterator[Happening]:
    """Everything that happens, without end."""
    while True:
        yield from plan.advance(plan.due_s, 1)
