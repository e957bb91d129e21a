"""Strategic merges: which lists merge, what the directives do, and in which order items come out."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.edge.kube.schema.shapes import ANYTHING, Shape
from gpuledger.local.kubeapi.errors import ApiError
from gpuledger.local.kubeapi.strategic import strategic_merge

TEXT = Shape("string")
ITEM = Shape("object", fields={"type": TEXT, "status": TEXT, "reason": TEXT})
SHAPE = Shape(
    "object",
    fields={
        "conditions": Shape("array", items=ITEM, patch_strategy="merge", patch_key="type"),
        "finalizers": Shape("array", items=TEXT, patch_strategy="merge"),
        "taints": Shape("array", items=ITEM),
        "strategy": Shape("object", fields={"type": TEXT, "rolling": TEXT}, patch_strategy="retainKeys"),
        "whole": Shape("object", values=TEXT, patch_strategy="replace"),
        "keyless": Shape("array", items=ITEM, patch_strategy="merge"),
    },
)


def merged(obj: Any, patch: Any, shape: Any = SHAPE) -> Any:
    kept = copy.deepcopy((obj, patch))
    result = strategic_merge(obj, patch, shape)
    assert (obj, patch) == kept
    return result


def types(*names: Any) -> Any:
    return [{"type": name} for name in names]


def order_after(old: Any, patch: Any) -> Any:
    return [item["type"] for item in merged({"conditions": types(*old)}, patch)["conditions"]]


def refusal(obj: Any, patch: Any) -> Any:
    with pytest.raises(ApiError) as caught:
        strategic_merge(obj, patch, SHAPE)
    return caught.value.code


def test_a_keyed_list_merges_item_by_item() -> None:
    old = {"conditions": [{"type": "Ready", "status": "True", "reason": "x"}]}
    assert merged(old, {"conditions": [{"type": "Ready", "status": "False", "reason": None}]}) == {
        "conditions": [{"type": "Ready", "status": "False"}]
    }


def test_other_lists_are_replaced() -> None:
    assert merged({"taints": types("a")}, {"taints": types("b")}) == {"taints": types("b")}
    assert merged({"conditions": types("a")}, {"conditions": types("b")}, ANYTHING) == {"conditions": types("b")}


def test_a_list_of_scalars_with_a_merge_strategy_is_a_set() -> None:
    assert merged({"finalizers": ["a", "b"]}, {"finalizers": ["b", "c"]}) == {"finalizers": ["a", "b", "c"]}


@pytest.mark.parametrize(
    ("old", "new", "after"),
    [
        ("AB", "BC", "ABC"),
        ("AB", "A", "AB"),
        ("A", "B", "BA"),
        ("ABC", "CA", "BCA"),
        ("", "AB", "AB"),
        ("AB", "", "AB"),
    ],
)
def test_the_patch_orders_its_items_and_others_keep_their_place(old: Any, new: Any, after: Any) -> None:
    assert order_after(old, {"conditions": types(*new)}) == list(after)


@pytest.mark.parametrize(
    ("patch", "after"),
    [
        ({"conditions": [{"$patch": "delete", "type": "B"}]}, "AC"),
        ({"conditions": [{"$patch": "replace"}, {"type": "Z"}]}, "Z"),
        ({"$setElementOrder/conditions": types("C", "A")}, "BCA"),
        ({"$setElementOrder/conditions": types("D", "A"), "conditions": types("D")}, "DABC"),
        ({"$setElementOrder/conditions": types("C", "B"), "conditions": types("C")}, "ACB"),
    ],
)
def test_directives_in_a_list(patch: Any, after: Any) -> None:
    assert order_after("ABC", patch) == list(after)


def test_directives_where_nothing_was_leave_nothing_behind() -> None:
    patch = {
        "conditions": [{"$patch": "delete", "type": "B"}, {"type": "A", "reason": None}],
        "strategy": {"$retainKeys": ["type"], "type": "x"},
        "whole": {"$patch": "delete"},
        "$setElementOrder/finalizers": ["a"],
        "$deleteFromPrimitiveList/finalizers": ["a"],
        "absent": None,
    }
    assert merged({}, patch) == {"conditions": types("A"), "strategy": {"type": "x"}}


def test_directives_in_an_object() -> None:
    assert merged({"strategy": {"type": "a"}}, {"strategy": {"$patch": "delete"}}) == {"strategy": {}}
    assert merged({"strategy": {"type": "a"}}, {"strategy": {"$patch": "replace", "rolling": "b"}}) == {
        "strategy": {"rolling": "b"}
    }
    assert merged({"strategy": {"rolling": "a"}}, {"strategy": {"$retainKeys": ["type"], "type": "b"}}) == {
        "strategy": {"type": "b"}
    }
    assert merged({"whole": {"a": "1"}}, {"whole": {"b": "2"}}) == {"whole": {"b": "2"}}


def test_scalars_are_deleted_from_a_list() -> None:
    patch = {"$deleteFromPrimitiveList/finalizers": ["a"], "$setElementOrder/finalizers": ["c", "b"]}
    assert merged({"finalizers": ["a", "b", "c"]}, patch) == {"finalizers": ["c", "b"]}


@pytest.mark.parametrize(
    ("patch", "code"),
    [
        ([], 400),
        ({"strategy": {"$retainKeys": "type"}}, 400),
        ({"strategy": {"$retainKeys": ["type"], "rolling": "x"}}, 400),
        ({"$setElementOrder/conditions": "A"}, 400),
        ({"conditions": [{"status": "True"}]}, 500),
        ({"conditions": [{"$patch": "twist", "type": "A"}]}, 500),
        ({"conditions": [{"$patch": "merge", "type": "A"}]}, 500),
        ({"strategy": {"$patch": "merge"}}, 500),
        ({"keyless": types("A")}, 500),
        ({"$setElementOrder/conditions": types("B", "A"), "conditions": types("A", "B")}, 500),
    ],
)
def test_patches_that_cannot_be_understood(patch: Any, code: Any) -> None:
    old = {"conditions": types("A"), "strategy": {"type": "x"}, "keyless": types("A")}
    assert refusal(old, patch) == code


NAMES = st.lists(st.sampled_from("ABCDEF"), unique=True, max_size=6)


@given(NAMES, NAMES)
def test_merging_keeps_every_item_once_and_the_order_of_the_patch(old: Any, new: Any) -> None:
    after = merged({"conditions": types(*old)}, {"conditions": types(*new)})["conditions"]
    names = [item["type"] for item in after]
    assert sorted(names) == sorted({*old, *new})
    assert [name for name in names if name in new] == new
    assert [name for name in names if name not in new] == [name for name in old if name not in new]
