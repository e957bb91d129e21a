"""A node's real cards, through NVIDIA's management library (NVML).

NVML is initialised by the first call that needs it, and again when a driver returns. NVML's own errors stay within the
modules `nvml*`, which raise those of `errors`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from gpuledger.agent.hardware.api import Readings, Survey, Unregistered, Xid
from gpuledger.agent.hardware.errors import BusyError, CardLostError, DriverMissingError, HungError
from gpuledger.agent.hardware.nvml_calls import Description, Handle, Nvml, translating_errors
from gpuledger.agent.hardware.nvml_card_cache import CardCache, Versions
from gpuledger.agent.hardware.nvml_cards import CardScan, find_cards, handle_of
from gpuledger.agent.hardware.nvml_driver import Driver, Load, SilentCards, load_nvml
from gpuledger.agent.hardware.nvml_health import read_health
from gpuledger.agent.hardware.nvml_mig import GpuInstance, find_users, gpu_instances, mig_modes
from gpuledger.agent.hardware.nvml_mig_changes import create, destroy, set_mode
from gpuledger.agent.hardware.nvml_mig_profiles import supported_profiles
from gpuledger.agent.hardware.nvml_nvlink import CardLinks
from gpuledger.agent.hardware.nvml_xids import XidWatch
from gpuledger.agent.hardware.sysfs import SYSFS, PciCard, pci_cards
from gpuledger.domain.mig.geometry import Instance


class NvmlHardware:
    """`api.NodeHardware` of this machine; call `wait_xid` from one thread, and the other methods from another."""

    kind = "nvml"

    def __init__(self, load: Load = load_nvml, *, sysfs: Path = SYSFS) -> None:
        self._sysfs = sysfs
        self._driver = Driver(load)
        self._xids = XidWatch(self._driver)
        self._silent = SilentCards()
        self._cache = CardCache()
        self._active_before: dict[str, frozenset[int]] = {}

    def survey(self) -> Survey:
        """See `NodeHardware.survey`."""
        bus = pci_cards(self._sysfs)
        try:
            return self._survey_bus(bus)
        except DriverMissingError:
            return Survey(tuple(card.facts for card in bus.values()), driver_missing=True)

    def readings(self, address: str) -> Readings:
        """See `NodeHardware.readings`."""
        with self._card(address, "Reading the health of") as (nvml, card):
            before = self._active_before.get(address, frozenset())
            cached = self._cache.at(address)
            links = cached.links if cached is not None else CardLinks()
            readings, self._active_before[address] = read_health(nvml, card, links, before)
            return readings

    def wait_xid(self, timeout_s: float) -> Xid | None:
        """See `NodeHardware.wait_xid`. It waits for cards that a survey has shown."""
        return self._xids.wait(timeout_s)

    def unregistered(self) -> Mapping[str, Unregistered]:
        """See `NodeHardware.unregistered`."""
        return self._xids.unregistered

    def users(self, address: str) -> frozenset[str]:
        """See `NodeHardware.users`."""
        with self._card(address, "Finding the users of") as (nvml, card):
            return find_users(nvml, card, {each.number: each.instance.uuid for each in _gpu_instances_of(nvml, card)})

    def set_mig(self, address: str, *, enabled: bool) -> bool:
        """See `NodeHardware.set_mig`.

        Nothing waits for errors meanwhile: a reset drops the card's registration, and on some cards waiting counts as
        use.
        """
        with self._card(address, "Changing the MIG mode of") as (nvml, card), self._xids.paused():
            self._cache.forget(address)
            return set_mode(nvml, card, enabled=enabled)

    def create_instance(self, address: str, profile: str, start: int) -> Instance:
        """See `NodeHardware.create_instance`."""
        with self._card(address, f"Creating a {profile} at {start} on") as (nvml, card):
            return create(nvml, card, nvml.nvmlDeviceGetUUID(card), profile, start)

    def destroy_instance(self, address: str, uuid: str) -> None:
        """See `NodeHardware.destroy_instance`. An instance whose users are unknown stays."""
        with self._card(address, f"Destroying {uuid} on") as (nvml, card):
            gpu_instance = next((each for each in _gpu_instances_of(nvml, card) if each.instance.uuid == uuid), None)
            if gpu_instance is None:
                return
            if find_users(nvml, card, {gpu_instance.number: uuid}) & {uuid}:
                raise BusyError(f"A process uses {uuid} on {address}; wait until it ends.")
            destroy(nvml, gpu_instance.handle)

    def close(self) -> None:
        """See `NodeHardware.close`. A driver that hangs is released when the process ends."""
        self._xids.close()
        try:
            self._shut_down()
        except HungError:
            return

    def _survey_bus(self, bus: Mapping[str, PciCard]) -> Survey:
        with self._translating("Surveying the cards") as nvml:
            found = find_cards(nvml, bus, self._cache)
        if self._silent.should_reinitialize(found.silent):
            self._shut_down()
            with self._translating("Surveying the cards again") as nvml:
                found = find_cards(nvml, bus, self._cache)
        self._xids.watch(_answering_addresses(found))
        versions = self._versions(nvml)
        return Survey(found.cards, versions.driver, cuda_version(versions.cuda))

    def _versions(self, nvml: Nvml) -> Versions:
        if self._cache.versions is not None:
            return self._cache.versions
        description = Description(nvml)
        with translating_errors(nvml, "Querying the driver's version"):
            driver = description.get(nvml.nvmlSystemGetDriverVersion)
            versions = Versions(driver, description.get(nvml.nvmlSystemGetCudaDriverVersion_v2))
        self._cache.versions = versions if description.complete else None
        return versions

    @contextmanager
    def _card(self, address: str, what: str) -> Iterator[tuple[Nvml, Handle]]:
        try:
            with self._translating(f"{what} {address}") as nvml:
                cached = self._cache.at(address)
                yield nvml, cached.handle if cached is not None else handle_of(nvml, address)
        except CardLostError:
            self._cache.forget(address)
            raise

    @contextmanager
    def _translating(self, what: str) -> Iterator[Nvml]:
        nvml = self._driver.open()
        try:
            with translating_errors(nvml, what):
                yield nvml
        except DriverMissingError:
            self._shut_down()
            raise

    def _shut_down(self) -> None:
        with self._xids.paused():
            self._cache.clear()
            self._xids.forget_refusals()
            self._driver.close()


def _answering_addresses(found: CardScan) -> frozenset[str]:
    return frozenset(card.address for card in found.cards if card.uuid is not None)


def _gpu_instances_of(nvml: Nvml, card: Handle) -> tuple[GpuInstance, ...]:
    """The instances of a card; none while MIG is off."""
    modes = mig_modes(nvml, card)
    if modes is None or not modes.enabled:
        return ()
    return gpu_instances(nvml, card, nvml.nvmlDeviceGetUUID(card), supported_profiles(nvml, card))


def cuda_version(number: int | None) -> str | None:
    """CUDA's version as people write it: NVML's 12040 is `12.4`."""
    return None if number is None else f"{number // 1000}.{number % 1000 // 10}"
