"""What one source may record in an hour, and what it did. Pure.

An hour is one of recording, as the log shows it, so that every fold of a log counts alike. There is one row for each
source, of its latest hour, and it is bounded whatever the source sends.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

from gpuledger.domain.table import Table, TableSpec
from gpuledger.events.allocation import AllocationObserved
from gpuledger.events.envelope import Undecoded, with_payload
from gpuledger.events.node import NodeDevicesObserved
from gpuledger.events.registry import parse_type

HOUR: Final = timedelta(hours=1)
HASH_LENGTH: Final = 16

HASHES_SEARCHED_MAX: Final = 64
"""Up to so many hashes of a source are searched as they stand in its row; of more there is a set."""

HASHES_KEPT_MAX: Final = 16_384
"""How many hashes are kept in memory; their subjects are whatever sources call things."""

UNITS_PER_AGGREGATE: Final = 8
"""How many units of a container count as one thing: whoever lists more than a node may hold is over its limits."""

_LISTS = (NodeDevicesObserved.TYPE, AllocationObserved.TYPE)
"""The types of events that list things besides the one that they are about."""


@dataclass(frozen=True, slots=True)
class SourceLimits:
    """What one source may record in an hour before it is over its limits.

    `rejected` counts events that were rejected, `epochs` those that it began, `aggregates` the things that its events
    are about or list, `bytes` everything that it published, repeats included. Beyond `gaps`, ranges of numbers stay
    missing without being recorded as gaps until a later hour.
    """

    rejected: int = 100
    epochs: int = 20
    aggregates: int = 2_000
    bytes: int = 64 * 1024 * 1024
    gaps: int = 1_000


LIMITS: Final = SourceLimits()
"""The limits in force. They are no settings, because a decision that depends on one must replay alike."""


class SourceHour(NamedTuple):
    """The latest hour of a source, and since when it is over its limits in that hour.

    `aggregates` ends at one more than allowed. `hashes` are those of the aggregates so far, empty once they are too
    many.
    """

    source: str
    hour: datetime
    events: int
    rejected: int
    epochs: int
    aggregates: int
    bytes: int
    hashes: str
    limited_at: datetime | None


SOURCE_HOUR = TableSpec("source_hour", SourceHour, ("source",))


class CountedMessage(NamedTuple):
    """A message to count: who published it when, its size, and what it is about and lists, if that is sure."""

    source: str
    recorded_at: datetime
    size: int
    aggregates: tuple[str, ...]
    begins_epoch: bool
    is_rejected: bool


class Hours:
    """Counts what each source records in its latest hour."""

    def __init__(self, table: Table[SourceHour]) -> None:
        self._table = table
        self._aggregates: dict[str, set[str]] = {}

    def count(self, message: CountedMessage) -> SourceHour:
        """Count a message; returns its source's hour."""
        _, recorded_at, size, listed, begins_epoch, is_rejected = message
        row = self._table.get(message.source)
        if row is None or recorded_at - row.hour >= HOUR:
            hour = recorded_at.replace(minute=0, second=0, microsecond=0)
            row = SourceHour(message.source, hour, 0, 0, 0, 0, 0, "", None)
            self._aggregates.pop(message.source, None)
        source, hour, events, rejected, epochs, aggregates, total, hashes, limited_at = row
        if len(listed) > 1 or aggregates >= HASHES_SEARCHED_MAX:
            aggregates, hashes = self._with_aggregates(row, listed)
        elif listed and not (hashes and _holds(hashes, listed[0])):
            aggregates, hashes = aggregates + 1, hashes + listed[0]
        row = SourceHour._make(
            (
                source,
                hour,
                events + 1,
                rejected + is_rejected,
                epochs + begins_epoch,
                aggregates,
                total + size,
                hashes,
                limited_at,
            )
        )
        self._table.put(row)
        return row

    def _with_aggregates(self, row: SourceHour, listed: tuple[str, ...]) -> tuple[int, str]:
        """The number of aggregates, and their hashes, with these."""
        if not listed or row.aggregates > LIMITS.aggregates:
            return row.aggregates, row.hashes
        found = self._aggregates.get(row.source)
        if found is None or len(found) != row.aggregates:  # Some were found by a search of the row since.
            starts = range(0, len(row.hashes), HASH_LENGTH)
            found = self._aggregates[row.source] = {row.hashes[start : start + HASH_LENGTH] for start in starts}
        more = [one for one in dict.fromkeys(listed) if one not in found]
        if row.aggregates + len(more) > LIMITS.aggregates:
            del self._aggregates[row.source]
            return LIMITS.aggregates + 1, ""
        found.update(more)
        return row.aggregates + len(more), "".join((row.hashes, *more))


def _holds(hashes: str, one: str) -> bool:
    """Whether one of these hashes, which stand behind each other, is a given one."""
    at = hashes.find(one)
    while at % HASH_LENGTH and at >= 0:
        at = hashes.find(one, at + 1)
    return at >= 0


class GapAllowance:
    """How many gaps of each source may still be recorded within the present hour.

    It is no state of the fold: what is recorded as a gap is asked of the present alone, and a replay reads it.
    """

    def __init__(self) -> None:
        self._hour: datetime | None = None
        self._taken: dict[str, int] = {}

    def take(self, source: str, now: datetime) -> bool:
        """Take one of the source's gaps of this hour; False: there is none left."""
        if self._hour is None or not self._hour <= now < self._hour + HOUR:
            self._hour, self._taken = now, {}
        taken = self._taken.get(source, 0)
        if is_limited(source) and taken >= LIMITS.gaps:
            return False
        self._taken[source] = taken + 1
        return True


def exceeded(row: SourceHour) -> tuple[str, ...]:
    """The names of the limits that a source is over in this hour."""
    if (
        row.rejected <= LIMITS.rejected
        and row.epochs <= LIMITS.epochs
        and row.aggregates <= LIMITS.aggregates
        and row.bytes <= LIMITS.bytes
    ):
        return ()
    return tuple(
        name
        for name, found, limit in (
            ("rejected", row.rejected, LIMITS.rejected),
            ("epochs", row.epochs, LIMITS.epochs),
            ("aggregates", row.aggregates, LIMITS.aggregates),
            ("bytes", row.bytes, LIMITS.bytes),
        )
        if found > limit
    )


def is_over_limits(row: SourceHour | None) -> bool:
    """Whether a source is over a limit in its latest hour."""
    return row is not None and (row.limited_at is not None or bool(exceeded(row)))


def is_limited(source: str) -> bool:
    """Whether everything that a source records counts towards its limits, and not only what is rejected.

    People import as much as they like, and our own services publish what follows from others.
    """
    return source.startswith(("/nodes/", "/gateways/"))


def aggregates_of(event: Undecoded, *, bounded: bool) -> tuple[str, ...]:
    """The hashes of what an accepted event is about and lists; nobody finds two things that share one.

    Where `Rule.BOUNDS` is enforced (`bounded`), each card of a node counts, and each `UNITS_PER_AGGREGATE` of a
    container.
    """
    own = _hash(event.type, event.subject)
    if not bounded or event.type not in _LISTS:
        return (own,)
    data, listed = with_payload(event).data, []
    if isinstance(data, NodeDevicesObserved):
        listed = [f"device/{card.uuid or f'{event.subject}/{card.pci_address}'}" for card in data.cards]
    elif isinstance(data, AllocationObserved):
        listed = [f"units/{event.subject}/{first}" for first in range(0, data.units, UNITS_PER_AGGREGATE)][1:]
    return (own, *map(_hash_of, listed))


@lru_cache(maxsize=HASHES_KEPT_MAX)
def _hash(event_type: str, subject: str) -> str:
    return _hash_of(f"{_aggregate_word(event_type)}/{subject}")


def _hash_of(thing: str) -> str:
    return blake2b(thing.encode(), digest_size=HASH_LENGTH // 2).hexdigest()


@lru_cache(maxsize=4_096)
def _aggregate_word(event_type: str) -> str:
    return parse_type(event_type).aggregate
