"""Reading up to an end, whoever keeps the log."""

from collections.abc import AsyncIterator

from gpuledger.ledger.api import Message, Reader


async def until_sequence(reader: Reader, end: int) -> AsyncIterator[list[Message]]:
    """The reader's messages up to sequence `end`; a message at `end` or behind it must exist for the reader."""
    while True:
        batch = await reader.next_batch()
        if batch[-1].sequence >= end:
            if kept := [message for message in batch if message.sequence <= end]:
                yield kept
            return
        yield batch
