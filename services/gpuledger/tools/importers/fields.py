"""Validates the fields of rows, in any format. Pure; every function raises `RowError` with the reason for the user.

The bounds are those of the events: no reader rejects the events of a row that passes here.
"""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from gpuledger.events.errors import SubjectError
from gpuledger.events.payload import BIGINT_MAX, NAME_LENGTH_MAX
from gpuledger.events.subjects import escape
from gpuledger.tools.importers.errors import RowError

SHOWN_LENGTH_MAX = 40
TIMES_REMEMBERED = 16_384

_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} (?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}")
_WHOLE = re.compile(r"[0-9]{1,19}")
_SECONDS = re.compile(r"([0-9]{1,12})(?:\.([0-9]{1,12}))?")
_FIRST_MOMENT = datetime(1, 1, 2, tzinfo=UTC)


def name(text: str, column: str) -> str:
    """A name that events and subjects can carry."""
    if not text.strip():
        raise RowError(f"{column} is empty")
    if len(text) > NAME_LENGTH_MAX:
        raise RowError(f"{column} has {len(text)} characters; {NAME_LENGTH_MAX} is the limit")
    try:
        escape(text)
    except SubjectError as error:
        raise RowError(f"{column} does not fit into a subject: it is too long when escaped") from error
    return text


def label(text: str, column: str) -> str | None:
    """An optional name."""
    return name(text, column) if text else None


@lru_cache(maxsize=TIMES_REMEMBERED)
def moment(text: str, column: str) -> datetime:
    """A time written `YYYY-mm-dd HH:MM:SS`, taken as UTC."""
    if not text:
        raise RowError(f"{column} is empty")
    if not _MOMENT.fullmatch(text):
        raise RowError(f"{column} is not a time like 2017-04-09 21:36:19: {shown(text)}")
    try:
        time = datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError as error:
        raise RowError(f"{column} is not a time: {error}") from error
    if time < _FIRST_MOMENT:
        raise RowError(f"{column} is before the calendar's second day: {shown(text)}")
    return time


def whole(text: str, column: str, maximum: int = BIGINT_MAX) -> int:
    """A whole number from 0 to `maximum`."""
    if not text:
        raise RowError(f"{column} is empty")
    if not _WHOLE.fullmatch(text):
        raise RowError(f"{column} is not a non-negative whole number: {shown(text)}")
    number = int(text)
    if number > maximum:
        raise RowError(f"{column} is {number}; {maximum} is the limit")
    return number


def seconds_after(start: datetime, text: str, column: str) -> datetime:
    """The moment a number of seconds (whole or decimal, to the microsecond) after `start`."""
    if not text:
        raise RowError(f"{column} is empty")
    parts = _SECONDS.fullmatch(text)
    if parts is None:
        raise RowError(f"{column} is not a non-negative number of seconds: {shown(text)}")
    microseconds = int((parts[2] or "").ljust(6, "0")[:6])
    try:
        return start + timedelta(seconds=int(parts[1]), microseconds=microseconds)
    except OverflowError as error:
        raise RowError(f"{column} is after the year 9999: {shown(text)}") from error


def in_order(first: datetime, first_column: str, second: datetime, second_column: str) -> None:
    """Check that the second time is not before the first."""
    if second < first:
        raise RowError(f"end before start: {second_column} is before {first_column}")


def shown(text: str) -> str:
    """A field as a reason shows it: quoted, escaped and cut."""
    return ascii(text if len(text) <= SHOWN_LENGTH_MAX else text[:SHOWN_LENGTH_MAX] + "...")
