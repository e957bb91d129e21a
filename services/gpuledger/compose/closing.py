"""Has a process of its own close the log's generation when that is due, for as long as `gpuledger up` runs.

What fails is said and tried again: the log only grows meanwhile. A process that ended between two steps is followed by
one that goes on, so publishers wait no longer than until then.
"""

from dataclasses import dataclass, field
from typing import Final

import structlog

from gpuledger.compose.children import keep_looking, run_module
from gpuledger.runtime.backoff import Backoff
from gpuledger.runtime.settings import ARCHIVE_CLOSE, ARCHIVE_URL, DATABASE_URL, NATS_URL, ArchiveSettings
from gpuledger.tools.archive.due import parse_policy

log = structlog.get_logger("gpuledger.closing")

MODULE: Final = "gpuledger.tools.archive.close_process"
BUSY: Final = 75
"""Its exit code where another process changes archives."""


@dataclass(frozen=True, slots=True)
class ClosingPauses:
    """How often it is looked whether closing is due, and the pauses after failures."""

    look_s: float = 3_600.0
    backoff: Backoff = field(default_factory=lambda: Backoff(first_s=5.0, max_s=600.0))


class ClosingService:
    """Closes generations of one log; `servers` are NATS and PostgreSQL."""

    def __init__(
        self, nats_url: str, database_url: str, archive: ArchiveSettings, pauses: ClosingPauses | None = None
    ) -> None:
        """Raises RequestError where the settings do not say when to close."""
        parse_policy(archive.close)
        self._environ = {
            NATS_URL: nats_url,
            DATABASE_URL: database_url,
            ARCHIVE_URL: archive.url,
            ARCHIVE_CLOSE: archive.close,
        }
        self._pauses = pauses or ClosingPauses()

    async def run(self) -> None:
        """Close what is due, until cancelled."""
        await keep_looking(self.look, self._pauses.look_s, self._pauses.backoff)

    async def look(self) -> bool:
        """Close the generation if that is due now; False where that failed."""
        code, words = await run_module(MODULE, [], self._environ)
        if code in (0, BUSY):
            return True
        log.warning("closing.failed", reason=words or f"The process ended with {code}.")
        return False
