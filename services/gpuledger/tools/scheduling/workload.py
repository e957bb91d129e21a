"""The nodes and pods of a simulation of scheduling. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from gpuledger.api.sharing import GPU, GPU_CORE, GPU_MEMORY_RATIO, WHOLE
from gpuledger.domain.sharing.fragmentation import Fragmentation, TaskClass
from gpuledger.domain.sharing.machines import Machine, Needs
from gpuledger.domain.sharing.model import Device, PodRequest
from gpuledger.domain.sharing.tasks import task_of

MODEL: Final = "model"
"""The label of a device with its model, by which pods choose."""

_WHOLE_GPU: Final = {GPU_CORE: WHOLE, GPU_MEMORY_RATIO: WHOLE}


class Chance(Protocol):
    """Random numbers by a seed, such as `random.Random`."""

    def randrange(self, stop: int, /) -> int:
        """One of 0 to `stop` - 1."""
        ...


class SimulatedNode(NamedTuple):
    """A node with so many GPUs of one model; CPU is in thousandths of a core, memory in MiB."""

    name: str
    gpus: int
    cpu_milli: int
    memory_mib: int
    model: str | None = None

    def machine(self) -> Machine:
        """The node, with nothing on it."""
        machine = Machine(self.name, self.cpu_milli, self.memory_mib)
        labels = {} if self.model is None else {MODEL: self.model}
        gpus = {minor: Device(GPU, minor, True, _WHOLE_GPU, labels=labels) for minor in range(self.gpus)}
        machine.set_devices({GPU: gpus})
        return machine


class SimulatedPod(NamedTuple):
    """A pod that comes; it stays to the end of the simulation."""

    name: str
    request: PodRequest
    needs: Needs

    @property
    def gpu_percent(self) -> int:
        """How much of GPUs it asks for, in percent of one."""
        gpus = self.request.of(GPU)
        return 0 if gpus is None else gpus.number * gpus.per_device[GPU_CORE]

    @property
    def task(self) -> TaskClass:
        """The class of pods that it belongs to."""
        return task_of(self.request, self.needs, 0)


def machines_of(nodes: Sequence[SimulatedNode]) -> dict[str, Machine]:
    """All nodes by name, with nothing on them."""
    return {node.name: node.machine() for node in nodes}


def capacity_of(nodes: Sequence[SimulatedNode]) -> int:
    """All GPUs of the nodes, in percent of one."""
    return WHOLE * sum(node.gpus for node in nodes)


def fragmentation_of(pods: Sequence[SimulatedPod]) -> Fragmentation:
    """The fragmentation for the mix of these pods."""
    return Fragmentation(counts(pods))


def counts(pods: Sequence[SimulatedPod]) -> Mapping[TaskClass, int]:
    """How many pods there are of each class."""
    found: dict[TaskClass, int] = {}
    for pod in pods:
        found[pod.task] = found.get(pod.task, 0) + 1
    return found


def inflated(pods: Sequence[SimulatedPod], percent: float, chance: Chance) -> list[SimulatedPod]:
    """Pods drawn from `pods`, again and again, until they ask for so many percent of a GPU.

    This is how the paper brings a cluster to saturation. Of `pods` one asks for a GPU.
    """
    drawn: list[SimulatedPod] = []
    asked = 0
    while asked < percent:
        pod = pods[chance.randrange(len(pods))]
        drawn.append(pod._replace(name=f"{pod.name}#{len(drawn)}"))
        asked += pod.gpu_percent
    return drawn
