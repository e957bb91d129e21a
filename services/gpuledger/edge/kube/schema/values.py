"""Validates a custom resource against its schema: types, bounds, enums, formats and combinations of schemas.

Paths, reasons and the order of failures are those of Kubernetes' validator. An update is never refused for parts that
it does not change. `lists` checks lists of type `set` and `map`, `rules` CEL rules.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from gpuledger.edge.kube.schema.causes import Cause, invalid, not_supported, required, too_long, too_many, type_invalid
from gpuledger.edge.kube.schema.correlation import ABSENT, old_field, old_items
from gpuledger.edge.kube.schema.equality import same
from gpuledger.edge.kube.schema.formats import format_problem
from gpuledger.edge.kube.schema.patterns import matches
from gpuledger.edge.kube.schema.structural import Bounds, SchemaNode

NOWHERE = "<nil>"
"""The field of causes without a field."""

_JSON_TYPES = {
    type(None): "null", bool: "boolean", str: "string", int: "integer", float: "number", list: "array", dict: "object",
}  # fmt: skip
_INT32 = 2**31
_INT64 = 2**63


class ValuePlace(NamedTuple):
    """The place of a value; `root` is the field of causes without a field."""

    path: str
    root: str = NOWHERE

    def field(self, name: str) -> "ValuePlace":
        """The place of a field or of a map's value."""
        return ValuePlace(f"{self.path}.{name}" if self.path else name, self.root)

    def item(self, index: int) -> "ValuePlace":
        """The place of a list's item."""
        return ValuePlace(f"{self.path}[{index}]", self.root)


def problems_of_value(value: object, node: SchemaNode, place: ValuePlace, old: object = ABSENT) -> list[Cause]:
    """Everything wrong with a value and the parts below it; `old` is its older self."""
    if old is not ABSENT and same(value, old):
        return []
    if value is None:
        return [*_wrong_type(value, node, place), *_not_in_enum(value, node, place)]
    causes = [*_wrong_type(value, node, place)] if json_type(value) not in node.types else []
    if node.combines:
        causes += _combined(value, node, place)
    holds_others = isinstance(value, dict | list)
    if not holds_others:
        causes += _scalar_problems(value, node.bounds, node, place)
    if node.bounds.enum:
        causes += _not_in_enum(value, node, place)
    if holds_others:
        causes += _nested(value, node, place, old)
    return causes


def _wrong_type(value: object, node: SchemaNode, place: ValuePlace) -> Iterator[Cause]:
    types = node.types
    actual = json_type(value)
    if not types or actual in types or (value is None and node.nullable):
        return
    if "integer" in types and isinstance(value, float) and value.is_integer():
        return
    if actual == "integer" and "number" in types:
        return
    expected = ",".join(types)
    yield type_invalid(place.path or NOWHERE, actual, f'{place.path} in body must be of type {expected}: "{actual}"')


def json_type(value: object) -> str:
    """The JSON type of a value; a number that was written as an integer is an integer."""
    return _JSON_TYPES[type(value)]


def _scalar_problems(value: object, bounds: Bounds, node: SchemaNode, place: ValuePlace) -> Iterator[Cause]:
    if isinstance(value, str):
        yield from _string_problems(value, bounds, node, place)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number_problems(value, bounds, node, place)


def _string_problems(value: str, bounds: Bounds, node: SchemaNode, place: ValuePlace) -> Iterator[Cause]:
    if bounds.max_length is not None and len(value) > bounds.max_length:
        yield too_long(place.path, bounds.max_length)
    elif bounds.min_length is not None and len(value) < bounds.min_length:
        yield _invalid(place, value, f"should be at least {bounds.min_length} chars long")
    elif bounds.pattern and not matches(bounds.pattern, value):
        yield _invalid(place, value, f"should match '{bounds.pattern}'")
    if bounds.format and node.type in {"", "string"} and format_problem(bounds.format, value):
        yield type_invalid(place.path, value, f'{place.path} in body must be of type {bounds.format}: "{value}"')


def _number_problems(value: float, bounds: Bounds, node: SchemaNode, place: ValuePlace) -> Iterator[Cause]:
    if bounds.multiple_of and not _is_multiple(value, bounds.multiple_of):
        yield _invalid(place, value, f"should be a multiple of {bounds.multiple_of}")
    if bounds.maximum is not None and (value >= bounds.maximum if bounds.below_maximum else value > bounds.maximum):
        what = "less than" if bounds.below_maximum else "less than or equal to"
        yield _invalid(place, value, f"should be {what} {bounds.maximum}")
    if bounds.minimum is not None and (value <= bounds.minimum if bounds.above_minimum else value < bounds.minimum):
        what = "greater than" if bounds.above_minimum else "greater than or equal to"
        yield _invalid(place, value, f"should be {what} {bounds.minimum}")
    if node.type == "integer":
        limit = _INT32 if bounds.format == "int32" else _INT64
        if not -limit <= value < limit:
            what = f"with format {bounds.format}" if bounds.format else "(default format)"
            message = f"Checked value must be of type integer {what} in {place.path}"
            yield invalid(place.root, "", message)


def _is_multiple(value: float, of: float) -> bool:
    if isinstance(value, int) and float(of).is_integer():
        return value % int(of) == 0
    return (1 / of * value if of < 1 else value / of).is_integer()


def _not_in_enum(value: object, node: SchemaNode, place: ValuePlace) -> Iterator[Cause]:
    allowed = node.bounds.enum
    if not allowed or (value is not None and any(same(value, one) for one in allowed)):
        return
    if value is None and node.nullable and None in allowed:
        return
    supported = [one if isinstance(one, str) else json.dumps(one) for one in allowed]
    yield not_supported(place.path, value, supported)


def _nested(value: object, node: SchemaNode, place: ValuePlace, old: object) -> Iterator[Cause]:
    if isinstance(value, dict):
        yield from _object_problems(value, node, place, old)
    elif isinstance(value, list):
        yield from _array_problems(value, node, place, old)


def _array_problems(value: list[Any], node: SchemaNode, place: ValuePlace, old: object) -> Iterator[Cause]:
    if node.items:
        for index, (one, before) in enumerate(zip(value, old_items(old, value, node), strict=True)):
            yield from problems_of_value(one, node.items, place.item(index), before)
    bounds = node.bounds
    if bounds.min_items is not None and len(value) < bounds.min_items:
        yield _invalid(place, value, f"should have at least {bounds.min_items} items")
    if bounds.max_items is not None and len(value) > bounds.max_items:
        yield too_many(place.path, len(value), bounds.max_items)


def _object_problems(value: dict[str, Any], node: SchemaNode, place: ValuePlace, old: object) -> Iterator[Cause]:
    bounds = node.bounds
    if bounds.min_properties is not None and len(value) < bounds.min_properties:
        yield _invalid(place, value, f"should have at least {bounds.min_properties} properties")
        return
    if bounds.max_properties is not None and len(value) > bounds.max_properties:
        yield too_many(place.path, len(value), bounds.max_properties)
        return
    for name, one in value.items():
        below = node.properties.get(name) or node.additional
        if below is not None:
            yield from problems_of_value(one, below, place.field(name), old_field(old, name))
        elif node.closed and name not in node.properties:
            yield _invalid(place.field(name), name, "is a forbidden property")
    for name in bounds.required:
        if name not in value:
            yield required(place.field(name).path)


def _combined(value: object, node: SchemaNode, place: ValuePlace) -> Iterator[Cause]:
    yield from _all_of(value, node.all_of, place)
    yield from _any_of(value, node.any_of, place)
    yield from _one_of(value, node.one_of, place)
    if node.refused is not None and not problems_of_value(value, node.refused, place):
        yield _unfit(place, "must not validate the schema (not)")


def _all_of(value: object, schemas: tuple[SchemaNode, ...], place: ValuePlace) -> Iterator[Cause]:
    found = [problems_of_value(value, one, place) for one in schemas]
    for causes in found:
        yield from causes
    if any(found):
        none = ". None validated" if all(found) else ""
        yield _unfit(place, f"must validate all the schemas (allOf){none}")


def _any_of(value: object, schemas: tuple[SchemaNode, ...], place: ValuePlace) -> Iterator[Cause]:
    found = [problems_of_value(value, one, place) for one in schemas]
    if found and all(found):
        yield _unfit(place, "must validate at least one schema (anyOf)")
        yield from min(found, key=len)


def _one_of(value: object, schemas: tuple[SchemaNode, ...], place: ValuePlace) -> Iterator[Cause]:
    found = [problems_of_value(value, one, place) for one in schemas]
    valid = sum(not causes for causes in found)
    if not found or valid == 1:
        return
    what = f"Found {valid} valid alternatives" if valid else "Found none valid"
    yield _unfit(place, f"must validate one and only one schema (oneOf). {what}")
    if not valid:
        yield from min(found, key=len)


def _unfit(place: ValuePlace, message: str) -> Cause:
    return invalid(place.root, "", f'"{place.path}" {message}')


def _invalid(place: ValuePlace, value: object, message: str) -> Cause:
    return invalid(place.path or NOWHERE, value, f"{place.path} in body {message}")
