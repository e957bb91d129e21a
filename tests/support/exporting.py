"""Exports of real ledgers to a real receiver."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from gpuledger.edge.export.bounds import ExportBounds
from gpuledger.edge.export.service import Exporter
from gpuledger.events.envelope import Decoded
from gpuledger.events.health import NodeHealthReported
from gpuledger.ledger.api import Ledger
from gpuledger.runtime.backoff import Backoff
from gpuledger.runtime.export_settings import ExportSettings
from support.events import event
from support.projections import execute, stop
from support.receiver import Receiver
from support.waiting import eventually

QUICK = ExportBounds(
    tick_s=0.05,
    measure_s=0.02,
    request_timeout_s=5.0,
    stopped_retry_s=0.05,
    retries=Backoff(first_s=0.01, max_s=0.05, retry_after_max_s=0.05),
    interruptions=Backoff(first_s=0.02, max_s=0.1),
)


def reports(numbers: Iterable[int], **fields: Any) -> list[Decoded]:
    """Reports of health by the agent of node n1; the number is the check's and the source's own."""
    return [
        event(
            NodeHealthReported.model_validate(
                {"monitor": "m", "check": f"check-{number}", "healthy": False, "fatal": True} | fields
            ),
            "n1",
            number=number,
            source="/nodes/n1/agent",
        )
        for number in numbers
    ]


def ids_of(events: Iterable[Decoded]) -> list[str]:
    return [one.id for one in events]


def exporter_of(
    ledger: Ledger, url: str, receiver: Receiver, bounds: ExportBounds = QUICK, **settings: Any
) -> Exporter:
    given = ExportSettings(receiver.url, **{"begin": "start"} | settings)
    return Exporter(ledger, url, given, bounds)


@asynccontextmanager
async def exporting(exporter: Exporter) -> AsyncIterator[asyncio.Task[None]]:
    """The export, running."""
    task = asyncio.create_task(exporter.run())
    try:
        yield task
    finally:
        await stop(task)


async def accepts(receiver: Receiver, count: int) -> None:
    """Return when the receiver has accepted so many events, repeats among them."""

    async def has_them() -> bool:
        return len(receiver.accepted) >= count

    await eventually(has_them)


async def is_in_state(exporter: Exporter, state: str) -> None:
    """Return when the export is in a state."""

    async def is_so() -> bool:
        return exporter.health().state == state

    await eventually(is_so)


async def is_caught_up(exporter: Exporter) -> None:
    """Return when the export has taken all that the log has now, and has measured that it has."""

    async def is_so() -> bool:
        end, health = await exporter.ledger.head(), exporter.health()
        return health.lag_events == 0 and health.position == str(exporter.ledger.generations.position(end))

    await eventually(is_so)


def cursor_position(url: str) -> int | None:
    """The sequence of the cursor."""
    rows = execute(url, "SELECT position FROM gpuledger.export_cursor")
    return rows[0][0] if rows else None


def dead_letters(url: str) -> list[tuple[Any, ...]]:
    """The dead letters, in the order of the log."""
    return execute(url, "SELECT event_id, type, reason FROM gpuledger.export_dead_letter ORDER BY generation, position")
