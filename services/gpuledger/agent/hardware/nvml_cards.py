"""The properties of each card in NVML, merged with what the PCI bus shows.

What cannot change is queried once (`nvml_card_cache`), because surveys are frequent and a driver takes locks.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from gpuledger.agent.hardware.api import CardFacts
from gpuledger.agent.hardware.errors import DriverMissingError, HardwareError
from gpuledger.agent.hardware.nvml_calls import BYTES_PER_MIB, Description, Handle, Nvml, describing, translating_errors
from gpuledger.agent.hardware.nvml_card_cache import CachedCard, CardCache
from gpuledger.agent.hardware.nvml_mig import Modes, SupportedProfile, instances_of, mig_modes
from gpuledger.agent.hardware.nvml_mig_profiles import profiles_of_model, supported_profiles
from gpuledger.agent.hardware.sysfs import PciCard
from gpuledger.domain.pci import pci_address

NVIDIA_KERNEL_DRIVER: Final = "nvidia"


class CardScan(NamedTuple):
    """All cards by address, and the addresses of those that are bound to the driver but do not answer."""

    cards: tuple[CardFacts, ...]
    silent: frozenset[str]


def find_cards(nvml: Nvml, bus: Mapping[str, PciCard], cache: CardCache) -> CardScan:
    """Scan every card; one that does not answer has only what the bus shows.

    Raises:
        DriverMissingError: the driver went away meanwhile.
    """
    responses = dict(_queried(nvml, bus, cache))
    cards = {address: card.facts for address, card in bus.items()} | {card.address: card for card in responses.values()}
    bound = {address for address, card in bus.items() if card.driver == NVIDIA_KERNEL_DRIVER}
    answering = {address for address, card in responses.items() if card.uuid is not None}
    return CardScan(
        tuple(cards[address] for address in sorted(cards)), frozenset((bound | responses.keys()) - answering)
    )


def handle_of(nvml: Nvml, address: str) -> Handle:
    """NVML's handle of the card at a PCI address; raises NVML's own error where there is none."""
    return nvml.nvmlDeviceGetHandleByPciBusId(address)


def address_of(nvml: Nvml, handle: Handle) -> str | None:
    """The PCI address of a card, in Linux's form."""
    return pci_address(nvml.nvmlDeviceGetPciInfo_v3(handle).busId)


def _queried(nvml: Nvml, bus: Mapping[str, PciCard], cache: CardCache) -> Iterator[tuple[str, CardFacts]]:
    with translating_errors(nvml, "Counting the cards"):
        count = nvml.nvmlDeviceGetCount()
    cache.begin_survey(count, bus)
    for index in range(count):
        try:
            with translating_errors(nvml, f"Querying card {index}"):
                card = cache.by_index(index) or _enumerated(nvml, index, bus)
        except DriverMissingError:
            raise
        except HardwareError:
            continue  # the bus shows the rest
        if card is not None:
            cache.put(index, card)
            yield card.bus_facts.address, _facts(nvml, card, cache)


def _enumerated(nvml: Nvml, index: int, bus: Mapping[str, PciCard]) -> CachedCard | None:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    bus_facts = _bus_facts(nvml, handle, bus)
    return CachedCard(handle, bus_facts) if bus_facts is not None else None


def _bus_facts(nvml: Nvml, handle: Handle, bus: Mapping[str, PciCard]) -> CardFacts | None:
    """What the bus shows of a card; where sysfs does not show it, what NVML knows of the bus."""
    pci = nvml.nvmlDeviceGetPciInfo_v3(handle)
    address = pci_address(pci.busId)
    if address is None or address in bus:
        return bus[address].facts if address is not None else None
    return CardFacts(address, f"{pci.pciDeviceId & 0xFFFF:04x}", f"{pci.pciDeviceId >> 16:04x}")


def _facts(nvml: Nvml, card: CachedCard, cache: CardCache) -> CardFacts:
    try:
        with translating_errors(nvml, f"Querying the card {card.bus_facts.address}"):
            return _with_mig(nvml, card, _properties(nvml, card))
    except DriverMissingError:
        raise
    except HardwareError:
        cache.forget(card.bus_facts.address)
        return card.bus_facts


def _properties(nvml: Nvml, card: CachedCard) -> CardFacts:
    """The properties of a card. Its memory is queried each time: a card that is lost answers this no more."""
    memory = describing(nvml, nvml.nvmlDeviceGetMemoryInfo, card.handle)
    properties = card.properties or _described(nvml, card)
    return properties._replace(memory_mib=memory.total // BYTES_PER_MIB if memory is not None else None)


def _described(nvml: Nvml, card: CachedCard) -> CardFacts:
    """The properties that never change, which are kept unless one of them could not be queried."""
    description, handle = Description(nvml), card.handle
    compute = description.get(nvml.nvmlDeviceGetCudaComputeCapability, handle)
    described = card.bus_facts._replace(
        uuid=nvml.nvmlDeviceGetUUID(handle),
        serial=_text(description.get(nvml.nvmlDeviceGetSerial, handle)),
        product=_text(description.get(nvml.nvmlDeviceGetName, handle)),
        compute=tuple(compute) if compute is not None else None,
        minor=description.get(nvml.nvmlDeviceGetMinorNumber, handle),
        module_id=description.get(nvml.nvmlDeviceGetModuleId, handle),
    )
    card.properties = described if description.complete else None
    return described


def _with_mig(nvml: Nvml, card: CachedCard, facts: CardFacts) -> CardFacts:
    """The properties that may change at any time: the card's links, its MIG mode and its instances."""
    modes = mig_modes(nvml, card.handle)
    facts = facts._replace(nvlinks=card.links.survey(nvml, card.handle, modes))
    if modes is None or facts.uuid is None:
        return facts
    supported = _supported(nvml, card, modes)
    return facts._replace(
        mig_enabled=modes.enabled,
        mig_pending=modes.pending != modes.enabled,
        profiles=tuple(each.profile for each in supported),
        instances=instances_of(nvml, card.handle, facts.uuid, supported) if modes.enabled else (),
    )


def _supported(nvml: Nvml, card: CachedCard, modes: Modes) -> tuple[SupportedProfile, ...]:
    """The profiles of a card, which depend on its MIG mode: some drivers tell them only while that is on."""
    if modes in card.profiles:
        return card.profiles[modes]
    places = Description(nvml)
    found = supported_profiles(nvml, card.handle, places)
    found = found or (() if modes.enabled else profiles_of_model(nvml, card.handle))
    if places.complete:
        card.profiles[modes] = found
    return found


def _text(value: str | None) -> str | None:
    return (value or "").strip() or None
