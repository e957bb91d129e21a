"""A value of a row as text: for people in tables, for programs in CSV, JSON and YAML.

Tables round and escape; the formats for programs lose nothing. Text comes from machines that nobody vouches for,
so what this module makes for a terminal never holds a control character.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Final

import orjson

from gpuledger.cli.errors import visible
from gpuledger.cli.render.view import Column
from gpuledger.cli.times import format_time, format_times

NONE: Final = "<none>"
TABLE_DECIMALS: Final = 2
INT64: Final = range(-(2**63), 2**63)

_SCALARS: Final = frozenset({str, int, bool, datetime})
_PLAIN: Final = frozenset({type(None), bool, float, Decimal})
_JSON_OPTIONS: Final = (
    orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_SUBCLASS
)
"""What is neither text, number, list nor mapping is left to us."""

_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def cell(value: object, column: Column) -> str:
    """The text of a table's cell; empty values show as `<none>`, so that lines split into columns."""
    return _cell(value, column.format or _table_text)


def cells(values: Iterable[object], column: Column) -> list[str]:
    """The texts of a column's cells, as `cell` makes them."""
    given = list(values)
    texts = _texts_of_one_type(given) if column.format is None else None
    if texts is not None:
        return texts
    format_ = column.format or _table_text
    return [_cell(value, format_) for value in given]


def _texts_of_one_type(values: list[Any]) -> list[str] | None:
    """`cells` of values of one type, None among them, for a fraction of the time; None: they are made one by one."""
    types = set(map(type, values)) - {type(None)}
    if types == {str}:
        texts = [value or NONE for value in values]
        return texts if "".join(texts).isprintable() else None
    if types == {int}:
        return [NONE if value is None else str(value) for value in values]
    if types == {datetime}:
        times = iter(format_times([value for value in values if value is not None]))
        return [NONE if value is None else next(times) for value in values]
    return None


def _cell(value: object, format_: Callable[[object], str]) -> str:
    if value is None:
        return NONE
    text = value if type(value) is str and format_ is _table_text else format_(value)
    return (text if text.isprintable() else visible(text)) or NONE


def csv_field(value: object) -> str:
    """The text of a CSV field: None is empty, lists and mappings are compact JSON, as `-o json` has them."""
    if value is None:
        return ""
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        return json_text(value)
    return _encodable(_scalar(value))


def json_text(value: object, *, indent: bool = False) -> str:
    """JSON on one line, or indented by two spaces; numbers that JSON cannot express (NaN) become null."""
    option = _JSON_OPTIONS | (orjson.OPT_INDENT_2 if indent else 0)
    try:
        data = orjson.dumps(value, default=_json_value, option=option)
    except TypeError:  # a number, a text or a key that is in no JSON
        data = orjson.dumps(_plain(value), default=_json_value, option=option)
    text = data.decode()
    return _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def yaml_item(row: Mapping[str, object]) -> str:
    """One item of a YAML list, keys in the row's order, long text unfolded."""
    return yaml_text([row])


def yaml_text(document: object) -> str:
    """YAML, keys in the document's order, long text unfolded."""
    from gpuledger.cli.render.yaml_dump import dumped  # noqa: PLC0415 - other formats need no library for it

    return dumped(_plain(document))


def is_number(value: object) -> bool:
    """Whether the value is a number (a bool is none)."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _table_text(value: object) -> str:
    if type(value) in _SCALARS:
        return _scalar(value)
    if isinstance(value, Mapping):
        return " ".join(f"{key}={_table_text(item)}" for key, item in sorted(value.items()))
    if isinstance(value, list | tuple | set | frozenset):
        return ",".join(_table_text(item) for item in value)
    if isinstance(value, float | Decimal):
        return _rounded(value)
    return NONE if value is None else _scalar(value)


def _rounded(value: float | Decimal) -> str:
    text = f"{value:.{TABLE_DECIMALS}f}"
    if "." not in text:
        return text
    cut = text.rstrip("0").rstrip(".")
    return "0" if cut == "-0" else cut


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return format_time(value)
    if isinstance(value, Decimal):
        return f"{value:f}"
    return str(value.value) if isinstance(value, Enum) else str(value)


def _plain(value: object) -> object:
    """The value in the types of JSON, decimals and whole numbers of any size left as they are."""
    if type(value) in _PLAIN:
        return value
    if type(value) is int:
        return value if value in INT64 else Decimal(value)
    if isinstance(value, str) and not isinstance(value, Enum):
        return _encodable(value)
    if isinstance(value, Mapping):
        return {_encodable(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    return _plain(value.value) if isinstance(value, Enum) else _encodable(_scalar(value))


def _encodable(text: str) -> str:
    """The text with halves of surrogate pairs, which no encoding can carry, spelt out."""
    if text.isascii():
        return str(text)
    return text.encode("utf-8", "backslashreplace").decode()


def _json_value(value: object) -> object:
    """What the library leaves to us, in its terms."""
    if not isinstance(value, Decimal):
        return _plain(value)
    return orjson.Fragment(f"{value:f}") if value.is_finite() else None
