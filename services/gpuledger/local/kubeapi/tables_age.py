"""Formats ages as kubectl does: two units while the first is small, one when it is large."""

from datetime import datetime

MINUTE_S, HOUR_S, DAY_S, YEAR_S = 60, 3600, 86400, 365 * 86400
UNKNOWN = "<unknown>"
INVALID = "<invalid>"


def age(then: datetime, now: datetime) -> str:
    """The time between two instants, such as `5m`, `3h20m` or `2y45d`; `<invalid>` if `then` is in the future."""
    seconds = int((now - then).total_seconds())
    if seconds < -1:
        return INVALID
    return human_duration(max(seconds, 0))


_STEPS = (
    (2 * MINUTE_S, (1, "s"), None),
    (10 * MINUTE_S, (MINUTE_S, "m"), (1, "s")),
    (3 * HOUR_S, (MINUTE_S, "m"), None),
    (8 * HOUR_S, (HOUR_S, "h"), (MINUTE_S, "m")),
    (2 * DAY_S, (HOUR_S, "h"), None),
    (8 * DAY_S, (DAY_S, "d"), (HOUR_S, "h")),
    (2 * YEAR_S, (DAY_S, "d"), None),
    (8 * YEAR_S, (YEAR_S, "y"), (DAY_S, "d")),
)
"""Up to how many seconds, in which unit, and in which second unit, if any."""


def human_duration(seconds: int) -> str:
    """A duration of whole seconds in at most two units."""
    for limit, (large, name), rest in _STEPS:
        if seconds < limit:
            return f"{seconds // large}{name}" + (_rest(seconds % large, *rest) if rest else "")
    return f"{seconds // YEAR_S}y"


def age_of(text: object, now: datetime) -> str:
    """The age of an RFC 3339 time; `<unknown>` if absent, `<invalid>` if malformed."""
    if not isinstance(text, str) or not text:
        return UNKNOWN
    try:
        then = datetime.fromisoformat(text)
    except ValueError:
        return INVALID
    return age(then, now) if then.tzinfo else INVALID


def _rest(seconds: int, unit_s: int, name: str) -> str:
    count = seconds // unit_s
    return f"{count}{name}" if count else ""
