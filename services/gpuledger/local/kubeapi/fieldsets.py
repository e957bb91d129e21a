"""Computes with sets of field paths in the form in which `managedFields` stores them (`fieldsV1`).

A set is nested dicts whose keys are path elements (`f:name`, `k:{"type":"Ready"}`, `v:"A"`). A path is in the set if
its dict is empty or has the key `.`. Because this is the JSON form, writing an object needs no encoding. Sets share
their parts and are never changed in place; the empty set is `{}`.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import orjson

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.edge.kube.schema.shapes import ANY_KIND, ANYTHING, Shape

Fields = dict[str, Any]
"""A set of field paths; below the top, one of its nodes."""

SELF: Final = "."
FIELD: Final = "f:"
DEPTH_MAX = 200
"""The maximum depth of a client's set."""

SETS_KEPT_MAX = 256
"""The size of the cache of parsed sets; most objects of a resource share a few."""

SET_KEPT_BYTES_MAX = 32 * 1024
"""Longer sets are not cached."""


class ElementError(ValueError):
    """An item cannot be in its list: a key is missing, or it is no scalar of a set."""


def is_granular(shape: Shape, value: object) -> bool:
    """Whether the parts of a value have separate owners."""
    if isinstance(value, dict):
        return not shape.atomic and (shape.kind != ANY_KIND or shape.preserves)
    return isinstance(value, list) and shape.list_type != "atomic"


def shape_of(shape: Shape, name: str) -> Shape:
    """The shape of a field; ANYTHING if it is unknown."""
    return shape.fields.get(name) or shape.values or ANYTHING


def element_of(shape: Shape, item: object) -> str:
    """The path element of an item in a list of type `map` or `set`.

    Raises:
        ElementError: the item cannot be in such a list.
    """
    if shape.list_type == "map":
        return _keyed(shape, item)
    if item is None or isinstance(item, dict | list):
        raise ElementError("an item of a set must be a scalar")
    return f"v:{orjson.dumps(item).decode()}"


def of(obj: Object, shape: Shape) -> Fields:
    """The fields that an object sets.

    Raises:
        ElementError: an item of a list cannot be in it.
    """
    return _node_of(obj, shape) or {}


def union(one: Fields, other: Fields) -> Fields:
    """The paths that are in either set."""
    if not one or not other:
        return one or other
    both = dict(one)
    for element, node in other.items():
        mine = both.get(element)
        both[element] = node if mine is None else _united(mine, node)
    return both


def difference(one: Fields, other: Fields) -> Fields:
    """The paths that are only in the first set; paths below one of the second stay."""
    return {element: rest for element, node in one.items() if (rest := _without(node, other.get(element))) is not None}


def intersection(one: Fields, other: Fields) -> Fields:
    """The paths that are in both sets."""
    return {element: rest for element, node in one.items() if (rest := _shared(node, other.get(element))) is not None}


def without(fields: Fields, path: tuple[str, ...]) -> Fields:
    """The set without a path of named fields and everything below it."""
    element = FIELD + path[0]
    node = fields.get(element)
    if node is None:
        return fields
    rest = without(node, path[1:]) if len(path) > 1 else {}
    if len(path) > 1 and rest is node:
        return fields
    kept = {name: part for name, part in fields.items() if name != element}
    tidied = _tidy(rest)
    return kept if tidied is None else kept | {element: tidied}


def named(fields: Fields, shape: Shape) -> Fields:
    """The set with each declared field on the way to one of its paths."""
    return {element: _named(element, node, shape) for element, node in fields.items()}


def paths(fields: Fields) -> Iterator[str]:
    """The paths of a set in the notation of messages: `.spec.taints[key="a"].value`."""
    for element in sorted(fields):
        if element == SELF:
            continue
        node, shown = fields[element], _shown(element)
        if is_member(node):
            yield shown
        for rest in paths(node):
            yield shown + rest


def is_member(node: Fields) -> bool:
    """Whether the path that leads to a node is in the set."""
    return not node or SELF in node


def covered(fields: Iterable[Fields]) -> Fields:
    """The union of many sets."""
    every: Fields = {}
    for one in fields:
        every = union(every, one)
    return every


def read(fields: object) -> Fields:
    """Like `parsed`, with a cache: equal texts share one set.

    Raises:
        ValueError: it is none.
    """
    text = orjson.dumps(fields)
    return _read(text) if len(text) <= SET_KEPT_BYTES_MAX else parsed(fields)


@lru_cache(SETS_KEPT_MAX)
def _read(text: bytes) -> Fields:
    return parsed(orjson.loads(text))


def parsed(fields: object, depth: int = 0) -> Fields:
    """A client's set, with its keys in canonical form.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(fields, dict) or depth > DEPTH_MAX:
        raise ValueError("a set of fields must be nested objects")
    return {_element(name): parsed(node, depth + 1) for name, node in fields.items() if depth or name != SELF}


def _element(name: object) -> str:
    kind, _, rest = str(name).partition(":")
    if name == SELF or kind in {"f", "i"}:
        return str(name)
    if kind not in {"k", "v"}:
        raise ValueError(f"no path element: {name}")
    value = orjson.loads(rest)
    if kind == "k" and not isinstance(value, dict):
        raise ValueError(f"no key: {name}")
    return f"{kind}:{orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()}"


def _keyed(shape: Shape, item: object) -> str:
    if not isinstance(item, dict):
        raise ElementError("an item of an associative list must be an object")
    values: dict[str, Any] = {}
    for key in shape.keys:
        value = item.get(key, shape.key_defaults.get(key))
        if value is None:
            raise ElementError(f'associative list has an item that omits key field "{key}"')
        values[key] = value
    return f"k:{orjson.dumps(values, option=orjson.OPT_SORT_KEYS).decode()}"


def _node_of(value: Any, shape: Shape) -> Fields | None:
    if not is_granular(shape, value):
        return {}
    return _node_of_object(value, shape) if isinstance(value, dict) else _node_of_list(value, shape)


def _node_of_object(value: Mapping[str, Any], shape: Shape) -> Fields | None:
    node: Fields = {}
    for name, part in value.items():
        declared = shape.fields.get(name)
        below = _node_of(part, declared or shape.values or ANYTHING)
        if declared is None or part == {}:
            below = with_self(below)
        if below is not None:
            node[FIELD + name] = below
    return node or None


def _node_of_list(items: list[Any], shape: Shape) -> Fields | None:
    node: Fields = {}
    item_shape = shape.items or ANYTHING
    for item in items:
        element = element_of(shape, item)
        node[element] = {} if element in node else with_self(_node_of(item, item_shape))
    return node or None


def with_self(node: Fields | None) -> Fields:
    """The node with the path that leads to it."""
    return node if node and SELF in node else {SELF: {}, **node} if node else {}


def _united(one: Fields, other: Fields) -> Fields:
    if not one or not other:
        return with_self(one or other)
    return union(one, other)


def _without(node: Fields, other: Fields | None) -> Fields | None:
    if other is None:
        return node
    if not node:
        return None if is_member(other) else node
    rest = difference(node, other or {SELF: {}})
    return _tidy(rest)


def _shared(node: Fields, other: Fields | None) -> Fields | None:
    if other is None:
        return None
    if not node or not other:
        return {} if is_member(node) and is_member(other) else None
    return _tidy(intersection(node, other))


def _tidy(node: Fields) -> Fields | None:
    if not node:
        return None
    return {} if len(node) == 1 and SELF in node else node


def _named(element: str, node: Fields, shape: Shape) -> Fields:
    if not node:
        return node
    if not element.startswith(FIELD):
        return named(node, shape.items or ANYTHING)
    below = named(node, shape_of(shape, element[2:]))
    return with_self(below) if element[2:] in shape.fields else below


def _shown(element: str) -> str:
    kind, _, rest = element.partition(":")
    if kind == "f":
        return f".{rest}"
    if kind == "k":
        keys = orjson.loads(rest)
        return f"[{','.join(f'{name}={orjson.dumps(keys[name]).decode()}' for name in sorted(keys))}]"
    return f"[={rest}]" if kind == "v" else f"[{rest}]"
