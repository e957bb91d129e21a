"""Durations as Go writes them, such as `300s` or `1h30m`: charts and NVSentinel's settings have them so. Pure."""

import re
from collections.abc import Mapping
from typing import Final

_UNITS_S: Final[Mapping[str, float]] = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}

_PART: Final = re.compile(r"(\d{1,12}(?:\.\d{0,9})?|\.\d{1,9})(ns|us|µs|ms|s|m|h)")
_WHOLE: Final = re.compile(rf"(?:{_PART.pattern})+")


def seconds_of(text: str) -> float | None:
    """The seconds of a duration; None if it is none. A bare number but 0 is none, as in Go."""
    if text == "0":
        return 0.0
    if not _WHOLE.fullmatch(text):
        return None
    return sum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(text))
