"""Who uses a card or its instances, as NVML sees the node's processes.

The driver shows processes by the numbers that they have where the agent runs, and none that are not there: an agent in
a container sees them only in the host's PID namespace.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from gpuledger.agent.hardware.api import WHOLE_CARD
from gpuledger.agent.hardware.errors import RefusedError
from gpuledger.agent.hardware.nvml_errors import Handle, Nvml, told
from gpuledger.agent.hardware.nvml_mig import mig_handles


def find_users(nvml: Nvml, card: Handle, uuids: Mapping[int, str]) -> frozenset[str]:
    """The UUIDs of the instances, given by their GPU instance's number, that processes use; `WHOLE_CARD` for the card.

    Raises:
        RefusedError: nobody can tell.
    """
    whole = _gpu_instances_used(nvml, card)
    parts = [_gpu_instances_used(nvml, handle) for handle in mig_handles(nvml, card)] if uuids else []
    if whole is None and (not parts or None in parts):
        raise RefusedError("The driver does not tell which processes use the card; has the agent the right to ask?")
    seen = frozenset().union(*(numbers for numbers in (whole, *parts) if numbers is not None))
    return frozenset(uuids.get(number, WHOLE_CARD) for number in seen)


def _gpu_instances_used(nvml: Nvml, handle: Handle) -> frozenset[int] | None:
    """The numbers of the GPU instances that processes use, of the card itself one that none has; None: not told.

    A card that has no graphics need not tell of its users, and every card must of those who compute.
    """
    compute, graphics = _processes(nvml, handle)
    if compute is None:
        return None
    return frozenset(process.gpuInstanceId for process in (*compute, *(graphics or ())))


def _processes(nvml: Nvml, handle: Handle) -> Iterator[list[Any] | None]:
    yield told(nvml, nvml.nvmlDeviceGetComputeRunningProcesses_v3, handle)
    yield told(nvml, nvml.nvmlDeviceGetGraphicsRunningProcesses_v3, handle)
