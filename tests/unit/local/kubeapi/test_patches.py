"""JSON patches and merge patches, and what is answered to those that do not apply."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.local.kubeapi.errors import ApiError
from gpuledger.local.kubeapi.patches import COPIED_BYTES_MAX, OPERATIONS_MAX, json_patch, merge_patch

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab/~", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab/~", max_size=2), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text("ab/~", max_size=2), JSON, max_size=3)


def op(name: Any, path: Any, **rest: Any) -> Any:
    return {"op": name, "path": path, **rest}


def refusal(obj: Any, operations: Any) -> Any:
    with pytest.raises(ApiError) as caught:
        json_patch(obj, operations)
    return caught.value


@pytest.mark.parametrize(
    ("operation", "after"),
    [
        (op("add", "/list/-", value=3), {"list": [1, 2, 3], "map": {"a/b": "x"}}),
        (op("add", "/list/0", value=0), {"list": [0, 1, 2], "map": {"a/b": "x"}}),
        (op("add", "/map/~0", value=None), {"list": [1, 2], "map": {"a/b": "x", "~": None}}),
        (op("remove", "/map/a~1b"), {"list": [1, 2], "map": {}}),
        (op("replace", "/list/1", value=9), {"list": [1, 9], "map": {"a/b": "x"}}),
        (op("replace", "", value={"new": 1}), {"new": 1}),
        ({"op": "move", "from": "/map/a~1b", "path": "/y"}, {"list": [1, 2], "map": {}, "y": "x"}),
        ({"op": "copy", "from": "/list", "path": "/y"}, {"list": [1, 2], "map": {"a/b": "x"}, "y": [1, 2]}),
        (op("test", "/list", value=[1, 2]), {"list": [1, 2], "map": {"a/b": "x"}}),
        (op("test", "/absent", value=None), {"list": [1, 2], "map": {"a/b": "x"}}),
    ],
)
def test_an_operation_does_what_rfc_6902_says(operation: Any, after: Any) -> None:
    before = {"list": [1, 2], "map": {"a/b": "x"}}
    kept = copy.deepcopy(before)
    assert json_patch(before, [operation]) == after
    assert before == kept


@pytest.mark.parametrize(
    "operation",
    [
        op("twist", "/spec"),
        {"path": "/spec"},
        {"op": "remove"},
        op("add", "", value={}),
        op("add", "/absent/x", value=1),
        op("add", "/list/3", value=1),
        op("add", "/list/x", value=1),
        op("remove", "/absent"),
        op("replace", "/spec/absent", value=1),
        op("replace", "", value=[]),
        op("test", "/list/0", value=True),
        op("test", "/list/0/deeper", value=1),
        {"op": "move", "from": "/spec", "path": "/spec/below"},
        {"op": "copy", "path": "/y"},
    ],
)
def test_an_operation_that_does_not_apply_is_invalid_with_empty_details(operation: Any) -> None:
    error = refusal({"list": [1], "spec": {}}, [operation])
    assert (error.code, error.reason, error.details) == (422, "Invalid", {})


@pytest.mark.parametrize("patch", [{"op": "remove", "path": "/spec"}, None, ["remove"], [{"op": 1, "path": "/a"}]])
def test_what_is_no_patch_is_a_bad_request(patch: Any) -> None:
    assert refusal({}, patch).code == 400


def test_operations_are_bounded() -> None:
    error = refusal({"a": 1}, [op("test", "/a", value=1)] * (OPERATIONS_MAX + 1))
    assert (error.code, error.reason) == (413, "RequestEntityTooLarge")


def test_copies_are_bounded() -> None:
    start = {"list": ["x" * 1000]}
    doubling = [{"op": "copy", "from": "/list", "path": "/list/-"}] * COPIED_BYTES_MAX.bit_length()
    assert refusal(start, doubling).code == 422


def test_a_patch_can_be_tried_again() -> None:
    patch = [op("add", "/a", value={"list": []}), op("add", "/a/list/-", value=1)]
    assert json_patch({}, patch) == json_patch({}, patch) == {"a": {"list": [1]}}


@given(OBJECTS, JSON, st.text("ab/~", max_size=2))
def test_adding_then_removing_a_new_field_changes_nothing(obj: Any, value: Any, name: Any) -> None:
    obj.pop(name, None)
    path = "/" + name.replace("~", "~0").replace("/", "~1")
    assert json_patch(obj, [op("add", path, value=value), op("remove", path)]) == obj


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": None, "d": 3}}, {"a": {"c": 2, "d": 3}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": 1}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
        ({}, {"a": {"b": {"c": None}}}, {"a": {"b": {}}}),
        ({}, {"a": [{"b": None, "c": None}, None]}, {"a": [{}, None]}),
        ({"a": {"b": 1}}, {"a": "text"}, {"a": "text"}),
        ({"a": 1}, {}, {"a": 1}),
    ],
)
def test_a_merge_patch_does_what_rfc_7386_says(before: Any, patch: Any, after: Any) -> None:
    kept = copy.deepcopy((before, patch))
    assert merge_patch(before, patch) == after
    assert (before, patch) == kept


@pytest.mark.parametrize("patch", [[], "text", None])
def test_a_merge_patch_is_an_object(patch: Any) -> None:
    with pytest.raises(ApiError) as caught:
        merge_patch({}, patch)
    assert caught.value.code == 400


@given(OBJECTS, OBJECTS)
def test_merging_settles(obj: Any, patch: Any) -> None:
    """A list keeps its nulls where it takes the place of an object, as in Kubernetes, but not the second time."""
    twice = merge_patch(merge_patch(obj, patch), patch)
    assert merge_patch(twice, patch) == twice
