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
    return {card.facts.address: card for card in _cards(root)}


def _cards(root: Path) -> Iterator[PciCard]:
    for folder in folders_in(root / "bus" / "pci" / "devices"):
        card = _card(root, folder)
        if card is not None:
            yield card


def folders_in(folder: Path) -> list[Path]:
    """What is in a folder, by name; nothing where there is no such folder."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _card(root: Path, folder: Path) -> PciCard | None:
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
        address,
        vendor,
        device,
        pci_class[:4],
        numa_node=numa_node(folder),
        pci_path=bridges_before(folder, address),
        socket=socket(root, folder),
    )
    return PciCard(facts, _driver(folder))


def _hexadecimal(file: Path) -> str | None:
    text = read_text(file)
    return text.lower().removeprefix("0x") if text else None


def numa_node(folder: Path) -> int | None:
    """The NUMA node; the kernel has -1 where the machine has none, or does not know it."""
    text = read_text(folder / "numa_node")
    return int(text) if text and text.isdecimal() else None


def bridges_before(folder: Path, address: str) -> tuple[str, ...]:
    """The bridges before the card, which its real path names in order, after the root `pci0000:00`."""
    found = (pci_address(part) for part in folder.resolve().parts)
    return tuple(each for each in found if each is not None and each != address)


def socket(root: Path, folder: Path) -> int | None:
    """The processor (package) of the first CPU beside a device; None where the kernel does not know it."""
    first = (read_text(folder / "local_cpulist") or "").split(",")[0].split("-")[0]
    topology = root / "devices" / "system" / "cpu" / f"cpu{first}" / "topology"
    text = read_text(topology / "physical_package_id") if first.isdecimal() else None
    return int(text) if text and text.isdecimal() else None


def _driver(folder: Path) -> str | None:
    link = folder / "driver"
    return link.resolve().name if link.exists() else None


def read_text(file: Path) -> str | None:
    """The text of a file of sysfs; None where it cannot be read."""
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
