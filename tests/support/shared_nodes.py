"""Builds nodes with shared devices, and requests for them, in few words."""

from collections.abc import Iterable, Mapping

from gpuledger.api.sharing import GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, RDMA, Strategy
from gpuledger.domain.sharing.allocation import allocate
from gpuledger.domain.sharing.hints import NO_HINTS, PodHints
from gpuledger.domain.sharing.model import (
    Allocated,
    Allocation,
    Amounts,
    Device,
    FunctionGroup,
    NodeState,
    PodRequest,
    Refusal,
    Topology,
    VirtualFunction,
)
from gpuledger.domain.sharing.requests import request_of
from gpuledger.domain.sharing.scores import Scoring

GIB = 2**30
MINOR_ORDER = Scoring(Strategy.MINOR_ORDER)
LEAST = Scoring(Strategy.LEAST_ALLOCATED)
MOST = Scoring(Strategy.MOST_ALLOCATED)


def gpu(minor: int, memory: int = 8 * GIB, where: Topology | None = None, *, healthy: bool = True) -> Device:
    """A GPU with all that GPUs have."""
    has = {GPU_CORE: 100, GPU_MEMORY: memory, GPU_MEMORY_RATIO: 100}
    return Device(GPU, minor, healthy, has, where, id=f"GPU-{minor}")


def nic(minor: int, where: Topology | None = None, functions: Iterable[str] = ()) -> Device:
    """A NIC with virtual functions that have these bus ids."""
    group = FunctionGroup({"type": "general"}, tuple(VirtualFunction(n, bus) for n, bus in enumerate(functions)))
    return Device(RDMA, minor, healthy=True, resources={RDMA: 100}, topology=where, function_groups=(group,))


def node(*devices: Device, held: Mapping[str, Allocation] | None = None) -> NodeState:
    """A node with devices, of which pods hold some."""
    state = NodeState("node-1")
    by_type: dict[str, dict[int, Device]] = {}
    for one in devices:
        by_type.setdefault(one.type, {})[one.minor] = one
    state.set_devices(by_type)
    for pod, allocation in (held or {}).items():
        state.hold(pod, allocation)
    return state


def eight(functions: int = 0) -> list[Device]:
    """Eight GPUs and four NICs, two GPUs and a NIC at a switch, two switches at a NUMA node."""
    places = [Topology(switch // 2, switch // 2, str(switch)) for switch in range(4)]
    gpus = [gpu(minor, where=places[minor // 2]) for minor in range(8)]
    buses = [[f"0000:{switch + 1}f:00.{number}" for number in range(functions)] for switch in range(4)]
    return gpus + [nic(switch + 1, places[switch], buses[switch]) for switch in range(4)]


def share(percent: int, memory: int = 8 * GIB) -> Amounts:
    """That percentage of a GPU: core, memory and its ratio."""
    return {GPU_CORE: percent, GPU_MEMORY: memory * percent // 100, GPU_MEMORY_RATIO: percent}


def gpus(*minors: int, percent: int = 100) -> Allocation:
    """So much of each of these GPUs."""
    return {GPU: tuple(Allocated(minor, share(percent)) for minor in minors)}


def request(amounts: Amounts, hints: PodHints = NO_HINTS) -> PodRequest:
    """What these amounts ask for."""
    found = request_of(amounts, hints)
    assert isinstance(found, PodRequest), found
    return found


def chosen(state: NodeState, asked: PodRequest, scoring: Scoring = MINOR_ORDER) -> dict[str, list[int]] | None:
    """The minors that the pod gets, by type; None: the node cannot take it."""
    found = allocate(state, asked, scoring)
    if isinstance(found, Refusal):
        return None
    return {kind: [one.minor for one in devices] for kind, devices in found.items()}
