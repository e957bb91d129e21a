"""A ledger that counts what becomes of the events handed to it, for the metrics; otherwise the ledger it wraps."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager

from gpuledger.events.subjects import ALL
from gpuledger.ledger.api import Expected, Ledger, Message, Outgoing, Reader, Receipt
from gpuledger.ledger.errors import LedgerError, SequenceConflictError
from gpuledger.runtime.telemetry import PUBLISHED


class CountedLedger:
    """Passes everything on. Outcomes are `recorded`, `duplicate`, `conflict` and `failed`."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    @property
    def generation(self) -> int:
        """See `gpuledger.ledger.api.Ledger.generation`."""
        return self._ledger.generation

    async def publish(self, message: Outgoing, expected: Expected | None = None) -> Receipt:
        """See `gpuledger.ledger.api.Ledger.publish`."""
        with _failures(1):
            receipt = await self._ledger.publish(message, expected)
        _count([receipt])
        return receipt

    async def publish_many(self, messages: Sequence[Outgoing]) -> list[Receipt]:
        """See `gpuledger.ledger.api.Ledger.publish_many`."""
        with _failures(len(messages)):
            receipts = await self._ledger.publish_many(messages)
        _count(receipts)
        return receipts

    def read(self, after: int = 0, subject_filter: str = ALL) -> AbstractAsyncContextManager[Reader]:
        """See `gpuledger.ledger.api.Ledger.read`."""
        return self._ledger.read(after, subject_filter)

    def history(
        self, after: int = 0, until: int | None = None, subject_filter: str = ALL
    ) -> AsyncIterator[list[Message]]:
        """See `gpuledger.ledger.api.Ledger.history`."""
        return self._ledger.history(after, until, subject_filter)

    async def head(self) -> int:
        """See `gpuledger.ledger.api.Ledger.head`."""
        return await self._ledger.head()

    async def last_sequence(self, subject_filter: str) -> int:
        """See `gpuledger.ledger.api.Ledger.last_sequence`."""
        return await self._ledger.last_sequence(subject_filter)


@contextmanager
def _failures(messages: int) -> Iterator[None]:
    try:
        yield
    except SequenceConflictError:
        PUBLISHED.labels("conflict").inc(messages)
        raise
    except LedgerError:
        PUBLISHED.labels("failed").inc(messages)
        raise


def _count(receipts: Sequence[Receipt]) -> None:
    for receipt in receipts:
        PUBLISHED.labels("duplicate" if receipt.duplicate else "recorded").inc()
