"""The numbers seen of a log up to a position, for all the folds of a process, wherever they are in the log. Pure.

Whether an event counts by its number depends on the log alone, so it is found out once, by whoever gets to the event
first. A fold that is behind needs no numbers of its own: it has to know which events before the position did not count.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Final, NamedTuple

from gpuledger.domain.sources.deduplication import HolesError, Seen, SeenChange
from gpuledger.events.envelope import Undecoded
from gpuledger.events.position import ORIGIN, Offset, can_follow, is_after, lag, latest, number_of
from gpuledger.ledger.api import Message
from gpuledger.ledger.identity import Anchor, anchor_of
from gpuledger.projection.errors import NumbersChangedError

REFUSED_MAX: Final = 100_000
"""How many events that did not count are remembered; a fold that is behind them reads the numbers for itself."""

RECENT_MAX: Final = 65_536
"""Of so many events it is known whether another one stands in their place now; more than a feed reads ahead."""

_COUNTS: Final = object()


class NumbersChange(NamedTuple):
    """What became of the numbers since they were last written. A reason is None where the number was seen before."""

    position: Offset
    anchor: Anchor | None
    complete_from: Offset
    forgotten: list[tuple[str, str]]
    changes: list[SeenChange]
    refused: list[tuple[Offset, str | None]]


class LogNumbers:
    """The numbers seen up to `position`, and the events that did not count behind `complete_from`.

    Its callers read the log without a gap, each from somewhere between the two positions on.
    """

    def __init__(
        self,
        seen: Seen | None = None,
        position: Offset = ORIGIN,
        anchor: Anchor | None = None,
        complete_from: Offset = ORIGIN,
        refused: Mapping[Offset, str | None] | None = None,
    ) -> None:
        """`refused` holds reasons by positions, in the order of the log."""
        self.seen = seen or Seen()
        self.position = position
        self.complete_from = complete_from
        self.is_stale = False
        """Whether the log has turned out to be another one than these numbers are of."""

        self._anchor = anchor
        self._last: Message | None = None
        self._refused: dict[Offset, str | None] = dict(refused or {})
        self._to_write: list[tuple[Offset, str | None]] = []
        self._recent: list[int | None] = [None] * RECENT_MAX

    @property
    def anchor(self) -> Anchor | None:
        """The anchor at the position, None at the origin."""
        last = self._last
        return self._anchor if last is None else anchor_of(last.sequence, last.subject, last.data)

    def refused_behind(self, position: Offset) -> dict[Offset, str | None]:
        """The events behind a position that did not count, each with the reason unless its number was seen before."""
        return {at: reason for at, reason in self._refused.items() if is_after(at, position)}

    def is_new(self, message: Message, event: Undecoded | None) -> bool:
        """Whether a message holds an event (None: it holds none) that counts; False says that its number was seen.

        Raises:
            HolesError: its number would leave too many holes.
            NumbersChangedError: the log is not the one that the numbers are of.
        """
        if self.is_stale:
            raise NumbersChangedError
        at = message.sequence
        if not can_follow(at, self.position, is_whole=True):
            if not is_after(at, self.position):
                return self._was_new(message) and event is not None
            self.is_stale = True
            raise NumbersChangedError
        number = number_of(at)
        self.position, self._last = at, message
        self._recent[number % RECENT_MAX] = hash(message.data)
        if event is None:
            return False
        try:
            is_new = self.seen.add(event.source, event.epoch, event.number, number)
        except HolesError as error:
            self._refuse(at, str(error))
            raise
        if not is_new:
            self._refuse(at, None)
        return is_new

    def take_changes(self) -> NumbersChange:
        """What changed since the last call."""
        refused, self._to_write = self._to_write, []
        forgotten = self.seen.take_forgotten()
        return NumbersChange(
            self.position, self.anchor, self.complete_from, forgotten, self.seen.take_changes(), refused
        )

    def put_back(self, change: NumbersChange) -> None:
        """Have what was taken taken again: it was not written."""
        self._to_write[:0] = change.refused
        self.seen.put_back(change.changes, change.forgotten)

    def _was_new(self, message: Message) -> bool:
        at = message.sequence
        recent = self._recent[number_of(at) % RECENT_MAX]
        if self._is_recent(at) and recent not in (None, hash(message.data)):
            self.is_stale = True
            raise NumbersChangedError
        reason = self._refused.get(at, _COUNTS)
        if isinstance(reason, str):
            raise HolesError(reason)
        return reason is _COUNTS

    def _is_recent(self, at: Offset) -> bool:
        return lag(at, self.position) < RECENT_MAX

    def _refuse(self, at: Offset, reason: str | None) -> None:
        self._refused[at] = reason
        self._to_write.append((at, reason))
        if len(self._refused) > REFUSED_MAX:
            dropped = list(islice(self._refused, REFUSED_MAX // 10))
            for one in dropped:
                del self._refused[one]
            self.complete_from = latest([self.complete_from, *dropped])
            self._to_write = [one for one in self._to_write if is_after(one[0], self.complete_from)]
