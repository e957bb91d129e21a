"""Pairs what an object holds with what its older self held at the same place.

A field pairs with the field of its name, an item of a list of type `map` with the item of the same keys. Items of other
lists have no older self. It compares; it never changes anything.
"""

from collections.abc import Mapping
from typing import Any, Final

from gpuledger.kube.embedded.schema.structural import Node


class _Absent:
    def __repr__(self) -> str:
        return "<absent>"


ABSENT: Final = _Absent()
"""There was nothing."""


def same(one: object, other: object) -> bool:
    """Whether two JSON values are equal; unlike in Python, true is not 1. 2 and 2.0 are."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def old_field(old: object, name: str) -> object:
    """What stood in a field."""
    return old.get(name, ABSENT) if isinstance(old, dict) else ABSENT


def old_item(old: object, item: object, node: Node) -> object:
    """What the item of the same keys was; ABSENT for lists that are not keyed."""
    if node.list_type != "map" or not isinstance(old, list) or not isinstance(item, dict):
        return ABSENT
    key = key_of(item, node)
    return next((one for one in old if isinstance(one, dict) and same(key_of(one, node), key)), ABSENT)


def key_of(item: Mapping[str, Any], node: Node) -> dict[str, Any]:
    """The keys of an item of a list of type `map`, as far as it has them."""
    return {name: item[name] for name in node.list_keys if name in item}
