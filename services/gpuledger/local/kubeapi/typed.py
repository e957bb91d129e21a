"""Checks, merges and compares objects along their shape, for server-side apply.

The rules are Kubernetes' structured merges. Arguments are never changed. Results share parts with the live object, but
never with the applied one, which may be applied again.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.edge.kube.schema.equality import is_written_as
from gpuledger.edge.kube.schema.shapes import ANY_KIND, ANYTHING, Shape
from gpuledger.local.kubeapi.fieldsets import (
    FIELD,
    SELF,
    ElementError,
    Fields,
    element_of,
    is_granular,
    is_member,
    shape_of,
)

_ABSENT: Final = object()
_Value = TypeVar("_Value")


def misfits(value: Any, shape: Shape) -> list[str]:
    """Why an applied configuration does not fit its type; empty if it does."""
    found: list[str] = []
    _add_misfits(value, shape, "", found)
    return found


def merge(live: Any, applied: Any, shape: Shape) -> Any:
    """The live value merged with the applied one; the live value itself if they are equal."""
    if not live:
        return copied(applied)
    if applied is None:
        return live if is_granular(shape, live) else None
    if _has_parts(applied) and live == applied and is_written_as(live, applied):
        return live
    if type(live) is not type(applied) or not is_granular(shape, live):
        return copied(applied)
    return _merged_list(live, applied, shape) if isinstance(live, list) else _merged_object(live, applied, shape)


def compare(old: Object, new: Object, shape: Shape) -> tuple[Fields, Fields]:
    """The fields that were added or have another value, and those that are gone."""
    changed, removed = _compared(old, new, shape)
    return changed or {}, removed or {}


def remove(value: Any, fields: Fields, shape: Shape) -> Any:
    """The value without the fields of a set; None if nothing is left."""
    if isinstance(value, dict):
        return _object_left(value, fields, shape) or None
    if isinstance(value, list):
        return list(_items_left(value, fields, shape)) or None
    return value


def copied(value: _Value) -> _Value:
    """A copy of a JSON value."""
    if isinstance(value, dict):
        return {key: copied(part) for key, part in value.items()}  # type: ignore[return-value]
    if isinstance(value, list):
        return [copied(part) for part in value]  # type: ignore[return-value]
    return value


_EXPECTED: Final = {"string": "string", "integer": "numeric", "number": "numeric", "boolean": "boolean"}
_PLAIN: Final[Mapping[str, frozenset[type]]] = {
    "string": frozenset({str}),
    "integer": frozenset({int}),
    "number": frozenset({int, float}),
    "boolean": frozenset({bool}),
    ANY_KIND: frozenset({str, int, float, bool}),
}
"""The Python types that always fit a kind of field."""


def _is_scalar_of(shape: Shape, value: object) -> bool:
    if isinstance(value, dict | list):
        return False
    if shape.int_or_string or (shape.kind == "string" and shape.format not in {"", "byte"}):
        return True
    if shape.kind in {"boolean", "string"}:
        return isinstance(value, bool if shape.kind == "boolean" else str)
    return isinstance(value, int | float) and not isinstance(value, bool)


def _add_misfits(value: Any, shape: Shape, path: str, found: list[str]) -> None:
    if value is None or (shape.kind == ANY_KIND and not shape.int_or_string):
        return
    if shape.kind == "object":
        _add_object_misfits(value, shape, path, found)
    elif shape.kind == "array":
        _add_list_misfits(value, shape, path, found)
    elif not _is_scalar_of(shape, value):
        found.append(f"{path}: expected {_EXPECTED.get(shape.kind, 'scalar')}, got {value!r}")


def _add_object_misfits(value: Any, shape: Shape, path: str, found: list[str]) -> None:
    if not isinstance(value, dict):
        found.append(f"{path}: expected map, got {value!r}")
        return
    is_open = shape.preserves or not shape.fields
    for name, part in value.items():
        child = shape.fields.get(name) or shape.values
        if child is None:
            if not is_open:
                found.append(f"{path}.{name}: field not declared in schema")
        elif type(part) not in _PLAIN.get(child.kind, ()):
            _add_misfits(part, child, f"{path}.{name}", found)


def _add_list_misfits(value: Any, shape: Shape, path: str, found: list[str]) -> None:
    if not isinstance(value, list):
        found.append(f"{path}: expected list, got {value!r}")
        return
    seen: set[str] = set()
    for index, item in enumerate(value):
        _add_misfits(item, shape.items or ANYTHING, f"{path}[{index}]", found)
        if shape.list_type == "atomic":
            continue
        try:
            element = element_of(shape, item)
        except ElementError as error:
            found.append(f"{path}: element {index}: {error}")
            continue
        if element in seen:
            found.append(f"{path}: duplicate entries for key {element[2:]}")
        seen.add(element)


def _merged_object(live: Mapping[str, Any], applied: Mapping[str, Any], shape: Shape) -> Object:
    merged = dict(live)
    for name, value in applied.items():
        merged[name] = merge(live[name], value, shape_of(shape, name)) if name in live else copied(value)
    return merged


def _merged_list(live: list[Any], applied: list[Any], shape: Shape) -> list[Any]:
    """Items in Kubernetes' order: the live order, adjusted to the applied order of shared items."""
    item_shape = shape.items or ANYTHING
    old = [element_of(shape, item) for item in live]
    new = {element_of(shape, item): item for item in applied}
    live_items = _first_of_each(old, live)
    shared = [element for element in new if element in live_items]
    order = list(new)
    merged: list[Any] = []

    def take(element: str) -> None:
        before = live_items.get(element)
        merged.append(copied(new[element]) if before is None else merge(before, new[element], item_shape))
        if shared and shared[0] == element:
            del shared[0]

    at, to, done = 0, 0, set[str]()
    while at < len(old) or to < len(order):
        if at < len(old):
            element = old[at]
            if element not in new:
                merged.append(live[at])
                at += 1
                continue
            is_next = to < len(order) and order[to] == element
            if to < len(order) and not is_next and shared and shared[0] != element:
                at += 1
                continue
            at += is_next or element in done
        if to < len(order):
            take(order[to])
            done.add(order[to])
            to += 1
    return merged


def _first_of_each(elements: list[str], items: list[Any]) -> dict[str, Any]:
    by_element: dict[str, Any] = {}
    for element, item in zip(elements, items, strict=True):
        by_element[element] = None if element in by_element else item
    return by_element


def _compared(old: Any, new: Any, shape: Shape) -> tuple[Fields | None, Fields | None]:
    if old is new or same_quickly(old, new):
        return None, None
    one, other = _form(old, shape), _form(new, shape)
    if one and other and one is not other:
        return _compared(_ABSENT, new, shape)[0], _below(_compared(old, _ABSENT, shape)[1])
    form = one or other
    if form not in {dict, list} or not (_has_parts(old) or _has_parts(new)):
        return (None, {}) if new is _ABSENT else ({}, None)
    changed, removed = _compared_objects(old, new, shape) if form is dict else _compared_lists(old, new, shape)
    if old is _ABSENT:
        changed[SELF] = {}
    elif new is _ABSENT:
        removed[SELF] = {}
    return changed or None, removed or None


def same_quickly(one: object, other: object) -> bool:
    """Whether two values are equal; below the top, `true` and 1 count as equal."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _form(value: Any, shape: Shape) -> type | None:
    """The form of a value in a comparison: dict, list, or str for one piece; None if absent."""
    if value is None or value is _ABSENT:
        return None
    return type(value) if is_granular(shape, value) else str


def _has_parts(value: Any) -> bool:
    return isinstance(value, dict | list) and bool(value)


def _below(node: Fields | None) -> Fields | None:
    return {element: part for element, part in (node or {}).items() if element != SELF} or None


def _compared_objects(old: Any, new: Any, shape: Shape) -> tuple[Fields, Fields]:
    changed: Fields = {}
    removed: Fields = {}
    before: Object = old if isinstance(old, dict) else {}
    after: Object = new if isinstance(new, dict) else {}
    for name in before.keys() | after.keys():
        added, gone = _compared(before.get(name, _ABSENT), after.get(name, _ABSENT), shape_of(shape, name))
        if added is not None:
            changed[FIELD + name] = added
        if gone is not None:
            removed[FIELD + name] = gone
    return changed, removed


def _compared_lists(old: Any, new: Any, shape: Shape) -> tuple[Fields, Fields]:
    changed: Fields = {}
    removed: Fields = {}
    before, after = _by_element(old, shape), _by_element(new, shape)
    for element in before.keys() | after.keys():
        added, gone = _compared_items(before.get(element, []), after.get(element, []), shape.items or ANYTHING)
        if added is not None:
            changed[element] = added
        if gone is not None:
            removed[element] = gone
    return changed, removed


def _by_element(items: Any, shape: Shape) -> dict[str, list[Any]]:
    by_element: dict[str, list[Any]] = {}
    for item in items if isinstance(items, list) else ():
        by_element.setdefault(element_of(shape, item), []).append(item)
    return by_element


def _compared_items(old: list[Any], new: list[Any], shape: Shape) -> tuple[Fields | None, Fields | None]:
    """Compare the items of one key; several (in lists that were not validated) count as one piece."""
    if len(old) > 1 and len(new) > 1:
        return (None if old == new else {}), None
    if len(old) > 1:
        return (_compared(_ABSENT, new[0], shape)[0] if new else None), {}
    if len(new) > 1:
        return {}, (_compared(old[0], _ABSENT, shape)[1] if old else None)
    return _compared(old[0] if old else _ABSENT, new[0] if new else _ABSENT, shape)


def _object_left(value: Mapping[str, Any], fields: Fields, shape: Shape) -> Object:
    left: Object = {}
    for name, part in value.items():
        node = fields.get(FIELD + name)
        if node is None:
            left[name] = part
        elif not is_member(node):
            child = shape_of(shape, name)
            rest = remove(part, node, child)
            if rest is not None or child.nullable:
                left[name] = rest
    return left


def _items_left(items: list[Any], fields: Fields, shape: Shape) -> Iterator[Any]:
    if shape.list_type == "atomic":
        yield from items
        return
    for item in items:
        node = fields.get(element_of(shape, item))
        if node is None:
            yield item
        elif not is_member(node):
            rest = remove(item, node, shape.items or ANYTHING)
            if rest is not None:
                yield rest
