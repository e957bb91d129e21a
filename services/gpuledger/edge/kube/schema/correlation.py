"""Pairs the parts of an object with the parts of its older self.

A field pairs with the field of its name, an item of a list of type `map` with the item of the same keys. Items of other
lists have no older self.
"""

from collections.abc import Hashable, Mapping
from typing import Any, Final

from gpuledger.edge.kube.schema.structural import SchemaNode


class _Absent:
    def __repr__(self) -> str:
        return "<absent>"


ABSENT: Final = _Absent()
"""The older self of a new part."""


def old_field(old: object, name: str) -> object:
    """The older value of a field."""
    return old.get(name, ABSENT) if isinstance(old, dict) else ABSENT


def old_items(old: object, items: list[Any], node: SchemaNode) -> list[object]:
    """The older self of each item: the first with the same keys; ABSENT for items of lists without keys."""
    if node.list_type != "map" or not isinstance(old, list):
        return [ABSENT] * len(items)
    older: dict[Hashable, object] = {}
    for one in old:
        if isinstance(one, dict):
            older.setdefault(_identity(key_of(one, node)), one)
    return [older.get(_identity(key_of(item, node)), ABSENT) if isinstance(item, dict) else ABSENT for item in items]


def _identity(value: object) -> Hashable:
    """Equal for two JSON values that are the same, and for no others."""
    if isinstance(value, dict):
        return frozenset((name, _identity(one)) for name, one in value.items())
    if isinstance(value, list):
        return tuple(map(_identity, value))
    return isinstance(value, bool), value


def key_of(item: Mapping[str, Any], node: SchemaNode) -> dict[str, Any]:
    """The keys that an item of a list of type `map` has."""
    return {name: item[name] for name in node.list_keys if name in item}
