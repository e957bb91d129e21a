"""Kubernetes quantities, exactly: whole billionths, and the form in which they were written.

Amounts below a billionth are rounded away from zero, as Kubernetes does. Sums and comparisons use `nanos`.
"""

import re
from fractions import Fraction
from typing import Final, NamedTuple

UNIT: Final = 10**9
"""Billionths of one."""

QUANTITY_MAX: Final = 2**63 - 1
EXPONENT_MAX: Final = 64
_PATTERN = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:([numkMGTPE]|[KMGTPE]i)?|[eE]([+-]?[0-9]{1,4}))")
_PROBLEM = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_DECIMAL = {"n": -3, "u": -2, "m": -1, "": 0, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_STEPS = {power: suffix for suffix, power in _DECIMAL.items()}


class Quantity(NamedTuple):
    """An amount in billionths, and how it was written: `decimal`, `binary` or `exponent`."""

    nanos: int
    form: str = "decimal"

    @property
    def whole(self) -> int:
        """The next whole number up."""
        return -(-self.nanos // UNIT)

    def as_much(self, nanos: int) -> "Quantity":
        """Another amount, written in the same way."""
        return Quantity(nanos, self.form)

    def __str__(self) -> str:
        """The text in which Kubernetes answers it: `0.25` is `250m`, `1024Mi` is `1Gi`.

        It says exactly what the quantity is: `1.0001Ki` is no whole number, and `1024102400u`.
        """
        if self.form == "binary" and abs(self.nanos) >= 1024 * UNIT and self.nanos % UNIT == 0:
            return _binary_text(self.nanos // UNIT)
        nanos, power = self.nanos, -3
        while nanos and nanos % 1000 == 0 and power < 6:
            nanos, power = nanos // 1000, power + 1
        if not nanos or not power:
            return str(nanos)
        return f"{nanos}e{3 * power}" if self.form == "exponent" else f"{nanos}{_STEPS[power]}"


def parse_quantity(given: object) -> Quantity:
    """Read a quantity, which JSON may give as a string or a number. Raises ValueError."""
    value, form = _parse(_text(given))
    bounded = max(Fraction(-QUANTITY_MAX), min(Fraction(QUANTITY_MAX), value))
    return Quantity(_away_from_zero(bounded * UNIT), form)


def amount(given: object) -> Fraction:
    """How much a quantity is, as a number. Raises ValueError."""
    return Fraction(parse_quantity(given).nanos, UNIT)


def _parse(text: str) -> tuple[Fraction, str]:
    found = _PATTERN.fullmatch(text)
    if found is None:
        raise ValueError(_PROBLEM)
    number, suffix, exponent = Fraction(found[1]), found[2] or "", found[3]
    if exponent is not None:
        return number * Fraction(10) ** max(-EXPONENT_MAX, min(EXPONENT_MAX, int(exponent))), "exponent"
    if suffix.endswith("i"):
        return number * 1024 ** _BINARY.index(suffix), "binary"
    return number * Fraction(1000) ** _DECIMAL[suffix], "decimal"


def _text(given: object) -> str:
    if given is None:
        return "0"
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        raise ValueError(_PROBLEM)
    return str(given).strip()


def _binary_text(whole: int) -> str:
    power = 0
    while whole % 1024 == 0 and power < len(_BINARY) - 1:
        whole, power = whole // 1024, power + 1
    return f"{whole}{_BINARY[power]}"


def _away_from_zero(value: Fraction) -> int:
    whole = -(-abs(value).numerator // value.denominator)
    return whole if value >= 0 else -whole
