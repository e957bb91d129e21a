"""The environment of a container of a pod with an allocation: which GPUs it sees, and how much of each it may use.

The device plugin of the node agent and the runtime proxy both set it, so this module alone makes it. GPUs go by UUID:
a minor may be another card after a reboot. The limits have the names that HAMi-core's library reads. Pure.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final, NamedTuple

from gpuledger.api.sharing import GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, NVIDIA_GPU, WHOLE
from gpuledger.domain.sharing.model import NOTHING, Allocated, Allocation, Amounts, Device

VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
"""UUIDs, separated by commas, in the order of the minors."""

MEMORY_LIMIT_PREFIX: Final = "CUDA_DEVICE_MEMORY_LIMIT_"
"""A number follows, the place of the GPU in `VISIBLE_DEVICES` from 0 on; the value is in bytes."""

SM_LIMIT: Final = "CUDA_DEVICE_SM_LIMIT"
"""Percent of the multiprocessors of each GPU."""

MEMORY_LIMIT: Final = MEMORY_LIMIT_PREFIX.rstrip("_")
"""The limit of every GPU of a container, which HAMi-core reads beside those with a number."""

HIDDEN: Final = "void"
"""The value of `VISIBLE_DEVICES` that hides all GPUs; without any, that of the container's image would count."""

HIDING: Final = frozenset({"", "none", HIDDEN})
"""Values of `VISIBLE_DEVICES` with which a container sees no GPU."""

Devices = Mapping[str, Mapping[int, Device]]
"""The devices of a node by type and minor, as `NodeState` has them."""

_MEMORY: Final = (GPU_MEMORY, GPU_MEMORY_RATIO, GPU, NVIDIA_GPU)
"""The resources by which memory is requested; a pod has one of them."""

_CORE: Final = (GPU_CORE, GPU, NVIDIA_GPU)

_WHOLE_BY: Final = {GPU_MEMORY_RATIO: WHOLE, GPU: WHOLE, NVIDIA_GPU: 1}
"""What is one whole GPU of the resources that can request several."""


class ContainerPart(NamedTuple):
    """What one container requests of what its pod does, by short names.

    `before` is the sum over the containers before it that run at the same time (for an init container, sidecars).
    """

    requests: Amounts
    pod: Amounts
    before: Amounts = NOTHING


class UnnamedGpuError(ValueError):
    """The UUID or the memory of an allocated GPU is unknown, so that no container can be confined to it."""


def container_environment(
    allocation: Allocation, devices: Devices | None = None, part: ContainerPart | None = None
) -> dict[str, str]:
    """The variables for a container of a pod with this allocation; none where it has no GPU.

    `devices` name what the allocation leaves out. Without `part` the container gets all that its pod has. Containers
    of a pod that request whole GPUs get GPUs of their own, in order; other containers see all of the pod's GPUs, and
    their limits are parts of the pod's, so that all containers keep within what the pod has.

    Raises:
        UnnamedGpuError: the UUID of a GPU is unknown, or its memory that would have to be limited.
    """
    gpus = _gpus(allocation)
    of_type = (devices or {}).get(GPU, {})
    own = _own(gpus, part)
    if own is not None:
        return _environment(own, of_type, None)
    return {} if part is not None and not _asks(part) else _environment(gpus, of_type, part)


def confines(variable: str) -> bool:
    """Whether the variable says which GPUs a container sees, or how much of them it may use."""
    return variable in {VISIBLE_DEVICES, SM_LIMIT, MEMORY_LIMIT} or variable.startswith(
        (MEMORY_LIMIT_PREFIX, f"{SM_LIMIT}_")
    )


def gpu_uuids(allocation: Allocation, devices: Devices | None = None) -> tuple[str, ...]:
    """The UUIDs of the allocated GPUs, in the order of the minors.

    Raises:
        UnnamedGpuError: the UUID of a GPU is unknown.
    """
    of_type = (devices or {}).get(GPU, {})
    return tuple(_uuid(gpu, of_type) for gpu in _gpus(allocation))


def _gpus(allocation: Allocation) -> Sequence[Allocated]:
    return sorted(allocation.get(GPU, ()), key=lambda gpu: gpu.minor)


def _environment(
    gpus: Sequence[Allocated], devices: Mapping[int, Device], part: ContainerPart | None
) -> dict[str, str]:
    if not gpus:
        return {}
    variables = {VISIBLE_DEVICES: ",".join(_uuid(gpu, devices) for gpu in gpus)}
    memory, core = _fraction(part, _MEMORY), _fraction(part, _CORE)
    for place, gpu in enumerate(gpus):
        limit = _memory_limit(gpu, devices.get(gpu.minor), memory)
        if limit is not None:
            variables[f"{MEMORY_LIMIT_PREFIX}{place}"] = str(limit)
    cores = [gpu.resources[GPU_CORE] * core for gpu in gpus if GPU_CORE in gpu.resources]
    if cores and min(cores) < WHOLE:
        # 0 would be no limit.
        variables[SM_LIMIT] = str(max(1, int(min(cores))))
    return variables


def _memory_limit(gpu: Allocated, device: Device | None, part: Fraction) -> int | None:
    """The bytes that the container may use of a GPU, at least 1; None: all of it."""
    total = device.resources.get(GPU_MEMORY) if device is not None else None
    ratio, memory = gpu.resources.get(GPU_MEMORY_RATIO), gpu.resources.get(GPU_MEMORY)
    if part >= 1 and (ratio == WHOLE or (memory is not None and memory == total)):
        return None
    if memory is None and total is not None and ratio is not None:
        memory = ratio * total // WHOLE
    if memory is None:
        raise UnnamedGpuError(
            f"The allocation gives a part of the GPU with minor {gpu.minor}, and how much memory that is is unknown: "
            f"neither the allocation nor its node's Device has `{GPU_MEMORY}` for it."
        )
    return max(1, int(memory * min(part, Fraction(1))))


def _fraction(part: ContainerPart | None, resources: Sequence[str]) -> Fraction:
    if part is None:
        return Fraction(1)
    for resource in resources:
        if part.pod.get(resource):
            return Fraction(part.requests.get(resource, 0), part.pod[resource])
    return Fraction(1)


def _asks(part: ContainerPart) -> bool:
    """Whether the container requests anything of a GPU."""
    return any(part.requests.get(resource) for resource in (*_MEMORY, GPU_CORE))


def _own(gpus: Sequence[Allocated], part: ContainerPart | None) -> Sequence[Allocated] | None:
    """The GPUs of a container that requests whole ones; None where it has parts."""
    if part is None or any(gpu.resources.get(GPU_MEMORY_RATIO) != WHOLE for gpu in gpus):
        return None
    for resource, whole in _WHOLE_BY.items():
        number, before = part.requests.get(resource, 0), part.before.get(resource, 0)
        if number and number % whole == 0 and before % whole == 0:
            first = before // whole
            return gpus[first : first + number // whole]
    return None


def _uuid(gpu: Allocated, devices: Mapping[int, Device]) -> str:
    device = devices.get(gpu.minor)
    uuid = gpu.id or (device.id if device is not None else None)
    if uuid is None:
        raise UnnamedGpuError(
            f"The allocation names a GPU by its minor {gpu.minor} alone, and its node's Device has no UUID for that. "
            "The node's agent reports UUIDs once the driver answers."
        )
    return uuid
