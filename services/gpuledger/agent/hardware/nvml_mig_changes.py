"""Changes a card's MIG mode and partitions in NVML; each change is complete or reverted."""

from contextlib import suppress
from ctypes import byref, c_uint
from typing import Any

from gpuledger.agent.hardware.errors import BusyError, HardwareError, UnsupportedError
from gpuledger.agent.hardware.nvml_calls import Handle, Nvml, optional
from gpuledger.agent.hardware.nvml_mig import Modes, SupportedProfile, gpu_instances, mig_modes
from gpuledger.agent.hardware.nvml_mig_profiles import supported_profiles
from gpuledger.domain.mig.geometry import Instance


def set_mode(nvml: Nvml, card: Handle, *, enabled: bool) -> bool:
    """Turn MIG on or off; returns whether that is in effect, or else pending until a reset.

    A change that is refused because of the card's users is withdrawn, so that no later reset applies it.

    Raises:
        BusyError: something uses the card.
        UnsupportedError: the card has no MIG.
    """
    modes = mig_modes(nvml, card)
    if modes is None:
        raise UnsupportedError("The card has no MIG; use another kind of pool for it.")
    if modes == Modes(enabled, enabled):
        return True
    status = nvml.nvmlDeviceSetMigMode(card, _mode(nvml, enabled=enabled))
    if status == nvml.NVML_ERROR_IN_USE:
        with suppress(nvml.NVMLError):
            nvml.nvmlDeviceSetMigMode(card, _mode(nvml, enabled=modes.enabled))
        raise BusyError("Something uses the card, so that its MIG mode cannot change; wait until it ends.")
    if status not in {nvml.NVML_SUCCESS, nvml.NVML_ERROR_RESET_REQUIRED}:
        raise nvml.NVMLError(status)
    return bool(status == nvml.NVML_SUCCESS)


def create(nvml: Nvml, card: Handle, uuid: str, name: str, start: int) -> Instance:
    """Create an instance with all of its compute, or nothing. `uuid` is the card's.

    Raises:
        UnsupportedError: the card has no such profile, or not at that place, or MIG is off.
        HardwareError: the new instance has no MIG device.
    """
    chosen = _creatable_profile(nvml, card, name, start)
    placement = nvml.c_nvmlGpuInstancePlacement_t(start, chosen.profile.size)
    created = nvml.nvmlDeviceCreateGpuInstanceWithPlacement(card, chosen.id, byref(placement))
    try:
        nvml.nvmlGpuInstanceCreateComputeInstance(created, _full_compute_profile(nvml, created))
        return _whole_instance(nvml, card, uuid, chosen, start)
    except (nvml.NVMLError, HardwareError):
        with suppress(nvml.NVMLError):  # a survey shows what stays, so that it can be destroyed
            destroy(nvml, created)
        raise


def destroy(nvml: Nvml, gpu_instance: Handle) -> None:
    """Destroy a GPU instance, after the compute instances in it."""
    for profile in _compute_profiles(nvml, gpu_instance):
        handles = (nvml.c_nvmlComputeInstance_t * profile.instanceCount)()
        count = c_uint(profile.instanceCount)
        nvml.nvmlGpuInstanceGetComputeInstances(gpu_instance, profile.id, handles, byref(count))
        for handle in handles[: count.value]:
            nvml.nvmlComputeInstanceDestroy(handle)
    nvml.nvmlGpuInstanceDestroy(gpu_instance)


def _mode(nvml: Nvml, *, enabled: bool) -> int:
    return int(nvml.NVML_DEVICE_MIG_ENABLE if enabled else nvml.NVML_DEVICE_MIG_DISABLE)


def _creatable_profile(nvml: Nvml, card: Handle, name: str, start: int) -> SupportedProfile:
    modes = mig_modes(nvml, card)
    if modes is None or not modes.enabled:
        raise UnsupportedError("MIG is off on the card; turn it on before the card is partitioned.")
    supported = supported_profiles(nvml, card)
    chosen = next((each for each in supported if each.profile.name == name), None)
    if chosen is None:
        there = ", ".join(each.profile.name for each in supported) or "none"
        raise UnsupportedError(f"The card has no MIG profile {name}; it has {there}.")
    if start not in chosen.profile.starts:
        raise UnsupportedError(f"No {name} may begin at {start}; it may at {chosen.profile.starts}.")
    return chosen


def _whole_instance(nvml: Nvml, card: Handle, uuid: str, created: SupportedProfile, start: int) -> Instance:
    for gpu_instance in gpu_instances(nvml, card, uuid, (created,)):
        if gpu_instance.instance.start == start and gpu_instance.instance.profile == created.profile.name:
            return gpu_instance.instance
    raise HardwareError(f"A {created.profile.name} at {start} was created without a MIG device, and destroyed.")


def _full_compute_profile(nvml: Nvml, gpu_instance: Handle) -> int:
    """The number of the compute instance profile that has all of a GPU instance's compute."""
    profiles = _compute_profiles(nvml, gpu_instance)
    if not profiles:
        raise UnsupportedError("The driver has no compute instance profile for the GPU instance that it created.")
    return int(max(profiles, key=lambda profile: profile.sliceCount).id)


def _compute_profiles(nvml: Nvml, gpu_instance: Handle) -> list[Any]:
    shared = nvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
    infos = (
        optional(nvml, nvml.nvmlGpuInstanceGetComputeInstanceProfileInfoV, gpu_instance, number, shared)
        for number in range(nvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT)
    )
    return [info for info in infos if info is not None]
