"""YAML as commands show it. Whoever shows none need not import this, nor the library that writes it."""

from collections.abc import Callable
from decimal import Decimal
from typing import Final

import yaml

LINE_CHARS: Final = 2**31 - 1
"""No text is broken into lines."""


def dumped(document: object) -> str:
    """A document of plain values."""
    text: str = yaml.dump(document, Dumper=_YamlDumper, sort_keys=False, allow_unicode=True, width=LINE_CHARS)
    return text


class _YamlDumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writes decimals as plain numbers, and values that occur twice twice (no anchors)."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True

    def decimal(self, value: Decimal) -> object:
        if not value.is_finite():
            return self.represent_float(float(value))
        text = f"{value:f}"
        return self.represent_scalar(f"tag:yaml.org,2002:{'float' if '.' in text else 'int'}", text)


_represent_decimal: Callable[[_YamlDumper, Decimal], object] = _YamlDumper.decimal
_YamlDumper.add_representer(Decimal, _represent_decimal)
