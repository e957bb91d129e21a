"""Tracks the numbers seen of each source, which tell an event from its repeat, whatever the broker forgets.

A source numbers its events from 1 within an epoch. What was seen is everything up to the last number but for the holes,
so memory follows the losses and the disorder, and not the length of the history after them. Holes are bounded: what a
broken source leaves out must cost nobody more than that. Of a decider's leaders only the last one's epoch is kept.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gpuledger.domain.sources.leader_epochs import began
from gpuledger.events.errors import EventError
from gpuledger.events.position import Position

HOLES_MAX = 10_000
"""How many ranges of numbers of an epoch may be missing at a time; they are written all at once."""

HOLES_OF_SOURCE_MAX = 2 * HOLES_MAX
"""How many may be missing of all epochs of a source of the edge that are kept."""

EPOCHS_MAX = 1_000
"""How many epochs are kept of a source of the edge, the last ones begun; an agent never goes back to an older one."""

Range = tuple[int, int]
"""First and last number, both within."""


class HolesError(EventError):
    """A number would leave more holes than `HOLES_MAX` in its epoch, or `HOLES_OF_SOURCE_MAX` in all of its source."""


class Numbers:
    """The numbers seen of one source's epoch: 1 to `last` without `holes`, which are ordered and apart."""

    __slots__ = ("holes", "last")

    def __init__(self, last: int = 0, holes: Iterable[Range] = ()) -> None:
        self.last = last
        self.holes = list(holes)

    def add(self, number: int) -> bool:
        """Note a number; False says that it had been seen before."""
        expected = self.last + 1
        if number < expected:
            return self._fill(number)
        if number > expected:
            self.holes.append((expected, number - 1))
        self.last = number
        return True

    def opens_hole(self, number: int) -> bool:
        """Whether there would be one more hole if this number were added."""
        if number > self.last:
            return number > self.last + 1
        at = self._hole(number)
        return at is not None and self.holes[at][0] < number < self.holes[at][1]

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and 0 < number <= self.last and self._hole(number) is None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Numbers) and (self.last, self.holes) == (other.last, other.holes)

    __hash__ = None  # type: ignore[assignment] # mutable

    def _hole(self, number: int) -> int | None:
        """Where the hole that a number falls into stands, if it falls into one."""
        at = bisect_right(self.holes, (number, self.last)) - 1
        return at if at >= 0 and self.holes[at][0] <= number <= self.holes[at][1] else None

    def _fill(self, number: int) -> bool:
        at = self._hole(number) if self.holes else None
        if at is None:
            return False
        first, last = self.holes[at]
        self.holes[at : at + 1] = [(a, b) for a, b in ((first, number - 1), (number + 1, last)) if a <= b]
        return True


def keeps_all_epochs(source: str) -> bool:
    """Whether every epoch of a source is kept: an import's is the digest of its files, which may come again."""
    return not source.startswith(("/nodes/", "/gateways/"))


class SeenChange(NamedTuple):
    """The numbers seen of an epoch, to be written: all up to `last` without `holes`.

    `began` orders epochs that are new; it is 0 for others, which keep theirs.
    """

    source: str
    epoch: str
    last: int
    holes: list[Range]
    began: int


class Seen:
    """The numbers seen of every source and epoch, in the order in which these began, and what changed of them."""

    def __init__(self, numbers: Mapping[tuple[str, str], Numbers] | None = None, began: int = 0) -> None:
        self.numbers: dict[tuple[str, str], Numbers] = dict(numbers or {})
        self._changed: dict[tuple[str, str], None] = {}
        self._forgotten: dict[tuple[str, str], None] = {}
        self._began: dict[tuple[str, str], int] = {}
        self._last_began = began
        self._epochs: dict[str, dict[str, None]] = {}
        self._holes: dict[str, int] = {}
        self._leaders: dict[str, tuple[Position, str]] = {}
        for (source, epoch), one in list(self.numbers.items()):
            self._add_epoch(source, epoch)
            self._count_holes(source, len(one.holes))
            self._add_leader(source, epoch)  # a build that closes no epochs may have kept several
            self._forget_oldest(source)

    def add(self, source: str, epoch: str, number: int, place: int = 0) -> bool:
        """Note a number; False says that it is a repeat, or of an epoch that is closed.

        Where several processes write what they have seen of one log, `place` is where the event stands in it: epochs
        are then in the same order for all of them.

        Raises:
            HolesError: it would leave too many holes, and was not noted. That depends on the log alone.
        """
        key = (source, epoch)
        found = self.numbers.get(key)
        if found is None and self._is_closed(source, epoch):
            return False
        numbers = found or Numbers()
        if number == numbers.last + 1:
            numbers.last = number
        else:
            self._check_holes(key, numbers, number)
            before = len(numbers.holes)
            if not numbers.add(number):
                return False
            self._count_holes(source, len(numbers.holes) - before)
        if found is None:
            self.numbers[key] = numbers
            self._begin(source, epoch, place)
        self._changed[key] = None
        return True

    def last_leader(self, source: str) -> Position | None:
        """The head that the last of a decider's leaders found; None where no epoch names one."""
        last = self._leaders.get(source)
        return None if last is None else last[0]

    def take_changes(self) -> list[SeenChange]:
        """What changed since the last call."""
        changes = []
        for key in self._changed:
            source, epoch = key
            numbers = self.numbers[key]
            began_at = self._began.pop(key, 0) if self._began else 0
            changes.append(SeenChange(source, epoch, numbers.last, numbers.holes.copy(), began_at))
        self._changed = {}
        return changes

    def take_forgotten(self) -> list[tuple[str, str]]:
        """The sources and epochs that were forgotten since the last call, having been written before."""
        forgotten, self._forgotten = list(self._forgotten), {}
        return forgotten

    def put_back(self, changes: Iterable[SeenChange], forgotten: Iterable[tuple[str, str]]) -> None:
        """Have what was taken taken again: it was not written."""
        for one in changes:
            key = (one.source, one.epoch)
            if key in self.numbers:
                self._changed[key] = None
                if one.began:
                    self._began[key] = one.began
        self._forgotten |= dict.fromkeys(forgotten)

    def renew(self) -> None:
        """Have everything taken, in the order of now, for those who have nothing of it yet."""
        self._changed = dict.fromkeys(self.numbers)
        self._began = {key: place for place, key in enumerate(self.numbers, 1)}
        self._forgotten = {}

    def _check_holes(self, key: tuple[str, str], numbers: Numbers, number: int) -> None:
        source, epoch = key
        if len(numbers.holes) >= HOLES_MAX and numbers.opens_hole(number):
            raise HolesError(
                f"With number {number}, more than {HOLES_MAX} ranges of numbers would be missing of epoch {epoch!r} of "
                f"{source!r}. Let the source begin a new epoch."
            )
        if self._holes.get(source, 0) >= HOLES_OF_SOURCE_MAX and numbers.opens_hole(number):
            raise HolesError(
                f"With number {number} of epoch {epoch!r}, more than {HOLES_OF_SOURCE_MAX} ranges of numbers would be "
                f"missing of {source!r}. Let the source number its events without holes."
            )

    def _count_holes(self, source: str, more: int) -> None:
        if more and not keeps_all_epochs(source):
            self._holes[source] = self._holes.get(source, 0) + more

    def _begin(self, source: str, epoch: str, place: int) -> None:
        self._last_began = max(self._last_began + 1, place)
        self._began[source, epoch] = self._last_began
        self._add_epoch(source, epoch)
        self._add_leader(source, epoch)
        self._forget_oldest(source)

    def _forget_oldest(self, source: str) -> None:
        epochs = self._epochs.get(source, {})
        if len(epochs) > EPOCHS_MAX:
            self._forget(source, next(iter(epochs)))

    def _add_epoch(self, source: str, epoch: str) -> None:
        if not keeps_all_epochs(source):
            self._epochs.setdefault(source, {})[epoch] = None

    def _add_leader(self, source: str, epoch: str) -> None:
        """Note a leader's epoch, and forget the one of the two last that the other closes."""
        began_at = began(source, epoch)
        if began_at is None:
            return
        before = self._leaders.get(source)
        if before is not None and not began_at.is_after(before[0]):
            self._forget(source, epoch)
            return
        self._leaders[source] = (began_at, epoch)
        if before is not None:
            self._forget(source, before[1])

    def _is_closed(self, source: str, epoch: str) -> bool:
        """Whether an epoch of which nothing is kept is closed, because a later leader's began."""
        last = self._leaders.get(source)
        began_at = None if last is None else began(source, epoch)
        return last is not None and began_at is not None and not began_at.is_after(last[0])

    def _forget(self, source: str, epoch: str) -> None:
        key = (source, epoch)
        self._count_holes(source, -len(self.numbers[key].holes))
        self._epochs.get(source, {}).pop(epoch, None)
        del self.numbers[key]
        self._changed.pop(key, None)
        if self._began.pop(key, None) is None:
            self._forgotten[key] = None
