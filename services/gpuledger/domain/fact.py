"""The input of every fold: a decoded event with its place in the log."""

from collections.abc import Callable, Container, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, Protocol

from gpuledger.domain.table import Key, Table
from gpuledger.events.envelope import Decoded, Event, Undecoded
from gpuledger.events.payload import Payload
from gpuledger.events.position import Offset
from gpuledger.events.publishing import EVENT_AHEAD_MAX

_UNIX = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime.max.replace(tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Fact(NamedTuple):
    """An accepted event. One that a decider folds before it is published has the origin as its sequence.

    `rules` are those that are enforced where an event of the log stands.
    """

    event: Decoded
    sequence: Offset
    recorded_ns: int
    rules: Container[str] = ()


class State(Protocol):
    """The state of a projection: its tables by name."""

    def tables(self) -> Mapping[str, Table[Any]]:
        """Every table of the state, by its spec's name."""


def changed_rows(state: State) -> int:
    """How many rows have to be written, at most."""
    return sum(table.changed for table in state.tables().values())


class TableState:
    """A state whose attributes hold its tables."""

    def tables(self) -> Mapping[str, Table[Any]]:
        """Every table, by name."""
        return {value.spec.name: value for value in vars(self).values() if isinstance(value, Table)}


Touched = Iterable[tuple[str, str, Key]]
"""Which paged rows an event may touch: table, one of the columns of its `page_by`, and the value there."""


PAGES_PER_EVENT_MAX: Final = 3
"""How often a handler may need other rows read back for one event, before the store is held to lack them."""

ROWS_MISSING: Final = "Rows that it concerns have left memory, and are not in the store. Rebuild the projection."


class AbsentRowsError(Exception):
    """A handler needs retired rows that are not in memory. It has changed nothing, and is called again with them."""

    def __init__(self, touched: Touched) -> None:
        super().__init__(ROWS_MISSING)
        self.touched = touched


Handler = Callable[[Any, Fact, Any], None]
Handlers = Mapping[type[Payload], Handler]


def within(part: str, handlers: Handlers) -> Handlers:
    """Handlers that fold into a part of the state, which is the attribute of this name."""

    def of_part(handler: Handler) -> Handler:
        return lambda state, fact, data: handler(getattr(state, part), fact, data)

    return {model: of_part(handler) for model, handler in handlers.items()}


def is_late(latest: datetime | None, time: datetime) -> bool:
    """Whether something later than a fact of this time is recorded already, so that the fact no longer counts."""
    return latest is not None and latest > time


def counted_as_recorded(event: Event[Any], recorded_ns: int) -> datetime:
    """When an event counts as recorded: its `recordedtime` where that is earlier, as anybody may write a later one."""
    recorded_at = time_of_ns(recorded_ns)
    return recorded_at if event.recorded_at is None else min(recorded_at, event.recorded_at)


def is_ahead(event: Undecoded, recorded_ns: int) -> bool:
    """Whether an event says that it happened longer after it was recorded than folds accept."""
    return event.time - counted_as_recorded(event, recorded_ns) > EVENT_AHEAD_MAX


def time_of_ns(recorded_ns: int) -> datetime:
    """The server's time-stamp as a time, to the microsecond."""
    return _UNIX + timedelta(0, 0, recorded_ns // 1000)


def storable(time: datetime) -> datetime:
    """A time out of a payload as rows keep it: in UTC, from 1970 to 9999, as PostgreSQL has years that Python lacks."""
    return min(max(time, _UNIX), _LATEST).astimezone(UTC)


def ns_of_time(time: datetime) -> int:
    """The time-stamp of a time that `time_of_ns` gave, to the microsecond."""
    return (time - _UNIX) // _MICROSECOND * 1000
