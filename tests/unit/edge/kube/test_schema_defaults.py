from copy import deepcopy
from typing import Any

import orjson
import pytest
from hypothesis import given as given_any
from hypothesis import strategies as st

from gpuledger.edge.kube.schema.defaults import apply_defaults
from gpuledger.edge.kube.schema.structural import SchemaNode, node_of, shape_of

SPEC = {
    "type": "object",
    "properties": {
        "mode": {"type": "string", "default": "on"},
        "note": {"type": "string", "nullable": True, "default": "x"},
        "plain": {"type": "string"},
        "inner": {"type": "object", "properties": {"size": {"type": "integer", "default": 1}}},
        "made": {"type": "object", "default": {}, "properties": {"size": {"type": "integer", "default": 2}}},
        "list": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer", "default": 0}}}},
        "map": {"type": "object", "additionalProperties": {"type": "integer", "default": 7}},
        "loose": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
ROOT = {"mode": "on", "note": "x", "made": {"size": 2}}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        ({"mode": "off"}, {"mode": "off"}),
        ({"mode": None}, {}),
        ({"note": None}, {"note": None}),
        ({"plain": None}, {}),
        ({"inner": {}}, {"inner": {"size": 1}}),
        ({"inner": None}, {}),
        ({"made": {"size": 5}}, {"made": {"size": 5}}),
        ({"list": [{}, {"n": 3}]}, {"list": [{"n": 0}, {"n": 3}]}),
        ({"map": {"a": None, "b": 1}}, {"map": {"a": 7, "b": 1}}),
        ({"loose": {"a": None}}, {"loose": {"a": None}}),
    ],
)
def test_defaults_fill_what_is_absent(given: dict[str, Any], expected: dict[str, Any]) -> None:
    value = {"spec": given}
    apply_defaults(value, node_of({"type": "object", "properties": {"spec": SPEC}}))
    assert value == {"spec": ROOT | expected}


def test_an_absent_object_gets_no_defaults_inside() -> None:
    value: dict[str, Any] = {}
    apply_defaults(value, node_of({"type": "object", "properties": {"spec": SPEC}}))
    assert value == {}


def test_defaults_are_not_shared() -> None:
    node = node_of({"type": "object", "properties": {"spec": SPEC}})
    one: dict[str, Any] = {"spec": {}}
    apply_defaults(one, node)
    one["spec"]["made"]["size"] = 9
    other: dict[str, Any] = {"spec": {}}
    apply_defaults(other, node)
    assert other["spec"]["made"] == {"size": 2}


NUMBERS = st.none() | st.integers(0, 1)
SIZES = st.dictionaries(st.sampled_from(["size", "other"]), NUMBERS)
TEXTS = st.sampled_from(["null", "x", None])
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "mode": TEXTS,
        "note": TEXTS,
        "plain": TEXTS,
        "inner": st.none() | SIZES,
        "made": st.none() | SIZES,
        "list": st.none() | st.lists(st.none() | st.dictionaries(st.sampled_from("no"), NUMBERS), max_size=3),
        "map": st.none() | st.dictionaries(st.sampled_from("ab"), NUMBERS),
        "loose": st.none() | SIZES,
    },
)


def walked_defaults(value: Any, node: SchemaNode) -> None:
    """The rules, one field after the other, in place."""
    if isinstance(value, dict):
        for name in dict.fromkeys([*value, *node.properties]):
            walked_field(value, name, node.properties.get(name) or node.additional)
    elif isinstance(value, list) and node.items:
        for index, one in enumerate(value):
            if one is None and not node.items.nullable:
                value[index] = deepcopy(node.items.default)
            walked_defaults(value[index], node.items)


def walked_field(value: Any, name: str, below: SchemaNode | None) -> None:
    if below is None:
        return
    if value.get(name) is None and not (name in value and below.nullable):
        if below.default is None:
            value.pop(name, None)
            return
        value[name] = deepcopy(below.default)
    walked_defaults(value[name], below)


@given_any(SPECS, SPECS)
def test_defaults_are_those_of_a_walk_and_change_nothing_below(spec: Any, status: Any) -> None:
    bare = {"type": "object", "properties": {name: {"type": "string"} for name in ("mode", "plain")}}
    node = node_of({"type": "object", "properties": {"spec": SPEC, "status": bare}})
    given: dict[str, Any] = {"spec": spec, "status": status}
    expected, kept = deepcopy(given), orjson.dumps(given)
    walked_defaults(expected, node)
    value = dict(given)
    apply_defaults(value, node)
    assert orjson.dumps(value) == orjson.dumps(expected)
    assert orjson.dumps(given) == kept


def test_the_shape_knows_what_the_schema_leaves_out() -> None:
    key = {"type": "string", "default": "TCP"}
    ports = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["p"],
        "items": {"type": "object", "properties": {"p": key}},
    }
    ref = {"type": "object", "x-kubernetes-map-type": "atomic"}
    percent = {"x-kubernetes-int-or-string": True}
    shape = shape_of(node_of({"type": "object", "properties": {"ports": ports, "ref": ref, "percent": percent}}))
    assert shape.fields["ports"].list_type == "map"
    assert shape.fields["ports"].keys == ("p",)
    assert shape.fields["ports"].key_defaults == {"p": "TCP"}
    assert shape.fields["ref"].atomic
    assert shape.fields["percent"].int_or_string
    assert shape.fields["metadata"].fields["ownerReferences"].keys == ("uid",)
    assert shape.child("nonsense") is None
