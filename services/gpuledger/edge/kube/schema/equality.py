"""Compares JSON values as Kubernetes does. Pure."""

from typing import Any

import orjson


def same(one: object, other: object) -> bool:
    """Whether two JSON values are equal; unlike in Python, `true` is not 1. 2 and 2.0 are."""
    if one is other:
        return True
    if one != other:
        return False
    return is_written_as(one, other) or _same_parts(one, other)


def is_written_as(one: object, other: object) -> bool:
    """Whether two values have the same JSON text; values that are nested too deeply have none."""
    try:
        return orjson.dumps(one) == orjson.dumps(other)
    except orjson.JSONEncodeError:
        return False


def _same_parts(one: Any, other: Any) -> bool:
    """Like `same`, for values that are equal in Python."""
    if isinstance(one, dict):
        return all(_same_parts(part, other[key]) for key, part in one.items())
    if isinstance(one, list):
        return all(map(_same_parts, one, other))
    return isinstance(one, bool) == isinstance(other, bool)
