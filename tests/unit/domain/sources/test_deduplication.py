"""The numbers seen of a source."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.sources.deduplication import HOLES_MAX, HolesError, Numbers, Seen


@given(st.lists(st.integers(1, 60)))
def test_equals_a_plain_set(numbers: list[int]) -> None:
    seen, model = Numbers(), set[int]()
    for number in numbers:
        assert seen.add(number) == (number not in model)
        model.add(number)
    assert {number for number in range(70) if number in seen} == model
    holes = {number for first, last in seen.holes for number in range(first, last + 1)}
    assert holes == set(range(1, seen.last + 1)) - model
    assert all(one[1] + 1 < other[0] for one, other in zip(seen.holes, seen.holes[1:], strict=False))


@given(st.lists(st.integers(1, 40)), st.integers(1, 45))
def test_opens_hole_predicts_whether_a_hole_will_open(numbers: list[int], number: int) -> None:
    seen = Numbers()
    for earlier in numbers:
        seen.add(earlier)
    before, opens = len(seen.holes), seen.opens_hole(number)
    seen.add(number)
    assert opens == (len(seen.holes) > before)


@given(st.permutations(range(1, 30)))
def test_any_order_closes_up(numbers: list[int]) -> None:
    seen = Numbers()
    for number in numbers:
        seen.add(number)
    assert seen == Numbers(29)


def test_a_loss_costs_one_hole_however_much_follows() -> None:
    seen = Numbers()
    for number in (1, 2, *range(4, 10_000)):
        seen.add(number)
    assert (seen.last, seen.holes) == (9_999, [(3, 3)])


def test_what_would_leave_too_many_holes_is_not_noted() -> None:
    seen = Seen({("/nodes/a/agent", "e"): Numbers(2 * HOLES_MAX, [(n, n) for n in range(1, 2 * HOLES_MAX, 2)])})
    with pytest.raises(HolesError, match="begin a new epoch"):
        seen.add("/nodes/a/agent", "e", 2 * HOLES_MAX + 2)
    assert seen.take_changes() == []
    assert not seen.add("/nodes/a/agent", "e", 2)
    assert seen.add("/nodes/a/agent", "e", 1)
    assert seen.add("/nodes/a/agent", "e", 2 * HOLES_MAX + 2)


def test_changes_are_reported_once() -> None:
    seen = Seen()
    assert seen.add("/nodes/a/agent", "e", 2)
    assert not seen.add("/nodes/a/agent", "e", 2)
    assert seen.take_changes() == [("/nodes/a/agent", "e", 2, [(1, 1)])]
    assert seen.take_changes() == []
