"""Evaluates the JSONPath of printer columns and selectable fields: fields, indices, wildcards, slices and filters.

A path that leads nowhere is no error and finds nothing.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

CACHED_PATHS = 1024

Step = Callable[[Any], Iterable[Any]]

_STEP = re.compile(
    r"""\.\.(?P<deep>[^.\[\]()]+)
    |\.(?P<field>(?:\\.|[^.\[\]()\\*])+)
    |\.\*|(?P<any>\[\*\])
    |\[(?P<quoted>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")\]
    |\[(?P<slice>-?\d*:-?\d*(?::-?\d*)?)\]
    |\[(?P<indices>-?\d+(?:,-?\d+)*)\]
    |\[\?\((?P<filter>.*?)\)\]""",
    re.VERBOSE | re.DOTALL,
)
_FILTER = re.compile(r"\s*(?P<left>[^=!<>]+?)\s*(?:(?P<sign>==|!=|<=|>=|<|>)\s*(?P<right>.+?)\s*)?", re.DOTALL)
_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda one, other: one == other,
    "!=": lambda one, other: one != other,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}


class PathError(ValueError):
    """A JSONPath cannot be read."""


def find(path: str, value: object) -> list[Any]:
    """All values at a path, in order. Raises PathError if the path is invalid."""
    found: list[Any] = [value]
    for step in steps_of(path):
        found = [one for each in found for one in step(each)]
    return found


def first(path: str, value: object) -> Any:
    """The first value at a path; None if there is none."""
    return next(iter(find(path, value)), None)


@lru_cache(maxsize=CACHED_PATHS)
def steps_of(path: str) -> tuple[Step, ...]:
    """The steps of a path, which may stand in braces and begin with `$`."""
    text = path.strip()
    text = text[1:-1] if text.startswith("{") and text.endswith("}") else text
    text = text.removeprefix("$").removeprefix("@")
    if text and text[0] not in ".[":
        text = f".{text}"
    return tuple(_steps(text)) if text != "." else ()


def simple_fields(path: str) -> tuple[str, ...] | None:
    """The names of a path of plain fields, such as `.spec.replicas`; None for other paths."""
    if not re.fullmatch(r"(\.[A-Za-z_][\w-]*|\['[^']+'\])+", path):
        return None
    return tuple(plain or quoted for plain, quoted in re.findall(r"\.([A-Za-z_][\w-]*)|\['([^']+)'\]", path))


def _steps(text: str) -> Iterator[Step]:
    at = 0
    while at < len(text):
        found = _STEP.match(text, at)
        if not found:
            raise PathError(f"unrecognized character in {text[at:]!r}")
        yield _step(found)
        at = found.end()


def _step(found: re.Match[str]) -> Step:
    name = found["field"] or (found["quoted"] and found["quoted"][1:-1])
    if name:
        return _field(re.sub(r"\\(.)", r"\1", name))
    if found["indices"]:
        return _indices([int(one) for one in found["indices"].split(",")])
    if found["slice"]:
        return _slice(found["slice"])
    if found["filter"]:
        return _filter(found["filter"])
    return _deep(found["deep"]) if found["deep"] else _every


def _field(name: str) -> Step:
    return lambda value: [value[name]] if isinstance(value, dict) and name in value else []


def _indices(indices: list[int]) -> Step:
    def step(value: Any) -> list[Any]:
        items = value if isinstance(value, list) else []
        return [items[index] for index in indices if -len(items) <= index < len(items)]

    return step


def _slice(text: str) -> Step:
    bounds = slice(*[int(one) if one else None for one in text.split(":")])
    return lambda value: value[bounds] if isinstance(value, list) else []


def _every(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _deep(name: str) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]
        for one in _every(value):
            yield from step(one)

    return step


def _filter(text: str) -> Step:
    found = _FILTER.fullmatch(text)
    if not found:
        raise PathError(f"cannot read the filter {text!r}")
    left, right = _operand(found["left"]), _operand(found["right"] or "")
    sign = found["sign"]

    def keeps(item: Any) -> bool:
        one = left(item)
        if not sign:
            return bool(one)
        other = right(item)
        return bool(one and other) and _compared(sign, one[0], other[0])

    return lambda value: [item for item in (value if isinstance(value, list) else []) if keeps(item)]


def _compared(sign: str, one: Any, other: Any) -> bool:
    try:
        return _SIGNS[sign](one, other)
    except TypeError:
        return False


def _operand(text: str) -> Callable[[Any], list[Any]]:
    if text.startswith("@"):
        steps_of(text)
        return lambda item: find(text, item)
    literal = _literal(text)
    return lambda _: [literal]


def _literal(text: str) -> Any:
    if text[:1] in {"'", '"'} and text[-1:] == text[:1]:
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    if text in {"true", "false"}:
        return text == "true"
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        return text
