"""The MIG profiles that a card supports, by its driver in the newest form that it has, or else by the card's model.

Drivers before 510 tell no names, and some tell no profile at all while MIG is off; such a card can be divided all the
same, because instances are created with what the driver says once MIG is on.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import byref, c_uint
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from gpuledger.agent.hardware.nvml_calls import BYTES_PER_MIB, Description, Handle, Nvml, describing, optional
from gpuledger.agent.hardware.nvml_mig import SupportedProfile
from gpuledger.api.mig_profile import MigProfile
from gpuledger.domain.mig.geometry import Profile
from gpuledger.domain.mig.models import find_geometry

NAME_PREFIX: Final = "MIG "
"""Begins NVML's names of profiles (`MIG 1g.10gb+me`), but not those of people and Kubernetes."""

Query = Callable[..., Any]
"""Makes a call with its arguments; None where that is not supported."""

UNVERSIONED: Final = 1
"""The version of the call that every driver with MIG has; its answers have no names."""

ATTRIBUTES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1": "+me",
        "NVML_GPU_INSTANCE_PROFILE_2_SLICE_REV1": "+me",
        "NVML_GPU_INSTANCE_PROFILE_1_SLICE_GFX": "+gfx",
        "NVML_GPU_INSTANCE_PROFILE_2_SLICE_GFX": "+gfx",
        "NVML_GPU_INSTANCE_PROFILE_4_SLICE_GFX": "+gfx",
        "NVML_GPU_INSTANCE_PROFILE_1_SLICE_NO_ME": "-me",
        "NVML_GPU_INSTANCE_PROFILE_2_SLICE_NO_ME": "-me",
        "NVML_GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME": "+me.all",
        "NVML_GPU_INSTANCE_PROFILE_2_SLICE_ALL_ME": "+me.all",
    }
)
"""The attributes in the names of profiles, by the constants of NVML that stand for them; other profiles have none."""


def supported_profiles(nvml: Nvml, card: Handle, places: Description | None = None) -> tuple[SupportedProfile, ...]:
    """The GPU instance profiles that a card's driver reports, smallest first; those without a name are left out.

    `places` notes whether a query of a profile's places failed, which then has none; without it NVML's error is raised.
    """
    query = places.get if places is not None else partial(optional, nvml)
    found = tuple(_named(nvml, card, query)) or tuple(_unversioned(nvml, card, query))
    return tuple(sorted(found, key=lambda each: (each.profile.compute, each.profile.size, each.profile.name)))


def profiles_of_model(nvml: Nvml, card: Handle) -> tuple[SupportedProfile, ...]:
    """The profiles that cards of this model have, for a driver that reports none; none for an unknown model."""
    return tuple(SupportedProfile(None, profile) for profile in _model_profiles(nvml, card))


def profile_name(name: str) -> str:
    """The profile's name without NVML's prefix."""
    return name.strip().removeprefix(NAME_PREFIX).strip()


def _named(nvml: Nvml, card: Handle, places: Query) -> Iterator[SupportedProfile]:
    for number in range(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        info = optional(nvml, nvml.nvmlDeviceGetGpuInstanceProfileInfoV, card, number)
        if info is not None and profile_name(info.name):
            yield _supported(nvml, card, info, profile_name(info.name), places)


def _unversioned(nvml: Nvml, card: Handle, places: Query) -> Iterator[SupportedProfile]:
    profiles = _model_profiles(nvml, card)
    for number in range(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT if profiles else 0):
        info = optional(nvml, nvml.nvmlDeviceGetGpuInstanceProfileInfo, card, number, UNVERSIONED)
        name = _name_of(profiles, info, _attributes(nvml, number)) if info is not None else None
        if name is not None:
            yield _supported(nvml, card, info, name, places)


def _model_profiles(nvml: Nvml, card: Handle) -> tuple[Profile, ...]:
    product = describing(nvml, nvml.nvmlDeviceGetName, card)
    memory = describing(nvml, nvml.nvmlDeviceGetMemoryInfo, card)
    model = find_geometry(product, memory.total // BYTES_PER_MIB) if memory is not None else None
    return model.profiles if model is not None else ()


def _attributes(nvml: Nvml, number: int) -> str:
    return next((text for name, text in ATTRIBUTES.items() if getattr(nvml, name) == number), "")


def _name_of(profiles: Sequence[Profile], info: Any, attributes: str) -> str | None:  # noqa: ANN401 - pynvml has no types
    """The name of the only profile of a model with that compute, that many instances and these attributes."""
    names = [
        profile.name
        for profile in profiles
        if (profile.compute, profile.instances_max) == (info.sliceCount, info.instanceCount)
        and (name := MigProfile.parse(profile.name)) is not None
        and name.attributes == attributes
    ]
    return names[0] if len(names) == 1 else None


def _supported(nvml: Nvml, card: Handle, info: Any, name: str, query: Query) -> SupportedProfile:  # noqa: ANN401 - as above
    places = _placements(nvml, card, info.id, query)
    profile = Profile(
        name,
        compute=info.sliceCount,
        size=max((place.size for place in places), default=0),
        starts=tuple(sorted(place.start for place in places)),
        instances_max=info.instanceCount,
        memory_mib=info.memorySizeMB,
    )
    return SupportedProfile(info.id, profile)


def _placements(nvml: Nvml, card: Handle, profile_id: int, query: Query) -> Sequence[Any]:
    """Where instances of a profile may be placed; none where only a privileged user may know."""
    call, count = nvml.nvmlDeviceGetGpuInstancePossiblePlacements, c_uint()
    if query(call, card, profile_id, None, byref(count)) is None:
        return ()
    places = (nvml.c_nvmlGpuInstancePlacement_t * count.value)()
    if query(call, card, profile_id, places, byref(count)) is None:
        return ()
    return tuple(places[: count.value])
