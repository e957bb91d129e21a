"""Measures something again and again, and serves nothing that was measured long ago.

A replica that is cut off must not speak for those that are not: alerts take the maximum of all.
"""

import asyncio
from collections.abc import Awaitable, Callable
from math import nan
from typing import Final

import psycopg
import structlog

from gpuledger.db.errors import DatabaseError
from gpuledger.ledger.errors import LedgerError

log = structlog.get_logger("gpuledger.metrics")

INTERVAL_S: Final = 15.0
"""How often something is measured; a scrape is seldom more frequent."""

FAILURES_MAX: Final = 2
"""How often in a row measuring fails before its values are given up."""

UNMEASURED: Final = nan
"""What a gauge without labels serves in place of a value: no comparison holds for it, and `max` passes over it."""


async def keep_measuring(
    event: str, measure: Callable[[], Awaitable[None]], give_up: Callable[[], None], *, interval_s: float
) -> None:
    """Measure until cancelled, and have the values given up while a server does not answer.

    `event` is what the log has for each failure.
    """
    failures = 0
    while True:
        try:
            await measure()
            failures = 0
        except (LedgerError, DatabaseError, psycopg.Error) as error:
            log.warning(event, reason=str(error).strip())
            failures += 1
            if failures >= FAILURES_MAX:
                give_up()
        await asyncio.sleep(interval_s)
