"""Fills in what a CRD's schema gives as defaults.

Defaults go only into objects that are there, where a field is absent or holds a null that it may not hold. A null that
is not allowed and has no default is dropped. It never replaces a value.
"""

from copy import deepcopy
from typing import Any

from gpuledger.kube.embedded.schema.structural import Node


def apply_defaults(value: object, node: Node) -> None:
    """Fill in the defaults below `value`, in place, after `drop_nulls`."""
    drop_nulls(value, node)
    _default(value, node)


def drop_nulls(value: object, node: Node) -> None:
    """Take away nulls of fields that are not nullable and have no default, in place; items of lists stay."""
    if isinstance(value, dict):
        for name in [name for name, one in value.items() if one is None and _drops(node, name)]:
            del value[name]
        for name, one in value.items():
            if below := _below(node, name):
                drop_nulls(one, below)
    elif isinstance(value, list) and node.items:
        for one in value:
            drop_nulls(one, node.items)


def _default(value: object, node: Node) -> None:
    if isinstance(value, dict):
        _default_fields(value, node)
    elif isinstance(value, list) and node.items:
        for index, one in enumerate(value):
            if one is None and not node.items.nullable:
                value[index] = deepcopy(node.items.default)
            _default(value[index], node.items)


def _default_fields(value: dict[str, Any], node: Node) -> None:
    for name, child in node.properties.items():
        if child.default is not None and (name not in value or (value[name] is None and not child.nullable)):
            value[name] = deepcopy(child.default)
    for name, one in list(value.items()):
        below = _below(node, name)
        if below is None:
            continue
        if one is None and not below.nullable:
            value[name] = deepcopy(below.default)
        _default(value[name], below)


def _drops(node: Node, name: str) -> bool:
    below = _below(node, name)
    return below is not None and not below.nullable and below.default is None


def _below(node: Node, name: str) -> Node | None:
    return node.properties.get(name) or node.additional
