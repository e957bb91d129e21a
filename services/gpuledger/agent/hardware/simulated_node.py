"""The names and wiring of a simulated node's cards: the same spec, node and seed always give the same. Pure.

Two NUMA nodes share the cards, and two neighbours share a PCIe switch. NVLinks go from card to card where there are
few, and to NVSwitches where there are many; cards without such a board are bridged in pairs.
"""

from hashlib import sha256
from itertools import cycle, islice
from typing import Final, NamedTuple
from uuid import UUID, uuid5

from gpuledger.agent.hardware.api import CardFacts, NicFacts
from gpuledger.agent.hardware.simulated_models import CARDS_MAX, CardModel

PCI_VENDOR: Final = "10de"
PCI_CLASS: Final = "0302"
_MESH_MAX: Final = 4
"""How many cards are linked to each other directly; more need switches."""
_NAMES: Final = UUID("6f1d3f0a-7f3a-4f57-9d52-0c5b8a3f4d11")
_FIRST_BUS, _BUSES_PER_PAIR, _FIRST_SWITCH_BUS = 0x14, 0x1A, 0xF0


class PciSlot(NamedTuple):
    """A slot for a card: NUMA node, PCI address, and the bridges before it, from the processor on."""

    numa_node: int
    address: str
    pci_path: tuple[str, ...]


def node_cards(cards: tuple[CardModel, ...], *, node: str, seed: int) -> tuple[CardFacts, ...]:
    """The properties of each card, by address."""
    slots = [_slot(index, len(cards)) for index in range(len(cards))]
    return tuple(
        _facts(model, slots[index], _nvlink_peers(index, cards, slots), f"{node}/{seed}/{index}")._replace(minor=index)
        for index, model in enumerate(cards)
    )


def node_nics(number: int, cards: int) -> tuple[NicFacts, ...]:
    """As many NICs, one at each PCIe switch of so many cards in turn, each with two virtual functions."""
    switches = max(1, (cards + 1) // 2)
    return tuple(_nic(index, _slot(index % switches * 2, max(1, cards)), index // switches) for index in range(number))


def _nic(index: int, slot: PciSlot, round_number: int) -> NicFacts:
    """A NIC at the switch of a slot, behind further ports of it."""
    root_port, upstream, _ = slot.pci_path
    bus = int(upstream.split(":")[1], 16)
    device = round_number + 2
    address = f"0000:{bus + 3 + device:02x}:00."
    path = (root_port, upstream, f"0000:{bus + 1:02x}:{device:02x}.0")
    return NicFacts(
        f"mlx5_{index}", f"{address}0", active=True, numa_node=slot.numa_node, socket=slot.numa_node, pci_path=path,
        functions=(f"{address}1", f"{address}2"),
    )  # fmt: skip


def uuid_of(of: str, what: str) -> str:
    """A UUID that follows from a name, as the driver's UUIDs of MIG instances do."""
    return f"{what}-{uuid5(_NAMES, of)}"


def _facts(model: CardModel, slot: PciSlot, nvlinks: tuple[str, ...], name: str) -> CardFacts:
    return CardFacts(
        slot.address,
        PCI_VENDOR,
        model.pci_device,
        PCI_CLASS,
        uuid=uuid_of(name, "GPU"),
        serial=str(int(sha256(name.encode()).hexdigest(), 16))[:13],
        product=model.product,
        memory_mib=model.memory_mib,
        compute=model.compute,
        numa_node=slot.numa_node,
        socket=slot.numa_node,
        pci_path=slot.pci_path,
        nvlinks=nvlinks,
        mig_enabled=False if model.profiles else None,
        profiles=model.profiles,
    )


def _slot(index: int, cards: int) -> PciSlot:
    pairs_per_numa_node = (cards + 3) // 4
    numa_node, pair = divmod(index // 2, pairs_per_numa_node)
    bus = _FIRST_BUS + (numa_node * CARDS_MAX // 4 + pair) * _BUSES_PER_PAIR
    port = index % 2
    path = (f"0000:{bus:02x}:01.0", f"0000:{bus + 1:02x}:00.0", f"0000:{bus + 2:02x}:{port:02x}.0")
    return PciSlot(numa_node, f"0000:{bus + 3 + port:02x}:00.0", path)


def _nvlink_peers(index: int, cards: tuple[CardModel, ...], slots: list[PciSlot]) -> tuple[str, ...]:
    """The peer of each link of a card; the links are shared out evenly."""
    model = cards[index]
    board = [other for other, of in enumerate(cards) if of == model]
    if not model.nvlinks or len(board) == 1:
        return ()
    if model.switches and len(board) > _MESH_MAX:
        ends = [f"0000:{_FIRST_SWITCH_BUS + switch:02x}:00.0" for switch in range(model.switches)]
        return tuple(islice(cycle(ends), model.nvlinks))
    if not model.switches:
        board = board[board.index(index) & ~1 :][:2]
    peers = [slots[other].address for other in board if other != index]
    return tuple(islice(cycle(peers), model.nvlinks if peers else 0))
