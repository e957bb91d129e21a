"""Where the cards and network cards of a simulated node sit that shares its devices. Pure.

Two neighbours share a PCIe switch with one network card, and two NUMA nodes share the switches. The bridges are in a
PCI domain of their own, so that no address of theirs is a card's.
"""

from typing import Any, Final

from gpuledger.events.node_sharing import Nic

CARDS_PER_SWITCH: Final = 2
_BUSES_PER_SWITCH: Final = 0x10
_NIC_PORT: Final = 2


def place_of_card(slot: int, slots: int) -> dict[str, Any]:
    """The fields of a `Card` that say where it sits, and its minor."""
    switch = slot // CARDS_PER_SWITCH
    numa = _numa_node(switch, slots)
    path = (*_to_switch(switch), _port(switch, slot % CARDS_PER_SWITCH))
    return {"minor": slot, "module_id": slot + 1, "numa_node": numa, "socket": numa, "pci_path": path}


def nics(slots: int) -> tuple[Nic, ...]:
    """The network cards of a node with so many slots, one at each switch, with two virtual functions each."""
    return tuple(_nic(switch, slots) for switch in range(-(-slots // CARDS_PER_SWITCH)))


def _nic(switch: int, slots: int) -> Nic:
    address, numa = f"0001:{switch * _BUSES_PER_SWITCH + 5:02x}:00.", _numa_node(switch, slots)
    return Nic(
        name=f"mlx5_{switch}",
        pci_address=f"{address}0",
        active=True,
        numa_node=numa,
        socket=numa,
        pci_path=(*_to_switch(switch), _port(switch, _NIC_PORT)),
        functions=(f"{address}1", f"{address}2"),
    )


def _numa_node(switch: int, slots: int) -> int:
    return int(switch * CARDS_PER_SWITCH * 2 >= slots > CARDS_PER_SWITCH)


def _to_switch(switch: int) -> tuple[str, str]:
    bus = switch * _BUSES_PER_SWITCH
    return f"0001:{bus:02x}:01.0", f"0001:{bus + 1:02x}:00.0"


def _port(switch: int, number: int) -> str:
    return f"0001:{switch * _BUSES_PER_SWITCH + 2:02x}:{number:02x}.0"
