"""Nodes that share GPUs, and requests of pods, for tests of placements."""

from gpuledger.domain.sharing.machines import Machine
from gpuledger.domain.sharing.model import Amounts, Device, NodeState, PodRequest, TypeRequest

GIB = 1 << 30
WHOLE_GPU: Amounts = {"gpu-core": 100, "gpu-memory-ratio": 100, "gpu-memory": 16 * GIB}


def with_gpus(node: NodeState, gpus: int, resources: Amounts = WHOLE_GPU) -> NodeState:
    """The node with so many GPUs."""
    node.set_devices({"gpu": {minor: Device("gpu", minor, True, resources) for minor in range(gpus)}})
    return node


def shared_nodes(*gpus: int) -> dict[str, NodeState]:
    """Nodes `node-0`, `node-1`... with so many GPUs each."""
    return {f"node-{at}": with_gpus(NodeState(f"node-{at}"), number) for at, number in enumerate(gpus)}


def machines(*gpus: int, cpu_milli: int = 64_000, memory_mib: int = 65_536) -> dict[str, Machine]:
    """The same with CPU and memory."""
    found = {f"node-{at}": Machine(f"node-{at}", cpu_milli, memory_mib) for at in range(len(gpus))}
    for node, number in zip(found.values(), gpus, strict=True):
        with_gpus(node, number)
    return found


def share(percent: int) -> PodRequest:
    """A part of one GPU."""
    return PodRequest((TypeRequest("gpu", 1, {"gpu-core": percent, "gpu-memory-ratio": percent}, percent < 100),))


def whole(gpus: int) -> PodRequest:
    """Whole GPUs."""
    return PodRequest((TypeRequest("gpu", gpus, {"gpu-core": 100, "gpu-memory-ratio": 100}, False),))


def memory(gib: int) -> PodRequest:
    """So much of one GPU's memory."""
    return PodRequest((TypeRequest("gpu", 1, {"gpu-memory": gib * GIB}, True),))
