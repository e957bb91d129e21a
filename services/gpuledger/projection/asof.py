"""The past as it was known: a fold of the log up to a position, in memory, that touches nothing."""

from collections.abc import Callable

from gpuledger.ledger.api import Ledger, Message
from gpuledger.projection.definition import Projection
from gpuledger.projection.fold import Fold
from gpuledger.projection.skips import skipped_positions
from gpuledger.runtime.garbage import seldom_collected

OnProgress = Callable[[int, int], None]
"""Told how many positions are done, and of how many."""


async def fold_until(
    projection: Projection, ledger: Ledger, until: int | None = None, on_progress: OnProgress | None = None
) -> Fold:
    """The projection's state after the log's messages up to `until` (default: all there are now)."""
    target = await ledger.head() if until is None else until
    fold = Fold(projection, ledger.generation, skipped=await skipped_positions(ledger))
    for table in fold.state.tables().values():
        table.never_written()
    with seldom_collected():
        async for messages in ledger.history(until=target):
            fold.apply_all(messages)
            if on_progress:
                on_progress(fold.sequence, target)
    return fold


async def sequence_at(ledger: Ledger, recorded_ns: int, recorded_ns_of: Callable[[Message], int]) -> int:
    """The last sequence that was recorded at or before a time (nanoseconds since 1970), 0 for none.

    Found by bisection: times of recording do not decrease along the log, but for those of an import that runs beside
    live sources, where the answer may lie anywhere within that import.
    """
    low, high = 0, await ledger.head()
    while low < high:
        middle = (low + high + 1) // 2
        if recorded_ns_of(await _message(ledger, middle)) <= recorded_ns:
            low = middle
        else:
            high = middle - 1
    return low


async def _message(ledger: Ledger, sequence: int) -> Message:
    async for messages in ledger.history(after=sequence - 1, until=sequence):
        return messages[0]
    raise AssertionError(f"the log has no message {sequence}, which lies before its head")
