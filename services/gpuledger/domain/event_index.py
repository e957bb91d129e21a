"""Where the ledger has the events about names that share a subject, so that asking for one name does not read them all.

A row is two numbers, whatever the length of the name: a digest of aggregate and name, and a position. Names of one
digest are told apart by their events. There are no rows before `Rule.SHARED_SUBJECTS` is enforced, because the server
finds by subject whatever stands there. Pure.
"""

from hashlib import blake2b
from typing import Final, NamedTuple

from gpuledger.domain.fact import Fact, Handlers, TableState
from gpuledger.domain.table import Table, TableSpec
from gpuledger.events.catalogue import registry
from gpuledger.events.payload import Payload
from gpuledger.events.position import Offset
from gpuledger.events.publishing import Rule
from gpuledger.events.subjects import SHARED_SINCE

_DIGEST_BYTES: Final = 8
"""A `bigint`."""


class IndexedEvent(NamedTuple):
    """The position of an event, under the digest of what it is about."""

    digest: int
    position: Offset


INDEXED_EVENT: TableSpec[IndexedEvent] = TableSpec(
    "indexed_event", IndexedEvent, ("digest", "position"), retires=("position",)
)
SPECS = (INDEXED_EVENT,)


class EventIndex(TableState):
    """The rows that were not written yet."""

    def __init__(self) -> None:
        self.events = Table(INDEXED_EVENT)


def digest_of(aggregate: str, name: str) -> int:
    """The digest under which the events about a name are found."""
    digest = blake2b(f"{aggregate}/{name}".encode(), digest_size=_DIGEST_BYTES).digest()
    return int.from_bytes(digest, "big", signed=True)


def _recorded(state: EventIndex, fact: Fact, data: Payload) -> None:
    if Rule.SHARED_SUBJECTS in fact.rules:
        state.events.put(IndexedEvent(digest_of(data.AGGREGATE, fact.event.subject), fact.sequence))


HANDLERS: Handlers = {model: _recorded for model in registry.models() if model.AGGREGATE in SHARED_SINCE}
