"""Times and positions as people type them, and the errors for other text."""

import io
from datetime import UTC, datetime, timedelta, timezone

import pytest

from gpuledger.cli.errors import CliError, ExitCode, report
from gpuledger.cli.times import (
    TimeFormatError,
    format_time,
    format_times,
    parse_as_recorded,
    parse_position,
    parse_time,
)

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2017-02-07T08:30:15Z", datetime(2017, 2, 7, 8, 30, 15, tzinfo=UTC)),
        ("2017-02-07t08:30:15z", datetime(2017, 2, 7, 8, 30, 15, tzinfo=UTC)),
        ("2017-02-07 08:30:15", datetime(2017, 2, 7, 8, 30, 15, tzinfo=UTC)),
        ("2017-02-07T08:30", datetime(2017, 2, 7, 8, 30, tzinfo=UTC)),
        ("2017-02-07T08:30:15+02:00", datetime(2017, 2, 7, 6, 30, 15, tzinfo=UTC)),
        ("2017-02-07 08:30:15 -05:30", datetime(2017, 2, 7, 14, 0, 15, tzinfo=UTC)),
        ("2017-02-07T08:30:15-00:00", datetime(2017, 2, 7, 8, 30, 15, tzinfo=UTC)),
        ("2017-02-07T08:30:15.5Z", datetime(2017, 2, 7, 8, 30, 15, 500_000, tzinfo=UTC)),
        ("2017-02-07T08:30:15.123456789Z", datetime(2017, 2, 7, 8, 30, 15, 123_456, tzinfo=UTC)),
        ("2017-02-07", datetime(2017, 2, 7, tzinfo=UTC)),
        ("2016-02-29", datetime(2016, 2, 29, tzinfo=UTC)),
        ("0001-01-01", datetime(1, 1, 1, tzinfo=UTC)),
        ("  2017-02-07\n", datetime(2017, 2, 7, tzinfo=UTC)),
        ("now", NOW),
        ("NOW", NOW),
        ("-90s", NOW - timedelta(seconds=90)),
        ("+10m", NOW + timedelta(minutes=10)),
        ("-2h", NOW - timedelta(hours=2)),
        ("-3d", NOW - timedelta(days=3)),
        ("-2w", NOW - timedelta(weeks=2)),
        ("-1h30m", NOW - timedelta(minutes=90)),
        ("+1w2d3h4m5s", NOW + timedelta(weeks=1, days=2, hours=3, minutes=4, seconds=5)),
        ("-0s", NOW),
    ],
)
def test_a_time_is_read_in_utc(text: str, expected: datetime) -> None:
    parsed = parse_time(text, NOW)
    assert parsed == expected
    assert parsed.tzinfo is UTC


def test_now_may_come_in_any_zone() -> None:
    tokyo = NOW.astimezone(timezone(timedelta(hours=9)))
    assert parse_time("-2h", tokyo) == NOW - timedelta(hours=2)
    assert parse_time("now", tokyo).tzinfo is UTC


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "yesterday",
        "2h",
        "-2",
        "-h",
        "-2y",
        "-2H",
        "-1.5h",
        "--2h",
        "- 2h",
        "2017",
        "2017-02",
        "2017-2-7",
        "07/02/2017",
        "2017-02-07T",
        "2017-02-07T08",
        "2017-02-07Z",
        "2017-02-07T08:30:15.Z",
        "2017-02-07T08:30:15.1234567890Z",
        "2017-02-07T08:30:15,5Z",
        "2017-02-07T08:30:15 UTC",
        "2017-02-07T08:30:15+02",
        "2017-02-07T08:30:15+02:60",
        "٢٠١٧-٠٢-٠٧",
        "-٢h",
    ],
)
def test_what_is_not_a_time_is_named_with_three_examples(text: str) -> None:
    with pytest.raises(TimeFormatError) as caught:
        parse_time(text, NOW)
    assert str(caught.value) == (
        f'"{text}" is not a time. Write for example 2017-02-07T08:30:00Z, 2017-02-07 or -1h30m.'
    )
    assert caught.value.code is ExitCode.USAGE


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2017-02-30", "day is out of range for month"),
        ("2017-13-01", "month must be in 1..12"),
        ("2017-02-07T24:00:00Z", "hour must be in 0..23"),
        ("2017-02-07T08:30:60Z", "second must be in 0..59"),
        ("0000-01-01", "year 0 is out of range"),
        ("2017-02-07T08:30:15+24:00", "offset must be a timedelta strictly between"),
        ("0001-01-01T00:00:00+01:00", "it lies outside the years 1 to 9999"),
        ("9999-12-31T23:59:59-01:00", "it lies outside the years 1 to 9999"),
        ("-3000w999999d", "it lies outside the years 1 to 9999"),
        ("-999999999w", "it lies outside the years 1 to 9999"),
        ("+" + "9" * 5000 + "s", "it lies outside the years 1 to 9999"),
    ],
)
def test_an_impossible_time_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(TimeFormatError, match=r" is not a time: ") as caught:
        parse_time(text, NOW)
    assert reason in str(caught.value)


def test_a_long_or_hostile_text_is_quoted_safely() -> None:
    with pytest.raises(TimeFormatError) as caught:
        parse_time("\x1b[2J" + "x" * 500, NOW)
    assert str(caught.value).startswith('"\\x1b[2Jxxx')
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (datetime(2017, 2, 7, 8, 30, 15, tzinfo=UTC), "2017-02-07T08:30:15Z"),
        (datetime(2017, 2, 7, 8, 30, 15, 120, tzinfo=UTC), "2017-02-07T08:30:15.000120Z"),
        (datetime(2017, 2, 7, tzinfo=timezone(timedelta(hours=2))), "2017-02-06T22:00:00Z"),
        (datetime(2017, 2, 7), "2017-02-07T00:00:00Z"),  # noqa: DTZ001
        (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00Z"),
    ],
)
def test_a_time_is_written_in_utc(time: datetime, text: str) -> None:
    assert format_time(time) == text
    assert format_times([NOW, time]) == [format_time(NOW), text]


def test_no_times_have_no_texts() -> None:
    assert format_times([]) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1500", (None, 1500)),
        ("2/1500", (2, 1500)),
        ("0", (None, 0)),
        ("1/0", (1, 0)),
        (" 007 ", (None, 7)),
        (str(2**63 - 1), (None, 2**63 - 1)),
    ],
)
def test_a_position_is_read(text: str, expected: tuple[int | None, int]) -> None:
    assert parse_position(text) == expected
    assert parse_as_recorded(text, NOW) == expected


@pytest.mark.parametrize(
    "text", ["", "/", "1/", "/1", "0/1", "1/2/3", "-1", "1.5", "one", "1 / 2", str(2**63), "9" * 5000, "٣"]
)
def test_what_is_not_a_position_is_named(text: str) -> None:
    with pytest.raises(TimeFormatError, match=r'"[^"]*" is not a position.*1500, 1/1500 or 2/1'):
        parse_position(text)


def test_as_recorded_takes_a_time_too() -> None:
    assert parse_as_recorded("2017-02-07", NOW) == datetime(2017, 2, 7, tzinfo=UTC)
    assert parse_as_recorded("-2h", NOW) == NOW - timedelta(hours=2)
    with pytest.raises(TimeFormatError, match='"soon" is not a position or a time'):
        parse_as_recorded("soon", NOW)
    with pytest.raises(TimeFormatError, match='"0/7" is not a position: it is out of range'):
        parse_as_recorded("0/7", NOW)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (CliError("no such file"), "Error: no such file.\n"),
        (CliError("No such file.", "Check the path"), "Error: No such file. Check the path.\n"),
        (CliError("Which one?", "Name it!"), "Error: Which one? Name it!\n"),
        (CliError("two\nlines"), "Error: two lines.\n"),
        (CliError("a\x1b[2Jb"), "Error: a\\x1b[2Jb.\n"),
    ],
)
def test_an_error_is_one_line_on_stderr(error: CliError, line: str) -> None:
    stderr = io.StringIO()
    assert report(error, stderr) is ExitCode.ERROR
    assert stderr.getvalue() == line
