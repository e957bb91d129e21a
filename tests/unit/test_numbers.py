"""The numbers seen of a source."""

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.numbers import Numbers, Seen


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


def test_changes_are_told_once() -> None:
    seen = Seen()
    assert seen.add("/nodes/a/agent", "e", 2)
    assert not seen.add("/nodes/a/agent", "e", 2)
    assert seen.take_changes() == [("/nodes/a/agent", "e", 2, [(1, 1)])]
    assert seen.take_changes() == []
