"""The cards of the fake driver (`support.fake_nvml`): data, and what is divided off them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pynvml

COMPUTE_PROFILES = {0: 1, 1: 2, 2: 3, 3: 4, 4: 7}
"""Compute slices by the number of a compute instance's profile."""

MIG_DEVICES_MAX = 7


class FakeProfile(NamedTuple):
    """A profile as NVML has it: its constant's number, the model's own id for it, and what it takes."""

    number: int
    id: int
    name: str
    slices: int
    size: int
    starts: tuple[int, ...]
    instances: int
    memory_mib: int


H100_PROFILES = (
    FakeProfile(pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE, 19, "MIG 1g.10gb", 1, 1, (0, 1, 2, 3, 4, 5, 6), 7, 9984),
    FakeProfile(pynvml.NVML_GPU_INSTANCE_PROFILE_2_SLICE, 14, "MIG 2g.20gb", 2, 2, (0, 2, 4), 3, 20096),
    FakeProfile(pynvml.NVML_GPU_INSTANCE_PROFILE_3_SLICE, 9, "MIG 3g.40gb", 3, 4, (0, 4), 2, 40448),
    FakeProfile(pynvml.NVML_GPU_INSTANCE_PROFILE_4_SLICE, 5, "MIG 4g.40gb", 4, 4, (0,), 1, 40448),
    FakeProfile(pynvml.NVML_GPU_INSTANCE_PROFILE_7_SLICE, 0, "MIG 7g.80gb", 7, 8, (0,), 1, 81152),
    FakeProfile(
        pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1, 20, "MIG 1g.10gb+me", 1, 1, (0, 1, 2, 3, 4, 5, 6), 1, 9984
    ),
    FakeProfile(pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV2, 15, "MIG 1g.20gb", 1, 2, (0, 2, 4, 6), 4, 20096),
)


@dataclass(eq=False)
class FakeComputeInstance:
    """A compute instance, and the MIG device that it makes of its GPU instance."""

    id: int
    gpu_instance: "FakeGpuInstance"
    slices: int
    uuid: str


@dataclass(eq=False)
class FakeGpuInstance:
    """A GPU instance."""

    id: int
    card: "FakeCard"
    profile: FakeProfile
    start: int
    computes: list[FakeComputeInstance] = field(default_factory=list)


@dataclass(eq=False)
class FakeCard:
    """A card. `error` is what it answers with (0: it is well); one that `left` is unknown to the driver.

    `links` are what its NVLinks end at (None: inactive), `processes` are (pid, GPU instance's number, compute or
    graphics), `shows_profiles` is whether it reports profiles while MIG is off, `places_error` is what it answers where
    instances may be placed once it has counted the places, `secretive` are the numbers of instances that tell of none,
    `mig` is current and pending mode, `sram` the uncorrectable errors by parity and SEC-DED and whether they exceed the
    threshold, and None means everywhere that the card does not support it.
    """

    bus_id: str
    uuid: str
    name: str = "NVIDIA H100 80GB HBM3"
    serial: str | None = "1650123004545"
    pci_device: int = 0x2330
    memory_mib: int = 81559
    compute: tuple[int, int] = (9, 0)
    links: list[str | None] = field(default_factory=list)
    mig: tuple[int, int] | None = (0, 0)
    profiles: tuple[FakeProfile, ...] = H100_PROFILES
    gpu_instances: dict[int, FakeGpuInstance] = field(default_factory=dict)
    processes: list[tuple[int, int, str]] = field(default_factory=list)
    ecc: Mapping[tuple[int, int], int] = field(default_factory=dict)
    remapped: tuple[int, int, int, int] | None = (0, 0, 0, 0)
    sram: tuple[int, int, bool] | None = None
    reasons: int = 0
    fields: dict[tuple[int, int], int] = field(default_factory=dict)
    field_errors: dict[tuple[int, int], int] = field(default_factory=dict)
    shows_profiles: bool = True
    places_error: int = 0
    event_types: int = pynvml.nvmlEventTypeXidCriticalError
    error: int = 0
    left: bool = False
    needs_reset: bool = False
    hides_processes: bool = False
    secretive: set[int] = field(default_factory=set)
    events_are_use: bool = False

    @property
    def used(self) -> set[int]:
        """The numbers of the GPU instances that processes use."""
        return {gpu_instance for _, gpu_instance, _ in self.processes}

    def profile(self, profile_id: int) -> FakeProfile:
        """The profile that the model has under an id."""
        for profile in self.profiles:
            if profile.id == profile_id:
                return profile
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def has_room(self, profile: FakeProfile, start: int) -> bool:
        """Whether the memory slices are free."""
        slices = set(range(start, start + profile.size))
        taken = {at for each in self.gpu_instances.values() for at in range(each.start, each.start + each.profile.size)}
        return not slices & taken

    def divide(self, profile: FakeProfile, start: int) -> FakeGpuInstance:
        """A new GPU instance; the driver gives numbers again that are free."""
        number = next(number for number in range(1, 99) if number not in self.gpu_instances)
        self.gpu_instances[number] = FakeGpuInstance(number, self, profile, start)
        return self.gpu_instances[number]

    def compute_in(self, gpu_instance: FakeGpuInstance, slices: int) -> FakeComputeInstance:
        """A new compute instance."""
        number = len(gpu_instance.computes)
        uuid = f"MIG-{self.uuid[4:12]}-{gpu_instance.id}-{gpu_instance.start}-{number}"
        gpu_instance.computes.append(FakeComputeInstance(number, gpu_instance, slices, uuid))
        return gpu_instance.computes[-1]

    def mig_devices(self) -> dict[int, FakeComputeInstance]:
        """The compute instances by the index of their MIG device; the first index is free where there is room."""
        ordered: list[Any] = [each for part in self.gpu_instances.values() for each in part.computes]
        return dict(enumerate(ordered, start=1 if len(ordered) < MIG_DEVICES_MAX else 0))
