"""Applies the defaults of a CRD's schema.

A default fills a field that is absent or holds a null that it may not hold, in objects that exist. A null that is not
allowed and has no default is dropped. Values are never replaced. Parts below an object may be shared with stored ones,
so changes make new parts.
"""

from copy import deepcopy
from typing import Any

import orjson

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.edge.kube.schema.structural import SchemaNode

_NULL = b"null"
"""Occurs in the text of every value with a null, and sometimes in others."""


def apply_defaults(obj: Object, node: SchemaNode) -> None:
    """Fill in the defaults of an object in place, without changing the parts below it."""
    filled: Object = without_nulls(obj, node) if _NULL in orjson.dumps(obj) else obj
    filled = _filled(filled, node)
    if filled is not obj:
        obj.clear()
        obj.update(filled)


def without_nulls(value: Any, node: SchemaNode) -> Any:
    """The value without nulls of fields that are not nullable and have no default; items of lists stay."""
    if isinstance(value, dict):
        kept = {name: one for name, one in value.items() if one is not None or not _drops(node, name)}
        return {name: without_nulls(one, below) if (below := _below(node, name)) else one for name, one in kept.items()}
    if isinstance(value, list) and node.items:
        return [without_nulls(one, node.items) for one in value]
    return value


def _filled(value: Any, node: SchemaNode) -> Any:
    """The value with its defaults; the value itself if there are none."""
    if not node.has_defaults:
        return value
    if isinstance(value, dict):
        return _filled_fields(value, node)
    if isinstance(value, list) and node.items:
        return [_filled(_instead_of_null(one, node.items), node.items) for one in value]
    return value


def _filled_fields(value: dict[str, Any], node: SchemaNode) -> dict[str, Any]:
    filled = dict(value)
    for name, child in node.properties.items():
        if child.default is not None and (name not in filled or (filled[name] is None and not child.nullable)):
            filled[name] = deepcopy(child.default)
    for name, one in filled.items():
        if below := _below(node, name):
            filled[name] = _filled(_instead_of_null(one, below), below)
    return filled


def _instead_of_null(value: Any, node: SchemaNode) -> Any:
    return deepcopy(node.default) if value is None and not node.nullable else value


def _drops(node: SchemaNode, name: str) -> bool:
    below = _below(node, name)
    return below is not None and not below.nullable and below.default is None


def _below(node: SchemaNode, name: str) -> SchemaNode | None:
    return node.properties.get(name) or node.additional
