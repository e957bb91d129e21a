"""Confirms a log of several partitions: each of its streams is the ledger's, whole, and as long as the order says.

A reader of one stream relies on what it read there; whoever publishes relies on what was read of all of them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from nats.js.api import StreamInfo

from gpuledger.events.position import Offset, is_at_or_after, is_origin, number_of
from gpuledger.ledger.connect import Connection
from gpuledger.ledger.continuity import LogGuard, confirm_anchor, confirmed_stream, settled_head
from gpuledger.ledger.errors import LogRestoredError
from gpuledger.ledger.identity import Anchor, LedgerIdentity
from gpuledger.ledger.one_store import store_of
from gpuledger.ledger.stream import Generation

AnchorAt = Callable[[Offset], Awaitable[Anchor | None]]
"""Gives the anchor at a place in the log."""

Length = Callable[[], Awaitable[int]]
"""Gives the number of messages of a stream that are in the log."""


class StreamGuard(LogGuard):
    """Confirms one stream of a log of several partitions, its `part`; the order gives the `length` of partitions."""

    def __init__(
        self,
        connection: Connection,
        identity: LedgerIdentity,
        stream: str,
        part: str,
        length: Length | None = None,
    ) -> None:
        super().__init__(connection, identity)
        self._stream = stream
        self._part = part
        self._length = length

    async def _check(self, anchor: Anchor | None) -> None:
        info = await self._long_enough()
        if anchor is not None and not is_origin(anchor.sequence):
            head = await settled_head(self._connection, info, anchor.sequence)
            await confirm_anchor(self._connection, self._stream, head, anchor, self._name_place)

    async def _long_enough(self) -> StreamInfo:
        """The stream, as long as the order says; both are of one store, or the lengths of two would be compared."""
        while True:
            store = store_of(self._connection)
            length = 0 if self._length is None else await self._length()
            info = await confirmed_stream(self._connection, self._stream, self._identity)
            head = await settled_head(self._connection, info, length)
            if is_at_or_after(head, length):
                return info
            if store == store_of(self._connection):
                raise LogRestoredError(
                    f"{self._stream} at {self._connection.address} has {head:,} events, and {length:,} were in the log"
                )

    def _name_place(self, at: Offset) -> str:
        """Such a stream numbers its own messages, and these numbers are no positions of the log."""
        return f"message {number_of(at):,} of the {self._part}"


class PartitionedGuard(LogGuard):
    """Confirms all streams of a log, and events of it by their places in the log."""

    def __init__(self, connection: Connection, generation: Generation, anchor_at: AnchorAt) -> None:
        super().__init__(connection, generation.identity or LedgerIdentity("", generation.number))
        self._current = generation.number
        self._streams: Sequence[StreamGuard] = ()
        self._anchor_at = anchor_at

    def watch(self, generation: Generation, streams: Sequence[StreamGuard]) -> None:
        """Confirm these streams from now on, unless they are of an earlier generation than those."""
        if generation.number >= self._current:
            self._current, self._streams = generation.number, streams

    @property
    def is_confirmed(self) -> bool:
        """Whether nothing has happened since that makes it necessary to confirm any stream again."""
        return super().is_confirmed and all(one.is_confirmed for one in self._streams)

    def doubt(self) -> None:
        """See `LogGuard.doubt`."""
        super().doubt()
        for one in self._streams:
            one.doubt()

    async def _check(self, anchor: Anchor | None) -> None:
        await asyncio.gather(*(one.confirm() for one in self._streams))
        if anchor is None or is_origin(anchor.sequence):
            return
        found = await self._anchor_at(anchor.sequence)
        if found is None or found.digest != anchor.digest:
            raise LogRestoredError(
                f"at {self._identity.generations.position(anchor.sequence)} stands another event than "
                f"{anchor.event_id or 'the one'} that was read there"
            )

    async def _confirm_all(self) -> None:
        await asyncio.gather(*(one.confirm_before_publishing() for one in self._streams))
        await super()._confirm_all()
