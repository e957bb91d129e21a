"""Keeps those who write beside the projections from a log that the rows in the database do not follow.

A projection finds out by itself that the log is not the one that it read, and stops. Watchers, status writer and
commands that record keep no position in the database, so they ask here before they begin, and while they go on.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import psycopg
import structlog

from gpuledger.db.engine import DATABASE_TRANSIENT
from gpuledger.db.errors import DatabaseError
from gpuledger.db.lasting import LastingConnection
from gpuledger.events.position import ORIGIN, Position, order
from gpuledger.ledger.api import Ledger
from gpuledger.ledger.errors import LedgerUnavailableError, LogChangedError
from gpuledger.ledger.identity import Anchor
from gpuledger.projection.checkpoint import Checkpoint, live_checkpoints
from gpuledger.projection.continuity import check_generation, check_ledger
from gpuledger.projection.definition import Projection
from gpuledger.runtime.tasks import Work, run_until_one_ends

CHECK_INTERVAL_S = 5.0
"""How often rows and log are compared again, while somebody writes and while somebody waits."""

log = structlog.get_logger("gpuledger.projection")


class FollowedLog:
    """The log that the rows of all these projections follow.

    `problem` says why rows and log do not belong together, and so why nobody writes; None as far as they do.
    """

    def __init__(
        self,
        projections: Sequence[Projection],
        ledger: Ledger,
        database_url: str,
        *,
        check_interval_s: float = CHECK_INTERVAL_S,
    ) -> None:
        self.problem: str | None = None
        self._projections = projections
        self._ledger = ledger
        self._connection = LastingConnection(database_url, application_name="gpuledger log check")
        self._check_interval_s = check_interval_s

    async def aclose(self) -> None:
        """Close the connection to the database; the next use would open another."""
        await self._connection.close()

    async def confirm(self) -> Anchor | None:
        """Return if the log has every event that rows were folded from; gives the last of these events.

        Raises:
            LogChangedError: the log is another one, or was lost, restored or cut.
            LedgerUnavailableError: the server does not answer.
            DatabaseError: neither does PostgreSQL.
        """
        found = {self._anchor_of(projection, rows) for projection, rows in await self._checkpoints()}
        for anchor in found | {None}:
            await self._ledger.confirm(anchor)
        anchors = (anchor for anchor in found if anchor is not None)
        return max(anchors, key=lambda anchor: order(anchor.sequence), default=None)

    async def confirm_ledger(self) -> None:
        """Return if the rows follow this ledger, though perhaps more of it than the log has.

        Raises:
            LogReplacedError: they follow another one.
            DatabaseError: PostgreSQL does not answer.
        """
        for projection, rows in await self._checkpoints():
            check_ledger(projection, self._ledger, rows)

    async def wait(self) -> None:
        """Return once rows and log belong together; raises as `confirm` does where a server does not answer."""
        while not await self._is_followed():  # noqa: ASYNC110 - nobody reports that the log is the right one again
            await asyncio.sleep(self._check_interval_s)

    async def wait_through_absences(self) -> None:
        """Return once rows and log belong together, however long a server does not answer meanwhile."""
        while True:
            try:
                await self.wait()
            except (LedgerUnavailableError, *DATABASE_TRANSIENT) as error:
                log.warning("log.unknown", reason=str(error).strip(), retry_s=self._check_interval_s)
                await asyncio.sleep(self._check_interval_s)
            else:
                return

    async def while_followed(self, work: Callable[[], Work]) -> None:
        """Run until the work ends, or rows and log do not belong together any more.

        Raises:
            LogChangedError: they do not; the work has not begun, or was ended.
        """
        last = await self.confirm()
        await run_until_one_ends(work(), self._watch(last))

    async def _watch(self, last: Anchor | None) -> None:
        """Compare from time to time. What a server does not answer is a matter of those who need it."""
        while True:
            with self._ledger.relying_on(last):
                await asyncio.sleep(self._check_interval_s)
            with suppress(LedgerUnavailableError, DatabaseError, psycopg.Error):
                last = await self.confirm()

    async def _is_followed(self) -> bool:
        try:
            await self.confirm()
        except LogChangedError as error:
            before, self.problem = self.problem, str(error)
            if before != self.problem:
                log.error("log.not-followed", reason=self.problem)
            return False
        self.problem = None
        return True

    async def _checkpoints(self) -> list[tuple[Projection, Checkpoint]]:
        connection = await self._connection.get()
        found = await live_checkpoints(connection, self._projections)
        return [(projection, found[projection.name]) for projection in self._projections if projection.name in found]

    def _anchor_of(self, projection: Projection, checkpoint: Checkpoint) -> Anchor | None:
        """The event that the log must have because of a projection's rows.

        Rows of before a restore are rebuilt, and need nothing of this log.
        """
        check_ledger(projection, self._ledger, checkpoint)
        generations = self._ledger.generations
        if Position(generations.first, ORIGIN).is_after(checkpoint.at):
            return None
        check_generation(f"the rows of projection {projection.name} follow", self._ledger, checkpoint.at)
        return checkpoint.anchor
