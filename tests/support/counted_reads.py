"""A ledger that counts the messages that are read of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gpuledger.events.position import ORIGIN, Offset
from gpuledger.events.subjects import ALL
from gpuledger.ledger.api import MESSAGES_PER_BATCH_MAX, Message, Reader
from gpuledger.ledger.identity import Anchor
from gpuledger.ledger.jetstream import JetStreamLedger
from support.ledger_double import LedgerDouble


class CountedReads(LedgerDouble):
    """The ledger, and how many messages its readers have got since the last `restart`."""

    def __init__(self, ledger: JetStreamLedger) -> None:
        super().__init__(ledger)
        self.read_messages = 0

    def restart(self) -> None:
        """Count from zero."""
        self.read_messages = 0

    @asynccontextmanager
    async def read(  # it reads as the other does
        self, after: Offset = ORIGIN, subject_filter: str = ALL, anchor: Anchor | None = None
    ) -> AsyncIterator[Reader]:
        async with super().read(after, subject_filter, anchor) as reader:
            yield _Counted(reader, self)


class _Counted:
    def __init__(self, reader: Reader, counts: CountedReads) -> None:
        self._reader = reader
        self._counts = counts

    async def next_batch(self, limit: int = MESSAGES_PER_BATCH_MAX, timeout_s: float | None = None) -> list[Message]:
        found = await self._reader.next_batch(limit, timeout_s)
        self._counts.read_messages += len(found)
        return found
