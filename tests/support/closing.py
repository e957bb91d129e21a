"""Services that run while a generation is closed, and what they leave."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from psycopg.rows import tuple_row

from gpuledger.events.position import is_at_or_after
from gpuledger.ledger.api import Ledger
from gpuledger.ledger.jetstream import JetStreamLedger, connect_ledger
from gpuledger.projection.checkpoint import LIVE, schema_of
from gpuledger.projection.supervision import Supervision
from gpuledger.runtime.clock import system_clock
from gpuledger.runtime.settings import Servers
from gpuledger.tools.archive import close
from gpuledger.tools.archive.close import ClosedLog, close_generation
from gpuledger.tools.archive.past import ArchivedGenerations
from gpuledger.tools.archive.store import open_archive
from gpuledger.tools.queries.backend import all_projections
from gpuledger.tools.reporting import SILENT
from support.projections import stop
from support.waiting import eventually


@asynccontextmanager
async def opened(servers: Servers) -> AsyncIterator[JetStreamLedger]:
    async with connect_ledger(servers.nats_url, name="test", archives=ArchivedGenerations()) as ledger:
        yield ledger


@asynccontextmanager
async def services(servers: Servers) -> AsyncIterator[Supervision]:
    """All projections and deciders, as a process of `gpuledger up` runs them."""
    async with opened(servers) as ledger:
        supervision = Supervision(all_projections(), ledger, servers.database_url, check_interval_s=0.05)
        tasks = [asyncio.create_task(work) for work in supervision.work()]
        try:
            yield supervision
        finally:
            for task in tasks:
                await stop(task)


async def close_at(servers: Servers, location: str) -> ClosedLog:
    closed = await close_generation(servers, open_archive(location), SILENT, system_clock())
    assert closed is not None
    return closed


async def closed_ledger(servers: Servers) -> int:
    """The generation that somebody finds who begins now."""
    async with opened(servers) as ledger:
        return ledger.generation


def kill_at(patched: pytest.MonkeyPatch, step: str, when: str) -> None:
    """End the command at a step, as a kill does: nothing is put right on the way out."""
    owners: dict[str, Any] = {"archive_and_prove": close._Closing, "archive_rest": close._Closing}
    owner = JetStreamLedger if step == "publish" else owners.get(step, close)
    name = "publish_many" if step == "publish" else step
    really: Callable[..., Awaitable[Any]] = getattr(owner, name)

    async def killed(*arguments: Any) -> Any:
        if when == "behind":
            await really(*arguments)
        raise asyncio.CancelledError

    patched.setattr(owner, name, killed)


async def caught_up(supervision: Supervision) -> None:
    """Every projection has folded all that the log has, and decided what follows from it."""

    async def is_at_head() -> bool:
        head = await supervision.ledger.head()
        health = supervision.health()
        assert [one.reason for one in health.values() if one.state == "stopped"] == []
        found = [one.position for one in health.values()]
        return all(one is not None and is_at_or_after(one, head) for one in found)

    await eventually(is_at_head)


async def gone_on(ledger: Ledger, generation: int) -> None:
    """The ledger has noticed that a generation was closed, and is at this one."""

    async def is_there() -> bool:
        return ledger.generation == generation

    await eventually(is_there)


def rows_of(database_url: str) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all projections."""
    found = {}
    with psycopg.connect(database_url, row_factory=tuple_row) as connection:
        for projection in all_projections():
            for spec in projection.specs:
                columns = ", ".join(f'"{one}"' for one in spec.columns)
                query = f"SELECT {columns} FROM {schema_of(LIVE)}.{spec.name}"
                rows = connection.execute(query.encode()).fetchall()
                found[spec.name] = sorted(rows, key=repr)
    return found
