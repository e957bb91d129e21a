"""Messages of the log as a Parquet file, and back to the same messages, byte for byte.

A row has the message as it was recorded (`position`, `recorded_ns`, `nats_subject`, `raw`), and beside it the
attributes of the event that it holds, for queries; a message that is no event of ours has nulls there. The attributes
follow from the message, so that whoever verifies a file makes them anew.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import cache, lru_cache
from io import BytesIO
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gpuledger.domain.fact import time_of_ns
from gpuledger.events.envelope import parse
from gpuledger.events.errors import EventError
from gpuledger.events.position import number_of
from gpuledger.events.registry import parse_type
from gpuledger.ledger.api import Message

GROUP_BYTES_MAX: Final = 16 << 20
"""A row group ends with the message that exceeds this; a reader holds one row group at a time."""

GROUP_ROWS_MAX: Final = 65_536

COMPRESSION: Final = "zstd"
COMPRESSION_LEVEL: Final = 3

EVENT_TYPES_MAX: Final = 1_024
"""How many types of events are remembered; anybody may write any."""

_MESSAGE_COLUMNS: Final = ("position", "recorded_ns", "nats_subject", "raw")


class EventRow(NamedTuple):
    """A message as a row, in the order of the file's columns.

    `recorded` is `recorded_ns` to the microsecond. `subject` is the id of the event's aggregate, `nats_subject` the
    message's subject. `recorded_at` is when an imported or restored event was first recorded elsewhere.
    """

    generation: int
    position: int
    recorded_ns: int
    recorded: datetime
    nats_subject: str
    raw: bytes
    time: datetime | None = None
    source: str | None = None
    epoch: str | None = None
    number: int | None = None
    type: str | None = None
    aggregate: str | None = None
    event: str | None = None
    subject: str | None = None
    id: str | None = None
    causation_id: str | None = None
    correlation_id: str | None = None
    recorded_at: datetime | None = None
    imported: bool | None = None


def row_of(message: Message, generation: int) -> EventRow:
    """The message with the attributes of the event that it holds."""
    nats_subject, raw, sequence, recorded_ns = message
    recorded = (generation, number_of(sequence), recorded_ns, time_of_ns(recorded_ns), nats_subject, raw)
    try:
        event_id, source, kind, subject, time, _, epoch, number, cause, first_cause, recorded_at, imported = parse(raw)
    except EventError:
        return EventRow(*recorded)
    names = (kind, *_names(kind), subject, event_id)
    return EventRow(*recorded, time, source, epoch, number, *names, cause, first_cause, recorded_at, imported)


@lru_cache(maxsize=EVENT_TYPES_MAX)
def _names(event_type: str) -> tuple[str | None, str | None]:
    try:
        name = parse_type(event_type)
    except EventError:
        return None, None
    return name.aggregate, name.event


@cache
def schema() -> Any:  # noqa: ANN401 - pyarrow has no types
    """The columns of a file of events."""
    time, text, number = pa.timestamp("us", "UTC"), pa.string(), pa.int64()
    kinds = {
        "generation": number,
        "position": number,
        "recorded_ns": number,
        "recorded": time,
        "time": time,
        "number": number,
        "recorded_at": time,
        "imported": pa.bool_(),
        "raw": pa.binary(),
    }
    required = {"generation", "recorded", *_MESSAGE_COLUMNS}
    return pa.schema(
        [pa.field(name, kinds.get(name, text), nullable=name not in required) for name in EventRow._fields]
    )


class EventsFile:
    """A file in the making, in memory: what was added is encoded row group by row group.

    Its size is bounded by whoever ends it; `raw_bytes` says how much went in, `encoded_bytes` what came out so far.
    """

    def __init__(self, generation: int) -> None:
        self.raw_bytes = 0
        self.rows = 0
        self._generation = generation
        self._buffer = BytesIO()
        self._writer = pq.ParquetWriter(
            self._buffer,
            schema(),
            compression=COMPRESSION,
            compression_level=COMPRESSION_LEVEL,
            use_dictionary=["nats_subject", "source", "epoch", "type", "aggregate", "event", "subject"],
            write_page_index=True,
        )
        self._group: list[Message] = []
        self._group_bytes = 0

    @property
    def is_group_full(self) -> bool:
        """Whether it is time for `flush`."""
        return self._group_bytes >= GROUP_BYTES_MAX or len(self._group) >= GROUP_ROWS_MAX

    @property
    def encoded_bytes(self) -> int:
        """The size of what is encoded."""
        return self._buffer.tell()

    def add(self, message: Message) -> None:
        """Append a message."""
        size = len(message.data) + len(message.subject)
        self._group.append(message)
        self._group_bytes += size
        self.raw_bytes += size
        self.rows += 1

    def flush(self) -> None:
        """Encode what was added as a row group; takes up to some tenths of a second."""
        if not self._group:
            return
        rows = [row_of(one, self._generation) for one in self._group]
        columns = zip(*rows, strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema(), strict=True)]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=schema()), row_group_size=len(rows))
        self._group, self._group_bytes = [], 0

    def finish(self) -> bytes:
        """The whole file."""
        self.flush()
        self._writer.close()
        return self._buffer.getvalue()


def rows_in(data: bytes) -> Iterator[list[EventRow]]:
    """The rows of a file, a row group at a time.

    Raises:
        ValueError: it is no file of events.
    """
    for columns in _groups(data, EventRow._fields):
        yield [EventRow(*row) for row in zip(*columns, strict=True)]


def messages_in(
    data: bytes, subject_prefix: str = "", within: tuple[int, int] | None = None
) -> Iterator[list[Message]]:
    """The messages of a file as they were recorded, a row group at a time; raises as `rows_in` does.

    With a prefix only those whose subject begins so. Row groups without a place `within` are not read.
    """

    def selected(table: Any) -> Any:  # noqa: ANN401 - pyarrow has no types
        return table.filter(pc.starts_with(table.column("nats_subject"), subject_prefix)) if subject_prefix else table

    is_read = None if within is None else lambda first, last: within[0] <= last and first <= within[1]
    yield from map(_messages_of, _groups(data, _MESSAGE_COLUMNS, is_read, selected))


def messages_at(data: bytes, places: Sequence[int]) -> Iterator[list[Message]]:
    """The messages of a file at places that ascend, a row group at a time; raises as `rows_in` does.

    Row groups without any of these places are not read.
    """

    def is_read(first: int, last: int) -> bool:
        at = bisect_left(places, first)
        return at < len(places) and places[at] <= last

    def selected(table: Any) -> Any:  # noqa: ANN401 - pyarrow has no types
        return table.filter(pc.is_in(table.column("position"), value_set=pa.array(places, pa.int64())))

    yield from map(_messages_of, _groups(data, _MESSAGE_COLUMNS, is_read, selected))


def _messages_of(columns: list[list[Any]]) -> list[Message]:
    position, recorded_ns, subject, raw = columns
    return [Message(*one) for one in zip(subject, raw, position, recorded_ns, strict=True)]


def _groups(
    data: bytes,
    names: Sequence[str],
    is_read: Callable[[int, int], bool] | None = None,
    selected: Callable[[Any], Any] | None = None,
) -> Iterator[list[list[Any]]]:
    """The columns with these names, a row group at a time: of those that `is_read` by first and last place."""
    try:
        with pq.ParquetFile(BytesIO(data)) as file:
            if file.schema_arrow.names != schema().names:
                raise ValueError("its columns are not those of events")
            for group in range(file.num_row_groups):
                places = _places_of(file, group)
                if is_read is not None and places is not None and not is_read(*places):
                    continue
                table = file.read_row_group(group, columns=list(names), use_threads=False)
                table = table if selected is None else selected(table)
                yield [table.column(name).to_pylist() for name in names]
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"it is no Parquet file that can be read: {error}") from error


def _places_of(file: Any, group: int) -> tuple[int, int] | None:  # noqa: ANN401 - pyarrow has no types
    """The first and the last place of a row group, if its statistics have them."""
    found = file.metadata.row_group(group).column(schema().names.index("position")).statistics
    return None if found is None else (found.min, found.max)
