"""Where the ledger has the events about names that share a subject, so that asking for one name does not read them all.

Every message under a shared subject has a row if its envelope can be read, whether its event counts or not: the index
finds what a scan finds. What stands under a named subject needs none, because the server finds it. A row is two
numbers, whatever the length of the name: a digest of aggregate and name, and a position. Names of one digest are told
apart by their events. Pure.
"""

from hashlib import blake2b
from typing import Final, NamedTuple

from gpuledger.domain.fact import Handlers, TableState
from gpuledger.domain.table import Table, TableSpec
from gpuledger.events.envelope import parse
from gpuledger.events.errors import EventError
from gpuledger.events.position import Offset
from gpuledger.events.subjects import SHARED, parse_subject

_DIGEST_BYTES: Final = 8
"""A `bigint`."""

_MARK: Final = f".{SHARED}."


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


class SharedName(NamedTuple):
    """What an event under a shared subject is about."""

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
        """Index a message of the log, if names share its subject."""
        about = shared_name(subject, data)
        if about is not None:
            self.events.put(IndexedEvent(about.digest, sequence))


def shared_name(subject: str, data: bytes) -> SharedName | None:
    """What a message is about; None unless it stands under a shared subject, and its envelope can be read."""
    if _MARK not in subject:  # of most messages
        return None
    try:
        parsed = parse_subject(subject)
        return SharedName(parsed.aggregate, parse(data).subject) if parsed.id is None else None
    except EventError:
        return None
