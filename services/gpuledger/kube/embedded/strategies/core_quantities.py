"""Quantities of Kubernetes: reading them, comparing them, and the canonical text in which they are stored.

Sums are exact; what lies below a billionth is rounded away from zero, as Kubernetes does.
"""

import re
from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

from gpuledger.kube.embedded.errors import Object, bad_request

QUANTITY_MAX = 2**63 - 1
EXPONENT_MAX = 64
_PATTERN = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:([numkMGTPE]|[KMGTPE]i)?|[eE]([+-]?[0-9]{1,4}))")
_PROBLEM = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_DECIMAL = {"n": -3, "u": -2, "m": -1, "": 0, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_STEPS = {power: suffix for suffix, power in _DECIMAL.items()}


class Quantity(NamedTuple):
    """An amount, and how it was written: `decimal`, `binary` or `exponent`."""

    value: Fraction
    form: str


def parse_quantity(given: object) -> Quantity:
    """Read a quantity, which JSON may give as a string or a number. Raises ValueError."""
    text = _text(given)
    found = _PATTERN.fullmatch(text)
    if found is None:
        raise ValueError(_PROBLEM)
    number, suffix, exponent = Fraction(found[1]), found[2] or "", found[3]
    if exponent is not None:
        power = max(-EXPONENT_MAX, min(EXPONENT_MAX, int(exponent)))
        return Quantity(_bounded(number * Fraction(10) ** power), "exponent")
    if suffix.endswith("i"):
        return Quantity(_bounded(number * 1024 ** _BINARY.index(suffix)), "binary")
    return Quantity(_bounded(number * Fraction(1000) ** _DECIMAL[suffix]), "decimal")


def amount(given: object) -> Fraction:
    """How much a quantity is. Raises ValueError."""
    return parse_quantity(given).value


def canonical(given: object) -> str:
    """The text in which Kubernetes answers a quantity: `0.25` is `250m`, `1024Mi` is `1Gi`. Raises ValueError."""
    value, form = parse_quantity(given)
    if form == "binary" and abs(value) >= 1024:
        return _binary_text(value)
    nanos = _away_from_zero(value * 10**9)
    power = -3
    while nanos and nanos % 1000 == 0 and power < 6:
        nanos, power = nanos // 1000, power + 1
    if not nanos or not power:
        return str(nanos)
    return f"{nanos}e{3 * power}" if form == "exponent" else f"{nanos}{_STEPS[power]}"


def check_quantities(maps: Iterable[Object], kind: str, api_version: str) -> None:
    """Refuse with 400 where any value of the maps is no quantity."""
    version = api_version.rpartition("/")[2]
    try:
        for values in maps:
            for value in values.values():
                parse_quantity(value)
    except ValueError as failure:
        text = f'{kind} in version "{version}" cannot be handled as a {kind}: {failure}'
        raise bad_request(text) from failure


def write_canonically(maps: Iterable[Object]) -> None:
    """Put every value of the maps, in place, into its canonical text."""
    for values in maps:
        for name, value in values.items():
            values[name] = canonical(value)


def _text(given: object) -> str:
    if given is None:
        return "0"
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        raise ValueError(_PROBLEM)
    return str(given).strip()


def _bounded(value: Fraction) -> Fraction:
    return max(Fraction(-QUANTITY_MAX), min(Fraction(QUANTITY_MAX), value))


def _binary_text(value: Fraction) -> str:
    whole, power = _away_from_zero(value), 0
    while whole % 1024 == 0 and power < len(_BINARY) - 1:
        whole, power = whole // 1024, power + 1
    return f"{whole}{_BINARY[power]}"


def _away_from_zero(value: Fraction) -> int:
    whole = -(-abs(value).numerator // value.denominator)
    return whole if value >= 0 else -whole
