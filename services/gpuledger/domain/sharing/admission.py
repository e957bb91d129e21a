"""The rewrite of a container's resources at admission: `gpu` becomes core and ratio, spread over so many GPUs. Pure.

Nodes report core, ratio and memory, so a scheduler and a kubelet find nothing of the name `gpu` to compare with.
"""

from gpuledger.api.sharing import GPU, GPU_CORE, GPU_MEMORY_RATIO, GPU_SHARED, NVIDIA_GPU
from gpuledger.domain.sharing.model import Amounts, Refusal
from gpuledger.domain.sharing.requests import count_of, normalised


def admitted(amounts: Amounts) -> Amounts | Refusal:
    """What is to stand in place of the amounts, by short name.

    Only `gpu` and `nvidia.com/gpu` are replaced; their `gpu.shared` is the number of GPUs that they mean. Amounts of 0
    are left out.
    """
    found = normalised(amounts)
    if isinstance(found, Refusal):
        return found
    gpus = found.get(GPU, {})
    if not amounts.get(GPU) and not amounts.get(NVIDIA_GPU):
        return {resource: amount for of_type in found.values() for resource, amount in of_type.items()}
    split = {GPU_CORE: gpus[GPU_CORE], GPU_MEMORY_RATIO: gpus[GPU_MEMORY_RATIO], GPU_SHARED: count_of(gpus)}
    others = {resource: amount for kind, given in found.items() if kind != GPU for resource, amount in given.items()}
    return split | others
