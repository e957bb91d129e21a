"""Closings that begin by themselves, at a start or when one is due, and what is measured of one under way."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from math import isnan, nan
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from gpuledger.compose.closing import ClosingService
from gpuledger.compose.log_metrics import measure_log
from gpuledger.compose.up import LocalServers, Reports, UpOptions, serve
from gpuledger.domain.fact import time_of_ns
from gpuledger.ledger import closing
from gpuledger.ledger.closing import ClosingStep, closing_state
from gpuledger.ledger.connect import connected
from gpuledger.ledger.errors import ClosingError
from gpuledger.runtime.settings import ArchiveSettings, Servers, read_settings
from gpuledger.tools.archive.close import close_generation
from gpuledger.tools.archive.due import parse_policy
from gpuledger.tools.archive.store import open_archive
from gpuledger.tools.reporting import SILENT
from support.cli import Run
from support.closing import close_at, closed_ledger, kill_at, opened
from support.events import outgoing as as_outgoing
from support.projections import publish, stop
from support.runners import failures
from support.waiting import eventually

MORE = 40
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
ALSO_4 = pytest.mark.parametrize("partitions", [1, pytest.param(4, marks=pytest.mark.long)])


async def test_it_is_closed_by_itself_once_that_is_due(servers: Servers, location: str, cli: Run) -> None:
    async with opened(servers) as ledger:
        await publish(ledger, failures(range(1, MORE)))
        kept = await cli("log", "archive", "close", location, "--when", "month", "--yes")
        assert "is not to be closed yet" in kept.err
        first = await ledger.message_at(1)
        assert first is not None
        month_later = time_of_ns(first.recorded_ns) + timedelta(days=32)
        archive, policy = open_archive(location), parse_policy("month")
        assert await close_generation(servers, archive, SILENT, month_later, policy) is not None
        assert await close_generation(servers, archive, SILENT, month_later, policy) is None


@pytest.mark.long
@ALSO_4
async def test_up_closes_what_is_due_in_a_process_of_its_own(servers: Servers, location: str) -> None:
    service = ClosingService(servers.nats_url, servers.database_url, ArchiveSettings(location, "1GiB"))
    async with opened(servers) as ledger, connected(servers.nats_url, name="test") as connection:
        await publish(ledger, failures(range(1, MORE)))
        assert await service.look()
        assert await ledger.message_at(MORE) is None
        await closing.fence(connection, 1, location, NOON)
        assert await service.look()
        assert (await ledger.publish(as_outgoing(failures(range(MORE, MORE + 1))[0]))).sequence == MORE + 1
    other = ClosingService(servers.nats_url, "postgresql://127.0.0.1:1/none", ArchiveSettings(location, "month"))
    assert not await other.look()


async def test_up_goes_on_at_its_start_with_a_closing_that_was_interrupted(
    servers: Servers, location: str, tmp_path: Path
) -> None:
    async with opened(servers) as ledger, connected(servers.nats_url, name="test") as connection:
        await publish(ledger, failures(range(1, MORE)))
        await closing.fence(connection, 1, location, NOON)
    environ = {"NATS_URL": servers.nats_url, "DATABASE_URL": servers.database_url}
    with pytest.raises(ClosingError, match="being closed"):
        await up_until(environ, tmp_path)
    await up_until(environ | {"GPULEDGER_ARCHIVE_URL": location, "GPULEDGER_ARCHIVE_CLOSE": "1GiB"}, tmp_path)
    assert await closed_ledger(servers) == 2


async def up_until(environ: dict[str, str], folder: Path) -> None:
    """Run the projections as `up` does, until all is up."""
    is_up = asyncio.Event()
    reports = Reports(lambda _endpoints: is_up.set(), pytest.fail)
    options = UpOptions("127.0.0.1:0", has_edge=False, fleet=None)
    local = LocalServers(pytest.fail, pytest.fail)
    serving = asyncio.create_task(serve(read_settings(environ, folder), options, local, reports))
    waiting = asyncio.create_task(is_up.wait())
    await asyncio.wait((serving, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if serving.done():
        serving.result()
    await stop(serving)


@ALSO_4
async def test_a_closing_that_is_under_way_is_measured(
    servers: Servers, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(servers) as ledger, connected(servers.nats_url, name="test") as connection:
        await publish(ledger, failures(range(1, MORE)))
        measuring = asyncio.create_task(measure_log(ledger, servers.database_url, interval_s=0.02))
        try:
            await eventually(partial(is_measured, None))
            for step, expected in (("archive_rest", "archiving"), ("open_next", "beginning")):
                with monkeypatch.context() as patched, suppress(asyncio.CancelledError):
                    kill_at(patched, step, "before")
                    await close_at(servers, location)
                await eventually(partial(is_measured, expected))
                state = await closing_state(connection)
                assert state.since is not None
                assert value("log_closing_since_timestamp_seconds") == state.since.timestamp()
                assert timedelta() <= datetime.now(UTC) - state.since < timedelta(hours=1)
            await close_at(servers, location)
            await eventually(partial(is_measured, None))
        finally:
            await stop(measuring)


async def is_measured(step: str | None) -> bool:
    """Whether that is the step which is measured."""
    found = {one: value("log_closing", step=one) for one in ClosingStep}
    since = value("log_closing_since_timestamp_seconds")
    return found == {one: float(one == step) for one in ClosingStep} and isnan(since or nan) == (step is None)


def value(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"gpuledger_{name}", labels)
