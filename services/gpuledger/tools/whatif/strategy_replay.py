"""Places recorded arrivals again by a strategy, or as they were placed, and measures both alike. Pure.

A pod that fits nowhere waits until something is given back, and ends when it ended. Pods that had devices when the
replay begins keep them.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from gpuledger.api.sharing import GPU, GPU_MEMORY, WHOLE
from gpuledger.domain.sharing.fragmentation import Fragmentation, TaskClass
from gpuledger.domain.sharing.mix import ExpectedPods
from gpuledger.domain.sharing.request_keys import key_of
from gpuledger.domain.sharing.tasks import task_of
from gpuledger.tools.scheduling.strategies import Largest, Scheduler
from gpuledger.tools.scheduling.workload import Chance
from gpuledger.tools.whatif.arrivals import NodeLeaves, NodeShares, PodArrives, PodEnds, PodHolds, PodLetsGo, Step
from gpuledger.tools.whatif.replayed_cluster import Cluster, Measured


class AsRecorded:
    """Does what the log says, and counts pods and how long they wait."""

    def __init__(self, measured: Fragmentation) -> None:
        self.cluster = Cluster(measured)
        self.arrivals: dict[str, PodArrives] = {}
        self.waiting: dict[str, datetime] = {}
        self._pods = self._placed = 0
        self._waited = timedelta()

    def run(self, present: Sequence[Step], steps: Sequence[Step]) -> Measured:
        """Replay the steps behind a position, which `present` leads to."""
        begins = min((step.time for step in steps), default=None)
        for step in present:
            self._take(step, begins or step.time, is_present=True)
        now = begins
        if now is not None:
            self.cluster.advance(now)
            self.given_back(now)
        for step in sorted(steps, key=lambda step: step.time):
            now = step.time
            self.cluster.advance(now)
            self._take(step, now, is_present=False)
        if now is not None:
            for pod in list(self.waiting):
                self._stop_waiting(pod, now)
        return self.cluster.result(self._pods, self._placed, self._waited)

    def arrives(self, pod: str, at: datetime, *, is_present: bool) -> None:
        """A pod has arrived."""

    def holds(self, pod: str, what: PodHolds, at: datetime, *, is_present: bool) -> None:  # noqa: ARG002
        """The log says that a pod got devices."""
        self.give(pod, what, at)

    def lets_go(self, pod: str, at: datetime) -> None:
        """The log says that a pod has no devices any more, and waits."""
        self.cluster.take_back(pod)
        self.waiting[pod] = at

    def given_back(self, at: datetime) -> None:
        """There may be room for pods that wait."""

    def give(self, pod: str, what: PodHolds, at: datetime) -> None:
        """The pod gets devices, or an amount of which nobody knows where it is."""
        if what.node is None:
            self.cluster.give_amount(pod, what.percent)
        else:
            self.cluster.give(pod, self.arrivals[pod], what.node, what.allocation)
        self._placed += pod in self.waiting
        self._stop_waiting(pod, at)

    def _take(self, step: Step, at: datetime, *, is_present: bool) -> None:
        name = step.name
        match step.what:
            case NodeShares() as shares:
                self.cluster.set_node(name, shares)
                self.given_back(at)
            case NodeLeaves():
                self.cluster.remove_node(name)
            case PodArrives() as arrival:
                self.arrivals[name] = arrival
                self.waiting[name] = at
                self._pods += 1
                self.arrives(name, at, is_present=is_present)
            case PodHolds() as what:
                self.holds(name, what, at, is_present=is_present)
            case PodLetsGo():
                self.lets_go(name, at)
            case PodEnds():
                self._stop_waiting(name, at)
                del self.arrivals[name]
                if self.cluster.take_back(name):
                    self.given_back(at)

    def _stop_waiting(self, pod: str, at: datetime) -> None:
        since = self.waiting.pop(pod, None)
        if since is not None:
            self._waited += max(at - since, timedelta())


class ByStrategy(AsRecorded):
    """Places pods by a strategy, in the order of their arrival; of two that wait the earlier one is tried first."""

    def __init__(self, measured: Fragmentation, strategy: str, largest: Largest, chance: Chance) -> None:
        super().__init__(measured)
        expected = ExpectedPods(measured.mix)
        self._scheduler = Scheduler(strategy, self.cluster.machines, expected, chance, largest)

    def arrives(self, pod: str, at: datetime, *, is_present: bool) -> None:
        """Place it at once; one that was there before the replay may have devices already, and is placed after that."""
        if not is_present:
            self._place(pod, at)

    def holds(self, pod: str, what: PodHolds, at: datetime, *, is_present: bool) -> None:
        """What was recorded counts for the pods that were there before."""
        if is_present and what.node is not None:
            self.give(pod, what, at)
        elif is_present:
            self._place(pod, at)

    def lets_go(self, pod: str, at: datetime) -> None:
        """Recorded, and not so here."""

    def given_back(self, at: datetime) -> None:
        """Try each kind of pod that waits, until one of the kind does not fit."""
        failed = set()
        for pod in list(self.waiting):
            arrival = self.arrivals[pod]
            kind = (key_of(arrival.request), arrival.needs)
            if kind not in failed and not self._place(pod, at):
                failed.add(kind)

    def _place(self, pod: str, at: datetime) -> bool:
        arrival = self.arrivals[pod]
        choice = self._scheduler.choose(arrival.request, arrival.needs)
        if choice is None:
            return False
        self.give(pod, PodHolds(choice.node, choice.allocation), at)
        return True


def mix_of(present: Sequence[Step], steps: Sequence[Step]) -> dict[TaskClass, int]:
    """How many pods of each class came, for the measure of fragments."""
    nodes = [step.what for step in (*present, *steps) if isinstance(step.what, NodeShares)]
    memory = max(map(_gpu_memory, nodes), default=0)
    mix: dict[TaskClass, int] = {}
    for step in (*present, *steps):
        if isinstance(step.what, PodArrives):
            task = task_of(step.what.request, step.what.needs, memory)
            mix[task] = mix.get(task, 0) + 1
    return mix


def largest_of(present: Sequence[Step], steps: Sequence[Step]) -> Largest:
    """The CPU and the GPUs of the largest node."""
    nodes = [step.what for step in (*present, *steps) if isinstance(step.what, NodeShares)]
    gpus = max((len(one.devices.get(GPU, ())) for one in nodes), default=0)
    return Largest(max((one.cpu_milli for one in nodes), default=0), gpus * WHOLE)


def _gpu_memory(shares: NodeShares) -> int:
    return max((one.resources.get(GPU_MEMORY, 0) for one in shares.devices.get(GPU, {}).values()), default=0)
