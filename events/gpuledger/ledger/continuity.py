"""Confirms that a log is the one that was read before: its id, its length, and the event at a position.

Whoever reads asks before the first message, and whoever reads or publishes asks whenever the connection was lost
meanwhile, because that is when a server may have come back with another store. In a cluster that may be another server
than the one that we are connected to, so whoever publishes asks whenever anything hints at that (`LogGuard.doubt`), and
when somebody begins to rely on an event that was confirmed over an earlier connection.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from nats.js.api import StreamInfo
from nats.js.errors import BadRequestError, NotFoundError

from gpuledger.events.position import Offset, Position, is_at_or_after, is_origin, is_same, order
from gpuledger.ledger.connect import Connection
from gpuledger.ledger.errors import (
    LedgerUnavailableError,
    LogCutError,
    LogLostError,
    LogReplacedError,
    LogRestoredError,
)
from gpuledger.ledger.identity import Anchor, LedgerIdentity, anchor_digest, identity_of
from gpuledger.ledger.single import message_at
from gpuledger.ledger.stream import check_whole, stream_name

BEHIND_TIMEOUT_S: Final = 5.0
"""How long a stream with replicas may end before what was read of it, while a new leader catches up."""

BEHIND_PAUSE_S: Final = 0.2

ANCHORS_MAX: Final = 64
"""How many events that were found since the log was confirmed are remembered; relying on them needs no more."""

ClosedAnchor = Callable[[Offset], Awaitable[Anchor]]
"""Gives the anchor at a place in a closed generation."""

NamePlace = Callable[[Offset], str]
"""Names a place in a stream, for whoever reads an error."""

ABSENT_TIMEOUT_S: Final = 5.0
"""How long a stream may be absent before it counts as lost; a cluster that elects a leader may not know it at first."""


async def confirm_log(
    connection: Connection,
    expected: LedgerIdentity,
    anchor: Anchor | None = None,
    closed_anchor: ClosedAnchor | None = None,
) -> None:
    """Return if the stream still is this ledger's, holds all that it recorded, and the anchor's event stands there.

    An event of a closed generation has to stand there: at its end, as the generation behind it names it.

    Raises:
        LogChangedError: saying how the log differs.
        LedgerUnavailableError: the server does not answer.
    """
    info = await confirmed_stream(connection, stream_name(expected.generation), expected)
    if anchor is None or is_origin(anchor.sequence):
        return
    if closed_anchor is not None and is_at_or_after(expected.behind, anchor.sequence):
        await _confirm_closed(expected, anchor, closed_anchor)
    else:
        head = await settled_head(connection, info, anchor.sequence)
        await confirm_anchor(
            connection, stream_name(expected.generation), head, anchor, positions_in(expected.generation)
        )


async def confirmed_stream(connection: Connection, stream: str, expected: LedgerIdentity) -> StreamInfo:
    """What the server knows of a stream that is this ledger's and holds all that it recorded; raises as above."""
    info = await kept_stream(connection, stream)
    found = identity_of(info.config.metadata, expected.generation)
    if found is None or found.ledger_id != expected.ledger_id:
        raise LogReplacedError(
            f"{stream} at {connection.address} belongs to the ledger {found.ledger_id if found else 'without an id'}, "
            f"not to {expected.ledger_id}"
        )
    check_whole(info)
    return info


async def _confirm_closed(expected: LedgerIdentity, anchor: Anchor, closed_anchor: ClosedAnchor) -> None:
    before = expected.predecessor
    if before is not None and is_same(before.head, anchor.sequence):
        found = before.digest
    else:
        found = (await closed_anchor(anchor.sequence)).digest
    if found != anchor.digest:
        raise LogRestoredError(
            f"at {expected.generations.position(anchor.sequence)}, in a closed generation, stands another event than "
            f"{anchor.event_id or 'the one'} that was read there"
        )


class LogGuard:
    """Confirms one log again whenever there is a doubt, or more is relied on, since it last did.

    What is published may follow from what was read, so it goes into no log that lacks that.
    """

    def __init__(
        self, connection: Connection, identity: LedgerIdentity, closed_anchor: ClosedAnchor | None = None
    ) -> None:
        self._connection = connection
        self._identity = identity
        self._closed_anchor = closed_anchor
        self._relied_on: dict[object, Callable[[], Anchor | None]] = {}
        self._times_asked = 0
        self._confirmed = self._present
        self._found: deque[Anchor] = deque(maxlen=ANCHORS_MAX)
        self._confirming: asyncio.Task[None] | None = None

    @contextmanager
    def relying_on(self, anchor: Callable[[], Anchor | None]) -> Iterator[None]:
        """Meanwhile nothing is published before this event is found in the log, such as the last one of a reader."""
        self._relied_on[key := object()] = anchor
        found = anchor()
        self._times_asked += found is not None and (not self.is_confirmed or found not in self._found)
        try:
            yield
        finally:
            del self._relied_on[key]

    def follow(self, identity: LedgerIdentity) -> None:
        """The log goes on in another generation, which is confirmed before anything is published there."""
        self._identity = identity
        self.doubt()

    def doubt(self) -> None:
        """Some server of the cluster left it, fell silent, or said that the stream has no leader."""
        self._times_asked += 1

    @property
    def is_confirmed(self) -> bool:
        """Whether nothing has happened since that makes it necessary to confirm the log again."""
        return self._confirmed == self._present

    async def confirm(self, anchor: Anchor | None = None) -> None:
        """Confirm the log now; raises as `confirm_log` does."""
        present = self._present
        await self._check(anchor)
        if anchor is not None and present == self._confirmed == self._present:
            self._found.append(anchor)

    async def confirm_before_publishing(self) -> None:
        """Return once the log holds all that is relied on, in this very connection; raises as `confirm_log` does.

        Thousands of calls that publish ask at once, and all wait for one answer.
        """
        while not self.is_confirmed:
            if self._confirming is None or self._confirming.done():
                self._confirming = asyncio.create_task(self._confirm_all(), name="confirming the log")
                self._confirming.add_done_callback(_retrieve)
            await asyncio.shield(self._confirming)

    async def _check(self, anchor: Anchor | None) -> None:
        await confirm_log(self._connection, self._identity, anchor, self._closed_anchor)

    @property
    def _present(self) -> tuple[int, int]:
        """What a confirmation holds for: this connection, and what was relied on and doubted up to now."""
        return self._connection.times_connected, self._times_asked

    async def _confirm_all(self) -> None:
        present = self._present
        anchors = [found for anchor in self._relied_on.values() if (found := anchor()) is not None]
        await self.confirm(max(anchors, key=lambda anchor: order(anchor.sequence), default=None))
        self._found.clear()
        self._confirmed = present


def _retrieve(task: "asyncio.Task[None]") -> None:
    """Take the failure of a task that nobody waits for any more, or asyncio reports it as forgotten."""
    if not task.cancelled():
        task.exception()


async def kept_stream(connection: Connection, stream: str) -> StreamInfo:
    """What the server knows of the stream, which is waited for a little; a cluster that elects a leader is silent.

    Raises:
        LogLostError: there is no such stream.
        LedgerUnavailableError: the server does not answer.
    """
    try:
        return await connection.request(lambda: connection.jetstream.stream_info(stream))
    except NotFoundError:
        pass
    try:
        return await connection.request(
            lambda: connection.jetstream.stream_info(stream),
            ABSENT_TIMEOUT_S,
            refusals=(BadRequestError,),
        )
    except LedgerUnavailableError as error:
        if isinstance(error.__cause__, NotFoundError):
            raise LogLostError(f"NATS at {connection.address} has no stream {stream}") from error
        raise


async def settled_head(connection: Connection, info: StreamInfo, sequence: Offset) -> Offset:
    """The end of a stream; a replica that was elected just now may still have to read its own last messages."""
    clock = asyncio.get_running_loop().time
    deadline, name = clock() + BEHIND_TIMEOUT_S, str(info.config.name)
    while (
        not is_at_or_after(info.state.last_seq, sequence) and (info.config.num_replicas or 1) > 1 and clock() < deadline
    ):
        await asyncio.sleep(BEHIND_PAUSE_S)
        info = await kept_stream(connection, name)
    return info.state.last_seq


def positions_in(generation: int) -> NamePlace:
    """Names the places of a stream that is a generation's log: as positions."""
    return lambda at: str(Position(generation, at))


async def confirm_anchor(
    connection: Connection, stream: str, head: Offset, anchor: Anchor, name_place: NamePlace
) -> None:
    """Return if the anchor's message stands in a stream that ends at `head`.

    Raises:
        LogRestoredError: it ends earlier, or another message stands there.
        LogCutError: nothing stands there.
        LedgerUnavailableError: the server does not answer.
    """
    place = name_place(anchor.sequence)
    _refuse_shorter(connection, stream, head, anchor, name_place)
    try:
        found = await message_at(connection, stream, anchor.sequence)
    except NotFoundError:
        # Since the head was found an older copy may have been put back, or a replica elected that is behind.
        head = await settled_head(connection, await kept_stream(connection, stream), anchor.sequence)
        _refuse_shorter(connection, stream, head, anchor, name_place)
        try:
            found = await message_at(connection, stream, anchor.sequence)
        except NotFoundError as error:
            raise LogCutError(f"{stream} holds nothing at {place}") from error
    if anchor_digest(found.subject, found.data) != anchor.digest:
        raise LogRestoredError(
            f"at {place} of {stream} at {connection.address} stands another message "
            f"than {anchor.event_id or 'the one'} that was read there"
        )


def _refuse_shorter(connection: Connection, stream: str, head: Offset, anchor: Anchor, name_place: NamePlace) -> None:
    if not is_at_or_after(head, anchor.sequence):
        event = f" (event {anchor.event_id})" if anchor.event_id else ""
        raise LogRestoredError(
            f"{stream} at {connection.address} ends at {name_place(head)}, but it was read up to "
            f"{name_place(anchor.sequence)}{event}"
        )
