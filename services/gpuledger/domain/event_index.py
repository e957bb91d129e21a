"""Where the ledger has the events about a name, so that asking for one name does not read the whole log.

Every message under a shared subject has a row if its envelope can be read, and every one about a device, node or pool,
whether its event counts or not: the index finds what a scan finds. A row has a digest of aggregate and name, whatever
the length of the name, and a position. Names of one digest are told apart by their events. Events about devices and
pools, which are few in a fleet's log and far apart in it, stand in their rows as they were recorded, because a server
or an archive reads megabytes for each of them. Pure.
"""

from datetime import datetime
from hashlib import blake2b
from typing import Final, NamedTuple

from gpuledger.domain.fact import Handlers, TableState, time_of_ns
from gpuledger.domain.table import Table, TableSpec
from gpuledger.events.device import DeviceAssignmentChanged
from gpuledger.events.envelope import Undecoded, parse
from gpuledger.events.errors import EventError
from gpuledger.events.position import Offset
from gpuledger.events.subjects import SHARED, SUBJECT_TOKENS, parse_subject, unescape

_DIGEST_BYTES: Final = 8
"""A `bigint`."""

INDEXED: Final = frozenset({"device", "node", "pool"})
"""The aggregates that keep their names in subjects, and that people ask about one by one.

The server finds such a name too, and for that it looks into every block of the log between its first and last event.
"""

KEPT: Final = frozenset({"device", "pool"})
"""The aggregates whose events stand in the rows. Those of nodes do not: a survey of cards is as large as ten others."""

ASSIGNED: Final = "assigned"
"""Stands for an aggregate with the pools that devices are assigned to, for these decisions are about devices."""

_ASSIGNS: Final = f".{DeviceAssignmentChanged.EVENT}"


class IndexedEvent(NamedTuple):
    """The position of an event, under the digest of what it is about.

    `event` is the envelope as it was recorded, and `recorded_at` when, to the microsecond; None where the row says only
    where the event stands.
    """

    digest: int
    position: Offset
    recorded_at: datetime | None = None
    event: str | None = None


INDEXED_EVENT: TableSpec[IndexedEvent] = TableSpec(
    "indexed_event", IndexedEvent, ("digest", "position"), retires=("position",)
)
SPECS = (INDEXED_EVENT,)


HANDLERS: Final[Handlers] = {}
"""It needs the messages alone."""


class IndexedName(NamedTuple):
    """What an event is about: the kind of its aggregate, and its name."""

    aggregate: str
    name: str

    @property
    def digest(self) -> int:
        """The digest under which the events about it are found."""
        digest = blake2b(f"{self.aggregate}/{self.name}".encode(), digest_size=_DIGEST_BYTES).digest()
        return int.from_bytes(digest, "big", signed=True)


class EventIndex(TableState):
    """The rows that were not written yet."""

    def __init__(self) -> None:
        self.events = Table(INDEXED_EVENT)

    def add(
        self, sequence: Offset, subject: str, data: bytes, recorded_ns: int, event: Undecoded | None = None
    ) -> None:
        """Index a message of the log under its names, if it has any; `event` as `indexed_names` takes it."""
        names = indexed_names(subject, data, event)
        if not names:
            return
        text = _text(data) if names[0].aggregate in KEPT else None
        recorded_at = None if text is None else time_of_ns(recorded_ns)
        self.events.put(IndexedEvent(names[0].digest, sequence, recorded_at, text))
        for name in names[1:]:
            self.events.put(IndexedEvent(name.digest, sequence))


def indexed_names(subject: str, data: bytes, event: Undecoded | None = None) -> tuple[IndexedName, ...]:
    """What a message is about, first the name of its own; none where the index leaves it to the server.

    Of a device's assignment to a pool this is the device, and the pool under `ASSIGNED`. `event` is the message's
    envelope, where somebody has parsed it.
    """
    own = _own_name(subject, data, event)
    if own is None:
        return ()
    pool = _assigned_pool(data, event) if subject.endswith(_ASSIGNS) and own.aggregate == "device" else None
    return (own,) if pool is None else (own, IndexedName(ASSIGNED, pool))


def _own_name(subject: str, data: bytes, event: Undecoded | None) -> IndexedName | None:
    """None as well where the message cannot be read."""
    tokens = subject.split(".")
    if len(tokens) != SUBJECT_TOKENS or (tokens[4] != SHARED and tokens[3] not in INDEXED):  # most messages
        return None
    try:
        if tokens[4] == SHARED:
            return IndexedName(tokens[3], (event or parse(data)).subject) if parse_subject(subject).id is None else None
        unescape(tokens[2])
        return IndexedName(tokens[3], unescape(tokens[4]))
    except EventError:
        return None


def _assigned_pool(data: bytes, event: Undecoded | None) -> str | None:
    try:
        pool = (event or parse(data)).data.get("pool")
    except EventError:
        return None
    return pool if isinstance(pool, str) else None


def _text(data: bytes) -> str | None:
    """A message's data as a text that PostgreSQL can hold; None if they are none, whoever recorded them."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text
