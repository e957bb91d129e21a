"""Kubernetes Events from news. Pure.

News of one object and kind within a period is one Event, a series that counts; the Event's name is computed from them,
so that a restart finds what it had said and says it no more.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from hashlib import sha256
from typing import NamedTuple

from gpuledger.api.kinds import EVENT_REPORTER
from gpuledger.api.reasons import EventReason
from gpuledger.domain.fact import time_of_ns
from gpuledger.edge.statuswriter.desired.objects import News
from gpuledger.edge.statuswriter.reconcile.decide import RESOURCES, Document, Key

NAMESPACE = "default"
"""Where Events about cluster-scoped objects have to lie; those about others lie in their namespace."""

NOTE_BYTES_MAX = 1024
NAME_CHARS_MAX = 200
HASH_LENGTH = 16

ACTIONS = {
    EventReason.DEVICE_DETECTED: "Detect",
    EventReason.DEVICE_REMOVED: "Remove",
    EventReason.CONDITION_CHANGED: "Inspect",
    EventReason.STATUS_RESTORED: "Restore",
    EventReason.FIELD_CONFLICT: "Restore",
}


class Series(NamedTuple):
    """Some news of one kind: the first of them, how often there was some, and when last."""

    name: str
    first: News
    uid: str | None
    times: int
    last_at: datetime


def is_fresh(news: News, now: datetime, age_max_s: float) -> bool:
    """Whether it happened, and was recorded, a short while ago."""
    oldest = now - timedelta(seconds=age_max_s)
    return news.happened_at >= oldest and time_of_ns(news.recorded_ns) >= oldest


def series_name(news: News, period_s: float) -> str:
    """The name of the Event that news belongs to."""
    period = int(news.recorded_ns / 1e9 / period_s)
    text = "\n".join([news.key.kind, news.key.id, news.reason, news.about, str(period)])
    return f"{news.key.name[:NAME_CHARS_MAX].rstrip('-.')}.{sha256(text.encode()).hexdigest()[:HASH_LENGTH]}"


class Told:
    """The series of late, by name."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._series: dict[str, Series] = {}

    def __iter__(self) -> Iterator[Series]:
        return iter(self._series.values())

    def add(self, news: News, uid: str | None, now: datetime) -> str:
        """Take news in; returns the name of its series."""
        self._forget(now)
        name = series_name(news, self._period_s)
        known = self._series.get(name)
        if known is None:
            self._series[name] = Series(name, news, uid, 1, news.happened_at)
        else:
            last_at = max(known.last_at, news.happened_at)
            self._series[name] = known._replace(times=known.times + 1, uid=known.uid or uid, last_at=last_at)
        return name

    def get(self, name: str) -> Series | None:
        """The series of that name."""
        return self._series.get(name)

    def drop(self, name: str) -> None:
        """Forget a series."""
        self._series.pop(name, None)

    def _forget(self, now: datetime) -> None:
        """Series of earlier periods, which nothing can be added to any more; they stand first."""
        oldest = now - timedelta(seconds=2 * self._period_s)
        while self._series:
            name, series = next(iter(self._series.items()))
            if time_of_ns(series.first.recorded_ns) >= oldest:
                return
            del self._series[name]


def event_of(series: Series, instance: str) -> Document:
    """The Event, as `events.k8s.io/v1` takes it."""
    news = series.first
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": series.name, "namespace": namespace_of(news)},
        "eventTime": micro_time(news.happened_at),
        "reportingController": EVENT_REPORTER,
        "reportingInstance": instance,
        "action": ACTIONS.get(news.reason, str(news.reason)),
        "reason": str(news.reason),
        "regarding": reference(news.key, series.uid),
        "note": news.note.encode()[:NOTE_BYTES_MAX].decode(errors="ignore"),
        "type": "Warning" if news.is_warning else "Normal",
    }
    return event | counted(series)


def namespace_of(news: News) -> str:
    """Where the Event has to lie."""
    return news.key.namespace or NAMESPACE


def counted(series: Series) -> Document:
    """What changes of an Event when there is more news of its kind."""
    if series.times < 2:
        return {}
    return {"series": {"count": series.times, "lastObservedTime": micro_time(series.last_at)}}


def count_of(event: Document) -> int:
    """How often an Event says that it happened."""
    return int((event.get("series") or {}).get("count") or 1)


def reference(key: Key, uid: str | None) -> Document:
    """The object that an Event is about."""
    found = {"apiVersion": RESOURCES[key.kind].api_version, "kind": str(key.kind), "name": key.name}
    found |= {"namespace": key.namespace} if key.namespace else {}
    return found | ({"uid": uid} if uid else {})


def micro_time(time: datetime) -> str:
    """A time as Events have it, with six digits of fraction."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
