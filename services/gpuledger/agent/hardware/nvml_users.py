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
    handles = (card, *mig_handles(nvml, card)) if uuids else (card,)
    seen = [numbers for handle in handles if (numbers := _gpu_instances_used(nvml, handle)) is not None]
    if not seen:
        raise RefusedError("The driver does not tell which processes use the card; has the agent the right to ask?")
    return frozenset(uuids.get(number, WHOLE_CARD) for numbers in seen for number in numbers)


def _gpu_instances_used(nvml: Nvml, handle: Handle) -> frozenset[int] | None:
    """The numbers of the GPU instances that processes use, of the card itself one that none has; None: not told."""
    lists = list(_processes(nvml, handle))
    if all(processes is None for processes in lists):
        return None
    return frozenset(process.gpuInstanceId for processes in lists for process in processes or ())


def _processes(nvml: Nvml, handle: Handle) -> Iterator[list[Any] | None]:
    yield told(nvml, nvml.nvmlDeviceGetComputeRunningProcesses_v3, handle)
    yield told(nvml, nvml.nvmlDeviceGetGraphicsRunningProcesses_v3, handle)
