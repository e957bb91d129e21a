"""Kubernetes Events from occurrences: which are recent, which make one series, and how an Event looks. Pure.

Occurrences of one object and kind within a period are one Event, a series that counts; the Event's name is computed
from them, so that a restarted status writer finds the Events that it has recorded.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from gpuledger.api.kinds import EVENT_REPORTER
from gpuledger.api.reasons import EventReason
from gpuledger.api.sharing import SharingNames
from gpuledger.domain.fact import time_of_ns
from gpuledger.edge.kube.events import event_name, micro_time, note_of
from gpuledger.edge.statuswriter.objects import NAMES, Document, Key, resource_of

NAMESPACE: Final = "default"
"""Where Events about cluster-scoped objects have to be; those about others are in the object's namespace."""

EVENT_AGE_MAX_S: Final = 600.0
"""How old an occurrence may be to become an Event; older ones are in no snapshot."""

ACTIONS: Final = {
    EventReason.DEVICE_DETECTED: "Detect",
    EventReason.DEVICE_REMOVED: "Remove",
    EventReason.CONDITION_CHANGED: "Inspect",
    EventReason.STATUS_RESTORED: "Restore",
    EventReason.FIELD_CONFLICT: "Restore",
    EventReason.RENDER_FAILED: "Render",
    EventReason.POOL_OVERLAP: "Select",
    EventReason.UPDATE_STARTED: "Update",
    EventReason.UPDATE_APPLIED: "Update",
    EventReason.DRAIN_FAILED: "Drain",
    EventReason.DRAIN_STUCK: "Drain",
    EventReason.APPLY_FAILED: "Apply",
    EventReason.APPLY_TIMEOUT: "Apply",
    EventReason.REBOOT_STARTED: "Reboot",
}


class Occurrence(NamedTuple):
    """Something worth a Kubernetes Event. `about` distinguishes occurrences of one object and reason."""

    key: Key
    reason: EventReason
    about: str
    note: str
    is_warning: bool
    happened_at: datetime
    recorded_ns: int


class EventSeries(NamedTuple):
    """Occurrences of one kind: the first of them, how many there were, and when the last one happened."""

    name: str
    first: Occurrence
    uid: str | None
    times: int
    last_at: datetime


def drift_corrected(key: Key, by: str, now: datetime) -> Occurrence:
    """Gpuledger has reverted a change by somebody else."""
    note = f"{by} changed {key.kind} {key.id}; gpuledger has restored what the ledger says."
    return _warning(key, EventReason.STATUS_RESTORED, note, now)


def drift_left(key: Key, by: str, corrections_per_hour_max: int, now: datetime) -> Occurrence:
    """Somebody keeps changing an object, so gpuledger leaves it as it is for a while."""
    note = (
        f"StatusConflict: {by} keeps changing {key.kind} {key.id}; after {corrections_per_hour_max} corrections within "
        "an hour gpuledger leaves it as it is for a while. Have it stop writing what gpuledger owns."
    )
    return _warning(key, EventReason.FIELD_CONFLICT, note, now)


def _warning(key: Key, reason: EventReason, note: str, now: datetime) -> Occurrence:
    return Occurrence(key, reason, "", note, True, now, int(now.timestamp() * 1e9))


def is_fresh(occurrence: Occurrence, now: datetime, age_max_s: float) -> bool:
    """Whether it happened, and was recorded, a short while ago."""
    oldest = now - timedelta(seconds=age_max_s)
    return occurrence.happened_at >= oldest and time_of_ns(occurrence.recorded_ns) >= oldest


def series_name(occurrence: Occurrence, period_s: float) -> str:
    """The name of the Event that an occurrence belongs to."""
    key = occurrence.key
    period = int(occurrence.recorded_ns / 1e9 / period_s)
    return event_name(key.name, key.kind, key.id, occurrence.reason, occurrence.about, str(period))


class RecentSeries:
    """The series of the last periods, by name."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._series: dict[str, EventSeries] = {}

    def __iter__(self) -> Iterator[EventSeries]:
        return iter(self._series.values())

    def add(self, occurrence: Occurrence, uid: str | None, now: datetime) -> str:
        """Count an occurrence; returns the name of its series."""
        self._forget(now)
        name = series_name(occurrence, self._period_s)
        series = self._series.get(name)
        if series is None:
            self._series[name] = EventSeries(name, occurrence, uid, 1, occurrence.happened_at)
        else:
            last_at = max(series.last_at, occurrence.happened_at)
            self._series[name] = series._replace(times=series.times + 1, uid=series.uid or uid, last_at=last_at)
        return name

    def get(self, name: str) -> EventSeries | None:
        """The series of that name."""
        return self._series.get(name)

    def drop(self, name: str) -> None:
        """Forget a series."""
        self._series.pop(name, None)

    def _forget(self, now: datetime) -> None:
        """Drop series of earlier periods, to which nothing can be added any more; they come first."""
        oldest = now - timedelta(seconds=2 * self._period_s)
        while self._series:
            name, series = next(iter(self._series.items()))
            if time_of_ns(series.first.recorded_ns) >= oldest:
                return
            del self._series[name]


def event_of(series: EventSeries, instance: str, names: SharingNames = NAMES) -> Document:
    """The Event, as `events.k8s.io/v1` takes it; `names` are those of shared devices."""
    first = series.first
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": series.name, "namespace": namespace_of(first)},
        "eventTime": micro_time(first.happened_at),
        "reportingController": EVENT_REPORTER,
        "reportingInstance": instance,
        "action": ACTIONS.get(first.reason, str(first.reason)),
        "reason": str(first.reason),
        "regarding": reference(first.key, series.uid, names),
        "note": note_of(first.note),
        "type": "Warning" if first.is_warning else "Normal",
    }
    return event | counted(series)


def namespace_of(occurrence: Occurrence) -> str:
    """The namespace of the Event."""
    return occurrence.key.namespace or NAMESPACE


def counted(series: EventSeries) -> Document:
    """The fields of an Event that change with another occurrence."""
    if series.times < 2:
        return {}
    return {"series": {"count": series.times, "lastObservedTime": micro_time(series.last_at)}}


def count_of(event: Document) -> int:
    """How many occurrences an Event counts."""
    return int((event.get("series") or {}).get("count") or 1)


def reference(key: Key, uid: str | None, names: SharingNames = NAMES) -> Document:
    """The object that an Event is about."""
    found = {"apiVersion": resource_of(key.kind, names).api_version, "kind": str(key.kind), "name": key.name}
    found |= {"namespace": key.namespace} if key.namespace else {}
    return found | ({"uid": uid} if uid else {})
