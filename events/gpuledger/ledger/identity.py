"""What tells one log from another: its id, and the digest of the event at a position. Pure.

The id stands in the metadata of every stream of a ledger, and each stream names the end of the one before. The time of
a stream's creation is no part of it, because a restore changes that.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import orjson

from gpuledger.events.digests import NOTHING, digest_of
from gpuledger.events.envelope import ATTRIBUTE_LENGTH_MAX
from gpuledger.events.position import ORIGIN, Generations, Offset, is_after, number_of

_ID: Final = "gpuledger.io/ledger-id"
_PREDECESSOR_HEAD: Final = "gpuledger.io/predecessor-head"
_PREDECESSOR_DIGEST: Final = "gpuledger.io/predecessor-digest"
_CONTINUES: Final = "gpuledger.io/continues"
"""What a generation has that goes on where another was closed, as JSON; one that a restore began has none."""

_NOT_TEXT: Final = re.compile(r"(?:\\x[0-9a-f]{2}|\ufffd)+")
"""Bytes of a subject that are no UTF-8: a consumer shows us each as `\\xff`, and the server's JSON as U+FFFD."""


class Anchor(NamedTuple):
    """The event at a position: its id (empty where it has none that fits) and its digest. A checkpoint keeps it."""

    sequence: Offset
    event_id: str
    digest: str


class Predecessor(NamedTuple):
    """How the generation before ended: its last sequence, and the digest of the event there (empty for none)."""

    head: Offset
    digest: str


class Closed(NamedTuple):
    """A closed generation, the place behind which it begins, and the location of its archive."""

    generation: int
    behind: int
    archive: str


class Continued(NamedTuple):
    """What a generation has that goes on where another was closed, in one numbering.

    `closed` are the generations before it. `beginning` is the digest before the first message of the first of them
    (empty for none), and `link` the link of the chain of digests at the end of the last. The generation's own first
    messages, up to `carried`, repeat what agents and services ask for, such as an agent's newest orders.
    """

    closed: tuple[Closed, ...]
    beginning: str
    link: str
    carried: int


class LedgerIdentity(NamedTuple):
    """Which ledger a stream belongs to, and which of its generations the stream stores.

    Without `continued` the generation's events are numbered from 1 on, whatever was before.
    """

    ledger_id: str
    generation: int
    predecessor: Predecessor | None = None
    continued: Continued | None = None

    @property
    def behind(self) -> Offset:
        """The place behind which the generation begins."""
        return ORIGIN if self.predecessor is None or self.continued is None else self.predecessor.head

    @property
    def has_beginning(self) -> bool:
        """Whether it goes on from a closed generation, and has its first messages, which repeat what is asked for."""
        return self.continued is not None and is_after(self.continued.carried, self.behind)

    @property
    def generations(self) -> Generations:
        """The generations that this one goes on from, and this one."""
        closed = () if self.continued is None else self.continued.closed
        return Generations([*((one.generation, one.behind) for one in closed), (self.generation, self.behind)])

    @property
    def link(self) -> str:
        """The link of the chain of digests before the generation's first message."""
        if self.continued is not None:
            return self.continued.link
        return NOTHING if self.predecessor is None else self.predecessor.digest or NOTHING

    @property
    def beginning(self) -> str:
        """The digest that the chain of digests begins with before the first of these generations; empty for none."""
        if self.continued is not None:
            return self.continued.beginning
        return "" if self.predecessor is None else self.predecessor.digest


def anchor_of(sequence: Offset, subject: str, data: bytes) -> Anchor:
    """The anchor at a message."""
    return Anchor(sequence, _event_id(data), anchor_digest(subject, data))


def anchor_digest(subject: str, data: bytes) -> str:
    """The digest that tells a message from others, the same whichever way it was read.

    The server takes subjects that are not UTF-8, and does not show them alike in each of its answers.
    """
    return digest_of(_NOT_TEXT.sub("\ufffd", subject), data)


def identity_of(metadata: Mapping[str, str] | None, generation: int) -> LedgerIdentity | None:
    """The identity that a stream's metadata name; None where they name none."""
    given = metadata or {}
    ledger_id = given.get(_ID)
    if not ledger_id:
        return None
    ended_at = given.get(_PREDECESSOR_HEAD)
    predecessor = Predecessor(int(ended_at), given.get(_PREDECESSOR_DIGEST, "")) if ended_at else None
    return LedgerIdentity(ledger_id, generation, predecessor, _continued(given.get(_CONTINUES)))


def _continued(text: str | None) -> Continued | None:
    if not text:
        return None
    found = orjson.loads(text)
    closed = tuple(Closed(*one) for one in found["closed"])
    return Continued(closed, found["beginning"], found["link"], found["carried"])


def metadata_of(identity: LedgerIdentity) -> dict[str, str]:
    """The metadata that name an identity."""
    metadata = {_ID: identity.ledger_id}
    if identity.predecessor is not None:
        metadata[_PREDECESSOR_HEAD] = str(number_of(identity.predecessor.head))
        metadata[_PREDECESSOR_DIGEST] = identity.predecessor.digest
    if identity.continued is not None:
        metadata[_CONTINUES] = orjson.dumps(identity.continued._asdict(), default=tuple).decode()
    return metadata


def _event_id(data: bytes) -> str:
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError:
        return ""
    event_id = document.get("id") if isinstance(document, dict) else None
    if not isinstance(event_id, str) or len(event_id) > ATTRIBUTE_LENGTH_MAX or "\0" in event_id:
        return ""
    return event_id
