"""The free units that suit a container best, on real machines' topologies."""

from collections.abc import Sequence

import pytest

from gpuledger.agent.board import DeviceUnit
from gpuledger.agent.hardware.api import CardFacts
from gpuledger.agent.plugin.affinity import Affinity, nearness
from gpuledger.agent.plugin.preferred import preferred
from support.kubelet_parts import address, card, slices, whole_cards

PAIRED = [
    card(index, numa_node=index // 4, pci_path=(f"root{index // 4}", f"bridge{index // 2}")) for index in range(8)
]
"""Eight cards, two behind each bridge, four to a NUMA node."""

BRIDGED = [card(index, nvlinks=(address(index ^ 1),) * 4) for index in range(4)]
"""Four cards, of which 0 and 1, and 2 and 3, are linked."""

SWITCHED = [card(index, nvlinks=("0000:c0:00.0",) * 2 if index % 2 else ()) for index in range(4)]
"""Four cards, of which 1 and 3 share a switch."""


def chosen(
    units: Sequence[DeviceUnit],
    cards: Sequence[CardFacts],
    size: int,
    *,
    taken: Sequence[str] = (),
    must: Sequence[str] = (),
) -> list[str]:
    available = [unit.id for unit in units if unit.id not in taken]
    return list(preferred(units, cards, available, must, size))


def ids(*indexes: int) -> list[str]:
    return [f"GPU-{index}" for index in indexes]


@pytest.mark.parametrize(
    ("cards", "taken", "must", "size", "expected"),
    [
        (PAIRED, [], [], 1, [0]),
        (PAIRED, [5], [], 1, [4]),
        (PAIRED, [5], [], 2, [6, 7]),
        (PAIRED, [], [], 4, [0, 1, 2, 3]),
        (PAIRED, [0], [], 4, [4, 5, 6, 7]),
        (PAIRED, [0, 2], [], 2, [4, 5]),
        (PAIRED, [], [3], 2, [2, 3]),
        (PAIRED, [], [3, 5], 2, [3, 5]),
        (PAIRED, [], [3, 5], 1, [3]),
        (PAIRED, [], [], 9, list(range(8))),
        (PAIRED, [], [], 0, []),
        (PAIRED, [], [], -1, []),
        (BRIDGED, [], [], 2, [0, 1]),
        (BRIDGED, [0], [], 2, [2, 3]),
        (BRIDGED, [0], [], 1, [1]),
        (BRIDGED, [], [2], 2, [2, 3]),
        (SWITCHED, [], [], 2, [1, 3]),
        (SWITCHED, [], [], 1, [0]),
        ([], [], [], 2, [0, 1]),
    ],
)
def test_whole_cards_that_are_near_each_other_go_together(
    cards: list[CardFacts], taken: list[int], must: list[int], size: int, expected: list[int]
) -> None:
    units = whole_cards(*range(len(cards) or 4))
    assert chosen(units, cards, size, taken=ids(*taken), must=ids(*must)) == ids(*expected)


@pytest.mark.parametrize(
    ("taken", "must", "size", "expected"),
    [
        ([], [], 1, ["GPU-0::0"]),
        (["GPU-0::0"], [], 1, ["GPU-1::0"]),
        (["GPU-0::0", "GPU-1::1"], [], 1, ["GPU-2::0"]),
        (["GPU-1::0"], [], 2, ["GPU-0::0", "GPU-2::0"]),
        ([], [], 3, ["GPU-0::0", "GPU-1::0", "GPU-2::0"]),
        ([], [], 4, ["GPU-0::0", "GPU-0::1", "GPU-1::0", "GPU-2::0"]),
        ([], ["GPU-0::1"], 2, ["GPU-0::1", "GPU-1::0"]),
        (["GPU-1::0", "GPU-1::1", "GPU-1::2"], [], 3, ["GPU-0::0", "GPU-0::1", "GPU-2::0"]),
    ],
)
def test_slices_are_spread_over_cards(taken: list[str], must: list[str], size: int, expected: list[str]) -> None:
    units = slices(0, 3) + slices(1, 3) + slices(2, 3)
    assert chosen(units, [card(index) for index in range(3)], size, taken=taken, must=must) == expected


def test_unknown_ids_come_last() -> None:
    assert preferred(whole_cards(5), [], ["odd", "GPU-5"], [], 1) == ("GPU-5",)
    assert preferred(whole_cards(5), [], ["odd", "GPU-5"], [], 2) == ("GPU-5", "odd")


def test_links_count_more_than_numa_nodes_and_those_more_than_bridges() -> None:
    cards = [
        card(0, numa_node=0, pci_path=("a", "b"), nvlinks=(address(1),)),
        card(1, numa_node=1, nvlinks=(address(0),)),
        card(2, numa_node=0),
        card(3, pci_path=("a", "b", "c")),
    ]
    found = [Affinity(cards).between(address(0), address(index)) for index in (1, 2, 3)]
    assert found == [nearness(links=1), nearness(numa=1), nearness(bridges=2)]
    assert found == sorted(found, reverse=True)


def test_a_card_between_two_others_is_no_switch() -> None:
    cards = [card(0, nvlinks=(address(1),)), card(1), card(2, nvlinks=(address(1),))]
    assert Affinity(cards).between(address(0), address(2)) == 0


def test_a_full_node_of_many_cards_is_soon_decided() -> None:
    units = tuple(unit for index in range(200) for unit in slices(index, 2))
    cards = [card(index, numa_node=index % 2) for index in range(200)]
    assert len(chosen(units, cards, 150)) == 150
