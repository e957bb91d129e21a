"""Takes snapshots of folds: reads the log once for all of them, each from its last snapshot on."""

from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import NamedTuple

from gpuledger.events.position import (
    Offset,
    Position,
    earliest,
    events_up_to,
    is_after,
    is_at_or_after,
)
from gpuledger.ledger.api import Ledger, Message
from gpuledger.projection.definition import Projection
from gpuledger.projection.errors import ProjectionError
from gpuledger.projection.fold_snapshots.manifest import SnapshotManifest
from gpuledger.projection.fold_snapshots.reader import FoldSnapshots
from gpuledger.projection.fold_snapshots.writer import FoldSnapshotSettings, SnapshotWriter
from gpuledger.projection.replay import OnProgress, skipped_positions
from gpuledger.runtime.garbage import seldom_collected

OnSnapshot = Callable[[SnapshotManifest], None]
OnStopped = Callable[[ProjectionError], None]


class Hearers(NamedTuple):
    """Who hears of each snapshot that was written, of each fold that stopped, and of the progress."""

    on_snapshot: OnSnapshot
    on_stopped: OnStopped
    on_progress: OnProgress = lambda _done, _total: None


async def take_snapshots(
    projections: Sequence[Projection],
    ledger: Ledger,
    snapshots: FoldSnapshots,
    hearers: Hearers,
    *,
    settings: FoldSnapshotSettings,
    also_last: bool = False,
) -> None:
    """Take the snapshots that are due up to the head of the log; `also_last` says that one is due there in any case.

    A fold that stops at an event leaves the snapshots that it has; the others go on.

    Raises:
        LedgerError: the log cannot be read.
        ObjectsError: the object store cannot be used.
    """
    head, skipped = await ledger.head(), await skipped_positions(ledger)
    writers = [await _writer(one, snapshots, head, skipped) for one in projections]
    writers = [one for one in writers if is_after(head, one.fold.sequence)]
    if not writers:
        return
    begin = earliest(*(one.fold.sequence for one in writers))
    with seldom_collected():
        async for messages in ledger.history(after=begin, until=head):
            is_last = also_last and is_at_or_after(messages[-1].sequence, head)
            writers = await _read(writers, messages, hearers, settings, is_last=is_last)
            hearers.on_progress(events_up_to(messages[-1].sequence), events_up_to(head))
            if not writers:
                return


async def _read(
    writers: Sequence[SnapshotWriter],
    messages: Sequence[Message],
    hearers: Hearers,
    settings: FoldSnapshotSettings,
    *,
    is_last: bool,
) -> list[SnapshotWriter]:
    """Have each writer take what is behind its position; returns those that have not stopped."""
    first = min(writers, key=lambda one: events_up_to(one.fold.sequence))
    batch = first.fold.check_all(messages)
    going = []
    for writer in writers:
        at = writer.fold.sequence
        try:
            await writer.take([one for one in batch if is_after(one.message.sequence, at)])
        except ProjectionError as error:
            hearers.on_stopped(error)
            continue
        if settings.is_due(writer.events, writer.rows) or (is_last and writer.events):
            hearers.on_snapshot(await writer.write())
        going.append(writer)
    return going


async def _writer(
    projection: Projection, snapshots: FoldSnapshots, head: Offset, skipped: Sequence[Position]
) -> SnapshotWriter:
    loaded = await snapshots.load(projection, head, skipped, is_written=True)
    if loaded is None:
        loaded = snapshots.begin(projection, skipped, is_written=True)
    return SnapshotWriter(snapshots.pieces(projection), loaded, skipped, version("gpuledger"))
