"""Quick answers about values beside their shape are those of a walk through all of them."""

from copy import deepcopy
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.edge.kube.schema.equality import same
from gpuledger.edge.kube.schema.shapes import ANYTHING, Shape
from gpuledger.local.kubeapi import typed
from gpuledger.local.kubeapi.fieldsets import ElementError

TEXT = Shape("string")
ITEM = Shape("object", fields={"key": TEXT, "x": Shape("integer"), "in": Shape("array", items=TEXT)})
FIELDS = {
    "text": TEXT,
    "when": Shape("string", format="date-time"),
    "whole": Shape("integer"),
    "number": Shape("number"),
    "flag": Shape("boolean"),
    "either": Shape("any", int_or_string=True),
    "free": ANYTHING,
    "opaque": Shape("any"),
    "atomic": Shape("object", fields={"a": TEXT, "b": TEXT}, atomic=True),
    "map": Shape("object", values=Shape("integer")),
    "list": Shape("array", items=ITEM),
    "set": Shape("array", items=TEXT, list_type="set"),
    "keyed": Shape("array", items=ITEM, list_type="map", keys=("key",)),
}
SHAPE = Shape("object", fields=FIELDS | {"below": Shape("object", fields=FIELDS)})

SCALARS = st.none() | st.booleans() | st.sampled_from([0, 1, 2, 0.0, 1.0, 2.5, "", "a", "b"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=6,
)
LETTERS = st.sampled_from("abc")
ITEMS = st.fixed_dictionaries(
    {"key": LETTERS}, optional={"x": st.integers(0, 1), "in": st.lists(LETTERS, max_size=2), "no": SCALARS}
)
FITTING: dict[str, st.SearchStrategy[Any]] = {
    "text": LETTERS,
    "when": LETTERS,
    "whole": st.integers(0, 2),
    "number": st.sampled_from([0, 1, 1.0, 1.5]),
    "flag": st.booleans(),
    "either": LETTERS | st.integers(0, 1),
    "free": VALUES,
    "opaque": VALUES,
    "atomic": st.dictionaries(st.sampled_from("ab"), LETTERS),
    "map": st.dictionaries(LETTERS, st.integers(0, 2)),
    "list": st.lists(ITEMS, max_size=3),
    "set": st.lists(LETTERS, max_size=3, unique=True),
    "keyed": st.lists(ITEMS, max_size=3, unique_by=lambda item: item["key"]),
}
FITTING_OBJECTS = st.fixed_dictionaries({}, optional=FITTING)
OBJECTS = st.fixed_dictionaries({}, optional=FITTING | {"below": FITTING_OBJECTS})
LOOSE = st.fixed_dictionaries({}, optional={name: one | VALUES for name, one in FITTING.items()} | {"none": VALUES})

LIKE = [(True, 1), (1, 1), (1, 1.0), (2.0, 2), (0, False), (True, True), ("a", "a"), (None, None), (1, 2)]
LOOK_ALIKES = st.recursive(
    st.sampled_from(LIKE),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda pairs: ([one for one, _ in pairs], [other for _, other in pairs]))
        | st.dictionaries(LETTERS, inner).map(
            lambda pairs: (
                {name: one for name, (one, _) in pairs.items()},
                {name: other for name, (_, other) in reversed(pairs.items())},
            )
        )
    ),
    max_leaves=5,
)


def walked_same(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(walked_same(part, other[name]) for name, part in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(walked_same, one, other))
    return bool(one == other)


@given(LOOK_ALIKES | st.tuples(VALUES, VALUES))
def test_values_are_the_same_as_if_walked(pair: tuple[Any, Any]) -> None:
    one, other = pair
    assert same(one, other) is walked_same(one, other)


def test_what_is_too_deep_to_be_written_is_compared() -> None:
    one: Any = True
    for _ in range(300):
        one = [one]
    other = deepcopy(one)
    assert same(one, other)
    one[0] = [other[0], 1]
    assert not same(one, other)


def outcome(live: Any, applied: Any) -> bytes | str:
    """What merging gives, with its order, or why it does not."""
    kept = deepcopy((live, applied))
    try:
        merged = typed.merge(live, applied, SHAPE)
    except ElementError as error:
        return str(error)
    assert (live, applied) == kept
    return orjson.dumps(merged)


@given(OBJECTS, OBJECTS, st.sets(st.sampled_from([*FITTING, "below"])))
def test_parts_that_are_applied_again_merge_as_if_walked(live: Any, applied: Any, again: Any) -> None:
    applied = deepcopy(applied | {name: part for name, part in live.items() if name in again})
    quick = outcome(live, applied)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typed, "is_written_as", lambda *_: False)
        assert outcome(live, applied) == quick


@pytest.mark.parametrize(
    ("live", "applied"),
    [
        ({"free": {"a": 1}}, {"free": {"a": True}}),
        ({"free": {"a": 2}}, {"free": {"a": 2.0}}),
        ({"opaque": [{"a": 0}]}, {"opaque": [{"a": False}]}),
        ({"atomic": {"a": "x", "b": "y"}}, {"atomic": {"b": "y", "a": "x"}}),
    ],
)
def test_what_python_holds_equal_is_applied_as_it_is_written(live: Any, applied: Any) -> None:
    assert outcome(live, applied) == orjson.dumps(applied)


@given(OBJECTS, OBJECTS)
def test_nothing_of_what_is_applied_is_shared(live: Any, applied: Any) -> None:
    kept = deepcopy(applied)
    emptied(typed.merge(live, applied, SHAPE))
    assert applied == kept


def emptied(value: Any) -> None:
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            emptied(part)
        value.clear()


def test_what_is_applied_again_stays_itself() -> None:
    live: Any = {"list": [{"key": "a"}], "atomic": {"a": "x"}, "keyed": [{"key": "a", "x": 1}, {"key": "b", "x": 1}]}
    merged = typed.merge(live, deepcopy(live) | {"keyed": [{"key": "b", "x": 2}, {"key": "a", "x": 1}]}, SHAPE)
    assert [merged[name] is live[name] for name in live] == [True, True, False]
    assert merged["keyed"][1] is live["keyed"][0]


@given(OBJECTS | LOOSE | VALUES)
def test_misfits_are_those_of_a_walk(value: Any) -> None:
    quick = typed.misfits(value, SHAPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typed, "_PLAIN", {})
        assert typed.misfits(value, SHAPE) == quick
