"""Nodes with CPU and memory, for placements without a kube-scheduler, which checks these otherwise. Pure."""

from typing import Final, NamedTuple

from gpuledger.domain.sharing.model import Allocation, NodeState


class Needs(NamedTuple):
    """What a pod asks for besides devices: thousandths of a core, and MiB."""

    cpu_milli: int = 0
    memory_mib: int = 0


NO_NEEDS: Final = Needs()


class Machine(NodeState):
    """A node of so much CPU (thousandths of a core) and memory (MiB); `cpu_milli` and `memory_mib` are what is free."""

    __slots__ = ("_needs", "cpu_milli", "memory_mib")

    def __init__(self, name: str, cpu_milli: int, memory_mib: int) -> None:
        super().__init__(name)
        self.cpu_milli = cpu_milli
        self.memory_mib = memory_mib
        self._needs: dict[str, Needs] = {}

    def occupy(self, pod: str, needs: Needs, allocation: Allocation) -> None:
        """The pod, by its UID, runs here with these devices from now on."""
        self.vacate(pod)
        self._needs[pod] = needs
        self.cpu_milli -= needs.cpu_milli
        self.memory_mib -= needs.memory_mib
        self.hold(pod, allocation)

    def vacate(self, pod: str) -> None:
        """The pod runs here no more."""
        needs = self._needs.pop(pod, None)
        if needs is None:
            return
        self.cpu_milli += needs.cpu_milli
        self.memory_mib += needs.memory_mib
        self.release(pod)

    def has_room(self, needs: Needs) -> bool:
        """Whether CPU and memory suffice for the pod."""
        return needs.cpu_milli <= self.cpu_milli and needs.memory_mib <= self.memory_mib
