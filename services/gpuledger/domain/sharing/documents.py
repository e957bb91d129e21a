"""Reads the JSON documents of annotations, field by field: whatever is wrong is an error that says where. Pure.

People write these annotations by hand, so a field that nobody reads is refused rather than ignored: a misspelled hint
would otherwise be lost in silence.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import orjson

from gpuledger.domain.quantities import UNIT, parse_quantity
from gpuledger.events.payload import BIGINT_MAX, NAME_LENGTH_MAX


def json_object(text: str) -> Mapping[str, Any]:
    """The object that a JSON text is. Raises ValueError."""
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"it is not JSON ({error})") from error
    return object_at(found, "it")


def object_at(value: object, place: str) -> Mapping[str, Any]:
    """The value, which has to be an object. Raises ValueError."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{place} has to be a JSON object, and is {_shown(value)}")
    return value


def fields_at(value: object, place: str, allowed: Collection[str]) -> Mapping[str, Any]:
    """The fields of an object that has no others; those that are null are left out. Raises ValueError."""
    found = object_at(value, place)
    if unread := sorted(found.keys() - set(allowed)):
        raise ValueError(f"{place} has the field {unread[0]!r}; allowed are {', '.join(allowed)}")
    return {key: one for key, one in found.items() if one is not None}


def list_at(value: object, place: str, count_max: int) -> Iterator[tuple[Any, str]]:
    """The items of a list, each with its place; no list counts as an empty one. Raises ValueError."""
    if value is None:
        return
    if not isinstance(value, list):
        raise ValueError(f"{place} has to be a list, and is {_shown(value)}")
    if len(value) > count_max:
        raise ValueError(f"{place} has {len(value)} items; {count_max} at most are allowed")
    for number, one in enumerate(value):
        yield one, f"{place}[{number}]"


def text_at(value: object, place: str) -> str:
    """A text that is not empty, and no longer than a name may be. Raises ValueError."""
    if not isinstance(value, str) or not value or len(value) > NAME_LENGTH_MAX or "\0" in value:
        raise ValueError(f"{place} has to be a text of 1 to {NAME_LENGTH_MAX} characters, and is {_shown(value)}")
    return value


def choice_at(value: object, place: str, allowed: Collection[str]) -> str | None:
    """One of the allowed texts; None where there is none, or an empty one. Raises ValueError."""
    if value is None or value == "":
        return None
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{place} is {_shown(value)}; allowed are {', '.join(allowed)}")
    return value


def amount_at(value: object, place: str) -> int:
    """A Kubernetes quantity that is a whole number and not negative. Raises ValueError."""
    try:
        found = parse_quantity(value)
    except ValueError as error:
        raise ValueError(f"{place} is {_shown(value)}, which is no quantity") from error
    if value is None or found.nanos < 0 or found.nanos % UNIT or found.whole > BIGINT_MAX:
        raise ValueError(f"{place} is {_shown(value)}; it has to be a whole number, 0 at least")
    return found.whole


def _shown(value: object) -> str:
    return repr(value)[:80]
