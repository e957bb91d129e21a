"""What a position is: its texts, its order within a partition, and what cannot be compared."""

from collections.abc import Callable
from operator import ge, gt, le, lt
from typing import Any

import pytest

from gpuledger.events.position import (
    NEVER,
    ORIGIN,
    Position,
    PositionError,
    back,
    can_follow,
    earliest,
    events_up_to,
    halfway,
    is_after,
    is_at_or_after,
    is_origin,
    is_same,
    is_typed,
    lag,
    latest,
    next_after,
    number_of,
    order,
    parse_typed,
)


@pytest.mark.parametrize(
    ("position", "text"),
    [(Position(1, 57), "1/57"), (Position(2, ORIGIN), "2/0"), (Position(3, 40_000, 2), "2/3/40000")],
)
def test_the_text_of_a_position_is_read_back(position: Position, text: str) -> None:
    assert str(position) == text
    assert Position.parse(text) == position


@pytest.mark.parametrize("text", ["", "57", "1/", "/57", "1/2/3/4", "one/57", "1/-57", " 1/57", "1/٣"])
def test_a_text_that_names_no_position_is_refused(text: str) -> None:
    with pytest.raises(PositionError, match="is no position, such as 1/1500"):
        Position.parse(text)


def test_people_may_leave_the_generation_out() -> None:
    assert is_typed("57")
    assert parse_typed("57") == (None, 57)
    assert parse_typed("2/57") == (2, 57)


@pytest.mark.parametrize(
    ("text", "reason"),
    [("1/2/57", "no position"), ("0/57", "out of range"), (str(2**63), "out of range"), ("9" * 99, "too large")],
)
def test_what_no_ledger_holds_cannot_be_typed(text: str, reason: str) -> None:
    with pytest.raises(PositionError, match=reason):
        parse_typed(text)


def test_a_later_generation_comes_after_all_of_the_one_before() -> None:
    assert Position(2, 1).is_after(Position(1, 99))
    assert Position(1, 10).is_after(Position(1, 9))
    assert not Position(1, 9).is_after(Position(1, 9))


@pytest.mark.parametrize("compare", [lt, le, gt, ge])
def test_positions_are_not_compared_as_tuples(compare: Callable[[Any, Any], bool]) -> None:
    with pytest.raises(TypeError, match="1/9 and 1/10 have no order of their own; use `is_after`"):
        compare(Position(1, 9), Position(1, 10))


def test_two_partitions_have_no_common_order() -> None:
    with pytest.raises(PositionError, match="1/9 and 2/1/10 cannot be compared"):
        Position(1, 9).is_after(Position(1, 10, partition=2))


@pytest.mark.parametrize("head", [Position(2, 10), Position(1, 10, partition=1)])
def test_between_two_generations_or_partitions_nothing_is_counted(head: Position) -> None:
    with pytest.raises(PositionError, match="cannot be compared"):
        Position(1, 9).lag(head)


def test_lag_counts_the_events_behind_a_position() -> None:
    assert Position(1, 7).lag(Position(1, 10)) == lag(7, 10) == 3
    assert lag(10, 7) == 0


def test_a_position_is_in_its_generation_and_partition() -> None:
    assert Position(1, 7).is_in(1)
    assert not Position(1, 7).is_in(2)
    assert not Position(1, 7, partition=1).is_in(1)


def test_the_part_of_the_log_is_named_in_words() -> None:
    assert Position(3, 7).part == "generation 3"
    assert Position(3, 7, partition=1).part == "partition 1 of generation 3"


def test_offsets_have_one_order() -> None:
    assert (is_after(2, 1), is_after(1, 1), is_after(1, 2)) == (True, False, False)
    assert (is_at_or_after(2, 1), is_at_or_after(1, 1), is_at_or_after(1, 2)) == (True, True, False)
    assert is_after(NEVER, 2**61)
    assert sorted([3, 1, 2], key=order) == [1, 2, 3]
    assert (earliest(3, 1, 2), latest([3, 1, 2]), latest([])) == (1, 3, ORIGIN)


def test_an_offset_is_the_same_as_itself_alone() -> None:
    assert is_same(7, 7)
    assert is_same(None, None)
    assert not is_same(7, 8)
    assert not is_same(7, None)
    assert is_origin(ORIGIN)
    assert not is_origin(next_after(ORIGIN))


@pytest.mark.parametrize(("at", "whole", "filtered"), [(8, True, True), (9, False, True), (7, False, False)])
def test_a_reader_goes_on_behind_what_it_has(at: int, whole: bool, filtered: bool) -> None:
    assert can_follow(at, 7, is_whole=True) is whole
    assert can_follow(at, 7, is_whole=False) is filtered


def test_steps_stay_within_the_log() -> None:
    assert number_of(next_after(7)) == events_up_to(8)
    assert (back(7, 2), back(7, 9)) == (5, ORIGIN)


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 2), (3, 10)])
def test_a_bisection_comes_nearer_to_the_end(low: int, high: int) -> None:
    middle = halfway(low, high)
    assert is_after(middle, low)
    assert is_at_or_after(high, middle)
