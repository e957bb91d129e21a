"""Has a process of its own take the snapshots of folds that are due, now and then, for as long as `gpuledger up` runs.

The folds are as much work as those of the services, and must not come between them. What fails is said and tried again:
without snapshots, folds of the past begin at an earlier one, and nothing else is different.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final

import structlog

from gpuledger.compose.children import keep_looking, run_module
from gpuledger.events.position import ORIGIN, lag
from gpuledger.ledger.api import Ledger
from gpuledger.ledger.errors import LedgerError
from gpuledger.projection.fold_snapshots.reader import FoldSnapshots
from gpuledger.runtime.backoff import Backoff
from gpuledger.runtime.objects import ObjectsError, open_objects
from gpuledger.runtime.settings import DATABASE_URL, NATS_URL, OBJECTS_URL
from gpuledger.tools import snapshot_process
from gpuledger.tools.snapshots import DUE

log = structlog.get_logger("gpuledger.fold-snapshots")

MODULE: Final = snapshot_process.__name__


@dataclass(frozen=True, slots=True)
class SnapshotPauses:
    """How often it is looked whether snapshots are due, how often old ones are deleted, the pauses after failures."""

    look_s: float = 15.0
    clean_s: float = 86_400.0
    backoff: Backoff = field(default_factory=lambda: Backoff(first_s=60.0, max_s=3_600.0))


def snapshots_of(ledger: Ledger, objects_url: str | None) -> FoldSnapshots | None:
    """The snapshots in the object store, where there is one that can be used; the log says why one is not used."""
    if objects_url is None:
        return None
    try:
        objects = open_objects(objects_url)
    except ObjectsError as error:
        log.warning("fold-snapshots.not-read", reason=str(error))
        return None
    return FoldSnapshots(objects, ledger, lambda reason: log.warning("fold-snapshots.not-read", reason=reason))


class SnapshotService:
    """Takes the snapshots of folds of one log; `servers` are NATS and PostgreSQL."""

    def __init__(
        self,
        ledger: Ledger,
        nats_url: str,
        database_url: str,
        objects_url: str,
        *,
        events_min: int = DUE.events_min,
        pauses: SnapshotPauses | None = None,
    ) -> None:
        self._ledger = ledger
        self._environ = {NATS_URL: nats_url, DATABASE_URL: database_url, OBJECTS_URL: objects_url}
        self._events_min = events_min
        self._pauses = pauses or SnapshotPauses()
        self._cleaned_s: float | None = None
        self.looked_at = ORIGIN
        """The head of the log when snapshots were taken last, by us or another process."""

    async def run(self) -> None:
        """Take what is due, until cancelled."""
        await keep_looking(self.look, self._pauses.look_s, self._pauses.backoff)

    async def look(self) -> bool:
        """Take what is due now, if anything may be; False where that failed."""
        try:
            head = await self._ledger.head()
        except LedgerError:
            return True  # others say so
        if lag(self.looked_at, head) < self._events_min:
            return True
        now_s = asyncio.get_running_loop().time()
        cleans = self._cleaned_s is None or now_s - self._cleaned_s >= self._pauses.clean_s
        code, words = await run_module(MODULE, [snapshot_process.CLEAN] if cleans else [], self._environ)
        if code == snapshot_process.BUSY:
            self.looked_at = head
            return True
        if code:
            log.warning("fold-snapshots.not-taken", reason=words or f"The process ended with {code}.")
            return False
        log.info("fold-snapshots.taken", head=str(head))
        self.looked_at = head
        self._cleaned_s = now_s if cleans else self._cleaned_s
        return True
