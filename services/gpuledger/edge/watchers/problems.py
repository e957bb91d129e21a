"""Reading that tells what it could not understand, and goes on with the rest. Pure; nothing here raises.

What an event cannot hold is left out and told, so that no object, however odd, keeps the others from being recorded.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gpuledger.edge.watchers.decide import Object, Part
from gpuledger.edge.watchers.reading import amount, key_of, mapping, number, packed, text, whole
from gpuledger.events.payload import BIGINT_MAX, NAME_LENGTH_MAX

PROBLEMS_MAX: Final = 20
"""Of one object; the first ones tell what is wrong."""

SHOWN_LENGTH_MAX: Final = 100

SAID_BYTES_MAX: Final = 900 * 1024
"""What an event can hold of an object. The ledger's servers take 1 MiB a message, headers included."""

Lighten = Callable[[dict[str, Any]], str]
"""Takes the least important out of what is said, and tells what that was."""


@dataclass(slots=True)
class Found:
    """The first problems of an object, and how many there were."""

    first: list[str] = field(default_factory=list)
    count: int = 0


class Problems:
    """What could not be understood so far, and the place in the object that is being read."""

    def __init__(self, found: Found | None = None, place: str = "") -> None:
        self._found = found or Found()
        self._place = place

    @property
    def told(self) -> tuple[str, ...]:
        """The first of them, in their order."""
        return tuple(self._found.first)

    @property
    def count_so_far(self) -> int:
        """How many there were, those that are too many to tell included."""
        return self._found.count

    def say(self, problem: str) -> None:
        """Note a problem."""
        self._found.count += 1
        if len(self._found.first) < PROBLEMS_MAX:
            self._found.first.append(problem)

    def tell(self, key: str, given: object) -> None:
        """Note that what stands under a key cannot be understood."""
        self.say(f"{self._place}{key} is {shown(given)}")

    def within(self, key: str) -> "Problems":
        """The same, for what stands under a key."""
        return Problems(self._found, f"{self._place}{key}.")

    def text(self, given: Mapping[str, Any], key: str, length_max: int = NAME_LENGTH_MAX) -> str | None:
        """A text that an event can hold; None where there is none, or an empty one."""
        value = given.get(key)
        found = text(value, length_max)
        if found is None and value is not None and value != "":
            self.tell(key, value)
        return found

    def needed(self, given: Mapping[str, Any], *keys: str) -> dict[str, str] | None:
        """Texts by their keys; None where one of them is missing."""
        found = {key: text(given.get(key)) for key in keys}
        for key, value in found.items():
            if value is None:
                self.tell(key, given.get(key))
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
            self.tell(key, value)
        return found

    def number(self, given: Mapping[str, Any], key: str, most: int = BIGINT_MAX) -> int | None:
        """A number from 1 to `most`; None where there is none."""
        value = given.get(key)
        found = number(value, most)
        if found is None and value is not None:
            self.tell(key, value)
        return found

    def boolean(self, given: Mapping[str, Any], key: str) -> bool | None:
        """Yes or no; None where it does not say."""
        value = given.get(key)
        if isinstance(value, bool):
            return value
        if value is not None:
            self.tell(key, value)
        return None

    def choice(self, given: Mapping[str, Any], key: str, known: Collection[str]) -> str | None:
        """One of the texts that are known; None where there is none."""
        value = given.get(key)
        if isinstance(value, str) and value in known:
            return value
        if value is not None:
            self.tell(key, value)
        return None

    def nested(
        self, given: Mapping[str, Any], key: str, known: Collection[str]
    ) -> "tuple[Mapping[str, Any], Problems]":
        """What stands under a key, with its own place; entries that nobody knows are told. Empty where it is none."""
        value = given.get(key)
        if value is not None and not isinstance(value, Mapping):
            self.tell(key, value)
        found, place = mapping(value), self.within(key)
        for name in sorted(found.keys() - set(known)):
            place.say(f"{shown(name)} in {self._place}{key} is not known")
        return found, place

    def listed(self, given: Mapping[str, Any], key: str, count_max: int) -> Sequence[Any]:
        """The first entries of a list; none where there is no list."""
        found = given.get(key)
        if not isinstance(found, list):
            if found is not None:
                self.tell(key, found)
            return ()
        if len(found) > count_max:
            self.say(f"{self._place}{key} has {len(found)} entries, of which {count_max} are told")
        return found[:count_max]

    def each(
        self, given: Mapping[str, Any], key: str, count_max: int
    ) -> Iterator[tuple[Mapping[str, Any], "Problems"]]:
        """The objects of a list, each with its own place."""
        for index, one in enumerate(self.listed(given, key, count_max)):
            yield mapping(one), self.within(f"{key}[{index}]")

    def entries(self, given: Mapping[str, Any], key: str, count_max: int) -> Iterator[tuple[str, Any, "Problems"]]:
        """The values of a map, ordered by their names, each with its own place."""
        found = given.get(key)
        if found is not None and not isinstance(found, Mapping):
            self.tell(key, found)
        fit = [name for name in sorted(mapping(found)) if text(name)]
        if len(fit[:count_max]) < len(mapping(found)):
            self.say(f"{self._place}{key} has {len(mapping(found))} entries, of which {len(fit[:count_max])} are told")
        for name in fit[:count_max]:
            yield name, mapping(found)[name], self.within(f"{key}[{name}]")

    def amount(self, given: Mapping[str, Any], key: str) -> str | None:
        """A quantity in its canonical text; None where there is none."""
        value = given.get(key)
        found = amount(value)
        if found is None and value is not None:
            self.tell(key, value)
        return found

    def amounts(self, given: Mapping[str, Any], key: str, count_max: int, inner: str = "") -> dict[str, str]:
        """Quantities by name; with `inner`, each stands under that key of its entry."""
        found: dict[str, str] = {}
        for name, value, place in self.entries(given, key, count_max):
            quantity = amount(mapping(value).get(inner) if inner else value)
            if quantity is None:
                place.tell(inner or "value", value)
            else:
                found[name] = quantity
        return found

    def part(self, obj: Object, subject: str, said: dict[str, Any], *lighten: Lighten) -> Part:
        """What an object says, as far as an event can hold it; one that is still too large then says nothing."""
        raw = packed(said)
        for take in lighten:
            if len(raw) <= SAID_BYTES_MAX:
                break
            self.say(f"it is too large for an event; {take(said)} are left out")
            raw = packed(said)
        if len(raw) > SAID_BYTES_MAX:
            return Part(key_of(obj), None, b"", (*self.told, "it is too large for an event, and left out"))
        return Part(key_of(obj), subject, raw, self.told)


def shown(given: object) -> str:
    """A value as a problem tells it: short, and of nested ones only what they are."""
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
