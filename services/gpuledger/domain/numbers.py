"""Which of a source's numbers have been seen: how an event is told from its repeat, whatever the broker forgets.

A source numbers its events from 1 within an epoch. What was seen is a contiguous prefix plus the few numbers that came
out of order, so memory follows the disorder and not the length of the history.
"""

from collections.abc import Iterable, Mapping


class Numbers:
    """The numbers seen of one source's epoch."""

    __slots__ = ("beyond", "prefix")

    def __init__(self, prefix: int = 0, beyond: Iterable[int] = ()) -> None:
        self.prefix = prefix
        self.beyond = set(beyond)

    def add(self, number: int) -> bool:
        """Note a number; False says that it had been seen before."""
        if number == self.prefix + 1:
            self.prefix = number
            if self.beyond:
                self._extend()
            return True
        if number <= self.prefix or number in self.beyond:
            return False
        self.beyond.add(number)
        return True

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and (0 < number <= self.prefix or number in self.beyond)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Numbers) and (self.prefix, self.beyond) == (other.prefix, other.beyond)

    __hash__ = None  # type: ignore[assignment] # mutable

    def missing(self) -> list[tuple[int, int]]:
        """The ranges, first to last, that lie between numbers seen."""
        ranges, expected = [], self.prefix + 1
        for number in sorted(self.beyond):
            if number > expected:
                ranges.append((expected, number - 1))
            expected = number + 1
        return ranges

    def _extend(self) -> None:
        while self.prefix + 1 in self.beyond:
            self.prefix += 1
            self.beyond.remove(self.prefix)


class Seen:
    """The numbers seen of every source and epoch, and which of them changed since they were last taken."""

    def __init__(self, known: Mapping[tuple[str, str], Numbers] | None = None) -> None:
        self.numbers: dict[tuple[str, str], Numbers] = dict(known or {})
        self._changed: dict[tuple[str, str], None] = {}

    def add(self, source: str, epoch: str, number: int) -> bool:
        """Note a number; False says that it is a repeat."""
        key = (source, epoch)
        numbers = self.numbers.get(key)
        if numbers is None:
            numbers = self.numbers[key] = Numbers()
        if not numbers.add(number):
            return False
        self._changed[key] = None
        return True

    def take_changes(self) -> list[tuple[str, str, int, list[int]]]:
        """Source, epoch, prefix and the numbers beyond it, of all that changed since the last call."""
        changes = [(*key, self.numbers[key].prefix, sorted(self.numbers[key].beyond)) for key in self._changed]
        self._changed = {}
        return changes
