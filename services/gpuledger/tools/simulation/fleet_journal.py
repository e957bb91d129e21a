"""Reads what the ledger has of a simulated fleet, from the last snapshot on, and leaves the next ones meanwhile."""

from collections.abc import Mapping, Sequence
from typing import Final

from gpuledger.events.position import ORIGIN, Offset, events_up_to, is_after, lag
from gpuledger.ledger.api import Ledger, Message
from gpuledger.ledger.identity import anchor_of
from gpuledger.projection.replay import OnProgress
from gpuledger.projection.snapshot import Row, Snapshot
from gpuledger.projection.snapshots import Snapshots, SnapshotSettings
from gpuledger.runtime.clock import Sleep
from gpuledger.tools.simulation.kubernetes import retrying
from gpuledger.tools.simulation.recorded import (
    AGENTS,
    RECORDED_WORKLOADS,
    RecordedFleet,
    fleet_layout,
    fleet_of_rows,
    rows_of_fleet,
)

FOLLOW_PERIOD_S: Final = 30.0
"""How often it is asked whether the log has moved on so far that another snapshot is worth it."""


class FleetJournal:
    """The fleet of an epoch according to the ledger; without a database there are no snapshots."""

    def __init__(
        self, ledger: Ledger, epoch: str, database_url: str | None = None, settings: SnapshotSettings | None = None
    ) -> None:
        self._ledger = ledger
        self._epoch = epoch
        self._snapshots = Snapshots(fleet_layout(epoch), ledger, database_url, settings)
        self._fleet: RecordedFleet | None = None
        self._position: Offset = ORIGIN
        self._last: Message | None = None

    async def catch_up(self, until: Offset | None = None) -> RecordedFleet:
        """The fleet according to all that is recorded now, or up to a position.

        Raises:
            LedgerUnavailableError: the ledger cannot be read.
        """
        fleet = self._fleet or await self._begin()
        head, last = await self._ledger.head() if until is None else until, self._last
        self._fleet = None  # what is read in part is read again
        for subjects in (AGENTS, RECORDED_WORKLOADS):
            async for messages in self._ledger.history(self._position, head, subjects):
                fleet.take(messages, self._epoch)
                if last is None or is_after(messages[-1].sequence, last.sequence):
                    last = messages[-1]
        self._fleet, self._last = fleet, last
        self._position = self._position if last is None else last.sequence
        self._offer(fleet)
        return fleet

    async def follow(self, sleep: Sleep) -> None:
        """Read on from time to time, as far as another snapshot is due, until cancelled."""
        while True:
            await sleep(FOLLOW_PERIOD_S)
            await retrying(self._catch_up_if_due, sleep=sleep)

    async def run(self) -> None:
        """Write the snapshots, until cancelled."""
        await self._snapshots.run()

    async def _begin(self) -> RecordedFleet:
        found = await self._snapshots.load()
        self._last = None
        self._position = ORIGIN if found is None else found.anchor.sequence
        return RecordedFleet() if found is None else fleet_of_rows(found.rows)

    async def _catch_up_if_due(self) -> None:
        size = 0 if self._fleet is None else self._fleet.size
        if self._snapshots.is_due(lag(self._position, await self._ledger.head()), size):
            await self.catch_up()

    def _offer(self, fleet: RecordedFleet) -> None:
        last = self._last
        if last is None or not self._snapshots.is_due(lag(self._snapshots.last, last.sequence), fleet.size):
            return
        anchor, identity = anchor_of(last.sequence, last.subject, last.data), self._ledger.identity
        rows = rows_of_fleet(fleet, self._epoch)
        self._snapshots.offer(Snapshot(identity.ledger_id, self._ledger.generations.of(anchor.sequence), anchor, rows))


class ComparedFleet:
    """The fleet of an epoch as a fold of the log from its start, to compare its snapshot with."""

    forgotten_by_effects: Final = frozenset[str]()

    def __init__(self, ledger: Ledger, epoch: str) -> None:
        self.layout = fleet_layout(epoch)
        self._journal = FleetJournal(ledger, epoch)
        self._epoch = epoch

    async def rows_at(self, until: Offset, on_progress: OnProgress | None) -> Mapping[str, Sequence[Row]]:
        """The rows behind a position."""
        fleet = await self._journal.catch_up(until)
        if on_progress is not None:
            on_progress(events_up_to(until), events_up_to(until))
        return rows_of_fleet(fleet, self._epoch)
