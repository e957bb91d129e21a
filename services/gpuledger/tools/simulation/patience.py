"""Waiting out servers that are away. What they refuse for good is raised at once."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from gpuledger.edge.kube.errors import TransientError
from gpuledger.edge.kube.reflector import Backoff, Sleep
from gpuledger.ledger.errors import LedgerUnavailableError, PublishError

T = TypeVar("T")

log = structlog.get_logger("gpuledger.simulation")


async def patiently(work: Callable[[], Awaitable[T]], *, sleep: Sleep, backoff: Backoff | None = None) -> T:
    """Do the work, again and again while a server is away; what is done again must do no harm."""
    backoff = backoff or Backoff()
    failures = 0
    while True:
        try:
            return await work()
        except (TransientError, LedgerUnavailableError, PublishError) as error:
            failures += 1
            retry_after_s = error.retry_after_s if isinstance(error, TransientError) else None
            pause_s = backoff.pause_s(failures, 1.0, retry_after_s)
            log.warning("waiting for a server", reason=str(error), pause_s=pause_s)
        await sleep(pause_s)
