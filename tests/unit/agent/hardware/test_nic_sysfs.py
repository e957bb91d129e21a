"""What sysfs shows of network cards with RDMA, and which simulated ones there are."""

from pathlib import Path

import pytest

from gpuledger.agent.hardware.api import NicFacts
from gpuledger.agent.hardware.factory import open_nics
from gpuledger.agent.hardware.nic_sysfs import NicFiles, nic_of, read_nics
from gpuledger.agent.hardware.simulated_models import parse_cards
from gpuledger.agent.hardware.simulated_node import node_cards

ADDRESS = "0000:0a:00.0"
FILES = NicFiles("mlx5_0", ADDRESS, 0, 0, ("0000:08:01.0",), ("4: ACTIVE",), ())


def put_nic(sysfs: Path, name: str = "mlx5_0", *, state: str = "4: ACTIVE", functions: int = 2) -> Path:
    """A NIC in a sysfs, as the kernel's driver of it shows it."""
    folder = sysfs / "devices/pci0000:00/0000:08:01.0" / ADDRESS
    port = folder / "infiniband" / name / "ports" / "1"
    port.mkdir(parents=True)
    (port / "state").write_text(f"{state}\n")
    (folder / "numa_node").write_text("1\n")
    (folder / "local_cpulist").write_text("32-63,96-127\n")
    topology = sysfs / "devices/system/cpu/cpu32/topology"
    topology.mkdir(parents=True)
    (topology / "physical_package_id").write_text("1\n")
    for number in range(functions):
        virtual = folder.parent / f"0000:0a:00.{number + 1}"
        virtual.mkdir()
        (folder / f"virtfn{number}").symlink_to(virtual)
        (virtual / "physfn").symlink_to(folder)
    device = sysfs / "class/infiniband" / name
    device.parent.mkdir(parents=True, exist_ok=True)
    (folder / "infiniband" / name / "device").symlink_to(folder)
    device.symlink_to(folder / "infiniband" / name)
    return folder


def test_a_nic_with_its_place_and_its_functions(tmp_path: Path) -> None:
    put_nic(tmp_path)
    functions = ("0000:0a:00.1", "0000:0a:00.2")
    assert read_nics(tmp_path) == (NicFacts("mlx5_0", ADDRESS, True, 1, 1, ("0000:08:01.0",), functions),)


def test_a_machine_without_any(tmp_path: Path) -> None:
    assert read_nics(tmp_path) == ()


@pytest.mark.parametrize(
    ("states", "active"),
    [
        (("4: ACTIVE",), True),
        (("1: DOWN",), False),
        (("1: DOWN", "4: ACTIVE"), True),
        (("2: INIT",), False),
        (("",), False),
        ((), False),
    ],
)
def test_a_nic_is_active_with_any_of_its_ports(states: tuple[str, ...], active: bool) -> None:
    nic = nic_of(FILES._replace(port_states=states))
    assert nic is not None
    assert nic.active is active


def test_functions_are_in_the_kernels_order_and_what_is_no_function_is_left_out() -> None:
    links = (("virtfn10", "0000:0a:01.2"), ("virtfn2", "0000:0a:00.4"), ("virtfn0", "odd"), ("driver", "mlx5_core"))
    nic = nic_of(FILES._replace(functions=links))
    assert nic is not None
    assert nic.functions == ("0000:0a:00.4", "0000:0a:01.2")


@pytest.mark.parametrize("files", [FILES._replace(folder="rxe0"), FILES._replace(is_virtual=True)])
def test_software_and_virtual_functions_are_no_nics(files: NicFiles) -> None:
    assert nic_of(files) is None


def test_simulated_nics_sit_at_the_switches_of_the_cards() -> None:
    spec = "8xH100,4xNIC"
    nics, cards = open_nics(f"simulated:{spec}")(), node_cards(parse_cards(spec), node="n1", seed=0)
    assert [nic.pci_path[1] for nic in nics] == [card.pci_path[1] for card in cards[::2]]
    assert [nic.numa_node for nic in nics] == [card.numa_node for card in cards[::2]]
    addresses = [*(nic.address for nic in nics), *(card.address for card in cards)]
    assert len(set(addresses)) == len(addresses) == 12
    assert open_nics("simulated:8xH100")() == ()
    assert open_nics("recorded:file")() == ()
