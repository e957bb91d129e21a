"""Pools as they are seen: which generation counts, whether all slices are there, and whether they agree."""

import pytest

from gpuledger.domain.dra.facts import slice_of
from gpuledger.domain.dra.objects import LabelledNode, Slice
from gpuledger.domain.dra.pools import PoolView, seen_everywhere, seen_from
from gpuledger.events.reach import NodeReach
from gpuledger.events.slice import SliceDevice
from support.dra import ANYWHERE, counters, device, on, partition, published

HERE, THERE = on("n1"), on("n2")


def made(name: str, generation: int = 1, count: int = 1, reach: NodeReach = HERE, *devices: SliceDevice) -> Slice:
    return slice_of(name, published(*devices, pool="p", pool_generation=generation, count=count, reach=reach))


def seen(*slices: Slice) -> PoolView:
    return seen_from(slices, LabelledNode("n1", {}))


@pytest.mark.parametrize(
    ("slices", "expected"),
    [
        ([made("a")], (1, "a", True, True)),
        ([made("a"), made("b")], (1, "a b", False, True)),
        ([made("a", 1, 2)], (1, "a", False, True)),
        ([made("a", 1, 0)], (1, "a", False, True)),
        ([made("a", 1), made("b", 2)], (2, "b", True, True)),
        ([made("a", 2), made("b", 1)], (2, "a", True, True)),
        ([made("a", 1), made("b", 2, 2)], (2, "b", False, True)),
        ([made("a", 1), made("b", 2, 1, THERE)], (1, "a", True, True)),
        ([made("a", 1, 2), made("b", 2, 1, THERE)], (2, "b", True, False)),
        ([made("a", 1, 2), made("b", 1, 2, THERE)], (1, "a b", True, True)),
        ([made("a", 1, 1, THERE)], (1, "a", True, False)),
        ([made("a", 1, 2, ANYWHERE), made("b", 1, 2)], (1, "a b", True, True)),
        ([made("a", 1, 1), made("b", 1, 2)], (1, "a b", False, True)),
    ],
)  # fmt: skip
def test_what_counts_is_the_newest_in_reach(slices: list[Slice], expected: tuple[int, str, bool, bool]) -> None:
    for given in (slices, slices[::-1]):
        view = seen(*given)
        names = " ".join(one.name for one in view.slices)
        assert (view.generation, names, view.is_complete, view.on_node) == expected


@pytest.mark.parametrize(
    ("slices", "is_local"),
    [
        ([made("a")], True),
        ([made("a", 1, 2), made("b", 1, 2, THERE)], False),
        ([made("a", 1, 2)], False),
    ],
)
def test_what_is_complete_nearby_depends_on_nothing_else(slices: list[Slice], is_local: bool) -> None:
    assert seen(*slices).is_local is is_local
    assert not seen_everywhere(slices).is_local


GPU = device("gpu-0")
NEEDS = partition("part-0", memory="1")


def of_counters(name: str, *sets: str) -> Slice:
    return slice_of(
        name,
        published(pool="p", count=2, reach=ANYWHERE, counter_sets=tuple(counters(one, memory="4") for one in sets)),
    )


@pytest.mark.parametrize(
    ("slices", "problems"),
    [
        ([made("a", 1, 2, HERE, GPU), made("b", 1, 2, HERE, GPU)], ["device gpu-0 appears in both a and b"]),
        ([made("a", 1, 1, HERE, GPU, GPU)], ["device gpu-0 appears twice in a"]),
        ([made("a", 1, 2, HERE, GPU), made("b", 1, 2, THERE, GPU)], []),
        ([made("a", 1, 1, HERE, NEEDS)], ["device part-0 in a consumes the unknown counter set gpu-0"]),
        ([made("a", 1, 2, HERE, NEEDS), of_counters("b", "gpu-0")], []),
        ([of_counters("a", "gpu-0"), of_counters("b", "gpu-0")], ["counter set gpu-0 appears in both a and b"]),
        (
            [of_counters("a", "gpu-0", "gpu-0"), made("b", 1, 2)],
            ["counter set gpu-0 appears twice in a"],
        ),
        (
            [made("a", 1, 2, HERE, partition("part-0", cores="1", memory="1")), of_counters("b", "gpu-0")],
            ["device part-0 in a consumes the unknown counter gpu-0/cores"],
        ),
        ([made("a", 1, 3, HERE, GPU), made("b", 1, 3, HERE, GPU)], []),
    ],
)
def test_what_makes_a_pool_invalid(slices: list[Slice], problems: list[str]) -> None:
    for given in (slices, slices[::-1]):
        assert list(seen(*given).problems) == problems
        assert seen(*given).gives is (not problems and seen(*given).is_complete)


def test_a_name_in_very_many_slices_is_reported_once() -> None:
    problems = seen_everywhere([made(f"s{number}", 1, 40, ANYWHERE, GPU) for number in range(40)]).problems
    assert len(problems) == 1


def test_one_that_counts_twice_is_in_three_slices() -> None:
    """Who disagrees on how many slices there are: the first by name is believed."""
    assert [seen(made("a", 1, count), made("b", 1, 1)).expected for count in (1, 2)] == [1, 2]
