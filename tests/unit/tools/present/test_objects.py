"""Objects of Kubernetes read as facts, with the times that they tell of themselves."""

from datetime import UTC, datetime
from typing import Any

import pytest

from gpuledger.edge.kube.objects import time_of
from gpuledger.edge.watchers.decide import ObjectPart
from gpuledger.edge.watchers.resources import nodes
from gpuledger.events.node import NodeLabelled
from gpuledger.tools.present.objects import UNDATED, dated, facts_of, problem_notes, written_at

CREATED, WRITTEN = "2026-01-01T01:00:00Z", "2026-01-02T01:00:00Z"


def entry(time: str, **fields: Any) -> dict[str, Any]:
    return {"manager": "m", "time": time, "fieldsV1": fields}


def obj(*managed: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"creationTimestamp": CREATED, "managedFields": list(managed), **metadata}}


@pytest.mark.parametrize(
    ("given", "path", "expected"),
    [
        (obj(), ("f:spec",), CREATED),
        (obj(entry(WRITTEN, **{"f:spec": {"f:pool": {}}})), ("f:spec",), WRITTEN),
        (obj(entry(WRITTEN, **{"f:status": {"f:x": {}}})), ("f:spec",), CREATED),
        (
            obj(entry(CREATED, **{"f:spec": {"f:a": {}}}), entry(WRITTEN, **{"f:spec": {"f:b": {}}})),
            ("f:spec",),
            WRITTEN,
        ),
        (obj(entry("yesterday", **{"f:spec": {"f:a": {}}})), ("f:spec",), CREATED),
        (obj(entry(WRITTEN, **{"f:spec": {"f:a": {}}})), (), CREATED),
    ],
)
def test_an_object_is_as_old_as_the_last_write_to_what_matters(
    given: dict[str, Any], path: tuple[str, ...], expected: str
) -> None:
    assert written_at(given, *path) == datetime.fromisoformat(expected)


@pytest.mark.parametrize("odd", [None, 3, "", "2026", "2026-01-01T01:00:00", {"a": 1}])
def test_no_time_is_made_of_what_is_none(odd: object) -> None:
    assert time_of(odd) is None
    assert written_at({"metadata": {"creationTimestamp": odd}}) == UNDATED


def test_facts_are_what_a_watcher_of_the_kind_records() -> None:
    node = obj(name="w1", uid="u", labels={"zone": "a"})
    (fact,) = facts_of(nodes.LABELS_KIND, [dated(nodes.LABELS_KIND, node), dated(nodes.LABELS_KIND, {"metadata": 3})])
    assert fact.event.data == NodeLabelled(uid="u", labels={"zone": "a"})
    assert (fact.event.subject, fact.event.time) == ("w1", datetime(2026, 1, 1, 1, tzinfo=UTC))


def test_a_note_names_the_first_objects_that_are_not_understood() -> None:
    parts = [ObjectPart(f"/{name}", name, b"", ("spec is 3",)) for name in "abcd"]
    assert list(problem_notes("slices", parts)) == [
        "Not all slices were fully understood (a: spec is 3; b: spec is 3; c: spec is 3; and 1 more)."
    ]
    assert list(problem_notes("slices", [ObjectPart("/a", "a", b"")])) == []
