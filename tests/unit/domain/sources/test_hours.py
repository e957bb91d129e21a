"""The things that a source's events are about are counted once each, however their hashes stand behind each other."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.sources.limits import HASHES_SEARCHED_MAX, LIMITS, SOURCE_HOUR, CountedMessage, Hours, SourceHour
from gpuledger.domain.table import Table

NOW = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)


def count(hours: Hours, *things: str) -> SourceHour:
    return hours.count(CountedMessage("/nodes/n1/agent", NOW, 1, things, begins_epoch=False, is_rejected=False))


hashes = st.integers(0, 200).map(lambda number: f"{number:016x}")


@given(st.lists(st.lists(hashes, max_size=3), max_size=200))
def test_each_counts_once(messages: list[list[str]]) -> None:
    hours, seen = Hours(Table(SOURCE_HOUR)), list[str]()
    for things in messages:
        row = count(hours, *things)
        seen += [one for one in dict.fromkeys(things) if one not in seen]
        assert (row.aggregates, row.hashes) == (len(seen), "".join(seen))


def test_what_stands_across_two_hashes_is_none() -> None:
    hours = Hours(Table(SOURCE_HOUR))
    count(hours, "0123456789abcdef")
    count(hours, "fedcba9876543210")
    assert count(hours, "89abcdeffedcba98").aggregates == 3
    assert count(hours, "fedcba9876543210").aggregates == 3


@pytest.mark.parametrize("before", [HASHES_SEARCHED_MAX - 1, HASHES_SEARCHED_MAX, LIMITS.aggregates])
def test_the_bound_between_text_and_set_changes_nothing(before: int) -> None:
    hours = Hours(Table(SOURCE_HOUR))
    for number in range(before):
        count(hours, f"{number:016x}")
    for number in range(before):
        assert count(hours, f"{number:016x}").aggregates == before
    assert count(hours, f"{before:016x}").aggregates == before + 1
