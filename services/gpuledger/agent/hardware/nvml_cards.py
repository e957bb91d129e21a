"""The properties of each card in NVML, merged with what the PCI bus shows."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from gpuledger.agent.hardware.api import CardFacts
from gpuledger.agent.hardware.errors import DriverMissingError, HardwareError
from gpuledger.agent.hardware.nvml_calls import Handle, Nvml, describing, translating_errors
from gpuledger.agent.hardware.nvml_mig import instances_of, mig_modes, supported_profiles
from gpuledger.agent.hardware.nvml_nvlink import link_peers
from gpuledger.agent.hardware.sysfs import PciCard, pci_address

BYTES_PER_MIB: Final = 1 << 20
NVIDIA_KERNEL_DRIVER: Final = "nvidia"


class CardScan(NamedTuple):
    """All cards by address, and the addresses of those that are bound to the driver but do not answer."""

    cards: tuple[CardFacts, ...]
    silent: frozenset[str]


def find_cards(nvml: Nvml, bus: Mapping[str, PciCard]) -> CardScan:
    """Scan every card; one that does not answer has only what the bus shows.

    Raises:
        DriverMissingError: the driver went away meanwhile.
    """
    responses = dict(_queried(nvml, bus))
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


def _queried(nvml: Nvml, bus: Mapping[str, PciCard]) -> Iterator[tuple[str, CardFacts]]:
    with translating_errors(nvml, "Counting the cards"):
        count = nvml.nvmlDeviceGetCount()
    for index in range(count):
        try:
            with translating_errors(nvml, f"Querying card {index}"):
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                bus_facts = _bus_facts(nvml, handle, bus)
        except DriverMissingError:
            raise
        except HardwareError:
            continue  # the bus shows the rest
        if bus_facts is not None:
            yield bus_facts.address, _facts(nvml, handle, bus_facts)


def _bus_facts(nvml: Nvml, handle: Handle, bus: Mapping[str, PciCard]) -> CardFacts | None:
    """What the bus shows of a card; where sysfs does not show it, what NVML knows of the bus."""
    pci = nvml.nvmlDeviceGetPciInfo_v3(handle)
    address = pci_address(pci.busId)
    if address is None or address in bus:
        return bus[address].facts if address is not None else None
    return CardFacts(address, f"{pci.pciDeviceId & 0xFFFF:04x}", f"{pci.pciDeviceId >> 16:04x}")


def _facts(nvml: Nvml, handle: Handle, bus_facts: CardFacts) -> CardFacts:
    try:
        with translating_errors(nvml, f"Querying the card {bus_facts.address}"):
            return _with_mig(nvml, handle, _with_properties(nvml, handle, bus_facts))
    except DriverMissingError:
        raise
    except HardwareError:
        return bus_facts


def _with_properties(nvml: Nvml, handle: Handle, bus_facts: CardFacts) -> CardFacts:
    memory = describing(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    compute = describing(nvml, nvml.nvmlDeviceGetCudaComputeCapability, handle)
    return bus_facts._replace(
        uuid=nvml.nvmlDeviceGetUUID(handle),
        serial=_text(describing(nvml, nvml.nvmlDeviceGetSerial, handle)),
        product=_text(describing(nvml, nvml.nvmlDeviceGetName, handle)),
        memory_mib=memory.total // BYTES_PER_MIB if memory is not None else None,
        compute=tuple(compute) if compute is not None else None,
        nvlinks=link_peers(nvml, handle),
    )


def _with_mig(nvml: Nvml, handle: Handle, card: CardFacts) -> CardFacts:
    modes = mig_modes(nvml, handle)
    if modes is None or card.uuid is None:
        return card
    supported = supported_profiles(nvml, handle)
    return card._replace(
        mig_enabled=modes.enabled,
        mig_pending=modes.pending != modes.enabled,
        profiles=tuple(each.profile for each in supported),
        instances=instances_of(nvml, handle, card.uuid, supported) if modes.enabled else (),
    )


def _text(value: str | None) -> str | None:
    return (value or "").strip() or None
