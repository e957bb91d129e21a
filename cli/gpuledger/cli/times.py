"""Times and positions as people type them and as every output shows them.

What `format_time` writes, `parse_time` reads. Nothing here reads a clock: relative times count from the caller's
`now`. Whatever the text, the only error is `TimeFormatError`.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

import orjson

from gpuledger.cli.errors import CliError, ExitCode, visible
from gpuledger.events.position import NUMBER_MAX, Offset, PositionError, is_typed, parse_typed

MAX_QUOTED_CHARS: Final = 60

TIME_EXAMPLES: Final = ("2017-02-07T08:30:00Z", "2017-02-07", "-1h30m")
POSITION_EXAMPLES: Final = ("1500", "1/1500", "2/1")
AS_RECORDED_EXAMPLES: Final = ("1500", "2/1500", "2017-02-07T08:30:00Z")

_IN_UTC: Final = "+00:00"
_AS_FORMATTED: Final = orjson.OPT_UTC_Z | orjson.OPT_NAIVE_UTC
"""With these the library writes a time that is in UTC as `format_time` does, and ends no other one with `Z`."""
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AMOUNT = re.compile(r"([0-9]+)([smhdw])")
_AMOUNTS = re.compile(r"(?:[0-9]+[smhdw])+")
_RELATIVE = re.compile(rf"([+-])({_AMOUNTS.pattern})")
_TIMESTAMP = re.compile(
    r"(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})"
    r"(?:[Tt ](?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]{1,9}))?)?"
    r"(?: ?(?P<zone>[Zz]|[+-][0-9]{2}:[0-5][0-9]))?)?"
)
_FIELDS: Final = ("year", "month", "day", "hour", "minute", "second")


class TimeFormatError(CliError):
    """The text is no time, or no position where a position is required."""

    def __init__(
        self,
        text: str,
        expected: str = "a time",
        examples: tuple[str, str, str] = TIME_EXAMPLES,
        reason: str = "",
    ) -> None:
        because = f": {reason}" if reason else ""
        super().__init__(
            f'"{_quoted(text)}" is not {expected}{because}.',
            "Write for example {}, {} or {}.".format(*examples),
            ExitCode.USAGE,
        )
        self.text = text


def format_time(time: datetime) -> str:
    """RFC 3339 in UTC with `Z`: whole seconds without a fraction, others with six digits; no zone means UTC."""
    text = time.isoformat()
    return f"{text.removesuffix(_IN_UTC)}Z" if text.endswith(_IN_UTC) else f"{_naive(time).isoformat()}Z"


def format_times(times: Sequence[datetime]) -> list[str]:
    """`format_time` of each; where all are in UTC, for a fifth of the time."""
    try:
        text = orjson.dumps(times, option=_AS_FORMATTED).decode()
    except TypeError:  # a zone that the library does not know
        text = ""
    return text[2:-2].split('","') if text.count("Z") == len(times) > 0 else list(map(format_time, times))


def parse_time(text: str, now: datetime) -> datetime:
    """Read a time, in UTC.

    Accepts RFC 3339 (also with a space or lower-case letters, with up to nine digits of fraction, of which six
    count, and without seconds), the same without a zone (meaning UTC), a date (its midnight in UTC), `now`, and
    amounts of w, d, h, m, s before or after `now`: `-2h`, `-1h30m`, `+10m`.

    Raises:
        TimeFormatError: the text is none of these, or lies outside the years 1 to 9999.
    """
    typed = text.strip()
    try:
        if typed.lower() == "now":
            return _utc(now)
        if match := _RELATIVE.fullmatch(typed):
            return _utc(now) + _duration(match[1], match[2])
        if match := _TIMESTAMP.fullmatch(typed):
            return _timestamp(match)
    except OverflowError as error:
        raise TimeFormatError(text, reason="it lies outside the years 1 to 9999") from error
    except ValueError as error:
        raise TimeFormatError(text, reason=str(error)) from error
    raise TimeFormatError(text)


def is_duration(text: str) -> bool:
    """Whether a text is amounts of w, d, h, m, s alone, such as `30d`."""
    return _AMOUNTS.fullmatch(text.strip()) is not None


def parse_position(text: str) -> tuple[int | None, Offset]:
    """Read a position in the ledger, `SEQ` or `GENERATION/SEQ`; without a generation, that is None.

    Sequence 0 is the moment before the first event; generations count from 1.

    Raises:
        TimeFormatError: the text is no position, or one beyond what a ledger can hold.
    """
    if not is_typed(text.strip()):
        raise TimeFormatError(text, "a position", POSITION_EXAMPLES)
    try:
        return parse_typed(text.strip())
    except PositionError as error:
        raise TimeFormatError(text, "a position", POSITION_EXAMPLES, str(error)) from error


def parse_as_recorded(text: str, now: datetime) -> tuple[int | None, Offset] | datetime:
    """Read what `--as-recorded` takes: a position where the text is digits (`2017` is one), else a time.

    Raises:
        TimeFormatError: the text is neither.
    """
    if is_typed(text.strip()):
        return parse_position(text)
    try:
        return parse_time(text, now)
    except TimeFormatError as error:
        raise TimeFormatError(text, "a position or a time", AS_RECORDED_EXAMPLES) from error


def _naive(time: datetime) -> datetime:
    return _utc(time).replace(tzinfo=None)


def _utc(time: datetime) -> datetime:
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _duration(sign: str, amounts: str) -> timedelta:
    parts = (timedelta(**{_UNITS[unit]: _amount(count)}) for count, unit in _AMOUNT.findall(amounts))
    total = sum(parts, timedelta())
    return total if sign == "+" else -total


def _amount(digits: str) -> int:
    if len(digits) > len(str(NUMBER_MAX)):
        raise OverflowError
    return int(digits)


def _timestamp(match: re.Match[str]) -> datetime:
    year, month, day, hour, minute, second = (int(match[field] or 0) for field in _FIELDS)
    microsecond = int((match["fraction"] or "")[:6].ljust(6, "0"))
    local = datetime(year, month, day, hour, minute, second, microsecond, _zone(match["zone"] or "Z"))
    return local.astimezone(UTC)


def _zone(text: str) -> timezone:
    if text in "Zz":
        return UTC
    offset = timedelta(hours=int(text[1:3]), minutes=int(text[4:6]))
    return timezone(-offset if text[0] == "-" else offset)


def _quoted(text: str) -> str:
    cut = text if len(text) <= MAX_QUOTED_CHARS else text[:MAX_QUOTED_CHARS] + "..."
    return visible(cut)
