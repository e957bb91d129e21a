"""What a publisher does about repeats: it finds what was recorded already, and counts what was not."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from nats.js.errors import NotFoundError

from gpuledger.events.position import Offset, next_after, number_of
from gpuledger.ledger.api import Receipt
from gpuledger.ledger.connect import Connection
from gpuledger.ledger.errors import LedgerError, SequenceConflictError
from gpuledger.ledger.publish import MESSAGE_ID
from gpuledger.runtime.telemetry import PUBLISHED

REPEAT_SCAN_MAX: Final = 1024
"""How many of an aggregate's newer events are searched for our own."""


async def recorded_behind(
    connection: Connection, stream: str, after: Offset, subject_filter: str, message_id: str
) -> Offset | None:
    """Where a stream that is there has a message of this id behind one of its messages."""
    for _ in range(REPEAT_SCAN_MAX):
        following = number_of(next_after(after))
        try:
            found = await connection.request(
                lambda at=following: connection.jetstream.get_msg(  # type: ignore[misc]
                    stream, at, subject_filter, next=True
                )
            )
        except NotFoundError:
            return None
        if (found.headers or {}).get(MESSAGE_ID) == message_id:
            return found.seq
        after = found.seq or following
    return None


@contextmanager
def counted_failures(messages: int) -> Iterator[None]:
    """Count so many messages where publishing them fails."""
    try:
        yield
    except SequenceConflictError:
        PUBLISHED.labels("conflict").inc(messages)
        raise
    except LedgerError:
        PUBLISHED.labels("failed").inc(messages)
        raise


def count_receipts(receipts: Sequence[Receipt]) -> None:
    """Count messages that are recorded."""
    duplicates = sum(receipt.duplicate for receipt in receipts)
    PUBLISHED.labels("duplicate").inc(duplicates)
    PUBLISHED.labels("recorded").inc(len(receipts) - duplicates)
