"""Occurrences that may still have to become Events: a restarted status writer finds those that nobody recorded. Pure.

They are kept by the log's own times alone, for as long as one may become an Event. An Event's name and count follow
from them, so that whoever announces all of them again records none twice.
"""

from datetime import datetime, timedelta
from typing import Final, NamedTuple

from gpuledger.api.reasons import EventReason
from gpuledger.domain.fact import TableState, time_of_ns
from gpuledger.domain.table import Table, TableSpec
from gpuledger.edge.statuswriter.events.series import EVENT_AGE_MAX_S, Occurrence
from gpuledger.edge.statuswriter.objects import Key, Kind

YOUNG_MAX: Final = 10_000
"""How many are kept; the oldest go first. More than an event recorder lets wait."""

EVENT_AGE_MAX: Final = timedelta(seconds=EVENT_AGE_MAX_S)


class YoungOccurrence(NamedTuple):
    """An occurrence as `Occurrence` has it; `number` counts them along the log."""

    number: int
    kind: str
    name: str
    namespace: str
    reason: str
    about: str
    note: str
    is_warning: bool
    happened_at: datetime
    recorded_ns: int

    @property
    def occurrence(self) -> Occurrence:
        """The occurrence."""
        key, reason = Key(Kind(self.kind), self.name, self.namespace), EventReason(self.reason)
        return Occurrence(key, reason, self.about, self.note, self.is_warning, self.happened_at, self.recorded_ns)


YOUNG_OCCURRENCE: Final = TableSpec("young_occurrence", YoungOccurrence, ("number",))


class YoungOccurrences(TableState):
    """The young occurrences in the order of the log, and which of them were taken."""

    def __init__(self) -> None:
        self.young = Table(YOUNG_OCCURRENCE)
        self.young.never_written()
        self._taken = 0

    def add(self, one: Occurrence) -> None:
        """Keep an occurrence, unless it is too old already, and forget those that are by now."""
        recorded_at = time_of_ns(one.recorded_ns)
        if one.happened_at + EVENT_AGE_MAX < recorded_at:
            return
        number = next(reversed(self.young.rows), 0) + 1
        kind, name, namespace = map(str, one.key)
        self.young.put(YoungOccurrence(number, kind, name, namespace, str(one.reason), *one[2:]))
        self._forget(recorded_at)

    def _forget(self, now: datetime) -> None:
        rows = self.young.rows
        while (first := next(iter(rows.values()))) and (
            len(rows) > YOUNG_MAX or time_of_ns(first.recorded_ns) + EVENT_AGE_MAX < now
        ):
            self.young.delete(first.number)

    def take(self) -> list[Occurrence]:
        """Those since the last call; the first call returns all."""
        found = []
        for number in reversed(self.young.rows):
            if number <= self._taken:
                break
            found.append(self.young.rows[number].occurrence)
        self._taken = next(reversed(self.young.rows), self._taken)
        return found[::-1]
