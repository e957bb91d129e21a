"""A card's MIG partitions in NVML, and which of them processes use; `nvml_mig_changes` changes them.

NVML creates an instance in two steps, a GPU instance and a compute instance in it, and gives the pair a MIG device with
a UUID. An instance without a MIG device is listed too, so that it can be destroyed. The driver shows only processes
that the agent's own PID namespace has: in a container that must be the host's.
"""

from collections.abc import Iterator, Mapping, Sequence
from ctypes import byref, c_uint
from typing import Any, NamedTuple

from gpuledger.agent.hardware.api import WHOLE_CARD
from gpuledger.agent.hardware.errors import UnsupportedError
from gpuledger.agent.hardware.nvml_calls import Handle, Nvml, optional
from gpuledger.api.mig_profile import compute_instance_name
from gpuledger.domain.mig.geometry import Instance, Profile


class Modes(NamedTuple):
    """Whether MIG is on, and whether it will be after the card's next reset."""

    enabled: bool
    pending: bool


class SupportedProfile(NamedTuple):
    """A profile, and its number in the driver for this model of card; None: the driver does not tell it now."""

    id: int | None
    profile: Profile


class MigDevice(NamedTuple):
    """A MIG device: its numbers, its UUID, and how many compute slices it has (None: unknown)."""

    gpu_instance: int
    compute_instance: int
    uuid: str
    slices: int | None


class GpuInstance(NamedTuple):
    """A GPU instance on a card, with NVML's handle and number."""

    handle: Handle
    number: int
    instance: Instance


def mig_modes(nvml: Nvml, card: Handle) -> Modes | None:
    """A card's MIG modes; None where it has no MIG."""
    return modes_in(nvml, optional(nvml, nvml.nvmlDeviceGetMigMode, card))


def modes_in(nvml: Nvml, answer: Sequence[int] | None) -> Modes | None:
    """The MIG modes in the driver's answer; None where it has none."""
    return None if answer is None else Modes(*(mode == nvml.NVML_DEVICE_MIG_ENABLE for mode in answer))


def instances_of(nvml: Nvml, card: Handle, uuid: str, supported: Sequence[SupportedProfile]) -> tuple[Instance, ...]:
    """The instances on a card, by place; `uuid` is the card's own."""
    return tuple(gpu_instance.instance for gpu_instance in gpu_instances(nvml, card, uuid, supported))


def gpu_instances(
    nvml: Nvml, card: Handle, uuid: str, supported: Sequence[SupportedProfile]
) -> tuple[GpuInstance, ...]:
    """The GPU instances on a card, by place; `uuid` is the card's own."""
    devices = tuple(mig_devices(nvml, card))
    found = [
        _gpu_instance(nvml, handle, uuid, each.profile, devices)
        for each in supported
        for handle in _handles_of(nvml, card, each)
    ]
    return tuple(sorted(found, key=lambda gpu_instance: gpu_instance.instance.start))


def mig_devices(nvml: Nvml, card: Handle) -> Iterator[MigDevice]:
    """The MIG devices of a card; their indices may have gaps."""
    for handle in mig_handles(nvml, card):
        attributes = optional(nvml, nvml.nvmlDeviceGetAttributes_v2, handle)
        yield MigDevice(
            nvml.nvmlDeviceGetGpuInstanceId(handle),
            nvml.nvmlDeviceGetComputeInstanceId(handle),
            nvml.nvmlDeviceGetUUID(handle),
            attributes.computeInstanceSliceCount if attributes is not None else None,
        )


def mig_handles(nvml: Nvml, card: Handle) -> Iterator[Handle]:
    """NVML's handles of a card's MIG devices."""
    for index in range(optional(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, card) or 0):
        handle = optional(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, card, index)
        if handle is not None:
            yield handle


def _handles_of(nvml: Nvml, card: Handle, supported: SupportedProfile) -> Sequence[Handle]:
    if supported.id is None:
        return ()
    handles = (nvml.c_nvmlGpuInstance_t * supported.profile.instances_max)()
    count = c_uint(supported.profile.instances_max)
    if optional(nvml, nvml.nvmlDeviceGetGpuInstances, card, supported.id, handles, byref(count)) is None:
        return ()
    return tuple(handles[: count.value])


def _gpu_instance(nvml: Nvml, handle: Handle, uuid: str, profile: Profile, devices: Sequence[MigDevice]) -> GpuInstance:
    info = nvml.nvmlGpuInstanceGetInfo(handle)
    own = sorted(device for device in devices if device.gpu_instance == info.id)
    name = own[0].uuid if own else f"{uuid}/gi-{info.id}"
    place = info.placement
    instance = Instance(name, _profile_name(profile, own), place.start, place.size, gpu_instance=info.id)
    return GpuInstance(handle, info.id, instance)


def _profile_name(profile: Profile, devices: Sequence[MigDevice]) -> str:
    """The profile's name where one MIG device has all its compute; else that of the first device, such as `1c.3g.40gb`.

    NVIDIA's MIG user guide names compute instances so that are smaller than their GPU instance; `0c.` has none at all.
    """
    if not devices:
        return compute_instance_name(profile.name, 0)
    slices = devices[0].slices
    if len(devices) == 1 and slices in {None, profile.compute}:
        return profile.name
    return compute_instance_name(profile.name, slices or 1)


def find_users(nvml: Nvml, card: Handle, uuids: Mapping[int, str]) -> frozenset[str]:
    """The UUIDs, given by the number of their GPU instance, that processes use; `WHOLE_CARD` for the card itself.

    Raises:
        UnsupportedError: that is unknown.
    """
    whole = _used_numbers(nvml, card)
    parts = [_used_numbers(nvml, handle) for handle in mig_handles(nvml, card)] if uuids else []
    if whole is None and (not parts or None in parts):
        raise UnsupportedError(
            "The driver does not report which processes use the card; does the agent have the right to know?"
        )
    used = frozenset().union(*(numbers for numbers in (whole, *parts) if numbers is not None))
    return frozenset(uuids.get(number, WHOLE_CARD) for number in used)


def _used_numbers(nvml: Nvml, handle: Handle) -> frozenset[int] | None:
    """The numbers of the GPU instances that processes use, for the card itself one that no instance has; None: unknown.

    A card without graphics need not list its graphics processes, but every card lists those that compute.
    """
    compute, graphics = _processes(nvml, handle)
    if compute is None:
        return None
    return frozenset(process.gpuInstanceId for process in (*compute, *(graphics or ())))


def _processes(nvml: Nvml, handle: Handle) -> Iterator[list[Any] | None]:
    yield optional(nvml, nvml.nvmlDeviceGetComputeRunningProcesses_v3, handle)
    yield optional(nvml, nvml.nvmlDeviceGetGraphicsRunningProcesses_v3, handle)
