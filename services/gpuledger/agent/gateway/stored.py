"""The windows of health reports that survive a restart of the agent: which reports were taken, and what waits. Pure.

What was counted is recorded at the start. After that a stored window only recognizes what is sent again: what other
reports came in between is not stored. The names of the stored fields are a format: an agent that is upgraded in place
reads what the one before it stored.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import orjson
from pydantic import ValidationError

from gpuledger.events.health import NodeHealthReported
from gpuledger.healthreports.coalescing import REPEAT_WINDOW_S, WINDOWS_MAX, CountedReports, RepeatWindow, Windows
from gpuledger.runtime.clock import Instant

STATE_KEY: Final = "health-reports"

VERSION: Final = 1

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class ReportStateError(Exception):
    """The stored state cannot be read."""


def dump(windows: Windows, now: Instant) -> bytes:
    """The state as JSON; with full windows it is smaller than a value of the state store may be."""
    stored = [
        {
            "key": key,
            "last": one.last and _number(one.last),
            "ends": round(now.at.timestamp() + one.ends_s - now.monotonic_s),
        }
        | ({} if one.repeats is None else {"repeats": _dump(one.repeats)})
        for key, one in windows.items()
    ]
    return orjson.dumps({"version": VERSION, "windows": stored})


def load(value: bytes, now: Instant) -> Windows:
    """The windows that `dump` wrote, none of which counts any more.

    Raises:
        ReportStateError: `dump` did not write this.
    """
    try:
        document = orjson.loads(value)
        if document["version"] != VERSION:
            raise ReportStateError(f"It has version {document['version']}, and this build reads {VERSION}.")
        return dict(_load(one, now) for one in document["windows"][:WINDOWS_MAX])
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, ValidationError) as error:
        raise ReportStateError(f"It does not have the shape that this build stores: {error!r}.") from error


def _dump(repeats: CountedReports) -> dict[str, Any]:
    data = repeats.data.model_dump(mode="json", exclude_defaults=True)
    return {"data": data, "count": repeats.reports, "first": _number(repeats.first_at), "at": _number(repeats.at)}


def _load(stored: Mapping[str, Any], now: Instant) -> tuple[str, RepeatWindow]:
    left_s = min(max(0.0, stored["ends"] - now.at.timestamp()), REPEAT_WINDOW_S)
    last = None if stored["last"] is None else _time(stored["last"])
    waiting = stored.get("repeats")
    repeats = None if waiting is None else _repeats(**waiting)
    return str(stored["key"]), RepeatWindow(None, last, now.monotonic_s + left_s, repeats)


def _repeats(*, data: Mapping[str, Any], count: int, first: int, at: int) -> CountedReports:
    return CountedReports(NodeHealthReported.model_validate(data), int(count), _time(first), _time(at), 0)


def _number(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND


def _time(number: int) -> datetime:
    return _EPOCH + number * _MICROSECOND
