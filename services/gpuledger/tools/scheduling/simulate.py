"""Schedules pods on nodes in memory, by the code of the extender, and counts what becomes of the GPUs. Pure.

The same nodes, pods, strategy and seed give the same outcome.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from gpuledger.api.sharing import GPU, WHOLE
from gpuledger.domain.sharing.fragmentation import Cause, Fragmentation
from gpuledger.domain.sharing.machines import Machine
from gpuledger.domain.sharing.mix import ExpectedPods
from gpuledger.domain.sharing.model import Allocation
from gpuledger.domain.sharing.node_views import SHARES, share_of
from gpuledger.tools.scheduling.strategies import Largest, Scheduler
from gpuledger.tools.scheduling.workload import Chance, SimulatedNode, SimulatedPod, capacity_of, machines_of


class Outcome(NamedTuple):
    """What became of all pods under a strategy. GPUs are in percent of one; `fragment` is by cause, in GPUs."""

    strategy: str
    pods: int
    placed: int
    capacity: int
    requested: int
    allocated: int
    fragment: Mapping[Cause, float]

    @property
    def unallocated(self) -> int:
        """What no pod has of GPUs, in percent of one."""
        return self.capacity - self.allocated


def simulate(
    nodes: Sequence[SimulatedNode],
    pods: Iterable[SimulatedPod],
    strategy: str,
    *,
    expected: ExpectedPods | None,
    measured: Fragmentation,
    chance: Chance,
    advance: Callable[[int], None] = lambda _done: None,
) -> Outcome:
    """Schedule the pods, one after the other; one that fits nowhere is given up.

    `expected` are the pods that fragmentation gradient descent prepares for; None: it learns them as they come.
    `measured` is what the outcome's fragments are for.
    """
    machines = machines_of(nodes)
    largest = Largest(max(node.cpu_milli for node in nodes), WHOLE * max(node.gpus for node in nodes))
    scheduler = Scheduler(strategy, machines, expected or ExpectedPods(), chance, largest)
    number = placed = requested = allocated = 0
    for number, pod in enumerate(pods, start=1):
        if expected is None:
            scheduler.note(pod.request, pod.needs)
        requested += pod.gpu_percent
        choice = scheduler.choose(pod.request, pod.needs)
        if choice is not None:
            machines[choice.node].occupy(pod.name, pod.needs, choice.allocation)
            placed += 1
            allocated += percent_of(choice.allocation)
        advance(number)
    fragment = fragment_of(machines.values(), measured)
    return Outcome(strategy, number, placed, capacity_of(nodes), requested, allocated, fragment)


def percent_of(allocation: Allocation) -> int:
    """How much of GPUs an allocation is, in percent of one."""
    return sum([max(one.resources.get(name, 0) for name in SHARES) for one in allocation.get(GPU, ())])


def fragment_of(machines: Iterable[Machine], measured: Fragmentation) -> dict[Cause, float]:
    """What the expected pods cannot use of what is free, by cause, in GPUs."""
    parts = dict.fromkeys(Cause, 0)
    for machine in machines:
        free = [share_of(machine.free(GPU, minor)) for minor in machine.devices.get(GPU, ())]
        for cause, part in measured.causes(free, machine.cpu_milli).items():
            parts[cause] += part
    return {cause: measured.in_gpus(part) for cause, part in parts.items()}
