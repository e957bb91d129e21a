"""What is common to reading objects: safe access to whatever an object holds. Pure; nothing here raises."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from gpuledger.domain.quantities import parse_quantity
from gpuledger.edge.watchers.decide import Object
from gpuledger.events.envelope import SUBJECT_LENGTH_MAX
from gpuledger.events.errors import SubjectError
from gpuledger.events.payload import BIGINT_MAX, NAME_LENGTH_MAX
from gpuledger.events.subjects import escape

NOTHING: Final[Mapping[str, Any]] = {}


def mapping(value: object, *path: str) -> Mapping[str, Any]:
    """The mapping at a path; an empty one where there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else NOTHING


def key_of(obj: Object) -> str:
    """Namespace and name."""
    metadata = mapping(obj, "metadata")
    return f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}"


def name_of(obj: Object) -> str | None:
    """The object's name, if an event can be about it."""
    return subject_text(text(mapping(obj, "metadata").get("name")))


def subject_text(given: str | None) -> str | None:
    """The same, if an event can be about it; None for everything else."""
    if given is None or len(given) > SUBJECT_LENGTH_MAX:
        return None
    try:
        escape(given)
    except SubjectError:
        return None
    return given


def text(value: object, length_max: int = NAME_LENGTH_MAX) -> str | None:
    """A text that is neither empty nor too long for an event; None for everything else."""
    return value if isinstance(value, str) and 0 < len(value) <= length_max and is_storable(value) else None


def chosen(
    entries: Mapping[str, Any], is_wanted: Callable[[str], bool], entries_max: int, value_length_max: int
) -> dict[str, str]:
    """The wanted entries, ordered by key, without those that no event can hold."""
    fit = [
        (key, value)
        for key, value in sorted(entries.items())
        if is_wanted(key) and text(key) and isinstance(value, str) and len(value) <= value_length_max
        if is_storable(value)
    ]
    return dict(fit[:entries_max])


def is_storable(value: str) -> bool:
    """Whether a ledger and a table can hold the text."""
    return "\0" not in value


def packed(document: object) -> bytes:
    """JSON that is the same for equal documents.

    It is copied, as the writer's buffer stays as large as it was made: 4 KiB and more, for every object that is kept.
    """
    return bytes(memoryview(orjson.dumps(document, option=orjson.OPT_SORT_KEYS)))


def whole(value: object) -> int:
    """A count that an event can hold; 0 for everything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= BIGINT_MAX else 0


def number(value: object, most: int) -> int | None:
    """A number from 1 to `most`; None for everything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most else None


def amount(value: object) -> str | None:
    """A quantity in its canonical text; None where it is none."""
    try:
        return None if value is None else str(parse_quantity(value))
    except ValueError:
        return None
