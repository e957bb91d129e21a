"""Implements the CEL functions that Kubernetes adds, and those of CEL's own libraries that the CEL library lacks.

Quantities and versions have no type in the library: they are maps with one key that names their type, in a normal form,
so that `==` compares them. Functions never change their arguments.
"""

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final

import cel
from cel.stdlib import STDLIB_FUNCTIONS

from gpuledger.domain.quantities import amount

_QUANTITY, _SEMVER = "#quantity", "#semver"
_SEMVER_PATTERN = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?", re.ASCII
)
_INT64 = 2**63

Tagged = dict[str, Any]


def _quantity(text: Any) -> Tagged:
    return {_QUANTITY: str(amount(text))}


def _amount(value: Any) -> Fraction:
    return Fraction(value[_QUANTITY]) if isinstance(value, dict) else Fraction(value)


def _is(make: Callable[..., Any]) -> Callable[..., bool]:
    def check(*arguments: Any) -> bool:
        try:
            make(*arguments)
        except (ValueError, TypeError, KeyError):
            return False
        return True

    return check


def _order(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if _QUANTITY in value:
        return Fraction(value[_QUANTITY])
    return _semver_order(value[_SEMVER])


def _compare(one: Any, other: Any) -> int:
    first, second = _order(one), _order(other)
    return int(first > second) - int(first < second)


def _is_integer(value: Any) -> bool:
    return isinstance(value, dict) and _amount(value).denominator == 1 and abs(_amount(value)) < _INT64


def _as_integer(value: Any) -> int:
    if not _is_integer(value):
        raise ValueError("the quantity is no integer")
    return int(_amount(value))


def _sign(value: Any) -> int:
    return (_amount(value) > 0) - (_amount(value) < 0)


def _plus(value: Any, other: Any) -> Tagged:
    return {_QUANTITY: str(_amount(value) + _amount(other))}


def _minus(value: Any, other: Any) -> Tagged:
    return {_QUANTITY: str(_amount(value) - _amount(other))}


def _semver(text: str, normalize: bool = False) -> Tagged:
    bare = text
    if normalize:
        bare = text.removeprefix("v")
        bare += ".0" * max(0, 2 - bare.partition("-")[0].count("."))
    if not _SEMVER_PATTERN.fullmatch(bare):
        raise ValueError(f"{text!r} is no semantic version")
    return {_SEMVER: bare}


def _semver_order(text: str) -> tuple[Any, ...]:
    major, minor, patch, before = _SEMVER_PATTERN.fullmatch(text).groups()  # type: ignore[union-attr]
    parts = [(0, int(one), "") if one.isdecimal() else (1, 0, one) for one in (before or "").split(".") if before]
    return (int(major), int(minor), int(patch), not before, parts)


def _semver_part(index: int) -> Callable[[Tagged], int]:
    return lambda version: int(_semver_order(version[_SEMVER])[index])


def _size(value: Any) -> int:
    return len(value)


def _entries(value: Any) -> list[dict[str, Any]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    return [{"k": key, "v": one} for key, one in pairs]


def _plain(value: Any) -> Any:
    if not isinstance(value, cel.OptionalValue):
        return value
    return value.value() if value.has_value() else None


def _opt_field(value: Any, key: Any) -> cel.OptionalValue:
    holder = _plain(value)
    if isinstance(holder, dict) and key in holder:
        return cel.OptionalValue.of(holder[key])
    return cel.OptionalValue.none()


def _opt_index(value: Any, key: Any) -> cel.OptionalValue:
    holder = _plain(value)
    if isinstance(holder, list) and isinstance(key, int) and 0 <= key < len(holder):
        return cel.OptionalValue.of(holder[key])
    return _opt_field(holder, key)


def _opt_list(value: Any) -> list[Any]:
    return [value.value()] if value.has_value() else []


def _opt_first(items: list[Any]) -> cel.OptionalValue:
    return cel.OptionalValue.of(items[0]) if items else cel.OptionalValue.none()


def _opt_only(items: list[Any]) -> cel.OptionalValue:
    return items[0] if items else cel.OptionalValue.none()


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    **STDLIB_FUNCTIONS,
    "quantity": _quantity,
    "isQuantity": _is(_quantity),
    "isInteger": _is_integer,
    "asInteger": _as_integer,
    "asApproximateFloat": lambda value: float(_amount(value)),
    "sign": _sign,
    "add": _plus,
    "sub": _minus,
    "isGreaterThan": lambda one, other: _compare(one, other) > 0,
    "isLessThan": lambda one, other: _compare(one, other) < 0,
    "compareTo": _compare,
    "semver": _semver,
    "isSemver": _is(_semver),
    "major": _semver_part(0),
    "minor": _semver_part(1),
    "patch": _semver_part(2),
    "kSize": _size,
    "kEntries": _entries,
    "optField": _opt_field,
    "optIndex": _opt_index,
    "optList": _opt_list,
    "optFirst": _opt_first,
    "optOnly": _opt_only,
}
"""Functions by their names in expressions; a method's receiver is the first argument."""

NATIVE: Final = frozenset(
    "all exists exists_one map filter has contains startsWith endsWith matches size int uint double string bytes bool "
    "type dyn duration timestamp getFullYear getMonth getDate getDayOfMonth getDayOfWeek getDayOfYear getHours "
    "getMinutes getSeconds getMilliseconds value hasValue orValue or of none ofNonZeroValue".split()
)
"""Names that the library implements."""

NAMESPACES: Final = frozenset("math sets base64 strings lists cel optional google".split())
NOT_IMPLEMENTED: Final = frozenset(
    "url isURL getScheme getHost getHostname getPort getEscapedPath getQuery ip isIP isCanonical family isUnspecified "
    "isLoopback isLinkLocalMulticast isLinkLocalUnicast isGlobalUnicast cidr isCIDR containsIP containsCIDR masked "
    "prefixLength format named validate find findAll isSorted sum".split()
)
"""Further functions of Kubernetes; rules that use them are refused as not implemented."""

TYPES: Final = frozenset("int uint double string bytes bool list map null_type type timestamp duration".split())
