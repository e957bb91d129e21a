"""Waiting out servers that are away. What they refuse for good is raised at once."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from gpuledger.edge.kube.errors import TransientError
from gpuledger.ledger.errors import LedgerUnavailableError, PublishError
from gpuledger.runtime.backoff import Backoff, Retries
from gpuledger.runtime.clock import Sleep

T = TypeVar("T")

log = structlog.get_logger("gpuledger.simulation")


async def patiently(work: Callable[[], Awaitable[T]], *, sleep: Sleep, backoff: Backoff | None = None) -> T:
    """Do the work, again and again while a server is away; what is done again must do no harm."""
    retries = Retries(backoff or Backoff())
    while True:
        try:
            return await work()
        except (TransientError, LedgerUnavailableError, PublishError) as error:
            pause_s = retries.pause_s(error.retry_after_s if isinstance(error, TransientError) else None)
            log.warning("waiting for a server", reason=str(error), pause_s=pause_s)
        await sleep(pause_s)
