"""Commands on a ledger of several partitions: it is made once, and they do what they do with one."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpuledger.deciders.seals.decide import MESSAGES_PER_SEAL
from gpuledger.events.position import number_of
from gpuledger.ledger.jetstream import JetStreamLedger, connect_ledger
from gpuledger.local.servers.nats import NatsServer
from gpuledger.tools.log_archive import messages
from gpuledger.tools.log_restore import with_recorded_time
from support.cli import Cli, Run, aside
from support.ledgers import everything, jetstream_ledger, outgoing
from support.projections import publish
from support.runners import failures
from support.seals import seal
from support.servers import fresh_database, nats_answer, nats_server

EVENTS = MESSAGES_PER_SEAL + 3


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, fresh_nats: NatsServer, url: str) -> Run:
    monkeypatch.setenv("NATS_URL", fresh_nats.url)
    monkeypatch.setenv("DATABASE_URL", url)
    return aside(Cli(capsys))


@pytest.fixture
async def ledger(fresh_nats: NatsServer, url: str) -> AsyncIterator[JetStreamLedger]:
    """A log with a seal."""
    async with jetstream_ledger(fresh_nats.url, partitions=4) as ledger:
        await publish(ledger, failures(range(1, EVENTS + 1)))
        await seal(ledger, url, 1)
        yield ledger


async def test_migrate_makes_the_partitions_once(cli: Run, fresh_nats: NatsServer) -> None:
    assert (await cli("migrate", "--partitions", "4")).code == 0
    async with connect_ledger(fresh_nats.url, name="test") as ledger:
        assert ledger.partitions == 4
    names = sorted(nats_answer(fresh_nats.url, "$JS.API.STREAM.NAMES")["streams"])
    assert names == ["LEDGER_1", *(f"LEDGER_1_P{partition}OF4" for partition in range(4))]
    for again in (("migrate",), ("migrate", "--partitions", "4")):
        assert (await cli(*again)).code == 0
    other = await cli("migrate", "--partitions", "2")
    assert other.code != 0
    assert "made with 4 partitions and keeps them: it cannot have 2" in other.err
    assert sorted(nats_answer(fresh_nats.url, "$JS.API.STREAM.NAMES")["streams"]) == names


@pytest.mark.one_stream("makes a ledger of one partition")
async def test_one_partition_is_the_default_and_cannot_become_several(cli: Run, fresh_nats: NatsServer) -> None:
    assert (await cli("migrate")).code == 0
    assert nats_answer(fresh_nats.url, "$JS.API.STREAM.NAMES")["streams"] == ["LEDGER_1"]
    other = await cli("migrate", "--partitions", "4")
    assert other.code != 0
    assert "made with 1 partition and keeps them: it cannot have 4" in other.err


async def test_what_was_interrupted_is_made_by_the_next(
    cli: Run, fresh_nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two partitions of a first attempt are there, and no order."""
    monkeypatch.setenv("GPULEDGER_PARTITIONS", "4")
    assert (await cli("migrate")).code == 0
    for stream in ("LEDGER_1", "LEDGER_1_P3OF4", "LEDGER_1_P2OF4"):
        assert nats_answer(fresh_nats.url, f"$JS.API.STREAM.DELETE.{stream}")["success"]
    assert (await cli("migrate")).code == 0
    async with jetstream_ledger(fresh_nats.url) as ledger:
        assert (await ledger.publish_many([outgoing(1), outgoing(2)]))[-1].sequence == 2
    assert nats_answer(fresh_nats.url, "$JS.API.STREAM.DELETE.LEDGER_1")["success"]
    lost = await cli("migrate")
    assert lost.code != 0
    assert "no stream with their order" in lost.err


async def test_the_log_is_proven_archived_and_shown(ledger: JetStreamLedger, cli: Run, tmp_path: Path) -> None:
    head = number_of(await ledger.head())
    proven = await cli("verify", "--log")
    assert proven.code == 0, proven.err
    assert "1 seals cover the log up to 1/1000; 4 events are not sealed." in proven.err
    written = await cli("log", "archive", "write", str(tmp_path), "--no-tables")
    assert written.code == 0, written.err
    archived = await cli("log", "archive", "verify", str(tmp_path))
    assert archived.code == 0, archived.err
    assert "it is what the log holds." in archived.err
    rows = (await cli("log", "tail", "-n", "3", "-o", "json")).json()
    assert [row["position"] for row in rows] == [f"1/{head - back}" for back in (2, 1, 0)]
    doctor = await cli("doctor")
    assert f"LEDGER_1 in 4 partitions: {head:,} events" in doctor.out


@pytest.mark.parametrize("into", [1, 4])
async def test_an_exported_log_is_imported(
    ledger: JetStreamLedger,
    cli: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    postgres_server_url: str,
    migrated_template: str,
    into: int,
) -> None:
    """Into a ledger of as many partitions or of one: positions and events are the same."""
    exported, again = tmp_path / "log.jsonl.gz", tmp_path / "again.jsonl"
    assert (await cli("log", "export", str(exported))).code == 0
    with nats_server() as server, fresh_database(postgres_server_url, migrated_template) as another:
        monkeypatch.setenv("NATS_URL", server.url)
        monkeypatch.setenv("DATABASE_URL", another)
        assert (await cli("migrate", "--partitions", str(into))).code == 0
        imported = await cli("log", "import", str(exported))
        assert imported.code == 0, imported.err
        assert f"Restored {EVENTS + 1:,} events as generation 1." in imported.err
        assert (await cli("log", "export", str(again))).code == 0
        proven = await cli("verify", "--log")
        assert proven.code == 0, proven.err + proven.out
    (*found, sealed_anew) = [one[:3] for one in messages(again)]
    assert found == [(one.subject, with_recorded_time(one), one.sequence) for one in messages(exported)]
    assert sealed_anew[0].startswith("ledger.svc.seals.")


@pytest.mark.long
async def test_a_log_is_imported_beside_the_one_that_is_there(
    ledger: JetStreamLedger, cli: Run, tmp_path: Path
) -> None:
    path, before = tmp_path / "log.jsonl", await everything(ledger)
    assert (await cli("log", "export", str(path))).code == 0
    imported = await cli("log", "import", str(path), "--yes")
    assert imported.code == 0, imported.err
    assert f"Restored {EVENTS + 1:,} events as generation 2." in imported.err
    assert await everything(ledger) == before
    proven = await cli("verify", "--log")
    assert proven.code == 0, proven.err + proven.out
    assert "1 seals cover the log up to 1/1000; 4 events are not sealed." in proven.err
