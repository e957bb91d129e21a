"""Where events stand in the log: the one module that orders, measures and counts positions.

A position is partition, generation and sequence. Whoever reads one partition of one generation passes on only the
sequence, as an `Offset`. To everybody else an offset is opaque: it has an identity and a hash, and no order and no
arithmetic, so that a log of several partitions and generations changes this module and not its readers. mypy refuses
`<` and `-`, and `tests/support/positions.py` refuses the rest by the names that positions have.

At run time an offset is the plain integer that JetStream gave a message, so the folds pay nothing for it. Tables keep
that integer, and SQL may order and filter rows by it where they are read; what follows from that is decided here.
"""

import re
from collections.abc import Iterable
from operator import index
from typing import Final, NamedTuple, Never, Protocol, Self


class PositionError(ValueError):
    """A text names no position, or two positions cannot be compared."""


class Offset(Protocol):
    """The place of an event within a partition of a generation; `number_of` gives what is written of it."""

    def __index__(self) -> int:
        """Use `number_of`."""
        ...


ORIGIN: Final[Offset] = 0
"""Before the first event."""

NEVER: Final[Offset] = 2**62
"""An offset that no log reaches."""

PARTITION: Final = 0
"""The log has one partition so far."""

NUMBER_MAX: Final = 2**63 - 1
"""Tables keep generations and sequences as `bigint`."""

_WRITTEN: Final = re.compile(r"(?:([0-9]+)/)?([0-9]+)/([0-9]+)")
_TYPED: Final = re.compile(r"(?:([0-9]+)/)?([0-9]+)")


class Position(NamedTuple):
    """Where an event stands. `Position(g, ORIGIN)` is before the first of a generation."""

    generation: int
    sequence: Offset
    partition: int = PARTITION

    def __str__(self) -> str:
        """`1/57`, and `2/1/57` in another partition than the first."""
        text = f"{self.generation}/{self.sequence}"
        return text if self.partition == PARTITION else f"{self.partition}/{text}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The position that `str` wrote.

        Raises:
            PositionError: the text is none.
        """
        match = _WRITTEN.fullmatch(text)
        if match is None:
            raise PositionError(f"{text[:40]!r} is no position, such as 1/1500.")
        partition, generation, sequence = match.groups(default=str(PARTITION))
        return cls(int(generation), int(sequence), int(partition))

    @property
    def part(self) -> str:
        """The part of the log that it is in, in words."""
        text = f"generation {self.generation}"
        return text if self.partition == PARTITION else f"partition {self.partition} of {text}"

    def is_in(self, generation: int, partition: int = PARTITION) -> bool:
        """Whether its offset means something there."""
        return (self.generation, self.partition) == (generation, partition)

    def is_after(self, other: "Position") -> bool:
        """Whether it was recorded later; a generation comes after all of the one before.

        Raises:
            PositionError: they are of two partitions, which have no common order.
        """
        _check(self.partition == other.partition, self, other)
        return (self.generation, number_of(self.sequence)) > (other.generation, number_of(other.sequence))

    def __lt__(self, other: Never, /) -> Never:  # type: ignore[override]
        """A tuple would compare generations first, whatever the partitions are: `is_after` does what is meant."""
        raise _unordered(self, other)

    def __le__(self, other: Never, /) -> Never:  # type: ignore[override]
        """As `__lt__`."""
        raise _unordered(self, other)

    def __gt__(self, other: Never, /) -> Never:  # type: ignore[override]
        """As `__lt__`."""
        raise _unordered(self, other)

    def __ge__(self, other: Never, /) -> Never:  # type: ignore[override]
        """As `__lt__`."""
        raise _unordered(self, other)

    def lag(self, head: "Position") -> int:
        """How many events are behind it up to `head`.

        Raises:
            PositionError: they are of two partitions or generations, between which nothing can be counted.
        """
        _check(self.is_in(head.generation, head.partition), self, head)
        return lag(self.sequence, head.sequence)


class Generations:
    """Which generation each place of a log is in: sequences go on from a closed generation into the next one.

    It grows while a process runs, as generations are closed. Whoever keeps a log's `Generations` learns of them.
    """

    def __init__(self, begun: Iterable[tuple[int, Offset]]) -> None:
        """`begun` names each generation with the place behind which it begins, in their order; at least one."""
        self._begun = [(generation, number_of(behind)) for generation, behind in begun]

    @property
    def first(self) -> int:
        """The generation that the log begins with."""
        return self._begun[0][0]

    @property
    def current(self) -> int:
        """The generation that is written to."""
        return self._begun[-1][0]

    @property
    def begun(self) -> tuple[tuple[int, Offset], ...]:
        """Each generation with the place behind which it begins."""
        return tuple(self._begun)

    def begin(self, generation: int, behind: Offset) -> None:
        """Have another generation begin behind a place, the end of the one before."""
        self._begun.append((generation, number_of(behind)))

    def of(self, at: Offset) -> int:
        """The generation that a place is in; the origin is in the first one."""
        number = number_of(at)
        for generation, behind in reversed(self._begun):
            if number > behind:
                return generation
        return self.first

    def position(self, at: Offset) -> Position:
        """The position of a place."""
        return Position(self.of(at), at)

    def has(self, at: Position) -> bool:
        """Whether a position is one of this log, as far as its generation goes."""
        return at.is_in(self.of(at.sequence))

    def behind(self, generation: int) -> Offset:
        """The place behind which a generation of this log begins."""
        return next(behind for number, behind in self._begun if number == generation)

    def end(self, generation: int) -> Offset:
        """Where a generation ends; the current one has no end yet, so `NEVER`."""
        following = [behind for number, behind in self._begun if number > generation]
        return following[0] if following else NEVER

    def after(self, generation: int) -> int:
        """The generation behind one that is closed."""
        return next(number for number, _ in self._begun if number > generation)

    def before(self, generation: int) -> list[int]:
        """The generations before one, the last first."""
        return [number for number, _ in reversed(self._begun) if number < generation]


def generations_of(generation: "int | Generations") -> Generations:
    """The generations of a log that has one alone, or of the one that is given."""
    return generation if isinstance(generation, Generations) else Generations([(generation, ORIGIN)])


def is_typed(text: str) -> bool:
    """Whether a text has the form in which people type positions, `1500` or `1/1500`."""
    return _TYPED.fullmatch(text) is not None


def parse_typed(text: str) -> tuple[int | None, Offset]:
    """The generation (None: it is left out) and the sequence of a position that somebody typed.

    Raises:
        PositionError: it is none, or one beyond what a ledger can hold.
    """
    match = _TYPED.fullmatch(text)
    if match is None:
        raise PositionError("it is no position")
    if any(len(digits) > len(str(NUMBER_MAX)) for digits in match.groups(default="")):
        raise PositionError("it is too large")
    generation, sequence = None if match[1] is None else int(match[1]), int(match[2])
    if generation == 0 or max(sequence, generation or 0) > NUMBER_MAX:
        raise PositionError("it is out of range")
    return generation, sequence


def number_of(at: Offset) -> int:
    """The number that messages, tables, documents and metrics have of an offset."""
    return index(at)


def events_up_to(at: Offset, behind: Offset = ORIGIN) -> int:
    """How many events stand in the log up to an offset, with it, behind a place; nothing is ever deleted from it."""
    return number_of(at) - number_of(behind)


def is_origin(at: Offset) -> bool:
    """Whether it is before the first event."""
    return at == ORIGIN


def is_same(at: Offset | None, other: Offset | None) -> bool:
    """Whether both are the same place; None is none."""
    return at == other


def is_at_or_after(at: Offset, other: Offset) -> bool:
    """Whether what was read up to `at` holds everything up to `other`."""
    return number_of(at) >= number_of(other)


def is_after(at: Offset, other: Offset) -> bool:
    """Whether `at` was recorded later than `other`."""
    return number_of(at) > number_of(other)


def can_follow(at: Offset, before: Offset, *, is_whole: bool) -> bool:
    """Whether a reader that is behind `before` may get `at` next; of the whole log only what stands right behind."""
    number, last = index(at), index(before)
    return number == last + 1 if is_whole else number > last


def order(at: Offset) -> int:
    """The key by which what stands in one partition is sorted in the order of the log."""
    return number_of(at)


def earliest(at: Offset, *others: Offset) -> Offset:
    """The first of them in the log."""
    return min((at, *others), key=order)


def latest(offsets: Iterable[Offset]) -> Offset:
    """The last of them in the log; the origin where there are none."""
    return max(offsets, key=order, default=ORIGIN)


def lag(at: Offset, head: Offset) -> int:
    """How many events are behind `at` up to `head`; 0 where it is the head, or the log has become shorter."""
    return max(0, number_of(head) - number_of(at))


def next_after(at: Offset) -> Offset:
    """The place right behind an offset."""
    return number_of(at) + 1


def back(at: Offset, events: int) -> Offset:
    """The place so many events before an offset, or the origin."""
    return max(0, number_of(at) - events)


def halfway(low: Offset, high: Offset) -> Offset:
    """The place in the middle of what is behind `low` up to `high`, which a bisection reads next."""
    return (number_of(low) + number_of(high) + 1) // 2


def _unordered(one: object, other: object) -> TypeError:
    return TypeError(f"{one} and {other} have no order of their own; use `is_after`.")


def _check(is_comparable: bool, one: Position, other: Position) -> None:
    if not is_comparable:
        raise PositionError(
            f"The positions {one} and {other} cannot be compared: they are of two partitions or generations of the log."
        )
