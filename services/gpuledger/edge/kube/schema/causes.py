"""Defines the causes of a refused write: what is wrong with which field, as Kubernetes words it. Pure.

Clients branch on reasons, so these are exact; messages are for people and only resemble the original.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

Object = dict[str, Any]
"""A Kubernetes object, as JSON reads it."""


class Cause(NamedTuple):
    """A cause of a refusal. `field` is a path such as `spec.resource.unit` or `spec.taints[0].key`."""

    reason: str
    message: str
    field: str


def required(field: str, message: str = "") -> Cause:
    """A value is missing."""
    return Cause("FieldValueRequired", f"Required value{_tail(message)}", field)


def invalid(field: str, value: object, message: str) -> Cause:
    """A value is not acceptable."""
    return Cause("FieldValueInvalid", f"Invalid value: {_shown(value)}: {message}", field)


def forbidden(field: str, message: str) -> Cause:
    """A value may not be set, or not be changed."""
    return Cause("FieldValueForbidden", f"Forbidden: {message}", field)


def duplicate(field: str, value: object) -> Cause:
    """A value is a duplicate."""
    return Cause("FieldValueDuplicate", f"Duplicate value: {_shown(value)}", field)


def not_supported(field: str, value: object, supported: Iterable[str]) -> Cause:
    """A value is not supported."""
    values = ", ".join(f'"{name}"' for name in supported)
    return Cause("FieldValueNotSupported", f"Unsupported value: {_shown(value)}: supported values: {values}", field)


def too_long(field: str, limit: int) -> Cause:
    """A string is too long."""
    return Cause("FieldValueTooLong", f"Too long: may not be more than {limit} bytes", field)


def too_many(field: str, count: int, limit: int) -> Cause:
    """A list is too long."""
    return Cause("FieldValueTooMany", f"Too many: {count}: must have at most {limit} items", field)


def type_invalid(field: str, value: object, message: str) -> Cause:
    """A value has the wrong type."""
    return Cause("FieldValueTypeInvalid", f"Invalid value: {_shown(value)}: {message}", field)


def _shown(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _tail(message: str) -> str:
    return f": {message}" if message else ""
