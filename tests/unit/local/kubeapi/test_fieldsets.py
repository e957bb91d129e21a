"""Sets of field paths: their algebra, their JSON form, and the fields of an object."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.edge.kube.schema.shapes import ANYTHING, Shape
from gpuledger.local.kubeapi import fieldsets

TEXT = Shape("string")
TAINT = Shape("object", fields={"key": TEXT, "effect": TEXT, "value": TEXT})
SHAPE = Shape(
    "object",
    fields={
        "labels": Shape("object", values=TEXT),
        "selector": Shape("object", values=TEXT, atomic=True),
        "taints": Shape(
            "array", items=TAINT, list_type="map", keys=("key", "effect"), key_defaults={"effect": "NoSchedule"}
        ),
        "products": Shape("array", items=TEXT, list_type="set"),
        "vendors": Shape("array", items=TEXT),
        "free": ANYTHING,
        "opaque": Shape("any"),
        "groups": Shape("object", values=Shape("object", fields={"size": Shape("integer")})),
    },
)

PATHS = st.sets(st.lists(st.sampled_from(["f:a", "f:b", 'k:{"x":1}', 'v:"y"']), min_size=1, max_size=3).map(tuple))


def made(paths: Any) -> Any:
    """The set of some paths, written out by hand."""
    tree: Any = {}
    for path in paths:
        node = tree
        for element in path:
            node = node.setdefault(element, {})
        node["."] = {}

    def tidied(node: Any) -> Any:
        below = {element: tidied(part) for element, part in node.items()}
        return {} if below == {".": {}} else below

    return {element: tidied(node) for element, node in tree.items()}


@given(PATHS, PATHS)
def test_sets_of_fields_are_sets(one: Any, other: Any) -> None:
    assert fieldsets.union(made(one), made(other)) == made(one | other)
    assert fieldsets.difference(made(one), made(other)) == made(one - other)
    assert fieldsets.intersection(made(one), made(other)) == made(one & other)


@given(PATHS, PATHS)
def test_sets_that_are_read_once_stay_as_they_are(one: Any, other: Any) -> None:
    mine, theirs = fieldsets.read(made(one)), fieldsets.read(made(other))
    assert mine == fieldsets.parsed(made(one))
    assert fieldsets.read(made(one)) is mine
    fieldsets.union(mine, theirs)
    fieldsets.difference(mine, theirs)
    fieldsets.intersection(mine, theirs)
    fieldsets.without(mine, ("a", "b"))
    fieldsets.named(mine, SHAPE)
    assert (mine, theirs) == (made(one), made(other))


@pytest.mark.parametrize("fields", [[], "x", None, {"f:a": []}, {"f:a": [0] * 20_000}, {"x:a": {}}, {"k:1": {}}])
def test_what_is_no_set_cannot_be_read(fields: Any) -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match=r"must be|no key|no path"):
            fieldsets.read(fields)


@given(PATHS)
def test_every_path_is_listed_once(paths: Any) -> None:
    fields = list(fieldsets.paths(made(paths)))
    assert len(fields) == len(set(fields)) == len(paths)


@given(PATHS, st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=2).map(tuple))
def test_a_path_is_taken_with_all_below(paths: Any, gone: Any) -> None:
    elements = tuple(f"f:{name}" for name in gone)
    left = {path for path in paths if path[: len(elements)] != elements}
    assert fieldsets.without(made(paths), gone) == made(left)


@pytest.mark.parametrize(
    ("obj", "fields"),
    [
        ({"labels": {"a": "1"}}, {"f:labels": {"f:a": {}}}),
        ({"labels": {}}, {"f:labels": {}}),
        ({"labels": None}, {"f:labels": {}}),
        ({"selector": {"a": "1"}}, {"f:selector": {}}),
        ({"products": ["A"]}, {"f:products": {'v:"A"': {}}}),
        ({"products": []}, {}),
        ({"vendors": ["A"]}, {"f:vendors": {}}),
        ({"vendors": []}, {"f:vendors": {}}),
        ({"free": {"a": {"b": [1]}}}, {"f:free": {"f:a": {".": {}, "f:b": {}}}}),
        ({"opaque": {"a": 1}}, {"f:opaque": {}}),
        ({"groups": {"g": {"size": 1}}}, {"f:groups": {"f:g": {".": {}, "f:size": {}}}}),
        ({"groups": {"g": {}}}, {"f:groups": {"f:g": {}}}),
        (
            {"taints": [{"key": "a", "value": "x"}]},
            {"f:taints": {'k:{"effect":"NoSchedule","key":"a"}': {".": {}, "f:key": {}, "f:value": {}}}},
        ),
    ],
)
def test_the_fields_of_an_object(obj: Any, fields: Any) -> None:
    assert fieldsets.of(obj, SHAPE) == fields


@pytest.mark.parametrize("obj", [{"taints": [{"value": "x"}]}, {"taints": ["a"]}, {"products": [None]}])
def test_items_without_a_place(obj: Any) -> None:
    with pytest.raises(fieldsets.ElementError):
        fieldsets.of(obj, SHAPE)


def test_paths_are_shown_as_kubernetes_shows_them() -> None:
    fields = {"f:taints": {'k:{"effect":"E","key":"a"}': {".": {}, "f:value": {}}}, "f:set": {'v:"x"': {}, "i:3": {}}}
    assert list(fieldsets.paths(fields)) == [
        ".set[3]",
        '.set[="x"]',
        '.taints[effect="E",key="a"]',
        '.taints[effect="E",key="a"].value',
    ]


def test_declared_fields_on_the_way_are_named() -> None:
    fields = {"f:groups": {"f:g": {"f:size": {}}}, "f:products": {'v:"A"': {}}}
    assert fieldsets.named(fields, SHAPE) == {
        "f:groups": {".": {}, "f:g": {"f:size": {}}},
        "f:products": {".": {}, 'v:"A"': {}},
    }


def test_keys_that_a_client_sends_are_put_in_one_form() -> None:
    sent: Any = {".": {}, "f:a": {'k:{"b": 1, "a": 2}': {"v: 1": {}}}}
    assert fieldsets.parsed(sent) == {"f:a": {'k:{"a":2,"b":1}': {"v:1": {}}}}


@pytest.mark.parametrize("sent", [[], {"a": {}}, {"f:a": 1}, {"k:1": {}}, {"v:x": {}}])
def test_what_is_no_set(sent: Any) -> None:
    with pytest.raises(ValueError, match=r"element|key|nested|char"):
        fieldsets.parsed(sent)
