"""Groups the errors of a card: the first of a kind is reported at once, those that follow at the end of a window. Pure.

The number of windows of a card is bounded, so that neither memory nor events grow with what a driver reports.
"""

from typing import Final, Literal, NamedTuple

from gpuledger.agent.health.severity import OTHER
from gpuledger.events.device import DeviceErrorsObserved
from gpuledger.events.payload import BIGINT_MAX
from gpuledger.runtime.clock import Instant

BURST_S: Final = 10.0
"""The length of a window."""

KINDS_MAX: Final = 16
"""How many kinds of a card's errors have a window of their own at a time; the others share one."""

Cause = Literal["application", "hardware"]


class Window(NamedTuple):
    """The errors of one kind that were counted since the last report."""

    kind: str
    cause: Cause
    message: str
    ends_s: float
    errors: int
    first: Instant
    last: Instant


Windows = tuple[Window, ...]


class ErrorGroup(NamedTuple):
    """Errors to report together, and when the last of them occurred."""

    data: DeviceErrorsObserved
    last: Instant


def open_window(windows: Windows, kind: str, message: str, now: Instant) -> Windows:
    """Start to count errors of a kind whose first error was reported otherwise."""
    if _find(windows, kind, "hardware") is not None or len(windows) >= KINDS_MAX:
        return windows
    return (*windows, Window(kind, "hardware", message, now.monotonic_s + BURST_S, 0, now, now))


def add_errors(
    windows: Windows, kind: str, cause: Cause, message: str, now: Instant, *, count: int = 1
) -> tuple[Windows, ErrorGroup | None]:
    """Count errors of a kind; returns the windows, and what to report at once."""
    if _find(windows, kind, cause) is None and len(windows) >= KINDS_MAX:
        kind, message = OTHER, "Errors of several kinds"
    found = _find(windows, kind, cause)
    if found is None:
        window = Window(kind, cause, message, now.monotonic_s + BURST_S, 0, now, now)
        return (*windows, window), _group(window._replace(errors=count))
    counted = found._replace(errors=found.errors + count, first=found.first if found.errors else now, last=now)
    return tuple(counted if window is found else window for window in windows), None


def close_windows(windows: Windows, now: Instant) -> tuple[Windows, tuple[ErrorGroup, ...]]:
    """Report what ended windows counted; those that counted anything start again."""
    ended = [window for window in windows if window.ends_s <= now.monotonic_s]
    if not ended:
        return windows, ()
    groups = tuple(_group(window) for window in ended if window.errors)
    left = (
        window if window.ends_s > now.monotonic_s else window._replace(ends_s=now.monotonic_s + BURST_S, errors=0)
        for window in windows
        if window.ends_s > now.monotonic_s or window.errors
    )
    return tuple(left), groups


def _find(windows: Windows, kind: str, cause: Cause) -> Window | None:
    return next((window for window in windows if window.kind == kind and window.cause == cause), None)


def _group(window: Window) -> ErrorGroup:
    first_at = min(window.first.at, window.last.at)  # the clock may have been set back in between
    count = min(window.errors, BIGINT_MAX)  # a driver that counts nonsense must not end the agent's part
    data = DeviceErrorsObserved(
        kind=window.kind, cause=window.cause, count=count, first_at=first_at, message=window.message
    )
    return ErrorGroup(data, window.last)
