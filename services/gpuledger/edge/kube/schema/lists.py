"""Finds duplicate items in lists of type `set` and `map`, and incomplete embedded resources.

Kubernetes checks these in addition to the schema. Lists that were wrong in the older object already are accepted.
"""

import json
from collections.abc import Iterator
from typing import Any

from gpuledger.edge.kube.schema.causes import Cause, duplicate, required, type_invalid
from gpuledger.edge.kube.schema.correlation import key_of
from gpuledger.edge.kube.schema.structural import SchemaNode


def repeated_items(value: object, node: SchemaNode, path: str = "") -> Iterator[Cause]:
    """A cause for every duplicate item, at any depth."""
    if not node.has_keyed_lists:
        return
    if isinstance(value, list) and node.list_type != "atomic":
        yield from _repeated_here(value, node, path)
    for one, below, where in _children(value, node, path):
        yield from repeated_items(one, below, where)


def embedded_problems(value: object, node: SchemaNode, path: str = "") -> Iterator[Cause]:
    """Causes for embedded resources without `apiVersion`, `kind` or an object as `metadata`."""
    if not node.has_embedded:
        return
    if node.embedded and isinstance(value, dict):
        yield from _no_resource(value, path)
    for one, below, where in _children(value, node, path):
        yield from embedded_problems(one, below, where)


def _children(value: object, node: SchemaNode, path: str) -> Iterator[tuple[object, SchemaNode, str]]:
    if isinstance(value, dict):
        for name, one in value.items():
            if below := node.properties.get(name):
                yield one, below, f"{path}.{name}" if path else name
            elif node.additional:
                yield one, node.additional, f"{path}[{name}]"
    elif isinstance(value, list) and node.items:
        for index, one in enumerate(value):
            yield one, node.items, f"{path}[{index}]"


def _repeated_here(value: list[Any], node: SchemaNode, path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, one in enumerate(value):
        shown = key_of(one, node) if node.list_type == "map" and isinstance(one, dict) else one
        text = json.dumps(shown, sort_keys=True, separators=(",", ":"))
        if text in seen:
            yield duplicate(f"{path}[{index}]", shown)
        seen.add(text)


def _no_resource(value: dict[str, Any], path: str) -> Iterator[Cause]:
    for name in ("apiVersion", "kind"):
        if not value.get(name):
            yield required(f"{path}.{name}", "must not be empty")
    if not isinstance(value.get("metadata", {}), dict):
        yield type_invalid(f"{path}.metadata", value["metadata"], "must be an object")
