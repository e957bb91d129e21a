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


def of_counters(name: str, *sets: str, count: int = 2) -> Slice:
    return slice_of(
        name,
        published(pool="p", count=count, reach=ANYWHERE, counter_sets=tuple(counters(one, memory="4") for one in sets)),
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
        ([made("a", 1, 3, HERE, GPU), made("b", 1, 3, HERE, GPU)], ["device gpu-0 appears in both a and b"]),
        ([made("a", 1, 2, HERE, GPU, GPU)], ["device gpu-0 appears twice in a"]),
        ([made("a", 1, 1, HERE, GPU), made("b", 1, 1, HERE, GPU)], ["device gpu-0 appears in both a and b"]),
        ([made("a", 1, 3, HERE, GPU), made("b", 1, 3, THERE, GPU)], []),
        ([made("a", 2, 1, HERE, GPU), made("b", 1, 1, HERE, GPU)], []),
        ([made("a", 1, 2, HERE, NEEDS)], []),
        (
            [made("a", 1, 3, HERE, partition("part-0", cores="1")), of_counters("b", "gpu-0", count=3)],
            ["device part-0 in a consumes the unknown counter gpu-0/cores"],
        ),
        ([made("a", 1, 3, HERE, partition("part-0", "gpu-1", m="1")), of_counters("b", "gpu-0", count=3)], []),
        (
            [of_counters("a", "gpu-0", count=3), of_counters("b", "gpu-0", count=3)],
            ["counter set gpu-0 appears in both a and b"],
        ),
    ],
)
def test_what_makes_a_pool_invalid(slices: list[Slice], problems: list[str]) -> None:
    for given in (slices, slices[::-1]):
        view = seen(*given)
        assert list(view.problems) == problems
        assert view.is_valid is (not problems or not view.is_complete)
        assert view.gives is (not problems and view.is_complete)


def test_a_name_in_very_many_slices_is_reported_once() -> None:
    problems = seen_everywhere([made(f"s{number}", 1, 40, ANYWHERE, GPU) for number in range(40)]).problems
    assert len(problems) == 1


def test_one_that_counts_twice_is_in_three_slices() -> None:
    """Who disagrees on how many slices there are: the first by name is believed."""
    assert [seen(made("a", 1, count), made("b", 1, 1)).expected for count in (1, 2)] == [1, 2]


OF_TWO = "2 slices of generation 1 are there, and no more than 1 announced"


@pytest.mark.parametrize(
    ("slices", "errors", "is_consistent", "gives"),
    [
        ([made("a")], [], True, True),
        ([made("a", 1, 2)], [], None, False),
        ([made("a", 1, 2), made("b", 1, 2)], [], True, True),
        ([made("a"), made("b")], [OF_TWO], False, False),
        ([made("a", 2), made("b", 1)], ["slice b is of generation 1, the pool is of generation 2"], False, True),
        ([made("a", 2, 2), made("b", 1)], ["slice b is of generation 1, the pool is of generation 2"], None, False),
        (
            [made("a", 3), made("b", 1), made("c", 2), made("d", 1)],
            [
                "slices b, d are of generation 1, the pool is of generation 3",
                "slice c is of generation 2, the pool is of generation 3",
            ],
            False,
            True,
        ),
        (
            [made("z", 2), *(made(name, 1) for name in "abcde")],
            ["slices a, b, c and 2 more are of generation 1, the pool is of generation 2"],
            False,
            True,
        ),
        (
            [made("a", 1, 2), made("b", 1, 3)],
            ["the slices announce different numbers of slices: 2 by slice a; 3 by slice b"],
            False,
            True,
        ),
        (
            [made("a", 1, 3), made("b", 1, 2)],
            ["the slices announce different numbers of slices: 2 by slice b; 3 by slice a"],
            False,
            False,
        ),
        (
            [made("a", 1, 1), made("b", 1, 2), made("c", 1, 1)],
            [
                "the slices announce different numbers of slices: 1 by slices a, c; 2 by slice b",
                "3 slices of generation 1 are there, and no more than 2 announced",
            ],
            False,
            False,
        ),
        ([made("a", 2, 1), made("b", 1, 7)], ["slice b is of generation 1, the pool is of generation 2"], False, True),
        ([made("a", 1), made("b", 2, 1, THERE)], [], True, True),
        ([made("a", 1), made("b", 1, 5, THERE)], [], True, True),
        (
            [made("a", 1, 2), made("b", 2, 1, THERE)],
            ["slice a is of generation 1, the pool is of generation 2"],
            False,
            False,
        ),
    ],
)  # fmt: skip
def test_slices_that_disagree_about_their_pool(
    slices: list[Slice], errors: list[str], is_consistent: bool | None, gives: bool
) -> None:
    """The allocator takes devices of the newest slices, whatever others there are and whatever they announce."""
    for given in (slices, slices[::-1]):
        view = seen(*given)
        assert (list(view.errors), view.is_consistent, view.gives) == (errors, is_consistent, gives)
        assert view.problems == ()


def test_a_contradiction_is_one_whatever_is_still_missing() -> None:
    view = seen(made("a", 2, 3, HERE, GPU), made("b", 2, 3, HERE, GPU), made("c", 1, 3, HERE, GPU))
    assert view.errors == (
        "device gpu-0 appears in both a and b",
        "slice c is of generation 1, the pool is of generation 2",
    )
    assert (view.is_consistent, view.is_valid, view.gives) == (False, True, False)
