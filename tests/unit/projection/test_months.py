"""Rows by month: each time has one month, months do not overlap, and a name says which it is."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.projection.months import ANY_MONTH, BEFORE, BEHIND, Month, month_named, months_of, partition_of

TABLE = "some_table"
times = st.datetimes(timezones=st.just(UTC))


def month_of(at: datetime) -> Month:
    (found,) = months_of([at])
    return found


def has(month: Month, at: datetime) -> bool:
    return (month.begins is None or month.begins <= at) and (month.ends is None or at < month.ends)


@given(first=times, second=times)
def test_each_time_is_in_its_month_and_in_no_other(first: datetime, second: datetime) -> None:
    assert has(month_of(first), first)
    assert has(month_of(first), second) == (month_of(first) == month_of(second))


@given(at=times)
def test_a_name_says_which_month_it_is(at: datetime) -> None:
    month = month_of(at)
    assert month_named(TABLE, partition_of(TABLE, month)) == month


def test_names_are_those_that_people_look_for() -> None:
    assert partition_of(TABLE, month_of(datetime(2026, 1, 31, 23, 59, 59, tzinfo=UTC))) == "some_table_2026_01"
    assert partition_of(TABLE, month_of(datetime(2025, 12, 1, tzinfo=UTC))) == "some_table_2025_12"
    assert partition_of(TABLE, BEFORE) == "some_table_before_2020"
    assert partition_of(TABLE, BEHIND) == "some_table_from_2100"


def test_a_month_is_one_of_utc_wherever_the_time_was_noted() -> None:
    ahead = timezone(timedelta(hours=3))
    assert month_of(datetime(2026, 2, 1, 2, 0, tzinfo=ahead)) == month_of(datetime(2026, 1, 31, 23, 0, tzinfo=UTC))


def test_whatever_times_come_there_are_few_months() -> None:
    every = [datetime(year, month, 1, tzinfo=UTC) for year in range(1, 9999, 7) for month in range(1, 13)]
    assert len(months_of(every)) <= 12 * 80 + 2


@pytest.mark.parametrize(
    "name", [f"{TABLE}_{ANY_MONTH}", f"{TABLE}_2026_13", f"{TABLE}_2026_00", f"{TABLE}_1999_01", "other_2026_01", TABLE]
)
def test_another_name_is_no_month(name: str) -> None:
    assert month_named(TABLE, name) is None
