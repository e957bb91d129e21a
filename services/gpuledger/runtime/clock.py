"""The one place that reads the clock and draws ids. Everything else takes them as arguments."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from secrets import token_bytes, token_hex
from typing import Any, NamedTuple

from gpuledger.events.ids import uuid_text

Clock = Callable[[], datetime]
"""Tells the time, in UTC."""

Sleep = Callable[[float], Awaitable[Any]]
"""Waits for some seconds."""

NewId = Callable[[], str]
"""Draws an id that was never drawn before."""


class Instant(NamedTuple):
    """One instant by two clocks: the monotonic one measures durations, the wall clock dates events."""

    monotonic_s: float
    at: datetime


def system_clock() -> datetime:
    """The machine's time, in UTC."""
    return datetime.now(UTC)


def random_id() -> str:
    """A random UUID."""
    return uuid_text(token_hex(16), "4")


def random_secret() -> bytes:
    """32 bytes that nobody can guess."""
    return token_bytes(32)
