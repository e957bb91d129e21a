"""Who writes beside the projections finds out whether the rows follow the log: before, meanwhile, and when they do."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gpuledger.ledger.api import Ledger
from gpuledger.ledger.errors import LogReplacedError, LogRestoredError
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.local.servers.nats import NatsServer
from gpuledger.projection.followed_log import FollowedLog
from gpuledger.projection.runner import Runner
from gpuledger.readmodels.projections import DevicesProjection
from support.ledgers import jetstream_ledger, new_ledger
from support.log_copies import keep_copy, put_back
from support.projections import QUICK, execute, publish, stop
from support.runners import failures
from support.servers import database_name
from support.waiting import eventually


@asynccontextmanager
async def followed_by_devices(ledger: Ledger, url: str) -> AsyncIterator[FollowedLog]:
    async with aclosing(FollowedLog([DevicesProjection()], ledger, url, check_interval_s=0.02)) as followed:
        yield followed


async def fold(ledger: Ledger, url: str, numbers: range) -> None:
    head = await publish(ledger, failures(numbers))
    assert await Runner(DevicesProjection(), ledger, url, settings=QUICK).catch_up(head)


async def test_rows_follow_the_log_that_they_were_folded_from(ledger: JetStreamLedger, url: str) -> None:
    async with followed_by_devices(ledger, url) as followed:
        assert await followed.confirm() is None
        await fold(ledger, url, range(1, 11))
        assert await followed.confirm() == await ledger.anchor_at(10)


async def test_who_has_to_wait_anyway_outlasts_servers_that_are_away(
    ledger: JetStreamLedger, url: str, postgres_server_url: str
) -> None:
    await fold(ledger, url, range(1, 11))
    database = database_name(url)
    async with followed_by_devices(ledger, url) as followed:
        execute(postgres_server_url, f"ALTER DATABASE {database} ALLOW_CONNECTIONS false")
        with capture_logs() as logged:
            waiting = asyncio.create_task(followed.wait_through_absences())

            async def is_reported() -> bool:
                return "log.unknown" in {one["event"] for one in logged}

            await eventually(is_reported)
        execute(postgres_server_url, f"ALTER DATABASE {database} ALLOW_CONNECTIONS true")
        await waiting


async def test_rows_of_another_ledger_are_waited_for_and_named(ledger: JetStreamLedger, url: str) -> None:
    await fold(ledger, url, range(1, 11))
    execute(url, "UPDATE gpuledger.projection SET ledger_id = 'another'")
    async with followed_by_devices(ledger, url) as followed:
        waiting = asyncio.create_task(followed.wait())

        async def is_reported() -> bool:
            return "follow the ledger another" in (followed.problem or "")

        await eventually(is_reported)
        assert not waiting.done()
        execute(url, "UPDATE gpuledger.projection SET ledger_id = %s", ledger.identity.ledger_id)
        await waiting
        assert followed.problem is None


async def test_nobody_begins_in_an_older_copy_of_the_log(fresh_nats: NatsServer, url: str, tmp_path: Path) -> None:
    async with new_ledger(fresh_nats.url) as ledger:
        await publish(ledger, failures(range(1, 6)))
        keep_copy(fresh_nats, tmp_path / "copy")
        await fold(ledger, url, range(6, 11))
    put_back(fresh_nats, tmp_path / "copy")
    async with jetstream_ledger(fresh_nats.url) as ledger, followed_by_devices(ledger, url) as followed:
        with pytest.raises(LogRestoredError, match=r"ends at 1/5\D+ 1/10"):
            await followed.while_followed(lambda: pytest.fail("it began"))


async def test_nothing_is_published_into_an_older_copy_before_it_is_compared_again(
    fresh_nats: NatsServer, url: str, tmp_path: Path
) -> None:
    async with new_ledger(fresh_nats.url) as ledger:
        await publish(ledger, failures(range(1, 6)))
        keep_copy(fresh_nats, tmp_path / "copy")
        await fold(ledger, url, range(6, 11))

        async def work() -> None:
            put_back(fresh_nats, tmp_path / "copy")
            with pytest.raises(LogRestoredError):
                await publish(ledger, failures(range(100, 101)))

        async with aclosing(FollowedLog([DevicesProjection()], ledger, url)) as followed:
            await followed.while_followed(work)
        assert await ledger.head() == 5


async def test_work_ends_when_the_rows_follow_the_log_no_longer(ledger: JetStreamLedger, url: str) -> None:
    await fold(ledger, url, range(1, 11))
    async with followed_by_devices(ledger, url) as followed:
        began = asyncio.Event()

        async def work() -> None:
            began.set()
            await asyncio.Event().wait()

        working = asyncio.create_task(followed.while_followed(work))
        try:
            await began.wait()
            execute(url, "UPDATE gpuledger.projection SET ledger_id = 'another'")
            with pytest.raises(LogReplacedError):
                await working
        finally:
            await stop(working)


async def test_rows_of_an_earlier_generation_hold_nobody_up_but_those_of_a_later_one_do(
    ledger: JetStreamLedger, url: str
) -> None:
    await fold(ledger, url, range(1, 11))
    execute(url, "UPDATE gpuledger.projection SET generation = 0, last_digest = 'of another event'")
    async with followed_by_devices(ledger, url) as followed:
        assert await followed.confirm() is None
        execute(url, "UPDATE gpuledger.projection SET generation = 2")
        with pytest.raises(LogRestoredError, match=r"it is at generation 1, and the rows .* follow 2/10"):
            await followed.confirm()
