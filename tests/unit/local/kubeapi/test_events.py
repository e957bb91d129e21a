"""Events in their two forms: lenient and strict."""

from typing import Any

import pytest

from gpuledger.local.kubeapi.strategies.events import CoreEventStrategy, EventStrategy

CORE, STRICT = CoreEventStrategy(), EventStrategy()


def event(**changes: Any) -> Any:
    return {
        "metadata": {"name": "b.1", "namespace": "a"},
        "eventTime": "2025-01-15T10:06:15.123456Z",
        "reportingController": "gpu.deckhouse.io/pool",
        "reportingInstance": "pool-0",
        "action": "Assign",
        "reason": "DeviceAssigned",
        "regarding": {"kind": "GPUPool", "name": "b", "namespace": "a"},
        "note": "device assigned",
        "type": "Normal",
    } | changes


def fields(causes: Any) -> Any:
    return [(cause.reason.removeprefix("FieldValue"), cause.field) for cause in causes]


def test_a_whole_event_is_accepted_and_written_out() -> None:
    obj = event()
    STRICT.default(obj)
    assert STRICT.validate(obj) == []
    assert obj["deprecatedSource"] == {}
    assert obj["deprecatedFirstTimestamp"] is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"eventTime": None, "type": None}, [("Required", "eventTime"), ("Invalid", "type")]),
        ({"action": ""}, [("Required", "action")]),
        ({"reportingInstance": "x" * 129}, [("Invalid", "reportingInstance")]),
        ({"note": "x" * 1025}, [("Invalid", "message")]),
        ({"reportingController": "a b"}, [("Invalid", "reportingController")]),
        ({"regarding": {"kind": "Node", "name": "n"}}, [("Invalid", "involvedObject.namespace")]),
        ({"deprecatedCount": 2}, [("Invalid", "count")]),
        ({"series": {"count": 1}}, [("Invalid", "series.count"), ("Required", "series.lastObservedTime")]),
    ],
)
def test_the_strict_form_refuses(changes: Any, expected: Any) -> None:
    assert fields(STRICT.validate(event(**changes))) == expected


def test_only_the_series_may_change() -> None:
    series = {"count": 3, "lastObservedTime": "2025-01-15T10:08:15.000000Z"}
    assert STRICT.validate_update(event(series=series), event(), "") == []
    assert fields(STRICT.validate_update(event(reason="Other"), event(), "")) == [("Invalid", "reason")] * 2
    assert fields(STRICT.validate_update(event(note="x"), event(), "")) == [("Invalid", "message")]


def core(namespace: Any, about: Any, **changes: Any) -> Any:
    return {"metadata": {"name": "e", "namespace": namespace}, "involvedObject": {"namespace": about}} | changes


@pytest.mark.parametrize(
    ("namespace", "about", "fits"), [("a", "a", 1), ("a", "b", 0), ("default", "", 1), ("a", "", 0)]
)
def test_an_old_style_event_lies_beside_its_object(namespace: Any, about: Any, fits: Any) -> None:
    assert fields(CORE.validate(core(namespace, about))) == [("Invalid", "involvedObject.namespace")] * (1 - fits)


def test_a_new_style_core_event_names_its_reporter() -> None:
    causes = fields(
        CORE.validate(core("kube-system", "", eventTime="2025-01-15T10:06:15.123456Z", action="a", reason="r"))
    )
    assert ("Required", "reportingComponent") in causes
    assert ("Required", "reportingInstance") in causes


def test_core_events_change_freely_and_are_written_out() -> None:
    obj = core("a", "a", reason="r")
    CORE.default(obj)
    assert (obj["source"], obj["lastTimestamp"], obj["reportingInstance"]) == ({}, None, "")
    assert CORE.validate_update(obj, core("a", "a", reason="old"), "") == []


def test_field_selectors_see_the_object_in_either_form() -> None:
    assert STRICT.field_labels(event())["regarding.name"] == "b"
    assert CORE.field_labels(core("a", "a", source={"component": "kubelet"}))["source"] == "kubelet"
    assert "involvedObject.fieldPath" in CORE.field_labels({})
