"""`gpuledger log archive` on real servers: into a folder and into a bucket, and the proof of what is there."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gpuledger.db.engine import connect
from gpuledger.db.locks import try_lock
from gpuledger.deciders.seals.decide import MESSAGES_PER_SEAL
from gpuledger.ledger.connect import connected
from gpuledger.ledger.jetstream import JetStreamLedger, connect_ledger
from gpuledger.ledger.restoring import begin_generation
from gpuledger.ledger.stream import create_ledger
from gpuledger.local.servers.nats import NatsServer
from gpuledger.tools import log_archive
from gpuledger.tools.archive import tables
from gpuledger.tools.archive.store import open_archive
from support.archives import archive_in, messages_of
from support.cli import Cli, Run, aside
from support.ledgers import everything, new_ledger, publish_raw
from support.objects import BUCKET, bucket_server, use_server
from support.projections import publish
from support.runners import failures
from support.seals import seal

EVENTS = MESSAGES_PER_SEAL + 3
MORE = 20


@pytest.fixture
async def ledger(fresh_nats: NatsServer, url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[JetStreamLedger]:
    """A log with a seal, and a message that is no event."""
    monkeypatch.setenv("NATS_URL", fresh_nats.url)
    monkeypatch.setenv("DATABASE_URL", url)
    async with new_ledger(fresh_nats.url) as ledger:
        await publish(ledger, failures(range(1, EVENTS)))
        publish_raw(fresh_nats.url, b"ledger.node.n1.device.\xff.failed", b"\xff\x00")
        await seal(ledger, url, 1)
        yield ledger


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A place in a bucket."""
    with bucket_server() as (url, _):
        use_server(monkeypatch, url)
        yield f"s3://{BUCKET}/fleet/archive"


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Run:
    return aside(Cli(capsys))


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.long)])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "archive") if request.param == "folder" else str(request.getfixturevalue("bucket"))


async def test_the_log_is_archived_and_proven(ledger: JetStreamLedger, location: str, cli: Run) -> None:
    written = await cli("log", "archive", "write", location, "--no-tables")
    assert written.code == 0, written.err
    assert f"Archived {EVENTS + 1:,} events in 1 files; {location} holds the log up to 1/{EVENTS + 1}." in written.err
    await publish(ledger, failures(range(EVENTS, EVENTS + MORE)))
    assert f"Archived {MORE} events in 1 files" in (await cli("log", "archive", "write", location, "--no-tables")).err
    found = await cli("log", "archive", "verify", location)
    assert found.code == 0, found.err
    assert f"holds {EVENTS + 1 + MORE:,} events up to 1/{EVENTS + 1 + MORE}; 1 seals cover it up to" in found.err
    assert "it is what the log holds." in found.err
    rows = (await cli("log", "archive", "list", location, "-o", "json")).json()
    assert [(row["first"], row["last"], row["state"]) for row in rows] == [
        (1, EVENTS + 1, "kept"),
        (EVENTS + 2, EVENTS + 1 + MORE, "kept"),
    ]


async def test_messages_are_those_of_the_log(ledger: JetStreamLedger, tmp_path: Path, cli: Run) -> None:
    await cli("log", "archive", "write", str(tmp_path), "--no-tables")
    archive = archive_in(tmp_path)
    assert await messages_of(archive, (await archive.manifests())[1]) == await everything(ledger)


async def test_every_generation_that_is_here_is_archived(
    ledger: JetStreamLedger, fresh_nats: NatsServer, tmp_path: Path, cli: Run
) -> None:
    async with connected(fresh_nats.url, name="restore") as connection:
        await begin_generation(connection)
    async with connect_ledger(fresh_nats.url, name="test") as later:
        await publish(later, failures(range(1, MORE + 1)))
    written = await cli("log", "archive", "write", str(tmp_path), "--no-tables")
    assert f"holds the log up to 1/{EVENTS + 1}, 2/{MORE}." in written.err
    async with connected(fresh_nats.url, name="somebody") as connection:
        await connection.jetstream.delete_stream("LEDGER_1")
    found = await cli("log", "archive", "verify", str(tmp_path))
    assert found.code == 0, found.err
    assert f"up to 1/{EVENTS + 1}; 1 seals cover it up to 1/1000; it was not compared with the log." in found.err
    assert f"up to 2/{MORE}; no seal covers it yet; it is what the log holds." in found.err


async def test_a_damaged_archive_is_named(ledger: JetStreamLedger, tmp_path: Path, cli: Run) -> None:
    await cli("log", "archive", "write", str(tmp_path), "--no-tables")
    (path,) = tmp_path.rglob("*.parquet")  # noqa: ASYNC240
    path.write_bytes(path.read_bytes()[:-9])
    found = await cli("log", "archive", "verify", str(tmp_path), "--offline")
    assert found.code == 1
    assert "The archive of generation 1 is not what was archived" in found.err


async def test_two_do_not_write_at_once(ledger: JetStreamLedger, url: str, tmp_path: Path, cli: Run) -> None:
    async with connect(url, application_name="another") as connection:
        assert await try_lock(connection, f"archive:{ledger.identity.ledger_id}")
        found = await cli("log", "archive", "write", str(tmp_path))
    assert (found.code, "Another `gpuledger log archive` is at work" in found.err) == (5, True)


async def test_a_location_that_is_none_is_refused(cli: Run) -> None:
    found = await cli("log", "archive", "list", "ftp://somewhere")
    assert (found.code, "names no object store" in found.err) == (2, True)


async def test_tables_and_reports_are_archived_with_the_events(
    ledger: JetStreamLedger, location: str, cli: Run
) -> None:
    assert (await cli("log", "archive", "write", location)).code == 0
    for command in (
        ("report", "offenders"),
        ("report", "fleet"),
        ("sql", "SELECT * FROM failure ORDER BY number LIMIT 9"),
        ("sql", "SELECT name, value FROM (VALUES ('text', 1)) AS found (name, value)"),
    ):
        live, archived = [(await cli(*command, *more, "-o", "json")) for more in ((), ("--archive", location))]
        assert (archived.code, archived.json()) == (0, live.json()), archived.err
    manifest = (await open_archive(location).manifests())[1]
    assert max(one.position for one in manifest.tables) == manifest.end
    await publish(ledger, failures(range(EVENTS, EVENTS + MORE)))
    await cli("log", "archive", "write", location)
    row = "SELECT count(*) AS failures FROM failure"
    assert (await cli("sql", "--archive", location, row, "-o", "json")).json() == [{"failures": EVENTS - 1 + MORE}]
    replaced = (await open_archive(location).manifests())[1]
    kept = [one.key async for one in open_archive(location).objects.list("LEDGER_1/tables")]
    assert sorted(kept) == sorted(f"LEDGER_1/{one.path}" for one in replaced.tables)


async def test_a_table_may_have_parts(
    ledger: JetStreamLedger, tmp_path: Path, cli: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "ROWS_PER_GROUP", 400)
    monkeypatch.setattr(tables, "PART_BYTES_MAX", 0)
    await cli("log", "archive", "write", str(tmp_path))
    manifest = (await open_archive(str(tmp_path)).manifests())[1]
    parts = [one.rows for one in manifest.tables if one.table == "gpuledger_live.failure"]
    assert parts == [400, 400, EVENTS - 801]
    row = "SELECT count(*) AS failures FROM failure"
    assert (await cli("sql", "--archive", str(tmp_path), row, "-o", "json")).json() == [{"failures": EVENTS - 1}]


async def test_without_tables_there_is_no_report(ledger: JetStreamLedger, tmp_path: Path, cli: Run) -> None:
    await cli("log", "archive", "write", str(tmp_path), "--no-tables")
    found = await cli("report", "fleet", "--archive", str(tmp_path))
    assert (found.code, "SHOW ALL TABLES lists" in found.err) == (1, True)


async def test_an_archive_is_not_asked_for_a_moment(tmp_path: Path, cli: Run) -> None:
    found = await cli("sql", "--archive", str(tmp_path), "--at", "2026-01-01", "SELECT 1")
    assert (found.code, "--archive does not go with --at" in found.err) == (2, True)


async def test_an_archive_is_restored(
    ledger: JetStreamLedger, fresh_nats: NatsServer, tmp_path: Path, cli: Run
) -> None:
    """A drill: the archive alone brings the events back into an empty ledger, of which it is a proof as well."""
    location, file, messages = str(tmp_path / "archive"), str(tmp_path / "log.jsonl.gz"), await everything(ledger)
    await cli("log", "archive", "write", location, "--no-tables")
    (row,) = (await cli("log", "archive", "list", location, "-o", "json")).json()
    exported = await cli("log", "archive", "export", location, file, "--month", row["month"])
    assert (exported.code, exported.err) == (0, f"Exported {len(messages):,} events to {file}.\n")
    assert list(log_archive.messages(Path(file))) == messages
    assert (await cli("log", "archive", "export", location, file)).code == 2
    assert (await cli("log", "archive", "export", location, f"{file}2", "--month", "1999-01")).code == 2
    async with connected(fresh_nats.url, name="somebody") as connection:
        await connection.jetstream.delete_stream("LEDGER_1")
        await create_ledger(connection, ledger.identity.ledger_id)
    restored = await cli("log", "import", file, "--yes")
    assert restored.code in (0, 1), restored.err  # rows of before are another log's
    async with connect_ledger(fresh_nats.url, name="test") as again:
        assert [one.subject for one in await everything(again, until=len(messages))] == [
            one.subject for one in messages
        ]


async def test_retention_deletes_whole_months(ledger: JetStreamLedger, tmp_path: Path, cli: Run) -> None:
    location = str(tmp_path)
    await cli("log", "archive", "write", location, "--no-tables")
    delete = ("log", "archive", "delete", location, "--reason", "kept for a year")
    assert (await cli(*delete, "--before", "soon", "--yes")).code == 2
    none = await cli(*delete, "--before", "1999-01", "--yes")
    assert (none.code, "Deleted 0 events in 0 files" in none.err) == (0, True)
    assert f"Deleted {EVENTS + 1:,} events in 1 files" in (await cli(*delete, "--before", "9999-01", "--yes")).err
    await publish(ledger, failures(range(EVENTS, EVENTS + MORE)))
    assert "Archived" in (await cli("log", "archive", "write", location, "--no-tables")).err
    found = await cli("log", "archive", "verify", location)
    assert found.code == 0, found.err
    assert f"{EVENTS + 1:,} more were deleted by retention" in found.err
    gone = await cli("log", "archive", "export", location, f"{location}/log.jsonl")
    assert (gone.code, "kept for a year" in gone.err) == (1, True)
