"""Folds of the past in memory: from the nearest snapshot where there is one, else from the first event."""

from collections.abc import Collection

from gpuledger.events.position import Offset, events_up_to
from gpuledger.ledger.api import Ledger
from gpuledger.projection.definition import Projection
from gpuledger.projection.fold import Fold
from gpuledger.projection.fold_snapshots.reader import FoldSnapshots, LoadedFold
from gpuledger.projection.replay import OnProgress, fold_until, skipped_positions
from gpuledger.runtime.garbage import seldom_collected


async def past_fold(
    projection: Projection,
    ledger: Ledger,
    snapshots: FoldSnapshots | None,
    until: Offset,
    *,
    whole: Collection[str] = (),
    on_progress: OnProgress | None = None,
) -> Fold:
    """The projection's state after the log's messages up to a position, in memory; nobody writes or publishes it.

    Args:
        projection: one of the product's, with the state that it always has.
        ledger: the log.
        snapshots: those of this log; None: there is no object store.
        until: the position.
        whole: the tables of which every row is asked for. Others lack rows that retired before the snapshot.
        on_progress: hears of the progress.
    """
    if snapshots is not None:
        with seldom_collected():
            loaded = await snapshots.load(projection, until, await skipped_positions(ledger), whole=whole)
            if loaded is not None:
                await fold_on_from(loaded, ledger, until, on_progress)
                return loaded.fold
    return await fold_until(projection, ledger, until, on_progress)


async def fold_on_from(
    loaded: LoadedFold, ledger: Ledger, until: Offset, on_progress: OnProgress | None = None
) -> None:
    """Fold the log's messages behind a fold's position, with the retired rows that they touch."""
    fold = loaded.fold
    async for messages in ledger.history(after=fold.sequence, until=until):
        batch = fold.check_all(messages)
        await loaded.take(batch)
        if on_progress:
            on_progress(events_up_to(fold.sequence), events_up_to(until))
