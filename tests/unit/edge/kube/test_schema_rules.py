from typing import Any

import pytest

from gpuledger.edge.kube.schema.correlation import ABSENT
from gpuledger.edge.kube.schema.problems_of_rules import rule_problems
from gpuledger.edge.kube.schema.rules import broken_rules, rules_of
from gpuledger.edge.kube.schema.structural import node_of

STRING, INTEGER = {"type": "string"}, {"type": "integer"}
KEYED: dict[str, Any] = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["k"],
    "items": {"type": "object", "properties": {"k": STRING, "v": INTEGER}},
}
FIELDS = {
    "a": INTEGER,
    "b": INTEGER,
    "f": {"type": "number"},
    "s": STRING,
    "when": {"type": "string", "format": "date-time"},
    "long": {"type": "string", "format": "duration"},
    "odd-name": INTEGER,
    "namespace": STRING,
    "m": {"type": "object", "additionalProperties": INTEGER},
    "l": {"type": "array", "items": INTEGER},
    "set": {"type": "array", "items": STRING, "x-kubernetes-list-type": "set"},
    "keyed": KEYED,
    "n": {"type": "string", "nullable": True},
    "in": {"type": "object", "properties": {"x": INTEGER}},
}


def found(rule: dict[str, Any], spec: dict[str, Any], old: object = ABSENT) -> list[tuple[str, str, str]]:
    schema = {"type": "object", "properties": FIELDS, "x-kubernetes-validations": [rule]}
    tree = rules_of(node_of({"type": "object", "properties": {"spec": schema}}))
    assert tree is not None
    before = old if old is ABSENT else {"spec": old}
    return [(one.reason, one.field, one.message) for one in broken_rules({"spec": spec}, tree, before)]


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        ("self.a <= self.b", {"a": 1, "b": 2}, {"a": 3, "b": 2}),
        ("has(self.a) != has(self.b)", {"a": 1}, {"a": 1, "b": 1}),
        ("!has(self.n)", {"n": None}, {"n": "x"}),
        ("self.f > 1.5", {"f": 2}, {"f": 1}),
        ("self.f + 0.5 == 2.5", {"f": 2}, {"f": 1}),
        ("size(self.s) == 1", {"s": "é"}, {"s": "ab"}),
        ("self.s.matches('^[a-z]+$')", {"s": "a"}, {"s": "1"}),
        ("self.s.startsWith('a') && self.s.endsWith('z')", {"s": "abz"}, {"s": "ab"}),
        ("self.s.lowerAscii() == self.s", {"s": "a"}, {"s": "A"}),
        ("self.s.split(',').size() == 2", {"s": "a,b"}, {"s": "a"}),
        ("self.l.all(x, x > 0)", {"l": [1]}, {"l": [0]}),
        ("self.l.exists(x, x == 2)", {"l": [2]}, {"l": []}),
        ("self.l.exists_one(x, x == 2)", {"l": [2]}, {"l": [2, 2]}),
        ("self.l.filter(x, x > 1).size() == 1", {"l": [1, 2]}, {"l": [1]}),
        ("self.l.min() == 1 && self.l.max() == 3", {"l": [1, 3]}, {"l": [2]}),
        ("self.l.all(i, x, x == i)", {"l": [0, 1]}, {"l": [1]}),
        ("self.m.all(k, self.m[k] > 0)", {"m": {"a": 1}}, {"m": {"a": 0}}),
        ("'a' in self.m", {"m": {"a": 1}}, {"m": {}}),
        ("self.?__in__.x.orValue(5) == 5", {}, {"in": {"x": 1}}),
        ("self.m[?'k'].orValue(1) == 1", {"m": {}}, {"m": {"k": 2}}),
        ("cel.bind(d, self.b - self.a, d > 0)", {"a": 1, "b": 2}, {"a": 2, "b": 2}),
        (
            "self.when < timestamp('2025-01-01T00:00:00Z')",
            {"when": "2024-01-01T00:00:00Z"},
            {"when": "2026-01-01T00:00:00Z"},
        ),
        ("self.long <= duration('1h')", {"long": "30m"}, {"long": "1h30m"}),
        ("self.odd__dash__name == 1 ", {"odd-name": 1}, {"odd-name": 2}),
        ("self.__namespace__ == 'x'", {"namespace": "x"}, {"namespace": "y"}),
        ("isQuantity(self.s) && quantity(self.s).isLessThan(quantity('1Gi'))", {"s": "1M"}, {"s": "2Gi"}),
        ("quantity(self.s) == quantity('1500m')", {"s": "1.5"}, {"s": "1"}),
    ],
)
def test_rules_hold_or_break(rule: str, good: dict[str, Any], bad: dict[str, Any]) -> None:
    assert found({"rule": rule}, good) == []
    assert [one[:2] for one in found({"rule": rule}, bad)] == [("FieldValueInvalid", "spec")]


def test_the_message_of_a_broken_rule() -> None:
    rule = {
        "rule": "self.a < 5",
        "message": "too much",
        "messageExpression": "'a is ' + string(self.a)",
        "reason": "FieldValueForbidden",
        "fieldPath": ".a",
    }
    assert found(rule, {"a": 7}) == [("FieldValueForbidden", "spec.a", "Forbidden: a is 7")]
    assert found(rule | {"messageExpression": "self.s"}, {"a": 7})[0][2] == "Forbidden: too much"
    assert found({"rule": "self.a < 5"}, {"a": 7})[0][2] == "Invalid value: failed rule: self.a < 5"


def test_a_rule_that_fails_is_broken() -> None:
    assert [one[:2] for one in found({"rule": "self.a > 1"}, {})] == [("FieldValueInvalid", "spec")]


def test_transition_rules_need_an_older_value() -> None:
    rule = {"rule": "self.a >= oldSelf.a"}
    assert found(rule, {"a": 1}) == []
    assert found(rule, {"a": 2}, {"a": 1}) == []
    assert len(found(rule, {"a": 1}, {"a": 2})) == 1


def test_an_optional_older_value() -> None:
    rule = {"rule": "oldSelf.hasValue() ? self.a == oldSelf.value().a : self.a == 0", "optionalOldSelf": True}
    assert found(rule, {"a": 0}) == []
    assert len(found(rule, {"a": 1})) == 1
    assert found(rule, {"a": 3}, {"a": 3}) == []
    assert len(found(rule, {"a": 4}, {"a": 3})) == 1


def test_the_order_of_sets_and_keyed_lists_is_no_difference() -> None:
    rule = {"rule": "self == oldSelf"}
    old: dict[str, Any] = {"set": ["a", "b"], "keyed": [{"k": "1", "v": 1}, {"k": "2", "v": 2}]}
    assert found(rule, {"set": ["b", "a"], "keyed": old["keyed"][::-1]}, old) == []
    assert len(found({"rule": "self.l == oldSelf.l"}, {"l": [1, 2]}, {"l": [2, 1]})) == 1


def test_what_did_not_change_is_let_be() -> None:
    assert found({"rule": "self.a < 5"}, {"a": 7}, {"a": 7}) == []
    assert len(found({"rule": "self.a < 5"}, {"a": 7, "b": 1}, {"a": 7})) == 1


def test_items_of_keyed_lists_are_paired_and_paths_have_keys() -> None:
    never = [{"rule": "self == oldSelf"}]
    item = KEYED["items"] | {"x-kubernetes-validations": never}
    schema = {
        "type": "object",
        "properties": {
            "keyed": KEYED | {"items": item},
            "map": {"type": "object", "additionalProperties": INTEGER | {"x-kubernetes-validations": never}},
        },
    }
    tree = rules_of(node_of(schema))
    assert tree is not None
    old = {"keyed": [{"k": "a", "v": 1}, {"k": "b", "v": 1}], "map": {"x": 1}}
    new = {"keyed": [{"k": "c", "v": 9}, {"k": "b", "v": 2}, {"k": "a", "v": 1}], "map": {"x": 2, "y": 3}}
    assert [one.field for one in broken_rules(new, tree, old)] == ["keyed[1]", "map[x]"]


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        ({"rule": "self.a +"}, "rule"),
        ({"rule": "(self.a"}, "rule"),
        ({"rule": "self.nonsense == 1"}, "rule"),
        ({"rule": "other == 1"}, "rule"),
        ({"rule": "shout(self.a)"}, "rule"),
        ({"rule": ""}, "rule"),
        ({"rule": "self.a == 1", "messageExpression": "self."}, "messageExpression"),
        ({"rule": "self.a == 1", "message": "a\nb"}, "message"),
        ({"rule": "self.a ==\n1"}, "message"),
        ({"rule": "self.a == 1", "reason": "Whim"}, "reason"),
        ({"rule": "self.a == 1", "fieldPath": ".nonsense"}, "fieldPath"),
        ({"rule": "self.a == 1", "optionalOldSelf": True}, "optionalOldSelf"),
    ],
)
def test_rules_that_no_schema_may_have(rule: dict[str, Any], field: str) -> None:
    node = node_of({"type": "object", "properties": FIELDS, "x-kubernetes-validations": [rule]})
    assert [one.field for one in rule_problems(node, "at")] == [f"at.x-kubernetes-validations[0].{field}"]


def test_items_of_plain_lists_have_no_older_self() -> None:
    items = STRING | {"x-kubernetes-validations": [{"rule": "self == oldSelf"}]}
    node = node_of({"type": "object", "properties": {"l": {"type": "array", "items": items}}})
    assert len(list(rule_problems(node, "at"))) == 1
