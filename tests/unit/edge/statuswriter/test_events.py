"""Kubernetes Events: only young occurrences, one Event for those of one kind, in the namespace of the object."""

from datetime import UTC, datetime, timedelta

from gpuledger.api.reasons import EventReason
from gpuledger.edge.statuswriter.events.series import (
    Occurrence,
    RecentSeries,
    count_of,
    event_of,
    is_fresh,
    series_name,
)
from gpuledger.edge.statuswriter.objects import Key, Kind
from support.statuswriter_parts import DEVICE

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def occurrence(at: datetime = NOW, recorded: datetime = NOW, about: str = "") -> Occurrence:
    recorded_ns = int(recorded.timestamp() * 1e9)
    return Occurrence(DEVICE, EventReason.DEVICE_DETECTED, about, "A GPU.", False, at, recorded_ns)


def test_an_event_about_an_object_with_a_namespace_lies_there() -> None:
    recent = RecentSeries(600)
    for key in (Key(Kind.POOL, "a", "x"), Key(Kind.POOL, "a", "y")):
        recent.add(occurrence()._replace(key=key), "u", NOW)
    written = [event_of(series, "here") for series in recent]
    assert [one["metadata"]["namespace"] for one in written] == ["x", "y"]
    assert written[0]["regarding"]["namespace"] == "x"
    assert len({one["metadata"]["name"] for one in written}) == 2


def test_only_what_is_young_in_both_times_is_news() -> None:
    late = NOW - timedelta(seconds=601)
    assert is_fresh(occurrence(), NOW, 600)
    assert not is_fresh(occurrence(late, NOW), NOW, 600)
    assert not is_fresh(occurrence(NOW, late), NOW, 600)


def test_news_of_one_kind_is_one_event_that_counts() -> None:
    recent = RecentSeries(600)
    names = {recent.add(occurrence(NOW + timedelta(seconds=index)), "u", NOW) for index in range(3)}
    assert len(names) == 1
    assert recent.add(occurrence(about="other"), "u", NOW) not in names
    (series, other) = recent
    written = event_of(series, "here")
    assert (count_of(written), written["series"]["lastObservedTime"]) == (3, "2026-01-01T00:00:02.000000Z")
    assert written["regarding"] == {
        "apiVersion": "gpu.deckhouse.io/v1alpha1", "kind": "GPUDevice", "name": "w1-0", "uid": "u",
    }  # fmt: skip
    assert "series" not in event_of(other, "here")
    assert series_name(occurrence(), 600) == series.name
    later = NOW + timedelta(hours=1)
    recent.add(occurrence(later, later), "u", later)
    assert len(list(recent)) == 1
