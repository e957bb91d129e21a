"""`gpuledger doctor` finds what has happened to the log, and advises nothing that would harm it."""

import shutil
from pathlib import Path

import pytest
from nats.js.api import DiscardPolicy, StreamConfig

from gpuledger.ledger.connect import connected
from gpuledger.ledger.restoring import begin_restore
from gpuledger.ledger.stream import archive_subject
from gpuledger.local.servers.nats import NatsServer
from gpuledger.projection.runner import Runner
from gpuledger.readmodels.projections import DevicesProjection
from gpuledger.tools.doctor import Check, DatabaseChecks, LedgerChecks, Status
from support.ledgers import jetstream_ledger, new_ledger
from support.log_copies import keep_copy, put_back, stopped
from support.projections import QUICK, execute, publish
from support.runners import failures

STREAM, ROWS = "stream", "projection devices"
KEPT, FOLDED = 5, 10


async def checks(server: NatsServer, url: str) -> dict[str, Check]:
    """What doctor finds."""
    ledger = LedgerChecks(server.url, None)
    found = [check async for check in ledger.run()]
    async with ledger.found() as log:
        found += [check async for check in DatabaseChecks(url, [DevicesProjection()], log).run()]
    return {check.check: check for check in found}


async def fold(server: NatsServer, url: str, copy: Path | None = None) -> None:
    """A log, rows that were folded from all of it, and a copy of the log from before its end."""
    async with new_ledger(server.url) as ledger:
        head = await publish(ledger, failures(range(1, KEPT + 1)))
        if copy is not None:
            keep_copy(server, copy)
        head = await publish(ledger, failures(range(KEPT + 1, FOLDED + 1)))
        await Runner(DevicesProjection(), ledger, url, settings=QUICK).catch_up(head)


def assert_failed(check: Check, *words: str) -> None:
    assert check.status is Status.FAILED, check
    for word in words:
        assert word in check.detail


async def test_rows_and_log_that_belong_together(fresh_nats: NatsServer, url: str) -> None:
    await fold(fresh_nats, url)
    found = await checks(fresh_nats, url)
    assert (found[STREAM].status, found[ROWS].status) == (Status.OK, Status.OK)
    assert "at 1/10, 0 events behind" in found[ROWS].detail


async def test_another_ledger(fresh_nats: NatsServer, url: str) -> None:
    await fold(fresh_nats, url)
    execute(url, "UPDATE gpuledger.projection SET ledger_id = 'another'")
    assert_failed((await checks(fresh_nats, url))[ROWS], "The log was replaced", "follow the ledger another")


@pytest.mark.parametrize("more", [0, FOLDED])
async def test_an_older_copy(fresh_nats: NatsServer, url: str, tmp_path: Path, more: int) -> None:
    await fold(fresh_nats, url, tmp_path / "copy")
    put_back(fresh_nats, tmp_path / "copy")
    if more:
        async with jetstream_ledger(fresh_nats.url) as ledger:
            await publish(ledger, failures(range(100, 100 + more)))
    assert_failed((await checks(fresh_nats, url))[ROWS], "The log was restored from an older copy")


async def test_an_older_copy_beside_rows_of_before_there_were_ids(
    fresh_nats: NatsServer, url: str, tmp_path: Path
) -> None:
    await fold(fresh_nats, url, tmp_path / "copy")
    put_back(fresh_nats, tmp_path / "copy")
    execute(url, "UPDATE gpuledger.projection SET ledger_id = NULL, last_position = NULL")
    assert_failed((await checks(fresh_nats, url))[ROWS], "it ends at 1/5, and the rows were folded up to 1/10")


async def test_a_log_that_is_gone(fresh_nats: NatsServer, url: str) -> None:
    assert (await checks(fresh_nats, url))[STREAM].status is Status.WARNING
    await fold(fresh_nats, url)
    with stopped(fresh_nats) as store:
        shutil.rmtree(store)
    assert_failed((await checks(fresh_nats, url))[ROWS], "The log is lost: NATS has no ledger", "up to 1/10")


async def configure(server: NatsServer, **fields: object) -> StreamConfig:
    """Change the stream of the ledger; returns how it was."""
    async with connected(server.url, name="operator") as connection:
        config = (await connection.jetstream.stream_info("LEDGER_1")).config
        await connection.jetstream.update_stream(config.evolve(**fields))
        return config


@pytest.mark.one_stream("alters the stream")
async def test_a_log_that_was_cut(fresh_nats: NatsServer, url: str) -> None:
    await fold(fresh_nats, url)
    before = await configure(fresh_nats, max_msgs=KEPT, discard=DiscardPolicy.OLD)
    await configure(fresh_nats, max_msgs=before.max_msgs, discard=before.discard)
    found = await checks(fresh_nats, url)
    assert_failed(found[STREAM], "The log was cut: LEDGER_1 has recorded 10 events and holds 5")
    assert "behind" not in found[ROWS].detail


async def test_a_restore_under_way(fresh_nats: NatsServer, url: str) -> None:
    await fold(fresh_nats, url)
    async with connected(fresh_nats.url, name="import") as connection:
        await begin_restore(connection, "a file", lambda _generation, _events: None)
    found = await checks(fresh_nats, url)
    assert_failed(found[STREAM], "Generation 2", "is being restored", "run it again with the same file")
    assert found[ROWS].status is Status.OK, "a rebuild is no remedy yet"
    assert not any("stream edit" in check.detail or "replay" in check.detail for check in found.values())


@pytest.mark.one_stream("alters the stream")
async def test_an_archived_generation_without_a_successor(fresh_nats: NatsServer, url: str) -> None:
    await fold(fresh_nats, url)
    await configure(fresh_nats, subjects=[archive_subject(1)])
    found = await checks(fresh_nats, url)
    assert_failed(found[STREAM], "a restore was interrupted. Run it again")
    assert "stream edit" not in found[STREAM].detail
