"""Where the ledger has the events about a name, so that asking for one name does not read the whole log.

Every message under a shared subject has a row if its envelope can be read, and every one about a device, node or pool,
whether its event counts or not: the index finds what a scan finds. A row is two numbers, whatever the length of the
name: a digest of aggregate and name, and a position. Names of one digest are told apart by their events. Pure.
"""

from hashlib import blake2b
from typing import Final, NamedTuple

from gpuledger.domain.fact import Handlers, TableState
from gpuledger.domain.table import Table, TableSpec
from gpuledger.events.envelope import parse
from gpuledger.events.errors import EventError
from gpuledger.events.position import Offset
from gpuledger.events.subjects import SHARED, SUBJECT_TOKENS, parse_subject

_DIGEST_BYTES: Final = 8
"""A `bigint`."""

INDEXED: Final = frozenset({"device", "node", "pool"})
"""The aggregates that keep their names in subjects, and that people ask about one by one.

The server finds such a name too, and for that it looks into every block of the log between its first and last event.
"""


class IndexedEvent(NamedTuple):
    """The position of an event, under the digest of what it is about."""

    digest: int
    position: Offset


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

    def add(self, sequence: Offset, subject: str, data: bytes) -> None:
        """Index a message of the log, if its name is indexed."""
        about = indexed_name(subject, data)
        if about is not None:
            self.events.put(IndexedEvent(about.digest, sequence))


def indexed_name(subject: str, data: bytes) -> IndexedName | None:
    """What a message is about; None where the index leaves it to the server, or the message cannot be read."""
    tokens = subject.split(".")
    if len(tokens) != SUBJECT_TOKENS or (tokens[4] != SHARED and tokens[3] not in INDEXED):  # most messages
        return None
    try:
        parsed = parse_subject(subject)
        return IndexedName(parsed.aggregate, parse(data).subject if parsed.id is None else parsed.id)
    except EventError:
        return None
