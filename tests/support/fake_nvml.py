"""A driver that is none: the functions of `pynvml` that the agent uses, over cards made of data.

Constants, structures and error classes are those of the real module, so that a name which is wrong there is wrong here.
Handles are pointers as the real ones are, and are void after a shutdown.
"""
# ruff: noqa: N802, N803 - the names are NVML's

import inspect
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import c_void_p, cast
from threading import Condition, Event
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pynvml

from support.fake_nvml_cards import COMPUTE_PROFILES, MIG_DEVICES_MAX, FakeCard, FakeComputeInstance, FakeGpuInstance
from support.fake_nvml_health import FakeHealth

CARDS, INSTANCES, COMPUTES, DEVICES, EVENTS = 0x1000, 0x2000, 0x3000, 0x4000, 0x5000


class FakeNvml(FakeHealth):
    """Stands where the module `pynvml` would. `calls` are the names of what was called, in order."""

    def __init__(self, *cards: FakeCard, driver: str = "570.86.15", cuda: int = 12080) -> None:
        self.cards = list(cards)
        self.driver, self.cuda = driver, cuda
        self.init_error = 0
        self.errors: dict[str, int] = {}
        self.calls: list[str] = []
        self.hangs = Event()
        self.hangs.set()
        self.loads: list[bool] = []
        self._changed = Condition()
        self._open = False
        self._handles: dict[int, Any] = {}

    def __getattr__(self, name: str) -> Any:
        real = getattr(pynvml, name)
        if inspect.isfunction(real):
            raise NotImplementedError(f"{name} is no part of the fake; write it as the driver does it.")
        return real

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        if not name.startswith("nvml") or not callable(found):
            return found
        return self._watched(name, found)

    def load(self, *, fresh: bool) -> "FakeNvml":
        """Stands where `load_nvml` would."""
        self.loads.append(fresh)
        return self

    def fail(self, code: int) -> None:
        """Answer with an error of NVML's, where it is none, go on."""
        if code != pynvml.NVML_SUCCESS:
            raise pynvml.NVMLError(code)

    def xid(self, card: FakeCard, number: int) -> None:
        """Have an error happen on a card."""
        with self._changed:
            for events in [each for each in self._handles.values() if isinstance(each, _Events)]:
                if card in events.cards:
                    events.waiting.append((card, number))
            self._changed.notify_all()

    # What `pynvml` has.

    def nvmlInit(self) -> None:
        self.fail(self.init_error)
        self._open = True

    def nvmlShutdown(self) -> None:
        self._open = False
        self._handles.clear()

    def nvmlSystemGetDriverVersion(self) -> str:
        return self.driver

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        return self.cuda

    def nvmlDeviceGetCount(self) -> int:
        return len(self._present())

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        return self._of_card(self._present()[index])

    def nvmlDeviceGetHandleByPciBusId(self, pciBusId: str) -> Any:
        domain, _, rest = pciBusId.partition(":")
        bus_id = f"{int(domain, 16):08X}:{rest.upper()}"
        card = next((card for card in self._present() if card.bus_id == bus_id), None)
        self.fail(pynvml.NVML_ERROR_NOT_FOUND if card is None else 0)
        assert card is not None
        return self._of_card(card)

    def nvmlDeviceGetPciInfo_v3(self, handle: Any) -> Any:
        card = self._card(handle)
        return pynvml.nvmlPciInfo_t(busId=card.bus_id.encode(), pciDeviceId=card.pci_device << 16 | 0x10DE)

    def nvmlDeviceGetUUID(self, handle: Any) -> str:
        found = self._find(handle, FakeCard, _MigDevice)
        return self._card(handle).uuid if isinstance(found, FakeCard) else found.compute.uuid

    def nvmlDeviceGetSerial(self, handle: Any) -> Any:
        return self._supported(self._card(handle).serial)

    def nvmlDeviceGetMinorNumber(self, handle: Any) -> int:
        return self.cards.index(self._card(handle))

    def nvmlDeviceGetModuleId(self, handle: Any, moduleId: Any = None) -> int:
        return self.cards.index(self._card(handle)) + 1

    def nvmlDeviceGetName(self, handle: Any) -> str:
        return self._card(handle).name

    def nvmlDeviceGetMemoryInfo(self, handle: Any, version: int | None = None) -> Any:
        return pynvml.c_nvmlMemory_t(total=self._card(handle).memory_mib << 20)

    def nvmlDeviceGetCudaComputeCapability(self, handle: Any) -> tuple[int, int]:
        return self._card(handle).compute

    def nvmlDeviceGetNvLinkState(self, device: Any, link: int) -> int:
        links = self._card(device).links
        self.fail(0 if link < len(links) else pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return int(links[link] is not None)

    def nvmlDeviceGetNvLinkRemotePciInfo(self, device: Any, link: int) -> Any:
        end = self._card(device).links[link]
        self.fail(pynvml.NVML_ERROR_INVALID_ARGUMENT if end is None else 0)
        return pynvml.nvmlPciInfo_t(busId=str(end).encode())

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any) -> list[Any]:
        return self._processes(handle, "compute")

    def nvmlDeviceGetGraphicsRunningProcesses_v3(self, handle: Any) -> list[Any]:
        return self._processes(handle, "graphics")

    def nvmlDeviceGetMigMode(self, device: Any) -> list[int]:
        return list(self._supported(self._card(device).mig))

    def nvmlDeviceSetMigMode(self, device: Any, mode: int) -> int:
        card = self._card(device)
        current, _ = self._supported(card.mig)
        card.mig = (current, mode)
        if current == mode:
            return int(pynvml.NVML_SUCCESS)
        if card.processes or card.gpu_instances or self._in_use_by_events(card):
            return int(pynvml.NVML_ERROR_IN_USE)
        if card.needs_reset:
            return int(pynvml.NVML_ERROR_RESET_REQUIRED)
        card.mig = (mode, mode)
        return int(pynvml.NVML_SUCCESS)

    def nvmlDeviceGetGpuInstanceProfileInfoV(self, device: Any, profile: int, version: int = 2) -> Any:
        card = self._card(device)
        self.fail(0 if profile < pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT else pynvml.NVML_ERROR_INVALID_ARGUMENT)
        found = self._supported(next((each for each in card.profiles if each.number == profile), None))
        self._supported(None if not card.shows_profiles and not (card.mig or (0,))[0] else found)
        info = pynvml.c_nvmlGpuInstanceProfileInfo_v2_t() if version > 1 else pynvml.c_nvmlGpuInstanceProfileInfo_t()
        info.id, info.sliceCount, info.instanceCount = found.id, found.slices, found.instances
        info.memorySizeMB = found.memory_mib
        if version > 1:
            info.name = found.name
        return info

    def nvmlDeviceGetGpuInstanceProfileInfo(self, device: Any, profile: int, version: int = 2) -> Any:
        return type(self).nvmlDeviceGetGpuInstanceProfileInfoV(self, device, profile, version)

    def nvmlDeviceGetGpuInstancePossiblePlacements(
        self, device: Any, profileId: int, placementsRef: Any, countRef: Any
    ) -> int:
        profile = self._card(device).profile(profileId)
        if placementsRef is not None:
            self.fail(self._card(device).places_error)
            for place, start in zip(placementsRef, profile.starts, strict=True):
                place.start, place.size = start, profile.size
        countRef._obj.value = len(profile.starts)
        return int(pynvml.NVML_SUCCESS)

    def nvmlDeviceGetGpuInstances(self, device: Any, profileId: int, gpuInstancesRef: Any, countRef: Any) -> int:
        card = self._divided(device)
        found = [each for each in card.gpu_instances.values() if each.profile.id == profileId]
        for index, each in enumerate(found):
            gpuInstancesRef[index] = self._handle(INSTANCES, each, pynvml.c_nvmlGpuInstance_t)
        countRef._obj.value = len(found)
        return int(pynvml.NVML_SUCCESS)

    def nvmlDeviceCreateGpuInstanceWithPlacement(self, device: Any, profileId: int, placement: Any) -> Any:
        card = self._divided(device)
        profile, place = card.profile(profileId), placement._obj
        is_valid = place.start in profile.starts and place.size == profile.size
        self.fail(0 if is_valid else pynvml.NVML_ERROR_INVALID_ARGUMENT)
        self.fail(0 if card.has_room(profile, place.start) else pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES)
        return self._handle(INSTANCES, card.divide(profile, place.start), pynvml.c_nvmlGpuInstance_t)

    def nvmlGpuInstanceGetInfo(self, gpuInstance: Any) -> Any:
        found = self._find(gpuInstance, FakeGpuInstance)
        info = pynvml.c_nvmlGpuInstanceInfo_t(id=found.id, profileId=found.profile.id)
        info.placement.start, info.placement.size = found.start, found.profile.size
        return info

    def nvmlGpuInstanceGetComputeInstanceProfileInfoV(
        self, device: Any, profile: int, engProfile: int, version: int = 2
    ) -> Any:
        found = self._find(device, FakeGpuInstance)
        slices = COMPUTE_PROFILES.get(profile, 99)
        self.fail(0 if slices <= found.profile.slices else pynvml.NVML_ERROR_NOT_SUPPORTED)
        info = pynvml.c_nvmlComputeInstanceProfileInfo_v2_t()
        info.id, info.sliceCount, info.instanceCount = profile, slices, found.profile.slices // slices
        return info

    def nvmlGpuInstanceGetComputeInstances(
        self, gpuInstance: Any, profileId: int, computeInstancesRef: Any, countRef: Any
    ) -> int:
        computes = self._find(gpuInstance, FakeGpuInstance).computes
        found = [each for each in computes if each.slices == COMPUTE_PROFILES[profileId]]
        for index, each in enumerate(found):
            computeInstancesRef[index] = self._handle(COMPUTES, each, pynvml.c_nvmlComputeInstance_t)
        countRef._obj.value = len(found)
        return int(pynvml.NVML_SUCCESS)

    def nvmlGpuInstanceCreateComputeInstance(self, gpuInstance: Any, profileId: int) -> Any:
        found = self._find(gpuInstance, FakeGpuInstance)
        made = found.card.compute_in(found, COMPUTE_PROFILES[profileId])
        return self._handle(COMPUTES, made, pynvml.c_nvmlComputeInstance_t)

    def nvmlComputeInstanceDestroy(self, computeInstance: Any) -> int:
        found = self._find(computeInstance, FakeComputeInstance)
        inside = found.gpu_instance
        self.fail(pynvml.NVML_ERROR_IN_USE if inside.id in inside.card.used else 0)
        inside.computes.remove(found)
        return int(pynvml.NVML_SUCCESS)

    def nvmlGpuInstanceDestroy(self, gpuInstance: Any) -> int:
        found = self._find(gpuInstance, FakeGpuInstance)
        self.fail(pynvml.NVML_ERROR_IN_USE if found.computes else 0)
        del found.card.gpu_instances[found.id]
        return int(pynvml.NVML_SUCCESS)

    def nvmlDeviceGetMaxMigDeviceCount(self, device: Any) -> int:
        return MIG_DEVICES_MAX if self._card(device).mig is not None else 0

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: Any, index: int) -> Any:
        computes = self._card(device).mig_devices()
        self.fail(0 if computes.get(index) is not None else pynvml.NVML_ERROR_NOT_FOUND)
        return self._handle(DEVICES, _MigDevice(computes[index]), pynvml.c_nvmlDevice_t)

    def nvmlDeviceGetGpuInstanceId(self, device: Any) -> Any:
        return self._find(device, _MigDevice).compute.gpu_instance.id

    def nvmlDeviceGetComputeInstanceId(self, device: Any) -> Any:
        return self._find(device, _MigDevice).compute.id

    def nvmlDeviceGetAttributes_v2(self, device: Any) -> Any:
        compute = self._find(device, _MigDevice).compute
        return pynvml.c_nvmlDeviceAttributes(computeInstanceSliceCount=compute.slices)

    def nvmlEventSetCreate(self) -> Any:
        return self._handle(EVENTS, _Events(), pynvml.c_nvmlEventSet_t)

    def nvmlDeviceGetSupportedEventTypes(self, handle: Any) -> int:
        return self._card(handle).event_types

    def nvmlDeviceRegisterEvents(self, handle: Any, eventTypes: int, eventSet: Any) -> None:
        card = self._card(handle)
        self.fail(pynvml.NVML_ERROR_NOT_SUPPORTED if eventTypes & ~card.event_types else 0)
        self._find(eventSet, _Events).cards.append(card)

    def nvmlEventSetWait_v2(self, eventSet: Any, timeoutms: int) -> Any:
        events, until = self._find(eventSet, _Events), monotonic() + timeoutms / 1000
        with self._changed:
            while not events.waiting and (left := until - monotonic()) > 0:
                self.fail(next((card.error for card in events.cards if card.error), 0))
                self._changed.wait(left)
            self.fail(0 if events.waiting else pynvml.NVML_ERROR_TIMEOUT)
            card, number = events.waiting.popleft()
        kind = pynvml.nvmlEventTypeXidCriticalError
        return pynvml.c_nvmlEventData_t(device=self._of_card(card), eventType=kind, eventData=number)

    def nvmlEventSetFree(self, eventSet: Any) -> None:
        self._handles.pop(_value(eventSet))

    # What it is made of.

    def _watched(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any) -> Any:
            self.calls.append(name)
            if name != "nvmlEventSetWait_v2":
                self.hangs.wait()
            if not self._open and name != "nvmlInit":
                self.fail(pynvml.NVML_ERROR_UNINITIALIZED)
            self.fail(self.errors.get(name, 0))
            return call(*arguments)

        return watched

    def _present(self) -> list[FakeCard]:
        return [card for card in self.cards if not card.left]

    def _card(self, handle: Any) -> FakeCard:
        """The card of a handle, if it answers; a lost card does not even report its address."""
        card: FakeCard = self._find(handle, FakeCard)
        self.fail(pynvml.NVML_ERROR_GPU_IS_LOST if card.left else card.error)
        return card

    def _divided(self, handle: Any) -> FakeCard:
        card = self._card(handle)
        self.fail(0 if card.mig is not None and card.mig[0] else pynvml.NVML_ERROR_NOT_SUPPORTED)
        return card

    def _supported(self, value: Any) -> Any:
        self.fail(pynvml.NVML_ERROR_NOT_SUPPORTED if value is None else 0)
        return value

    def _processes(self, handle: Any, kind: str) -> list[Any]:
        found = self._find(handle, FakeCard, _MigDevice)
        card = found if isinstance(found, FakeCard) else found.compute.gpu_instance.card
        self.fail(card.error)
        if isinstance(found, FakeCard):
            self.fail(pynvml.NVML_ERROR_NO_PERMISSION if card.hides_processes else 0)
            owners = {process[1] for process in card.processes}
        else:
            owners = {found.compute.gpu_instance.id}
            self.fail(pynvml.NVML_ERROR_NO_PERMISSION if owners & card.secretive else 0)
        return [
            SimpleNamespace(pid=pid, usedGpuMemory=0, gpuInstanceId=gpu_instance, computeInstanceId=0)
            for pid, gpu_instance, of_kind in card.processes
            if of_kind == kind and gpu_instance in owners
        ]

    def _in_use_by_events(self, card: FakeCard) -> bool:
        sets = [each for each in self._handles.values() if isinstance(each, _Events)]
        return card.events_are_use and any(card in each.cards for each in sets)

    def _of_card(self, card: FakeCard) -> Any:
        return self._handle(CARDS, card, pynvml.c_nvmlDevice_t)

    def _handle(self, kind: int, thing: object, pointer: Any) -> Any:
        number = next((key for key, each in self._handles.items() if each is thing), kind + 16 * len(self._handles))
        while self._handles.get(number, thing) is not thing:
            number += 16
        self._handles[number] = thing
        return cast(c_void_p(number), pointer)

    def _find(self, handle: Any, *kinds: Any) -> Any:
        found = self._handles.get(_value(handle))
        self.fail(0 if isinstance(found, kinds) else pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return found


class _Events:
    def __init__(self) -> None:
        self.cards: list[FakeCard] = []
        self.waiting: deque[tuple[FakeCard, int]] = deque()


class _MigDevice:
    def __init__(self, compute: FakeComputeInstance) -> None:
        self.compute = compute


@contextmanager
def hanging(nvml: FakeNvml) -> Iterator[None]:
    """Within it no call to the driver comes back."""
    nvml.hangs.clear()
    try:
        yield
    finally:
        nvml.hangs.set()


def _value(handle: Any) -> int:
    return cast(handle, c_void_p).value or 0
