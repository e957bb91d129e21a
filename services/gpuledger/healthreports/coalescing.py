"""Coalesces identical reports: the first is recorded at once, those that follow at the end of a window, counted. Pure.

Identical means: in everything but the time, the id and the order of the entities. A report of no later time than the
last identical one is that one, sent again because its sender had no answer; it counts no more. What contradicts a
report, because it has the same monitor, check and entity and other content, ends the counting before it is recorded
itself, so that the order in the ledger is that of the reports. The number of windows is bounded, and so is what waits.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from hashlib import blake2b
from typing import Final, NamedTuple

import orjson

from gpuledger.events.health import NodeHealthReported
from gpuledger.healthreports.translate import HealthReport
from gpuledger.runtime.clock import Instant

REPEAT_WINDOW_S: Final = 60.0
"""For how long identical reports are counted before one event records them."""

WINDOWS_MAX: Final = 256
"""How many different reports have a window; the one that ends first makes room for another."""

WAITING_BYTES_MAX: Final = 32 * 1024
"""How large the counted reports may be together, as JSON: all are stored in one value, before they are acknowledged."""


class CountedReports(NamedTuple):
    """Identical reports that wait to be recorded: the newest, how many, and the times of the first and the last."""

    data: NodeHealthReported
    reports: int
    first_at: datetime
    at: datetime
    size: int


class Concern(NamedTuple):
    """What a report is about; without names it is about everything that the check covers."""

    monitor: str
    check: str
    names: frozenset[str]

    def meets(self, other: "Concern") -> bool:
        """Whether both are about one thing."""
        if (self.monitor, self.check) != (other.monitor, other.check):
            return False
        return not self.names or not other.names or not self.names.isdisjoint(other.names)


class RepeatWindow(NamedTuple):
    """One report's window: the time of the last identical one that has a time of its own, and what was counted since.

    `concern` None: it counts no more, and only recognizes what is sent again.
    """

    concern: Concern | None
    last: datetime | None
    ends_s: float
    repeats: CountedReports | None = None


Windows = Mapping[str, RepeatWindow]
"""The windows by the digest of their reports' content."""


DatedReports = tuple[tuple[NodeHealthReported, datetime], ...]
"""What to record, in order, and when each was true."""


class ReportResult(Enum):
    """What became of a report."""

    RECORDED = "recorded"
    COALESCED = "coalesced"
    REPEATED = "repeated"


class Coalesced(NamedTuple):
    """The windows, and what to record now."""

    windows: Windows
    events: DatedReports = ()
    result: ReportResult = ReportResult.RECORDED


def add_report(windows: Windows, report: HealthReport, now: Instant) -> Coalesced:
    """Take a report."""
    key = digest(report.data)
    found = windows.get(key)
    last = None if found is None else found.last
    if report.at is not None and last is not None and report.at <= last:
        return Coalesced(windows, result=ReportResult.REPEATED)
    if found is not None and found.concern is not None:
        counted = found._replace(last=report.at or last, repeats=_counted(found.repeats, report.data, now))
        with_it = {**windows, key: counted}
        if waiting_bytes(with_it) <= WAITING_BYTES_MAX:
            return Coalesced(with_it, result=ReportResult.COALESCED)
    concern = _concern(report.data)
    left, before = _contradicted(windows, concern)
    opened = RepeatWindow(concern, report.at or last, now.monotonic_s + REPEAT_WINDOW_S)
    left, evicted = _with_room({one: left[one] for one in left if one != key})
    events = (*before, *evicted, (report.data, _at(report.data, now)))
    return Coalesced({**left, key: opened}, events)


def close_windows(windows: Windows, now: Instant) -> Coalesced:
    """Record what ended windows counted; those that counted anything start again."""
    ended = {key: one for key, one in windows.items() if one.ends_s <= now.monotonic_s}
    if not ended:
        return Coalesced(windows)
    left = {key: one for key, one in windows.items() if key not in ended}
    again = {key: one for key, one in ended.items() if one.repeats is not None}
    ends_s = now.monotonic_s + REPEAT_WINDOW_S
    restarted = {key: one._replace(ends_s=ends_s, repeats=None) for key, one in again.items()}
    return Coalesced({**left, **restarted}, _events(again))


def remember(windows: Windows, data: NodeHealthReported, at: datetime, now: Instant) -> Coalesced:
    """Recognize from now on what others have recorded; it ends the counting of what it contradicts."""
    key = digest(data)
    found = windows.get(key)
    last = at if found is None or found.last is None else max(found.last, at)
    if found is not None and found.concern is not None:
        return Coalesced({**windows, key: found._replace(last=last)})
    left, before = _contradicted(windows, _concern(data))
    left, evicted = _with_room({one: left[one] for one in left if one != key})
    return Coalesced({**left, key: RepeatWindow(None, last, now.monotonic_s + REPEAT_WINDOW_S)}, (*before, *evicted))


def flush(windows: Windows) -> Coalesced:
    """Record all that was counted; the windows stay."""
    return Coalesced({key: one._replace(repeats=None) for key, one in windows.items()}, _events(windows))


def _event_of(repeats: CountedReports) -> tuple[NodeHealthReported, datetime]:
    """The event of counted reports, and its time."""
    first_at = min(repeats.first_at, repeats.at)  # the clock may have been set back in between
    return repeats.data.model_copy(update={"count": repeats.reports, "first_at": first_at}), repeats.at


def _events(windows: Windows) -> DatedReports:
    """The events of what windows counted, in order."""
    counted = [one.repeats for one in windows.values() if one.repeats is not None]
    return tuple(map(_event_of, sorted(counted, key=lambda one: one.at)))


def waiting_bytes(windows: Windows) -> int:
    """How large the counted reports are together."""
    return sum(one.repeats.size for one in windows.values() if one.repeats is not None)


def digest(data: NodeHealthReported) -> str:
    """A digest of what makes reports identical."""
    content = data.model_dump(mode="json", exclude={"report", "first_at", "count"})
    content["entities"] = sorted((one["type"], one["value"]) for one in content["entities"])
    content["devices"] = sorted(content["devices"])
    return blake2b(orjson.dumps(content, option=orjson.OPT_SORT_KEYS), digest_size=16).hexdigest()


def _counted(before: CountedReports | None, data: NodeHealthReported, now: Instant) -> CountedReports:
    at = _at(data, now)
    count, first_at = (1, at) if before is None else (before.reports + 1, before.first_at)
    return CountedReports(data, count, first_at, at, len(data.model_dump_json().encode()))


def _at(data: NodeHealthReported, now: Instant) -> datetime:
    return data.first_at or now.at


def _concern(data: NodeHealthReported) -> Concern:
    names = (f"{one.type} {one.value}" for one in data.entities)
    return Concern(data.monitor, data.check, frozenset([*names, *data.devices]))


def _contradicted(windows: Windows, concern: Concern) -> tuple[Windows, DatedReports]:
    """The windows that a report with other content leaves, and what those had counted that it ends.

    What comes behind it is news, whatever its time: a monitor's clock may have whole seconds.
    """
    ended = {key: one for key, one in windows.items() if one.concern is not None and one.concern.meets(concern)}
    return {key: one for key, one in windows.items() if key not in ended}, _events(ended)


def _with_room(windows: Windows) -> tuple[Windows, DatedReports]:
    """The windows with room for one more, and what that one had counted that left."""
    if len(windows) < WINDOWS_MAX:
        return windows, ()
    first = min(windows, key=lambda key: windows[key].ends_s)
    left = {key: one for key, one in windows.items() if key != first}
    return left, _events({first: windows[first]})
