"""Which class of pods a request belongs to, for the mix of fragmentation gradient descent. Pure."""

from gpuledger.api.sharing import GPU, GPU_MEMORY, WHOLE
from gpuledger.domain.sharing.fragmentation import NO_GPUS, TaskClass
from gpuledger.domain.sharing.machines import Needs
from gpuledger.domain.sharing.model import PodRequest
from gpuledger.domain.sharing.node_views import SHARES


def task_of(request: PodRequest, needs: Needs, gpu_memory: int) -> TaskClass:
    """The class of a request. Of memory, the share is that of a GPU with `gpu_memory` bytes; 0: the whole GPU."""
    gpus = request.of(GPU)
    if gpus is None:
        return TaskClass(NO_GPUS, 0, needs.cpu_milli)
    share = max([gpus.per_device[name] for name in SHARES if name in gpus.per_device], default=0)
    memory = gpus.per_device.get(GPU_MEMORY, 0)
    if memory:
        share = max(share, -(-WHOLE * memory // gpu_memory) if gpu_memory else WHOLE)
    return TaskClass(gpus.number, min(share, WHOLE), needs.cpu_milli)
