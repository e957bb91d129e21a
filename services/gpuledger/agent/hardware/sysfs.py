"""What the PCI bus shows of a node's cards, with or without a driver: the part of sysfs that the agent reads.

Nothing here asks a driver, and nothing is written.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from gpuledger.agent.hardware.api import CardFacts

SYSFS: Final = Path("/sys")
VENDOR: Final = "10de"
"""NVIDIA's PCI vendor id."""

DISPLAY_CONTROLLER: Final = "03"
"""How PCI class codes of display controllers begin: 0300 is one with a monitor, 0302 one without (PCI Code and ID)."""

PHYSICAL_FUNCTION: Final = "physfn"
"""The kernel's link from a virtual function of SR-IOV to the card that it is a part of."""

_ADDRESS = re.compile(r"([0-9a-fA-F]{1,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])").fullmatch


class PciCard(NamedTuple):
    """A card on the bus, and the kernel driver that it is bound to; None: to none."""

    facts: CardFacts
    driver: str | None = None


def pci_address(text: str) -> str | None:
    """A PCI address as Linux writes it: `00000000:17:00.0` is `0000:17:00.0`, in lower case. None: it is none."""
    match = _ADDRESS(text.strip())
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    return f"{int(domain, 16):04x}:{bus}:{device}.{function}".lower()


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
    """The card that a device's folder shows; None where it is another device, or leaves the bus at this moment.

    A part of a card that a host gives to a virtual machine (`physfn`) is none.
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
    """The NUMA node; the kernel says -1 where the machine has none, or does not tell."""
    text = _text(folder / "numa_node")
    return int(text) if text and text.isdecimal() else None


def _path(folder: Path, address: str) -> tuple[str, ...]:
    """The bridges before the card; the folder's real place names them in their order, after the root `pci0000:00`."""
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
