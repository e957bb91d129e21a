"""A fold in memory that begins at its last snapshot, and leaves another one for the next start now and then."""

import asyncio

from gpuledger.domain.fact import State
from gpuledger.events.position import lag
from gpuledger.ledger.api import Ledger
from gpuledger.ledger.identity import Anchor
from gpuledger.projection.definition import Projection
from gpuledger.projection.fold import Fold
from gpuledger.projection.replay import new_fold, skipped_positions
from gpuledger.projection.snapshot import fold_of, layout_of, snapshot_of
from gpuledger.projection.snapshots import Snapshots, SnapshotSettings
from gpuledger.runtime.garbage import seldom_collected


class KeptFold:
    """A fold in memory that begins at its last snapshot; `anchor` is the last event that was folded, here or before."""

    def __init__(
        self, projection: Projection, ledger: Ledger, database_url: str | None, settings: SnapshotSettings | None = None
    ) -> None:
        """Without a database every start begins at the first event."""
        self._projection = projection
        self._ledger = ledger
        self._loaded: Anchor | None = None
        layout = layout_of(projection, projection.new_state())
        self._snapshots = Snapshots(layout, ledger, database_url, settings)

    async def load(self, state: State | None = None) -> Fold:
        """The fold at its last snapshot, or at the start of the log; a given `state` is an empty one to fold into.

        Raises:
            LedgerUnavailableError: the log cannot be read.
        """
        found = await self._snapshots.load()
        self._loaded = None if found is None else found.anchor
        if found is None:
            return await new_fold(self._projection, self._ledger, state)
        skipped = await skipped_positions(self._ledger)
        empty = self._projection.new_state() if state is None else state
        with seldom_collected():
            return await asyncio.to_thread(fold_of, self._projection, found, empty, skipped, self._ledger.generations)

    def anchor(self, fold: Fold) -> Anchor | None:
        """The anchor at the fold's position."""
        return fold.anchor or self._loaded

    def folded(self, fold: Fold) -> None:
        """Take a snapshot where one is due; `run` writes it while the fold goes on."""
        anchor = fold.anchor
        if anchor is None:
            return
        if self._snapshots.is_due(lag(self._snapshots.last, fold.sequence), size_of(fold.state)):
            self._snapshots.offer(snapshot_of(fold, anchor, self._ledger.identity))

    @property
    def is_idle(self) -> bool:
        """Whether no snapshot waits to be written."""
        return self._snapshots.offered is None

    async def run(self) -> None:
        """Write the snapshots, until cancelled."""
        await self._snapshots.run()


def size_of(state: State) -> int:
    """How many rows a state has."""
    return sum(len(table) for table in state.tables().values())
