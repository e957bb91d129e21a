"""Metrics of ResourceSliceStatuses, and that alerts use no others."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.edge.statuswriter.desired.fold import DesiredProjection
from gpuledger.edge.statuswriter.desired.state import DesiredState
from gpuledger.edge.statuswriter.metrics.slices import WORK_QUEUE, SliceMetrics, note_duration, note_sync
from gpuledger.edge.statuswriter.objects import Key, Kind
from gpuledger.events.payload import Payload
from support.dra_facts import DRIVER, allocated, device, events_of, fact_at, published, requested
from support.events import folded, log_of
from support.paths import ROOT

ALERTS = ROOT / "docs" / "alerts" / "dra-availability.rules.yaml"
SELECTOR = re.compile(r"([a-z_]{6,})(?:\{([a-z]+)(?:=|!=)\"[^\"]*\"\})?(?=\[|\{| >|\))")
BEHIND_S = 7.0


def desired_state(*facts: tuple[str, Payload], **settings: Any) -> DesiredState:
    state = folded(DesiredProjection(), log_of(events_of([fact_at(at, *fact) for at, fact in enumerate(facts)]))).state
    assert isinstance(state, DesiredState)
    state.settings.put(state.settings_in_force()._replace(module=MODULE_CONFIG, **settings))
    return state


def samples(state: DesiredState) -> dict[tuple[str, ...], float]:
    """As a scrape sees them, by name and labels."""
    registry = CollectorRegistry()
    lags = {Key(Kind.SLICE, "s1"): BEHIND_S}
    registry.register(SliceMetrics(lambda: state, lambda _kind: 3, lambda key: lags.get(key, 0.0)))
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}


POOLS = (
    ("s1", published("p", [device("gpu-0"), device("gpu-1")])),
    ("s2", published("q", [device("gpu-0"), device("gpu-0")])),
    ("a/one", allocated(("p", "gpu-0", None), ("p", "gone", None))),
    ("a/two", requested()),
)


def test_metrics_show_the_present() -> None:
    found = samples(desired_state(*POOLS))
    assert found["dra_resourceslice_status_staleness_seconds", "s1"] == BEHIND_S
    assert found["dra_resourceslice_status_staleness_seconds", "s2"] == 0.0
    assert found[("dra_resourceslice_claims_tracked_total",)] == 2
    assert found["dra_pool_validation_errors_total", DRIVER, "p"] == 1
    assert found["dra_pool_validation_errors_total", DRIVER, "q"] == 1
    assert found["workqueue_depth", WORK_QUEUE] == 3


def test_what_is_noted_of_slices_counts_and_of_other_kinds_does_not() -> None:
    state = desired_state()
    before = samples(state)
    note_sync(Kind.SLICE, "failed")
    note_sync(Kind.SLICE, "written")
    note_sync(Kind.DEVICE, "failed")
    note_duration(Kind.SLICE, 4.0)
    note_duration(Kind.NODE, 4.0)
    after = samples(state)

    def grew(*key: str) -> float:
        return after[key] - before.get(key, 0.0)

    assert grew("dra_resourceslice_status_update_errors_total") == 1
    assert grew("dra_resourceslice_status_controller_sync_total", "failed") == 1
    assert grew("dra_resourceslice_status_controller_sync_total", "written") == 1
    assert grew("dra_resourceslice_status_update_duration_seconds_count") == 1
    assert grew("dra_resourceslice_status_update_duration_seconds_bucket", "2.5") == 0
    assert grew("dra_resourceslice_status_update_duration_seconds_bucket", "5.0") == 1


@pytest.mark.parametrize("settings", [{"enabled": False}, {"dra_availability": False}])
def test_there_are_no_metrics_while_statuses_are_not_kept(settings: dict[str, bool]) -> None:
    assert samples(desired_state(*POOLS, **settings)) == {}


def alerts() -> Iterator[dict[str, Any]]:
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        yield from group["rules"]


def test_alerts_ask_for_metrics_and_labels_that_there_are() -> None:
    note_sync(Kind.SLICE, "written")
    text = generate_latest(_registry()).decode()
    families = [one for family in text_string_to_metric_families(text) for one in family.samples]
    labels: dict[str, set[str]] = {}
    for one in families:
        labels.setdefault(one.name, set()).update(one.labels)
    queried = [found for rule in alerts() for found in SELECTOR.findall(rule["expr"])]
    assert {name for name, _ in queried} == {
        "dra_resourceslice_status_update_errors_total",
        "dra_resourceslice_status_controller_sync_total",
        "dra_resourceslice_status_update_duration_seconds_bucket",
        "workqueue_depth",
    }
    for name, label in queried:
        assert name in labels
        assert not label or label in labels[name]


def _registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    state = desired_state()
    registry.register(SliceMetrics(lambda: state, lambda _kind: 0, lambda _key: 0.0))
    return registry


def test_alerts_are_the_triggers_for_a_rollback() -> None:
    found = {rule["alert"]: (rule["expr"].split(">")[-1].strip(), rule["for"]) for rule in alerts()}
    assert found == {
        "ResourceSliceStatusErrors": ("0.05", "10m"),
        "ResourceSliceStatusSlow": ("5", "10m"),
        "ResourceSliceStatusQueue": ("1000", "10m"),
    }
