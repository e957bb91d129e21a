"""The one place that reads the clock and draws ids. Everything else takes them as arguments."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from secrets import token_bytes
from typing import Any
from uuid import uuid4

Clock = Callable[[], datetime]
"""Tells the time, in UTC."""

Sleep = Callable[[float], Awaitable[Any]]
"""Waits for some seconds."""

NewId = Callable[[], str]
"""Draws an id that was never drawn before."""


def system_clock() -> datetime:
    """The machine's time, in UTC."""
    return datetime.now(UTC)


def random_id() -> str:
    """A random UUID."""
    return str(uuid4())


def random_secret() -> bytes:
    """32 bytes that nobody can guess."""
    return token_bytes(32)
