from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import pytest

from gpuledger.local.kubeapi.crds import CrdStrategy, accept
from gpuledger.local.kubeapi.errors import ApiError
from gpuledger.local.kubeapi.resources import Context

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
AT = "spec.validation.openAPIV3Schema"
STRING = {"type": "string"}


def crd(spec_schema: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"spec": spec_schema or {"type": "object"}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "metadata": {"name": "widgets.gpu.example.com"},
        "spec": {
            "group": "gpu.example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [version],
        }
        | spec,
    }


def prepared(obj: dict[str, Any]) -> dict[str, Any]:
    strategy = CrdStrategy()
    strategy.default(obj)
    strategy.prepare_for_create(obj, Context(NOW, "admin", []))
    return obj


def found(obj: dict[str, Any]) -> set[tuple[str, str]]:
    return {(one.reason.removeprefix("FieldValue"), one.field) for one in CrdStrategy().validate(prepared(obj))}


def test_names_are_filled_in_and_accepted() -> None:
    obj = prepared(crd())
    assert obj["spec"]["names"] == {
        "plural": "widgets",
        "singular": "widget",
        "kind": "Widget",
        "listKind": "WidgetList",
    }
    assert obj["spec"]["conversion"] == {"strategy": "None"}
    assert found(crd()) == set()
    accept(obj, NOW)
    assert obj["status"]["acceptedNames"] == obj["spec"]["names"]
    assert obj["status"]["storedVersions"] == ["v1"]
    conditions = [(one["type"], one["status"], one["lastTransitionTime"]) for one in obj["status"]["conditions"]]
    assert conditions == [
        ("NamesAccepted", "True", "2026-01-02T03:04:05Z"),
        ("Established", "True", "2026-01-02T03:04:05Z"),
    ]


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"scope": "Galaxy"}, ("NotSupported", "spec.scope")),
        ({"scope": ""}, ("Required", "spec.scope")),
        (
            {"names": {"plural": "widgets", "kind": "Widget", "shortNames": ["W"]}},
            ("Invalid", "spec.names.shortNames[0]"),
        ),
        ({"names": {"plural": "widgets", "kind": "W", "listKind": "W"}}, ("Invalid", "spec.names.listKind")),
        ({"names": {"plural": "others", "kind": "Widget"}}, ("Invalid", "metadata.name")),
        ({"preserveUnknownFields": True}, ("Invalid", "spec.preserveUnknownFields")),
        ({"conversion": {"strategy": "Guess"}}, ("NotSupported", "spec.conversion.strategy")),
    ],
)
def test_specs_that_are_refused(changes: dict[str, Any], cause: tuple[str, str]) -> None:
    assert found(crd(**changes)) == {cause}


def test_versions_are_judged() -> None:
    obj = crd()
    second = deepcopy(obj["spec"]["versions"][0]) | {"name": "v2"}
    obj["spec"]["versions"].append(second)
    assert found(deepcopy(obj)) == {("Invalid", "spec.versions"), ("Invalid", "status.storedVersions")}
    second["storage"] = False
    assert found(deepcopy(obj)) == set()
    second["schema"]["openAPIV3Schema"]["properties"]["x"] = {}
    where = "spec.versions[1].schema.openAPIV3Schema.properties[x].type"
    assert found(deepcopy(obj)) == {("Required", where)}
    del second["schema"]
    assert found(obj) == {("Required", "spec.versions[1].schema.openAPIV3Schema")}


@pytest.mark.parametrize(
    ("schema", "reason", "field"),
    [
        ({"properties": {}}, "Required", ".type"),
        ({"type": "text"}, "NotSupported", ".type"),
        ({"type": "array"}, "Required", ".items"),
        ({"type": "array", "items": {}}, "Required", ".items.type"),
        ({"type": "array", "items": STRING, "uniqueItems": True}, "Forbidden", ".uniqueItems"),
        ({"type": "object", "additionalProperties": False}, "Forbidden", ".additionalProperties"),
        (
            {"type": "object", "additionalProperties": STRING, "properties": {"a": STRING}},
            "Forbidden",
            ".additionalProperties",
        ),
        ({"type": "string", "pattern": "("}, "Invalid", ".pattern"),
        ({"type": "object", "anyOf": [{"type": "object"}]}, "Forbidden", ".anyOf[0].type"),
        ({"type": "object", "not": {"properties": {"x": {"minimum": 1}}}}, "Required", ".properties[x]"),
        ({"type": "integer", "x-kubernetes-int-or-string": True}, "Forbidden", ".type"),
        ({"type": "integer", "default": "one"}, "TypeInvalid", ".default"),
        ({"type": "object", "default": {"x": 1}}, "Invalid", ".default"),
        ({"type": "string", "x-kubernetes-list-type": "set"}, "Invalid", ".type"),
        (
            {"type": "array", "items": STRING, "x-kubernetes-list-type": "heap"},
            "NotSupported",
            ".x-kubernetes-list-type",
        ),
        ({"type": "object", "x-kubernetes-map-type": "loose"}, "NotSupported", ".x-kubernetes-map-type"),
        ({"type": "object", "x-kubernetes-embedded-resource": True}, "Required", ".properties"),
    ],
)
def test_schemas_that_are_refused(schema: dict[str, Any], reason: str, field: str) -> None:
    assert found(crd(schema)) == {(reason, f"{AT}.properties[spec]{field}")}


@pytest.mark.parametrize(
    ("changes", "reason", "field"),
    [
        ({"x-kubernetes-list-map-keys": ["z"]}, "Invalid", ".x-kubernetes-list-map-keys"),
        ({"x-kubernetes-list-map-keys": []}, "Required", ".x-kubernetes-list-map-keys"),
        ({"x-kubernetes-list-map-keys": ["b"]}, "Required", ".items.properties[b].default"),
    ],
)
def test_keys_of_lists_exist_and_are_always_there(changes: dict[str, Any], reason: str, field: str) -> None:
    keyed = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["a"],
        "items": {"type": "object", "required": ["a"], "properties": {"a": STRING, "b": STRING}},
    }
    assert found(crd(keyed)) == set()
    assert found(crd(keyed | changes)) == {(reason, f"{AT}.properties[spec]{field}")}


def test_an_int_or_string_may_list_its_types() -> None:
    either = {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}
    assert found(crd(either)) == set()
    assert found(crd({"x-kubernetes-int-or-string": True, "allOf": [{"anyOf": either["anyOf"]}]})) == set()


def test_selectable_fields_exist() -> None:
    obj = crd({"type": "object", "properties": {"a": STRING, "o": {"type": "object"}}})
    version = obj["spec"]["versions"][0]
    version["selectableFields"] = [{"jsonPath": ".spec.a"}, {"jsonPath": ".spec.o"}, {"jsonPath": ".spec.z"}]
    assert found(obj) == {("Invalid", f"spec.selectableFields[{index}].jsonPath") for index in (1, 2)}


def test_what_may_not_change() -> None:
    strategy, context = CrdStrategy(), Context(NOW, "admin", [])
    old = prepared(crd())
    accept(old, NOW)
    new = deepcopy(old)
    new["spec"]["scope"] = "Cluster"
    new["spec"]["versions"].insert(0, deepcopy(new["spec"]["versions"][0]) | {"name": "v2"})
    new["spec"]["versions"][1]["storage"] = False
    strategy.prepare_for_update(new, old, "", context)
    assert new["status"]["storedVersions"] == ["v1", "v2"]
    assert [one.field for one in strategy.validate_update(new, old, "")] == ["spec.scope"]


def test_features_that_are_not_implemented_answer_501() -> None:
    converted, computed = crd(), crd()
    converted["spec"]["conversion"] = {"strategy": "Webhook"}
    spec = computed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["x-kubernetes-validations"] = [{"rule": "isURL(self.a)"}]
    for obj in (converted, computed):
        with pytest.raises(ApiError) as refused:
            CrdStrategy().validate(prepared(obj))
        assert refused.value.code == 501
