"""What sysfs shows of a node's network cards with RDMA: InfiniBand's and those with RoCE. It needs no driver's library.

Reading and understanding are apart: `read_nics` reads files and links, and `nic_of` makes facts of their texts.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from gpuledger.agent.hardware.api import NicFacts
from gpuledger.agent.hardware.sysfs import (
    PHYSICAL_FUNCTION,
    SYSFS,
    bridges_before,
    folders_in,
    numa_node,
    read_text,
    socket,
)
from gpuledger.domain.pci import pci_address

RDMA_DEVICES: Final = Path("class/infiniband")
_FUNCTION: Final = re.compile(r"virtfn(\d+)").fullmatch
"""The kernel's link to a virtual function of SR-IOV, by its number."""

_ACTIVE: Final = "ACTIVE"


class NicFiles(NamedTuple):
    """What sysfs has of an RDMA device: the PCI device's folder name, its place, and texts.

    `port_states` are such as `4: ACTIVE`; `functions` are names of links with the names of the folders they lead to.
    """

    name: str
    folder: str
    numa_node: int | None
    socket: int | None
    pci_path: tuple[str, ...]
    port_states: tuple[str, ...]
    functions: tuple[tuple[str, str], ...]
    is_virtual: bool = False


def read_nics(root: Path = SYSFS) -> tuple[NicFacts, ...]:
    """The network cards with RDMA, by PCI address; none where sysfs shows none."""
    found = (nic_of(files) for files in _read(root))
    return tuple(sorted((nic for nic in found if nic is not None), key=lambda nic: nic.address))


def nic_of(files: NicFiles) -> NicFacts | None:
    """The facts; None of what is no PCI device, such as software RDMA, and of a virtual function of another card."""
    address = pci_address(files.folder)
    if address is None or files.is_virtual:
        return None
    active = any(state.partition(":")[2].strip() == _ACTIVE for state in files.port_states)
    return NicFacts(
        files.name, address, active, files.numa_node, files.socket, files.pci_path, tuple(_functions(files.functions))
    )


def _functions(links: Sequence[tuple[str, str]]) -> Iterator[str]:
    numbered = [(int(found[1]), folder) for name, folder in links if (found := _FUNCTION(name)) is not None]
    for _, folder in sorted(numbered):
        address = pci_address(folder)
        if address is not None:
            yield address


def _read(root: Path) -> Iterator[NicFiles]:
    for device in folders_in(root / RDMA_DEVICES):
        folder = (device / "device").resolve()
        address = pci_address(folder.name)
        states = (read_text(port / "state") for port in folders_in(device / "ports"))
        links = ((link.name, link.resolve().name) for link in folders_in(folder) if link.name.startswith("virtfn"))
        yield NicFiles(
            device.name,
            folder.name,
            numa_node(folder),
            socket(root, folder),
            () if address is None else bridges_before(folder, address),
            tuple(state for state in states if state is not None),
            tuple(links),
            (folder / PHYSICAL_FUNCTION).exists(),
        )
