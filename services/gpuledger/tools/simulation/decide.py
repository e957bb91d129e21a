"""Plans what happens in the simulated fleet, and when: a discrete-event simulation. Pure; it knows no real clock.

Times are simulated seconds since the plan began. The same fleet, chance and start always give the same happenings, and
carrying them out leaves no choices. The caller informs the plan about pods that other people create or delete.
"""

from typing import Final, NamedTuple

from gpuledger.events.device import Card
from gpuledger.tools.simulation.allocation import FleetAllocation, RunningPod, SimulatedPod, Start
from gpuledger.tools.simulation.checks.course import CheckHappening, Checking
from gpuledger.tools.simulation.failures import Failures, Remedy, XidError
from gpuledger.tools.simulation.fleet import Fleet, SlotId
from gpuledger.tools.simulation.preparation import Preparation, PreparationHappening
from gpuledger.tools.simulation.reboots import RebootHappening, Reboots
from gpuledger.tools.simulation.schedule import Schedule
from gpuledger.tools.simulation.workload import DAY_S, FAILED, Arrivals, Chance, Rates

PENDING_MAX: Final = 256
"""The most pending pods; while there are so many, no further pod arrives."""

DELETED: Final = "Deleted"
"""The outcome of a pod that somebody deleted while it ran."""


class PodArrived(NamedTuple):
    """Somebody creates a pod."""

    at_s: float
    pod: SimulatedPod


class PodScheduled(NamedTuple):
    """A pod gets a node, and units of its cards."""

    at_s: float
    running_pod: RunningPod


class PodEnded(NamedTuple):
    """A pod ends and releases its units."""

    at_s: float
    running_pod: RunningPod
    outcome: str


class PodDeleted(NamedTuple):
    """Somebody deletes a pod that had ended."""

    at_s: float
    pod: SimulatedPod


class CardFailed(NamedTuple):
    """A card fails."""

    at_s: float
    slot_id: SlotId
    card: Card
    xid: XidError
    remedy: Remedy

    @property
    def out_of_service(self) -> bool:
        """Whether the card cannot be used until it is reset or replaced."""
        return self.remedy is not Remedy.NOTHING


class CardReturned(NamedTuple):
    """A card was reset and is in service again."""

    at_s: float
    slot_id: SlotId
    card: Card


class CardRemoved(NamedTuple):
    """A card was taken out of its slot."""

    at_s: float
    slot_id: SlotId
    card: Card


class CardInserted(NamedTuple):
    """A card was put into an empty slot."""

    at_s: float
    slot_id: SlotId
    card: Card


Happening = (
    PodArrived
    | PodScheduled
    | PodEnded
    | PodDeleted
    | CardFailed
    | CardReturned
    | CardRemoved
    | CardInserted
    | PreparationHappening
    | CheckHappening
    | RebootHappening
)


class FleetPlan:
    """The future of a fleet from a start on."""

    def __init__(self, fleet: Fleet, chance: Chance, rates: Rates, start: Start) -> None:
        self.allocation = FleetAllocation(fleet, start)
        self._fleet = fleet
        self._chance = chance
        self._rates = rates
        self._arrivals = Arrivals(fleet, rates, chance, start.next_number)
        self._failures = Failures(chance, fleet.hot_slots())
        self._failures_per_s = len(fleet.nodes) * rates.failures_per_1000_node_days / 1000 / DAY_S
        self._pending: dict[str, SimulatedPod] = {pod.name: pod for pod in start.pending}
        self._schedule: Schedule[Happening] = Schedule()
        self._add = self._schedule.add
        self._preparation = Preparation(self._schedule, rates.heartbeat_s)
        self._reboots = Reboots(self._schedule, self.allocation, rates.reboot_s, self._retry)
        self.checking = Checking(self._schedule, self.allocation, chance, rates, self._run, self._end_failed)
        self.lost = self._begin(start)
        """Pods of the start that cannot have their former units; they have ended."""

    @property
    def due_s(self) -> float:
        """When the next thing may happen."""
        return self._schedule.due_s

    @property
    def _now_s(self) -> float:
        return self._schedule.now_s

    def pods(self) -> list[str]:
        """The names of the pending and running pods."""
        return [*self._pending, *self.allocation.running]

    def advance(self, to_s: float, most: int) -> list[Happening]:
        """The happenings up to and including `to_s`, in order; after at least `most`, the rest is left."""
        return self._schedule.advance(to_s, most)

    def submitted(self, pod: SimulatedPod) -> list[Happening]:
        """The consequences of a pod that somebody else created; a known pod has none."""
        if (
            pod.name in self._pending
            or pod.name in self.allocation.running
            or pod.resource not in self._fleet.gpu_milli
        ):
            return []
        return self._schedule_pod(pod)

    def vanished(self, name: str) -> list[Happening]:
        """The consequences of a pod that somebody else deleted."""
        self._pending.pop(name, None)
        return self._end(name, DELETED)

    def withdraw(self, slot_id: SlotId) -> None:
        """Stop offering the card in a slot; its pods keep it."""
        self.allocation.set_offered(slot_id, offered=False)

    def offer(self, slot_id: SlotId) -> list[Happening]:
        """Offer the card in a slot again; returns the consequences."""
        self.allocation.set_offered(slot_id, offered=True)
        return self._retry(slot_id.node)

    def cordon(self, node: str) -> None:
        """Put no more pods on a node; those that run there stay."""
        self.allocation.cordoned.add(node)

    def uncordon(self, node: str) -> list[Happening]:
        """Put pods on a node again; returns the consequences."""
        self.allocation.cordoned.discard(node)
        return self._retry(node)

    def reboot(self, node: str) -> list[Happening]:
        """Have a node go down and boot again, with the pods that are on it; returns the consequences so far."""
        return [*self._reboots.reboot(node)]

    def _begin(self, start: Start) -> list[RunningPod]:
        lost = [running_pod for running_pod in start.running if not self._resume(running_pod)]
        for pod in start.finished:
            self._add(self._rates.finished_kept_s, self._delete, pod)
        for slot_id, slot in self.allocation.slots.items():
            if slot.card is None:
                self._add(self._drawn_s(self._rates.insertion_mean_s), self._insert, slot_id)
            elif not slot.in_service:
                self._add(self._drawn_s(self._rates.removal_mean_s), self._remove, slot_id)
        self._add(0.0, self._retry, None)
        self._add(self._arrivals.pause_s(), self._arrive, None)
        self._note_failure()
        self._preparation.begin(start.prepared)
        return lost

    def _resume(self, running_pod: RunningPod) -> bool:
        taken = self.allocation.take_over(running_pod)
        if taken:
            self._place(running_pod)
        return taken

    def _place(self, running_pod: RunningPod) -> None:
        """A pod is on its node."""
        if running_pod.pod.checks is None:
            self._run(running_pod)
        else:
            self.checking.begin(running_pod)

    def _run(self, running_pod: RunningPod) -> None:
        """The containers of a pod run from now on."""
        self._add(running_pod.pod.duration_s, self._finish, running_pod.pod)

    def _note_failure(self) -> None:
        if self._failures_per_s:
            self._add(self._chance.expovariate(self._failures_per_s), self._fail, None)

    def _drawn_s(self, mean_s: float) -> float:
        return self._chance.expovariate(1 / mean_s)

    def _arrive(self, _nothing: None) -> list[Happening]:
        self._add(self._arrivals.pause_s(), self._arrive, None)
        if len(self._pending) >= PENDING_MAX:
            return []
        pod = self._arrivals.pod()
        return [PodArrived(self._now_s, pod), *self._schedule_pod(pod)]

    def _schedule_pod(self, pod: SimulatedPod, nodes: list[str] | None = None) -> list[Happening]:
        running_pod = self.allocation.schedule(pod, nodes)
        if running_pod is None:
            self._pending[pod.name] = pod
            return []
        self._pending.pop(pod.name, None)
        self._place(running_pod)
        return [PodScheduled(self._now_s, running_pod)]

    def _retry(self, node: str | None) -> list[Happening]:
        """Schedule the pending pods that fit now, on one node or (None) on any; those of people come first."""
        nodes = None if node is None else [node]
        pods = sorted(self._pending.values(), key=lambda pod: not pod.of_user)
        return [happening for pod in pods for happening in self._schedule_pod(pod, nodes)]

    def _finish(self, pod: SimulatedPod) -> list[Happening]:
        return self._end(pod.name, pod.outcome)

    def _end_failed(self, name: str) -> list[Happening]:
        return self._end(name, FAILED)

    def _end(self, name: str, outcome: str) -> list[Happening]:
        self.checking.forget(name)
        running_pod = self.allocation.release(name)
        if running_pod is None:
            return []
        if outcome != DELETED and not running_pod.pod.of_user:
            self._add(self._rates.finished_kept_s, self._delete, running_pod.pod)
        return [PodEnded(self._now_s, running_pod, outcome), *self._retry(running_pod.node)]

    def _delete(self, pod: SimulatedPod) -> list[Happening]:
        return [PodDeleted(self._now_s, pod)]

    def _fail(self, _nothing: None) -> list[Happening]:
        self._note_failure()
        failure = self._failures.next(self.allocation)
        if failure is None:
            return []
        slot_id = failure.slot_id
        card = self.allocation.slots[slot_id].card
        assert card is not None, "only a card that is there fails"
        failed = CardFailed(self._now_s, slot_id, card, failure.xid, failure.remedy)
        if failed.out_of_service:
            self.allocation.set_service(slot_id, in_service=False)
            self._mend(slot_id, failure.remedy)
            self._preparation.restart_heartbeats(slot_id.node)
        # A pod that goes through checks finds out by itself.
        holders = [pod for pod in self.allocation.holders(slot_id) if pod not in self.checking]
        victims = holders if failed.out_of_service else holders[:1]
        ended = [happening for pod in victims for happening in self._end(pod, FAILED)]
        return [failed, *ended]

    def _mend(self, slot_id: SlotId, remedy: Remedy) -> None:
        if remedy is Remedy.RESET:
            self._add(self._drawn_s(self._rates.reset_mean_s), self._return, slot_id)
        else:
            self._add(self._drawn_s(self._rates.removal_mean_s), self._remove, slot_id)

    def _return(self, slot_id: SlotId) -> list[Happening]:
        self.allocation.set_service(slot_id, in_service=True)
        self._preparation.restart_heartbeats(slot_id.node)
        card = self.allocation.slots[slot_id].card
        assert card is not None, "a card that is reset stays in its slot"
        return [CardReturned(self._now_s, slot_id, card), *self._retry(slot_id.node)]

    def _remove(self, slot_id: SlotId) -> list[Happening]:
        self._add(self._drawn_s(self._rates.insertion_mean_s), self._insert, slot_id)
        ended = [happening for pod in self.allocation.holders(slot_id) for happening in self._end_failed(pod)]
        return [*ended, CardRemoved(self._now_s, slot_id, self.allocation.remove(slot_id))]

    def _insert(self, slot_id: SlotId) -> list[Happening]:
        card = self.allocation.insert(slot_id)
        self._failures.replaced(slot_id, self.allocation)
        return [CardInserted(self._now_s, slot_id, card), *self._retry(slot_id.node)]
