"""What the PCI bus shows of a node's cards."""

from pathlib import Path

import pytest

from gpuledger.agent.hardware.api import CardFacts
from gpuledger.agent.hardware.sysfs import pci_cards
from gpuledger.domain.pci import pci_address
from support.hardware import FIRST, SECOND, put_on_bus


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000000:17:00.0", "0000:17:00.0"),
        ("0000:17:00.0", "0000:17:00.0"),
        ("00000001:CA:1F.7", "0001:ca:1f.7"),
        ("00010000:E1:00.0", "10000:e1:00.0"),
        ("0:2a:00.0\n", "0000:2a:00.0"),
        ("17:00.0", None),
        ("0000:17:00.8", None),
        ("pci0000:00", None),
        ("", None),
        ("FFFFFFFF:FFFF:FF.0", None),
    ],
)
def test_addresses_are_written_as_linux_does(text: str, address: str | None) -> None:
    assert pci_address(text) == address


def test_a_card_without_a_driver(tmp_path: Path) -> None:
    put_on_bus(tmp_path, FIRST, driver=None)
    (card,) = pci_cards(tmp_path).values()
    assert card.driver is None
    assert card.facts == CardFacts(FIRST, "10de", "2330", "0302", numa_node=0, pci_path=("0000:16:01.0",))


def test_the_kernel_driver_is_reported(tmp_path: Path) -> None:
    put_on_bus(tmp_path, FIRST, driver="vfio-pci")
    assert pci_cards(tmp_path)[FIRST].driver == "vfio-pci"


@pytest.mark.parametrize(("text", "numa_node"), [("-1", None), ("1", 1), ("", None), ("many", None)])
def test_numa_nodes(tmp_path: Path, text: str, numa_node: int | None) -> None:
    put_on_bus(tmp_path, FIRST, numa_node=text)
    assert pci_cards(tmp_path)[FIRST].facts.numa_node == numa_node


@pytest.mark.parametrize(
    ("files", "there"),
    [
        ({}, True),
        ({"class": "0x030000"}, True),
        ({"class": "0x068000"}, False),
        ({"class": "0x040300"}, False),
        ({"vendor": "0x1002"}, False),
        ({"vendor": "0x10DE", "device": "0x20B2"}, True),
    ],
)
def test_only_nvidias_display_controllers_are_cards(tmp_path: Path, files: dict[str, str], there: bool) -> None:
    put_on_bus(tmp_path, FIRST, **files)
    assert (FIRST in pci_cards(tmp_path)) is there


def test_virtual_functions_of_a_card_are_no_cards(tmp_path: Path) -> None:
    whole = put_on_bus(tmp_path, FIRST)
    (put_on_bus(tmp_path, f"{FIRST[:-1]}4", driver=None) / "physfn").symlink_to(whole)
    assert list(pci_cards(tmp_path)) == [FIRST]


def test_cards_stand_by_address(tmp_path: Path) -> None:
    put_on_bus(tmp_path, SECOND)
    put_on_bus(tmp_path, FIRST)
    assert list(pci_cards(tmp_path)) == [FIRST, SECOND]


def test_a_card_that_leaves_at_this_moment_is_left_out(tmp_path: Path) -> None:
    (put_on_bus(tmp_path, FIRST) / "device").unlink()
    assert pci_cards(tmp_path) == {}


def test_a_machine_without_a_bus_has_no_cards(tmp_path: Path) -> None:
    assert pci_cards(tmp_path) == {}
