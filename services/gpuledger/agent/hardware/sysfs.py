"""What the PCI bus shows of a node's cards in sysfs, with or without a driver.

It only reads sysfs, and must call no driver.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from gpuledger.agent.hardware.api import CardFacts
from gpuledger.domain.pci import pci_address

SYSFS: Final = Path("/sys")
VENDOR: Final = "10de"
"""NVIDIA's PCI vendor id."""

DISPLAY_CONTROLLER: Final = "03"
"""The prefix of display controllers' PCI class codes: 0300 has a monitor, 0302 has none (PCI Code and ID)."""

PHYSICAL_FUNCTION: Final = "physfn"
"""The kernel's link from a virtual function of SR-IOV to its card."""


class PciCard(NamedTuple):
    """A card on the bus, and the kernel driver that it is bound to, if any."""

    facts: CardFacts
    driver: str | None = None


def pci_cards(root: Path = SYSFS) -> Mapping[str, PciCard]:
    """NVIDIA's display controllers on the bus, by address; none where sysfs shows no bus."""
    return {card.facts.address: card for card in _cards(root / "bus" / "pci" / "devices")}


def _cards(devices: Path) -> Iterator[PciCard]:
    try:
        folders = sorted(devices.iterdir())
    except OSError:
        return
    for folder in folders:
        card = _card(folder)
        if card is not None:
            yield card


def _card(folder: Path) -> PciCard | None:
    """The card in a device's folder; None for another device, or one that is just leaving the bus.

    A virtual function, which a host gives to a virtual machine (`physfn`), is no card.
    """
    address = pci_address(folder.name)
    vendor, pci_class = _hexadecimal(folder / "vendor"), _hexadecimal(folder / "class")
    device = _hexadecimal(folder / "device")
    if address is None or device is None or pci_class is None or vendor != VENDOR:
        return None
    if not pci_class.startswith(DISPLAY_CONTROLLER) or (folder / PHYSICAL_FUNCTION).exists():
        return None
    facts = CardFacts(
        address, vendor, device, pci_class[:4], numa_node=_numa_node(folder), pci_path=_path(folder, address)
    )
    return PciCard(facts, _driver(folder))


def _hexadecimal(file: Path) -> str | None:
    text = _text(file)
    return text.lower().removeprefix("0x") if text else None


def _numa_node(folder: Path) -> int | None:
    """The NUMA node; the kernel has -1 where the machine has none, or does not know it."""
    text = _text(folder / "numa_node")
    return int(text) if text and text.isdecimal() else None


def _path(folder: Path, address: str) -> tuple[str, ...]:
    """The bridges before the card, which its real path names in order, after the root `pci0000:00`."""
    found = (pci_address(part) for part in folder.resolve().parts)
    return tuple(each for each in found if each is not None and each != address)


def _driver(folder: Path) -> str | None:
    link = folder / "driver"
    return link.resolve().name if link.exists() else None


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
