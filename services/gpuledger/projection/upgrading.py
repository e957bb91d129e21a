"""Builds rows of this build's version while those of an older one serve and another process keeps them moving.

What a process does follows from the version of the rows that it finds. It never touches rows of a newer version,
which a newer build writes.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import structlog

from gpuledger.ledger.api import Ledger
from gpuledger.projection.definition import Projection
from gpuledger.projection.errors import RebuildBusyError
from gpuledger.projection.fold_snapshots.reader import FoldSnapshots
from gpuledger.projection.rebuild import upgrade
from gpuledger.projection.runner import TRANSIENT
from gpuledger.runtime.backoff import Backoff, Retries

log = structlog.get_logger("gpuledger.projection")

BUILDS_MAX = 1
"""How many projections a process builds at a time: each keeps all its rows in memory beside those that serve."""

LOG_INTERVAL_S = 30.0
"""How often the log has the progress of a build."""


class Rows(Enum):
    """What this build does with the rows that serve."""

    OURS = "ours"
    """It keeps them true, or stands by for the writer's lock."""

    TAKEN_OVER = "taken over"
    """As `OURS`: they are of an older version that has the same rows, and become ours once this build writes them."""

    OLDER = "older"
    """It builds others."""

    NEWER = "newer"
    """It leaves them to the newer build that wrote them, and waits until that one is rolled back."""


def rows_of(found: int | None, projection: Projection) -> Rows:
    """What rows of a version are to this build's projection; None: there are none yet."""
    ours = projection.version
    if found is None or found == ours:
        return Rows.OURS
    if projection.takes_over(found):
        return Rows.TAKEN_OVER
    return Rows.OLDER if found < ours else Rows.NEWER


class Progress(NamedTuple):
    """How many positions of the log a build has folded, and of how many; both None while it waits for its turn."""

    done: int | None = None
    total: int | None = None


@dataclass(slots=True)
class Upgrades:
    """Builds the projections of one process, one after the other, each from the nearest of the snapshots."""

    ledger: Ledger
    database_url: str
    backoff: Backoff = field(default_factory=lambda: Backoff(first_s=1.0, max_s=30.0))
    snapshots: FoldSnapshots | None = None
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(BUILDS_MAX))

    async def build(self, projection: Projection, show: Callable[[Progress], None]) -> None:
        """Return once the rows that serve are of this build's version, or a newer one, whoever built them.

        Raises:
            ProjectionError: an event stops the fold; the rows that serve are untouched.
            LogChangedError: the rows that serve do not follow this log.
        """
        retries = Retries(self.backoff)
        while True:
            show(Progress())
            try:
                async with self._turns:
                    await self._upgrade(projection, show)
            except (RebuildBusyError, *TRANSIENT) as error:
                pause_s = retries.pause_s()
                log.info("projection.build-waits", projection=projection.name, reason=str(error), retry_s=pause_s)
                await asyncio.sleep(pause_s)
            else:
                return

    async def _upgrade(self, projection: Projection, show: Callable[[Progress], None]) -> None:
        name, version, now = projection.name, projection.version, asyncio.get_running_loop().time
        log.info("projection.builds", projection=name, version=version)
        log_at_s = now() + LOG_INTERVAL_S

        def advanced(done: int, total: int) -> None:
            nonlocal log_at_s
            show(Progress(done, total))
            if now() >= log_at_s:
                log_at_s = now() + LOG_INTERVAL_S
                log.info("projection.builds", projection=name, version=version, done=done, total=total)

        blocked = Retries(self.backoff)
        if await upgrade(
            projection,
            self.ledger,
            self.database_url,
            on_progress=advanced,
            blocked=blocked,
            snapshots=self.snapshots,
        ):
            log.info("projection.built", projection=name, version=version)
