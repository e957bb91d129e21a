"""Converts objects into the values that CEL rules see, by their schema.

Nulls are absent; names that CEL cannot spell are escaped; `date-time`, `date`, `duration` and `byte` strings get CEL's
types; numbers are doubles. Of metadata only the names are visible. Values are copied, never changed.
"""

import base64
import binascii
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from gpuledger.edge.kube.schema.correlation import key_of
from gpuledger.edge.kube.schema.equality import same
from gpuledger.edge.kube.schema.structural import SchemaNode

RESERVED = frozenset(
    "true false null in as break const continue else for function if import let loop package namespace return".split()
)
_UNIT_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_SEEN_OF_METADATA = ("name", "generateName")


def cel_value(value: object, node: SchemaNode, *, whole: bool = False) -> Any:
    """The value for CEL; `whole` says that it is a whole object."""
    if isinstance(value, dict):
        return _object(value, node, whole=whole or node.embedded)
    if isinstance(value, list):
        return [cel_value(one, node.items) if node.items else one for one in value]
    if isinstance(value, str):
        return _string(value, node.bounds.format)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _number(value, node)
    return value


def cel_name(name: str) -> str:
    """The name of a field, as rules spell it."""
    if name in RESERVED:
        return f"__{name}__"
    for raw, spelt in (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__")):
        name = name.replace(raw, spelt)
    return name


def in_order_of(old: object, new: object, node: SchemaNode) -> object:
    """The old value with sets and keyed lists in the new order, since their order has no meaning for rules."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {name: _ordered_field(one, new, name, node) for name, one in old.items()}
    if isinstance(old, list) and isinstance(new, list) and node.list_type != "atomic":
        return _ordered(old, new, node)
    return old


def parsed_duration(text: str) -> timedelta | None:
    """A duration in Go's notation, such as `1h30m`; None if malformed."""
    bare = text.lstrip("+-")
    parts = _DURATION.findall(bare)
    if bare != "0" and (not parts or "".join(number + unit for number, unit in parts) != bare):
        return None
    total_s = sum(float(number) * _UNIT_S[unit] for number, unit in parts)
    return timedelta(seconds=-total_s if text.startswith("-") else total_s)


def _object(value: dict[str, Any], node: SchemaNode, *, whole: bool) -> dict[str, Any]:
    seen = {}
    for name, one in value.items():
        if one is None:
            continue
        if whole and name == "metadata" and isinstance(one, dict):
            seen[name] = {key: one[key] for key in _SEEN_OF_METADATA if key in one}
        elif name in node.properties:
            seen[cel_name(name)] = cel_value(one, node.properties[name])
        else:
            seen[name] = cel_value(one, node.additional) if node.additional else one
    return seen


def _string(value: str, format_: str) -> Any:
    try:
        if format_ in {"date-time", "datetime"}:
            return datetime.fromisoformat(value.replace("Z", "+00:00").replace("z", "+00:00"))
        if format_ == "date":
            return datetime.fromisoformat(value).replace(tzinfo=UTC)
        if format_ == "byte":
            return base64.b64decode(value, validate=True)
    except (ValueError, binascii.Error):
        return value
    found = parsed_duration(value) if format_ == "duration" else None
    return value if found is None else found


def _number(value: float, node: SchemaNode) -> float:
    if node.type == "number":
        return float(value)
    return int(value) if node.type == "integer" else value


def _ordered_field(old: object, new: dict[str, Any], name: str, node: SchemaNode) -> object:
    below = node.properties.get(name) or node.additional
    return in_order_of(old, new[name], below) if below and name in new else old


def _ordered(old: list[Any], new: list[Any], node: SchemaNode) -> list[Any]:
    rest, found = list(old), []
    for one in new:
        index = next((i for i, other in enumerate(rest) if same(_identity(other, node), _identity(one, node))), None)
        if index is not None:
            item = rest.pop(index)
            found.append(in_order_of(item, one, node.items) if node.items else item)
    return found + rest


def _identity(item: object, node: SchemaNode) -> object:
    return key_of(item, node) if node.list_type == "map" and isinstance(item, dict) else item
