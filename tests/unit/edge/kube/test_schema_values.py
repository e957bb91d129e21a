from typing import Any

import pytest

from gpuledger.edge.kube.schema.correlation import ABSENT
from gpuledger.edge.kube.schema.formats import format_problem
from gpuledger.edge.kube.schema.lists import embedded_problems, repeated_items
from gpuledger.edge.kube.schema.patterns import matches
from gpuledger.edge.kube.schema.structural import node_of
from gpuledger.edge.kube.schema.values import ValuePlace, problems_of_value


def found(schema: dict[str, Any], value: object, old: object = ABSENT) -> set[tuple[str, str]]:
    node = node_of({"type": "object", "properties": {"spec": schema}})
    before = ABSENT if old is ABSENT else {"spec": old, "x": 1}
    causes = problems_of_value({"spec": value}, node, ValuePlace(""), before)
    return {(cause.reason.removeprefix("FieldValue"), cause.field) for cause in causes}


STRING = {"type": "string"}
INTEGER = {"type": "integer"}


@pytest.mark.parametrize(
    ("schema", "good", "bad", "reason"),
    [
        (STRING, "a", 1, "TypeInvalid"),
        (STRING, "a", None, "TypeInvalid"),
        (STRING | {"nullable": True}, None, 1, "TypeInvalid"),
        (INTEGER, 2.0, 2.5, "TypeInvalid"),
        (INTEGER, 1, True, "TypeInvalid"),
        ({"type": "number"}, 1, "1", "TypeInvalid"),
        ({"type": "boolean"}, False, 0, "TypeInvalid"),
        ({"type": "array", "items": STRING}, [], {}, "TypeInvalid"),
        ({"type": "object"}, {}, [], "TypeInvalid"),
        ({"x-kubernetes-int-or-string": True}, "50%", 1.5, "TypeInvalid"),
        (STRING | {"enum": ["a", "b"]}, "b", "c", "NotSupported"),
        (INTEGER | {"enum": [1, 2]}, 2, 3, "NotSupported"),
        (STRING | {"maxLength": 2}, "éé", "abc", "TooLong"),
        (STRING | {"minLength": 2}, "ab", "a", "Invalid"),
        (STRING | {"pattern": "b+"}, "abba", "aca", "Invalid"),
        (STRING | {"pattern": "^a$"}, "a", "a\n", "Invalid"),
        (STRING | {"format": "date-time"}, "2024-02-29T01:02:03.5+02:00", "2023-02-29T01:02:03Z", "TypeInvalid"),
        (STRING | {"format": "unheard-of"}, "x", 1, "TypeInvalid"),
        (INTEGER | {"minimum": 1}, 1, 0, "Invalid"),
        (INTEGER | {"minimum": 1, "exclusiveMinimum": True}, 2, 1, "Invalid"),
        (INTEGER | {"maximum": 1}, 1, 2, "Invalid"),
        (INTEGER | {"maximum": 1, "exclusiveMaximum": True}, 0, 1, "Invalid"),
        (INTEGER | {"multipleOf": 3}, 9, 10, "Invalid"),
        ({"type": "number", "multipleOf": 0.5}, 1.5, 1.6, "Invalid"),
        ({"type": "array", "items": INTEGER, "minItems": 1}, [1], [], "Invalid"),
        ({"type": "array", "items": INTEGER, "maxItems": 1}, [1], [1, 2], "TooMany"),
        ({"type": "object", "additionalProperties": STRING, "maxProperties": 1}, {}, {"a": "", "b": ""}, "TooMany"),
        ({"type": "object", "additionalProperties": STRING, "minProperties": 1}, {"a": ""}, {}, "Invalid"),
    ],
)
def test_demands_name_the_field(schema: dict[str, Any], good: object, bad: object, reason: str) -> None:
    assert found(schema, good) == set()
    assert found(schema, bad) == {(reason, "spec")}


@pytest.mark.parametrize(
    ("schema", "value", "where"),
    [
        ({"type": "object", "required": ["unit"]}, {}, ("Required", "spec.unit")),
        ({"type": "array", "items": STRING}, ["a", 1], ("TypeInvalid", "spec[1]")),
        ({"type": "array", "items": STRING}, [None], ("TypeInvalid", "spec[0]")),
        ({"type": "object", "additionalProperties": STRING}, {"a/b": 1}, ("TypeInvalid", "spec.a/b")),
        (
            {"type": "array", "items": {"type": "object", "required": ["key"], "properties": {"key": STRING}}},
            [{}],
            ("Required", "spec[0].key"),
        ),
        (INTEGER | {"format": "int32"}, 2**31, ("Invalid", "<nil>")),
    ],
)
def test_paths_lead_to_what_is_wrong(schema: dict[str, Any], value: object, where: tuple[str, str]) -> None:
    assert found(schema, value) == {where}


def test_a_bound_of_a_type_does_not_apply_to_values_of_another() -> None:
    assert found(INTEGER | {"minimum": 5}, "one") == {("TypeInvalid", "spec")}


@pytest.mark.parametrize(
    ("schema", "good", "bad", "also"),
    [
        ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"b": 1}, {}, {("Required", "spec.a")}),
        ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": 1}, {"a": 1, "b": 1}, set()),
        ({"allOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": 1, "b": 1}, {"a": 1}, {("Required", "spec.b")}),
        ({"not": {"required": ["a"]}}, {}, {"a": 1}, set()),
    ],
)
def test_combined_schemas(schema: dict[str, Any], good: object, bad: object, also: set[tuple[str, str]]) -> None:
    whole = schema | {"type": "object", "properties": {"a": INTEGER, "b": INTEGER}}
    assert found(whole, good) == set()
    assert found(whole, bad) == {("Invalid", "<nil>")} | also


def test_an_update_is_not_blamed_for_what_it_leaves_alone() -> None:
    schema = {"type": "object", "properties": {"a": INTEGER, "b": INTEGER}}
    assert found(schema, {"a": "wrong", "b": 1}, {"a": "wrong", "b": 0}) == set()
    assert found(schema, {"a": "worse", "b": 1}, {"a": "wrong", "b": 1}) == {("TypeInvalid", "spec.a")}


def test_only_items_of_keyed_lists_have_an_older_self() -> None:
    item = {"type": "object", "properties": {"k": STRING, "v": INTEGER, "w": INTEGER}}
    keyed = {"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}
    old, new = [{"k": "a", "v": "bad"}], [{"k": "b"}, {"k": "a", "v": "bad", "w": 1}]
    assert found(keyed, new, old) == set()
    assert found({"type": "array", "items": item}, new, old) == {("TypeInvalid", "spec[1].v")}


def test_items_of_sets_and_keyed_lists_are_there_once() -> None:
    node = node_of(
        {
            "type": "object",
            "properties": {
                "set": {"type": "array", "items": STRING, "x-kubernetes-list-type": "set"},
                "maps": {
                    "type": "object",
                    "additionalProperties": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["k", "p"],
                        "items": {"type": "object", "properties": {"k": STRING, "p": STRING}},
                    },
                },
            },
        }
    )
    value = {"set": ["a", "b", "a"], "maps": {"x": [{"k": "1"}, {"k": "1", "p": "2"}, {"k": "1", "p": "2"}]}}
    assert [one.field for one in repeated_items(value, node)] == ["set[2]", "maps[x][2]"]


def test_embedded_resources_say_what_they_are() -> None:
    template = {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
    node = node_of({"type": "object", "properties": {"template": template}})
    assert [one.field for one in embedded_problems({"template": {"kind": "A"}}, node)] == ["template.apiVersion"]


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date", "2024-02-29", "2024-2-29"),
        ("duration", "1h30m", "1 fortnight"),
        ("uri", "https://a.example/x?y", "nowhere"),
        ("ipv4", "10.0.0.1", "10.0.0.256"),
        ("ipv6", "::1", "10.0.0.1"),
        ("cidr", "10.0.0.1/8", "10.0.0.0"),
        ("mac", "01:23:45:67:89:ab", "01:23"),
        ("uuid", "123E4567-e89b-12d3-a456-426614174000", "123"),
        ("uuid4", "123e4567-e89b-42d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000"),
        ("byte", "aGk=", "a"),
        ("quantity", "10Gi", "10 Gi"),
        ("k8s-short-name", "a-b", "A"),
    ],
)
def test_formats(name: str, good: str, bad: str) -> None:
    assert not format_problem(name, good)
    assert format_problem(name, bad)


@pytest.mark.parametrize(
    ("pattern", "value", "is_found"),
    [
        ("^[[:alpha:]]+$", "abc", True),
        (r"^\d$", "\u0661", False),
        (r"\Qa.b\E", "a.b", True),
        (r"\Qa.b\E", "axb", False),
        (r"^[]a]+$", "]a", True),
        (r"^a\z", "a", True),
        ("(", "(", False),
    ],
)
def test_patterns_are_go_s(pattern: str, value: str, is_found: bool) -> None:
    assert matches(pattern, value) is is_found
