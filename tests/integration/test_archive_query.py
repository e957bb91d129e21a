"""SQL on an archive, in a folder and in a bucket alike: what it finds, what it may not do, and where it ends."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpuledger.db.errors import QueryError
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.tools.archive.bounds import ArchiveBounds
from gpuledger.tools.archive.query import ask_archive
from gpuledger.tools.archive.store import Archive, open_archive
from gpuledger.tools.archive.write import write_generation
from gpuledger.tools.reporting import SILENT
from support.archives import SetClock, record, undecodable
from support.objects import BUCKET, bucket_server, use_server
from support.runners import failures


@pytest.fixture(params=["folder", "bucket"])
def location(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "folder":
        yield str(tmp_path / "it's an archive")
        return
    with bucket_server() as (url, _):
        use_server(monkeypatch, url)
        yield f"s3://{BUCKET}/fleet"


@pytest.fixture
async def archive(location: str) -> Archive:
    """Five failures of January; three of February, and what is no event."""
    clock = SetClock(datetime(2026, 1, 10, tzinfo=UTC))
    ledger = MemoryLedger(clock=clock)
    await record(ledger, failures(range(1, 6)))
    clock.now = datetime(2026, 2, 10, tzinfo=UTC)
    await record(ledger, failures(range(6, 9)))
    await ledger.publish(undecodable(9))
    archive = open_archive(location)
    await write_generation(archive, ledger, SILENT)
    return archive


async def test_events_have_their_attributes_and_months(archive: Archive) -> None:
    by_month = "SELECT month, count(*) AS events FROM events GROUP BY month ORDER BY month"
    assert (await ask_archive(archive, by_month)).rows == [
        {"month": "2026-01", "events": 5},
        {"month": "2026-02", "events": 4},
    ]
    one = "SELECT position, event, data, data ->> 'kind' AS kind, recorded FROM events WHERE position IN (6, 9)"
    recorded = datetime(2026, 2, 10, 0, 0, 0, 123456, UTC)
    first, last = (await ask_archive(archive, f"{one} ORDER BY position")).rows
    assert first == {
        "position": 6,
        "event": "failed",
        "data": {"kind": "DBE"},
        "kind": "DBE",
        "recorded": recorded,
    }
    assert last == {"position": 9, "event": None, "data": None, "kind": None, "recorded": recorded}
    (raw,) = (await ask_archive(archive, "SELECT raw FROM events WHERE type IS NULL")).rows
    assert raw == {"raw": "\\xff\x00{"}


async def test_a_month_that_is_not_asked_for_is_not_read(archive: Archive) -> None:
    """The pages of the other month may be damaged, as long as nobody asks for them."""
    (january, _) = sorted([one.key async for one in archive.objects.list() if "month=" in one.key])
    data = await archive.objects.get(january)
    await archive.objects.put(january, data[:4] + bytes(800) + data[804:])
    ids = "SELECT count(DISTINCT id) AS ids, count(DISTINCT raw) AS raws FROM events"
    assert (await ask_archive(archive, f"{ids} WHERE month = '2026-02'")).rows == [{"ids": 3, "raws": 4}]
    with pytest.raises(QueryError, match="Invalid data"):
        await ask_archive(archive, ids)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("SELECT 1; SELECT 2", "with one query"),
        ("", "with one query"),
        ("COPY (SELECT 1) TO '/tmp/x.csv'", "with one query"),
        ("CREATE TABLE x (y int)", "with one query"),
        ("INSTALL httpfs", "with one query"),
        ("SET memory_limit = '1TB'", "with one query"),
        ("SELEKT", "DuckDB refuses the query: Parser Error"),
        ("SELECT * FROM nothing", "SHOW ALL TABLES lists"),
        ("SELECT * FROM read_text('/etc/passwd')", "Cannot access file"),
        ("SELECT * FROM 'http://127.0.0.1:1/x.parquet'", "DuckDB refuses the query"),
    ],
)
async def test_what_is_no_query_of_the_archive_is_refused(statement: str, reason: str, archive: Archive) -> None:
    with pytest.raises(QueryError, match=reason):
        await ask_archive(archive, statement)


async def test_a_query_has_bounds(archive: Archive) -> None:
    endless = "SELECT count(*) FROM range(10000000) AS a, range(10000000) AS b WHERE hash(a.range + b.range) = 1"
    with pytest.raises(QueryError, match="longer than 1 s"):
        await ask_archive(archive, endless, ArchiveBounds(timeout_s=1))
    with pytest.raises(QueryError, match="more than 50 MiB of memory and 1 MiB on the disk"):
        await ask_archive(
            archive, "SELECT list(range) FROM range(100000000)", ArchiveBounds(memory_mib_max=50, scratch_mib_max=1)
        )


async def test_an_archive_without_events_has_no_rows(tmp_path: Path) -> None:
    archive = open_archive(str(tmp_path))
    await write_generation(archive, MemoryLedger(), SILENT)
    assert (await ask_archive(archive, "SELECT month, position, data FROM events")).rows == []
