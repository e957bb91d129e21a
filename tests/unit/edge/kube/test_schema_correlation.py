"""Items find their older selves by their keys."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from gpuledger.edge.kube.schema.correlation import ABSENT, key_of, old_items
from gpuledger.edge.kube.schema.equality import same
from gpuledger.edge.kube.schema.structural import node_of

KEYED = node_of(
    {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k", "l"],
        "items": {"type": "object"},
    }
)
KEYS: st.SearchStrategy[Any] = st.sampled_from(
    [0, 1, 1.0, True, False, None, "1", "", [1], [True], {"a": 1}, {"a": True}, {"b": []}]
)
ITEMS = st.fixed_dictionaries({}, optional={"k": KEYS, "l": KEYS, "x": st.integers(0, 9)})
LISTS = st.lists(ITEMS | st.none() | st.just("k"), max_size=6)


def searched(old: Any, item: Any) -> Any:
    if not isinstance(item, dict):
        return ABSENT
    key = key_of(item, KEYED)
    return next((one for one in old if isinstance(one, dict) and same(key_of(one, KEYED), key)), ABSENT)


@example([{"k": True}, {"k": 1}, {"k": 1.0}], [{"k": 1}, {"k": 1.0}, {"k": True}])
@example([{"k": [True]}, {"k": {"a": True}}, {"l": 1}], [{"k": [1]}, {"k": {"a": 1}}, {"k": 1}])
@given(LISTS, LISTS)
def test_the_first_of_the_same_keys_is_found(old: list[Any], new: list[Any]) -> None:
    found = old_items(old, new, KEYED)
    assert len(found) == len(new)
    assert all(one is searched(old, item) for one, item in zip(found, new, strict=True))


def test_items_of_other_lists_have_no_older_self() -> None:
    old = [{"k": 1}]
    assert old_items(old, old, node_of({"type": "array"})) == [ABSENT]
    assert old_items(ABSENT, old, KEYED) == old_items({"k": 1}, old, KEYED) == [ABSENT]
