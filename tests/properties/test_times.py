"""Whatever is typed is a time, a position or one kind of error; what is shown can be typed again."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuledger.cli.times import TimeFormatError, format_time, parse_as_recorded, parse_position, parse_time

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

# Away from both ends of the calendar, so that every zone can express them.
zones = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
times = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=zones)  # noqa: DTZ001
nearly = st.from_regex(r"[+-]?[0-9]{1,5}[-/wdhmsTZ: .+][0-9TZzwdhms:+. -]{0,30}", fullmatch=True)
texts = st.text() | nearly | st.text("0123456789-+/:.TZzwdhms ")


@given(times)
def test_what_is_written_is_read_back(time: datetime) -> None:
    assert parse_time(format_time(time), NOW) == time


@given(times)
def test_a_time_in_its_own_zone_is_read(time: datetime) -> None:
    assert parse_time(time.isoformat(), NOW) == time
    assert parse_time(time.isoformat(" "), NOW) == time


@given(st.integers(0, 10**9), st.sampled_from("+-"))
def test_a_relative_time_is_that_far_from_now(seconds: int, sign: str) -> None:
    minutes, rest = divmod(seconds, 60)
    distance = parse_time(f"{sign}{minutes}m{rest}s", NOW) - NOW
    assert distance == timedelta(seconds=seconds if sign == "+" else -seconds)


@given(st.none() | st.integers(1, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_a_position_is_read_back(generation: int | None, sequence: int) -> None:
    text = str(sequence) if generation is None else f"{generation}/{sequence}"
    assert parse_position(text) == (generation, sequence)


@pytest.mark.parametrize(
    "parse",
    [
        lambda text: parse_time(text, NOW),
        lambda text: parse_as_recorded(text, NOW),
        parse_position,
    ],
    ids=["time", "as-recorded", "position"],
)
@given(text=texts)
@example(text="-" + "9" * 5000 + "w")
@example(text="9999-12-31T23:59:59-23:59")
@example(text="\udc80")
def test_nothing_but_the_one_error_is_raised(parse: Callable[[str], object], text: str) -> None:
    try:
        parsed = parse(text)
    except TimeFormatError as error:
        parsed = str(error)
    if isinstance(parsed, str):
        assert parsed.isprintable()
    else:
        assert isinstance(parsed, datetime | tuple)
