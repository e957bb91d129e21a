"""Reads fields of any object whatsoever, notes what it cannot understand, and goes on with the rest. Pure.

Nothing here raises. What an event cannot hold is left out and noted, so that no object, however odd, keeps the others
from being recorded.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from gpuledger.domain.quantities import parse_quantity
from gpuledger.edge.kube.objects import mapping
from gpuledger.edge.watchers.decide import Object, ObjectPart
from gpuledger.events.envelope import SUBJECT_LENGTH_MAX
from gpuledger.events.errors import SubjectError
from gpuledger.events.payload import BIGINT_MAX, DATA_BYTES_MAX, NAME_LENGTH_MAX
from gpuledger.events.subjects import escape

PROBLEMS_MAX: Final = 20
"""How many problems of one object are logged."""

SHOWN_LENGTH_MAX: Final = 100

Lighten = Callable[[dict[str, Any]], str]
"""Removes the least important fields from the content, and says which."""


def key_of(obj: Object) -> str:
    """Namespace and name."""
    metadata = mapping(obj, "metadata")
    return f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}"


def name_of(obj: Object) -> str | None:
    """The object's name, if an event can be about it."""
    return subject_text(text(mapping(obj, "metadata").get("name")))


def namespaced_name(obj: Object) -> str | None:
    """`<namespace>/<name>`, if an event can be about it."""
    namespace, name = text(mapping(obj, "metadata").get("namespace")), name_of(obj)
    return subject_text(f"{namespace}/{name}") if namespace and name else None


def uid_of(obj: Object) -> str:
    """The object's UID; `-` where it has none."""
    return text(mapping(obj, "metadata").get("uid")) or "-"


def skipped(obj: Object, *problems: str) -> ObjectPart:
    """An object that is irrelevant, or that cannot be understood because of problems."""
    return ObjectPart(key_of(obj), None, b"", problems)


def subject_text(value: str | None) -> str | None:
    """The same, if an event can be about it; None for everything else."""
    if value is None or len(value) > SUBJECT_LENGTH_MAX:
        return None
    try:
        escape(value)
    except SubjectError:
        return None
    return value


def text(value: object, length_max: int = NAME_LENGTH_MAX) -> str | None:
    """A text that is neither empty nor too long for an event; None for everything else."""
    return value if isinstance(value, str) and 0 < len(value) <= length_max and is_storable(value) else None


def chosen(
    entries: Mapping[str, Any], is_relevant: Callable[[str], bool], entries_max: int, value_length_max: int
) -> dict[str, str]:
    """The relevant entries, ordered by key, without those that no event can hold."""
    fit = [
        (key, value)
        for key, value in sorted(entries.items())
        if is_relevant(key) and text(key) and isinstance(value, str) and len(value) <= value_length_max
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


@dataclass(slots=True)
class _Problems:
    """The first problems of an object, and how many there were."""

    first: list[str] = field(default_factory=list)
    count: int = 0


class FieldReader:
    """Reads fields of an object, and notes those that cannot be understood, by their place in the object."""

    def __init__(self, found: _Problems | None = None, place: str = "") -> None:
        self._found = found or _Problems()
        self._place = place

    @property
    def problems(self) -> tuple[str, ...]:
        """The first problems, in their order."""
        return tuple(self._found.first)

    @property
    def problem_count(self) -> int:
        """How many there were, including those that are too many to show."""
        return self._found.count

    def note(self, problem: str) -> None:
        """Note a problem."""
        self._found.count += 1
        if len(self._found.first) < PROBLEMS_MAX:
            self._found.first.append(problem)

    def reject(self, key: str, value: object) -> None:
        """Note that the value of a key cannot be understood."""
        self.note(f"{self._place}{key} is {shown(value)}")

    def note_at(self, key: str, problem: str) -> None:
        """Note a problem with what is under a key."""
        self.note(f"{self._place}{key} {problem}")

    def within(self, key: str) -> "FieldReader":
        """A reader for what is below a key, which notes problems in the same place."""
        return FieldReader(self._found, f"{self._place}{key}.")

    def text(self, given: Mapping[str, Any], key: str, length_max: int = NAME_LENGTH_MAX) -> str | None:
        """A text that an event can hold; None where there is none, or an empty one."""
        value = given.get(key)
        found = text(value, length_max)
        if found is None and value is not None and value != "":
            self.reject(key, value)
        return found

    def required(self, given: Mapping[str, Any], *keys: str) -> dict[str, str] | None:
        """Texts by their keys; None where one of them is missing."""
        found = {key: text(given.get(key)) for key in keys}
        for key, value in found.items():
            if value is None:
                self.reject(key, given.get(key))
                return None
        return {key: value for key, value in found.items() if value is not None}

    def optional(self, given: Mapping[str, Any], *keys: str) -> dict[str, str | None] | None:
        """Texts by their keys, None for those that are not given; None where one cannot be understood."""
        found = {key: self.text(given, key) for key in keys}
        is_understood = all(value is not None or given.get(key) in (None, "") for key, value in found.items())
        return found if is_understood else None

    def count(self, given: Mapping[str, Any], key: str) -> int:
        """A count; 0 where there is none."""
        value = given.get(key)
        found = whole(value)
        if value is not None and (found != value or isinstance(value, bool)):
            self.reject(key, value)
        return found

    def number(self, given: Mapping[str, Any], key: str, most: int = BIGINT_MAX) -> int | None:
        """A number from 1 to `most`; None where there is none."""
        value = given.get(key)
        found = number(value, most)
        if found is None and value is not None:
            self.reject(key, value)
        return found

    def bounded(self, given: Mapping[str, Any], key: str, default: int, most: int, least: int = 0) -> int:
        """A whole number within bounds; the default where there is none."""
        value = given.get(key)
        if value is None:
            return default
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        self.note_at(key, f"is {shown(value)}; give a whole number from {least} to {most}")
        return default

    def boolean(self, given: Mapping[str, Any], key: str) -> bool | None:
        """True or false; None where there is neither."""
        value = given.get(key)
        if isinstance(value, bool):
            return value
        if value is not None:
            self.reject(key, value)
        return None

    def choice(self, given: Mapping[str, Any], key: str, allowed: Collection[str]) -> str | None:
        """One of the allowed texts; None where there is none."""
        value = given.get(key)
        if isinstance(value, str) and value in allowed:
            return value
        if value is not None:
            self.reject(key, value)
        return None

    def nested(
        self, given: Mapping[str, Any], key: str, allowed: Collection[str]
    ) -> "tuple[Mapping[str, Any], FieldReader]":
        """The mapping under a key, with its own reader; unknown entries are problems; empty where it is none."""
        value = given.get(key)
        if value is not None and not isinstance(value, Mapping):
            self.reject(key, value)
        found, place = mapping(value), self.within(key)
        for name in sorted(found.keys() - set(allowed)):
            place.note(f"{shown(name)} in {self._place}{key} is not known")
        return found, place

    def listed(self, given: Mapping[str, Any], key: str, count_max: int) -> Sequence[Any]:
        """The first entries of a list; none where there is no list."""
        found = given.get(key)
        if not isinstance(found, list):
            if found is not None:
                self.reject(key, found)
            return ()
        if len(found) > count_max:
            self.note(f"{self._place}{key} has {len(found)} entries; only {count_max} of them are recorded")
        return found[:count_max]

    def each(
        self, given: Mapping[str, Any], key: str, count_max: int
    ) -> Iterator[tuple[Mapping[str, Any], "FieldReader"]]:
        """The objects of a list, each with its own reader."""
        for index, one in enumerate(self.listed(given, key, count_max)):
            yield mapping(one), self.within(f"{key}[{index}]")

    def entries(self, given: Mapping[str, Any], key: str, count_max: int) -> Iterator[tuple[str, Any, "FieldReader"]]:
        """The values of a map, ordered by their names, each with its own reader."""
        found = given.get(key)
        if found is not None and not isinstance(found, Mapping):
            self.reject(key, found)
        fit = [name for name in sorted(mapping(found)) if text(name)][:count_max]
        if len(fit) < len(mapping(found)):
            self.note(f"{self._place}{key} has {len(mapping(found))} entries; only {len(fit)} of them are recorded")
        for name in fit:
            yield name, mapping(found)[name], self.within(f"{key}[{name}]")

    def amount(self, given: Mapping[str, Any], key: str) -> str | None:
        """A quantity in its canonical text; None where there is none."""
        value = given.get(key)
        found = amount(value)
        if found is None and value is not None:
            self.reject(key, value)
        return found

    def amounts(self, given: Mapping[str, Any], key: str, count_max: int, inner: str = "") -> dict[str, str]:
        """Quantities by name; with `inner`, each stands under that key of its entry."""
        found: dict[str, str] = {}
        for name, value, place in self.entries(given, key, count_max):
            quantity = amount(mapping(value).get(inner) if inner else value)
            if quantity is None:
                place.reject(inner or "value", value)
            else:
                found[name] = quantity
        return found

    def part(self, obj: Object, subject: str, content: dict[str, Any], *lighten: Lighten) -> ObjectPart:
        """The part of an object that an event can hold; one that is still too large has no content."""
        raw = packed(content)
        for take in lighten:
            if len(raw) <= DATA_BYTES_MAX:
                break
            self.note(f"it is too large for an event; {take(content)} are left out")
            raw = packed(content)
        if len(raw) > DATA_BYTES_MAX:
            return skipped(obj, *self.problems, "it is too large for an event, and left out")
        return ObjectPart(key_of(obj), subject, raw, self.problems)


def shown(given: object) -> str:
    """A value as a problem shows it: short, and nested ones by their type."""
    match given:
        case str():
            return repr(given[:SHOWN_LENGTH_MAX])
        case Mapping():
            return "an object"
        case list():
            return "a list"
        case None | bool() | float():
            return repr(given)
        case int() if abs(given) < 10**SHOWN_LENGTH_MAX:
            return repr(given)
    return "a number"
