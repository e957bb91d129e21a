"""The nodes of a replay of arrivals: what pods hold of their GPUs, and sums of it over time. Pure."""

from datetime import datetime, timedelta
from typing import NamedTuple

from gpuledger.api.sharing import GPU, WHOLE
from gpuledger.domain.sharing.fragmentation import Fragmentation
from gpuledger.domain.sharing.machines import Machine
from gpuledger.domain.sharing.model import Allocation
from gpuledger.domain.sharing.node_views import share_of
from gpuledger.tools.scheduling.simulate import percent_of
from gpuledger.tools.whatif.arrivals import NodeShares, PodArrives


class Measured(NamedTuple):
    """What a placement made of the GPUs, over the time of the replay. Means are weighted by time.

    GPUs are in numbers. `fragment` is what of the free GPUs the pods that came cannot use, on average; None where the
    log does not say which devices pods had. `waited` is the time that all pods waited together.
    """

    pods: int
    placed: int
    waited: timedelta
    gpus: float
    allocated: float
    fragment: float | None
    fragment_at_end: float | None

    @property
    def rate(self) -> float | None:
        """The mean part of the GPUs that pods had; None without GPUs."""
        return self.allocated / self.gpus if self.gpus else None


class Cluster:
    """The nodes of a replay, what pods hold of them, and sums over time."""

    def __init__(self, measured: Fragmentation) -> None:
        self.machines: dict[str, Machine] = {}
        self.knows_devices = True
        self._measured = measured
        self._fragments: dict[str, int] = {}
        self._held: dict[str, tuple[str | None, int]] = {}
        self._capacity = self._allocated = self._fragment = 0
        self._at: datetime | None = None
        self._seconds = 0.0
        self._sums = [0.0, 0.0, 0.0]

    def advance(self, to: datetime) -> None:
        """Let time pass; it never goes back."""
        if self._at is None:
            self._at = to
        seconds = (to - self._at).total_seconds()
        if seconds > 0:
            self._at = to
            self._seconds += seconds
            for at, value in enumerate((self._capacity, self._allocated, self._fragment)):
                self._sums[at] += seconds * value

    def set_node(self, name: str, shares: NodeShares) -> None:
        """The node has these devices; pods keep what they hold."""
        machine = self.machines.get(name)
        if machine is None:
            machine = self.machines[name] = Machine(name, shares.cpu_milli, shares.memory_mib)
        else:
            self._capacity -= _capacity(machine)
        machine.set_devices(shares.devices)
        self._capacity += _capacity(machine)
        self._measure(name)

    def remove_node(self, name: str) -> None:
        """The node is gone, and what its pods held."""
        machine = self.machines.pop(name, None)
        if machine is None:
            return
        self._capacity -= _capacity(machine)
        self._fragment -= self._fragments.pop(name, 0)
        for pod in [pod for pod, (node, _) in self._held.items() if node == name]:
            self._allocated -= self._held.pop(pod)[1]

    def give(self, pod: str, arrival: PodArrives, node: str, allocation: Allocation) -> None:
        """The pod has these devices; without the node nobody measures that."""
        self.take_back(pod)
        machine = self.machines.get(node)
        if machine is None:
            return
        machine.occupy(pod, arrival.needs, allocation)
        self._note(pod, node, percent_of(allocation))
        self._measure(node)

    def give_amount(self, pod: str, percent: int) -> None:
        """The pod has so much of GPUs that nobody knows."""
        self.take_back(pod)
        self.knows_devices = False
        self._note(pod, None, percent)

    def take_back(self, pod: str) -> bool:
        """The pod has nothing any more; returns whether it had."""
        held = self._held.pop(pod, None)
        if held is None:
            return False
        node, percent = held
        self._allocated -= percent
        if node is not None:
            self.machines[node].vacate(pod)
            self._measure(node)
        return True

    def result(self, pods: int, placed: int, waited: timedelta) -> Measured:
        """The measures so far."""
        seconds = self._seconds or 1.0
        present = (self._capacity, self._allocated, self._fragment)
        capacity, allocated, fragment = (one / seconds for one in self._sums) if self._seconds else map(float, present)
        return Measured(
            pods,
            placed,
            waited,
            capacity / WHOLE,
            allocated / WHOLE,
            self._in_gpus(fragment),
            self._in_gpus(self._fragment),
        )

    def _in_gpus(self, fragment: float) -> float | None:
        pods = self._measured.pods
        return fragment / (pods * WHOLE) if pods and self.knows_devices else None

    def _note(self, pod: str, node: str | None, percent: int) -> None:
        self._held[pod] = (node, percent)
        self._allocated += percent

    def _measure(self, name: str) -> None:
        machine = self.machines[name]
        free = [share_of(machine.free(GPU, minor)) for minor in machine.devices.get(GPU, ())]
        fragment = self._measured.of(free, machine.cpu_milli)
        self._fragment += fragment - self._fragments.get(name, 0)
        self._fragments[name] = fragment


def _capacity(machine: Machine) -> int:
    """The healthy GPUs of a node, in percent of one."""
    return WHOLE * sum(one.healthy for one in machine.devices.get(GPU, {}).values())
