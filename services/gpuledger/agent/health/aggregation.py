"""Many errors of a kind in a short time are told together: the first at once, the rest at the end of a window. Pure.

A card has a bounded number of windows, so that neither memory nor what is told grows with what a driver reports.
"""

from typing import Final, Literal, NamedTuple

from gpuledger.agent.health.classes import OTHER
from gpuledger.agent.part import Moment
from gpuledger.events.device import DeviceErrorsObserved

BURST_S: Final = 10.0
"""Errors of a kind that follow the first within so long are told together."""

KINDS_MAX: Final = 16
"""Kinds of a card's errors that are told apart at a time; all others are told as one."""

Cause = Literal["application", "hardware"]


class Window(NamedTuple):
    """The errors of a kind that were counted since it was last told."""

    kind: str
    cause: Cause
    message: str
    ends_s: float
    errors: int
    first: Moment
    last: Moment


Windows = tuple[Window, ...]


class Burst(NamedTuple):
    """Errors to be told together, the last of which was at a time."""

    data: DeviceErrorsObserved
    last: Moment


def opened(windows: Windows, kind: str, message: str, now: Moment) -> Windows:
    """An error of the kind has just been told otherwise; those that follow it are counted."""
    if _find(windows, kind, "hardware") is not None or len(windows) >= KINDS_MAX:
        return windows
    return (*windows, Window(kind, "hardware", message, now.s + BURST_S, 0, now, now))


def took(
    windows: Windows, kind: str, cause: Cause, message: str, now: Moment, *, count: int = 1
) -> tuple[Windows, Burst | None]:
    """Some errors of a kind: what is counted then, and what is to be told at once."""
    if _find(windows, kind, cause) is None and len(windows) >= KINDS_MAX:
        kind, message = OTHER, "Errors of several kinds"
    known = _find(windows, kind, cause)
    if known is None:
        window = Window(kind, cause, message, now.s + BURST_S, 0, now, now)
        return (*windows, window), _burst(window._replace(errors=count))
    counted = known._replace(errors=known.errors + count, first=known.first if known.errors else now, last=now)
    return tuple(counted if window is known else window for window in windows), None


def closed(windows: Windows, now: Moment) -> tuple[Windows, tuple[Burst, ...]]:
    """Tell what was counted in windows that are over; those where something was begin anew."""
    over = [window for window in windows if window.ends_s <= now.s]
    if not over:
        return windows, ()
    told = tuple(_burst(window) for window in over if window.errors)
    left = (
        window if window.ends_s > now.s else window._replace(ends_s=now.s + BURST_S, errors=0)
        for window in windows
        if window.ends_s > now.s or window.errors
    )
    return tuple(left), told


def _find(windows: Windows, kind: str, cause: Cause) -> Window | None:
    return next((window for window in windows if window.kind == kind and window.cause == cause), None)


def _burst(window: Window) -> Burst:
    first_at = min(window.first.at, window.last.at)  # the clock may have been set back in between
    data = DeviceErrorsObserved(
        kind=window.kind, cause=window.cause, count=window.errors, first_at=first_at, message=window.message
    )
    return Burst(data, window.last)
