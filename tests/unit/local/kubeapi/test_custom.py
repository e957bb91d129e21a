from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpuledger.local.kubeapi.custom import CustomStrategy, resources_of
from gpuledger.local.kubeapi.jsonpath import PathError, find
from gpuledger.local.kubeapi.resources import Context, ServedResource
from gpuledger.local.kubeapi.tables_age import age, age_of

NOW = datetime(2026, 1, 2, tzinfo=UTC)
CONTEXT = Context(NOW, "admin", [])
SPEC = {
    "type": "object",
    "properties": {"n": {"type": "integer", "default": 1}, "fixed": {"type": "string"}},
    "x-kubernetes-validations": [{"rule": "self.n < 9"}],
}
STATUS = {"type": "object", "properties": {"n": {"type": "integer"}, "node": {"type": "string"}}}


def resource(**version: Any) -> ServedResource:
    schema = {"type": "object", "required": ["spec"], "properties": {"spec": SPEC, "status": STATUS}}
    first = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}} | version
    names = {"plural": "widgets", "kind": "Widget"}
    spec = {
        "group": "gpu.example.com",
        "scope": "Cluster",
        "names": names,
        "versions": [first, first | {"served": False}],
    }
    [made] = resources_of({"spec": spec})
    return made


def strategy(**version: Any) -> CustomStrategy:
    made = resource(**({"subresources": {"status": {}}} | version)).strategy
    assert isinstance(made, CustomStrategy)
    return made


def widget(**parts: Any) -> dict[str, Any]:
    return {"metadata": {"name": "w", "creationTimestamp": "2026-01-01T23:59:00Z"}, "spec": {"n": 1}} | parts


def test_a_version_becomes_a_resource() -> None:
    made = resource(subresources={"status": {}})
    assert (made.api_version, made.singular, made.kind_of_list) == ("gpu.example.com/v1", "widget", "WidgetList")
    assert [one.name for one in made.subresources] == ["status"]
    assert made.is_custom
    assert set(made.shape.fields) == {"apiVersion", "kind", "metadata", "spec", "status"}


def test_creation_drops_a_status_that_has_its_own_endpoint() -> None:
    for has_status in (True, False):
        obj = widget(status={"n": 1})
        strategy(subresources={"status": {}} if has_status else {}).prepare_for_create(obj, CONTEXT)
        assert ("status" in obj) is not has_status


def test_updates_keep_what_their_endpoint_does_not_write() -> None:
    old = widget(status={"n": 1})
    new = widget(status={"n": 2})
    new["spec"] = {"n": 5}
    new["metadata"] |= {"labels": {"a": "b"}, "managedFields": [{}]}
    by_spec, by_status = deepcopy(new), deepcopy(new)
    strategy().prepare_for_update(by_spec, old, "", CONTEXT)
    assert by_spec == new | {"status": {"n": 1}}
    strategy().prepare_for_update(by_status, old, "status", CONTEXT)
    assert by_status == old | {"status": {"n": 2}, "metadata": old["metadata"] | {"managedFields": [{}]}}


def test_generation_follows_the_spec() -> None:
    assert not strategy().spec_changed(widget(status={"n": 1}), widget())
    assert strategy(subresources={}).spec_changed(widget(status={"n": 1}), widget())
    assert strategy().spec_changed(widget(other=1), widget())


@pytest.mark.parametrize(
    ("obj", "fields"),
    [
        (widget(), []),
        (widget(spec={"n": 10}), ["spec"]),
        (widget(spec={"n": "x"}), ["spec.n", "<nil>"]),
        ({"metadata": {"name": "w"}}, ["spec", "<nil>"]),
    ],
)
def test_rules_wait_for_the_schema(obj: dict[str, Any], fields: list[str]) -> None:
    assert [one.field for one in strategy().validate(obj)] == fields


def test_status_is_judged_alone() -> None:
    old = widget(spec={"n": 10})
    assert strategy().validate_update(old | {"status": {"n": 1}}, old, "status") == []
    causes = strategy().validate_update(old | {"status": {"n": "x"}}, old, "status")
    assert [one.field for one in causes] == ["status.n", "<nil>"]


def test_selectable_fields() -> None:
    made = strategy(selectableFields=[{"jsonPath": ".spec.n"}, {"jsonPath": ".status.node"}])
    assert made.field_labels(widget()) == {"spec.n": "1", "status.node": ""}


def test_columns_and_cells() -> None:
    columns = [
        {"name": "N", "type": "integer", "jsonPath": ".spec.n"},
        {"name": "Text", "type": "string", "jsonPath": ".spec.n", "priority": 1},
        {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
        {"name": "Born", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        {"name": "Flag", "type": "boolean", "jsonPath": ".spec.n"},
    ]
    made = strategy(additionalPrinterColumns=columns)
    assert [(one.name, one.priority) for one in made.columns()][:3] == [("Name", 0), ("N", 0), ("Text", 1)]
    ready = widget(status={"conditions": [{"type": "A", "status": "x"}, {"type": "Ready", "status": "True"}]})
    assert made.cells(ready, NOW) == ["w", 1, "1", "True", "60s", None]
    assert made.cells(widget(), NOW)[3] is None
    assert [one.name for one in strategy().columns()] == ["Name", "Age"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".a.b", [1]),
        (".a['x.y']", [2]),
        (".l[0].k", ["p"]),
        (".l[-1].k", ["q"]),
        (".l[*].k", ["p", "q"]),
        (".l[?(@.k=='q')].v", [4]),
        (".l[?(@.v>3)].k", ["q"]),
        (".l[?(@.k)].v", [3, 4]),
        ("{.a.b}", [1]),
        (".a.nothing.b", []),
        (r".a.x\.y", [2]),
        ("..v", [3, 4]),
    ],
)
def test_json_paths(path: str, expected: list[Any]) -> None:
    value = {"a": {"b": 1, "x.y": 2}, "l": [{"k": "p", "v": 3}, {"k": "q", "v": 4}]}
    assert find(path, value) == expected


def test_a_path_that_cannot_be_read() -> None:
    with pytest.raises(PathError):
        find(".a[", {})


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (600, "10m"),
        (10799, "179m"),
        (10800, "3h"),
        (12000, "3h20m"),
        (8 * 3600, "8h"),
        (47 * 3600, "47h"),
        (49 * 3600, "2d1h"),
        (8 * 86400, "8d"),
        (730 * 86400, "2y"),
        (775 * 86400, "2y45d"),
        (3650 * 86400, "10y"),
        (-5, "<invalid>"),
    ],
)
def test_ages(seconds: int, text: str) -> None:
    assert age(NOW - timedelta(seconds=seconds), NOW) == text


def test_ages_of_times_that_are_none() -> None:
    assert age_of(None, NOW) == "<unknown>"
    assert age_of("yesterday", NOW) == "<invalid>"
