"""Commands that ask the past begin at a snapshot: the same answers, read from the tail of the log alone."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from gpuledger.cli.get.nouns import NOUNS
from gpuledger.compose.snapshots import SnapshotPauses, SnapshotService
from gpuledger.db.engine import AsyncConnection, connect
from gpuledger.db.locks import SNAPSHOTS_LOCK, try_hold, try_lock
from gpuledger.events.position import number_of
from gpuledger.ledger.api import Message, Outgoing
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.errors import ScratchFullError
from gpuledger.projection.fold_snapshots import writer
from gpuledger.projection.fold_snapshots.writer import FoldSnapshotSettings
from gpuledger.tools import snapshots
from gpuledger.tools.errors import RequestError, ToolBusyError
from gpuledger.tools.queries.availability import availability_as_of
from gpuledger.tools.queries.backend import Backend, all_projections
from gpuledger.tools.queries.moments import PointInTime
from gpuledger.tools.queries.rows import rows_as_recorded
from gpuledger.tools.queries.sql import BOUNDS, Bounds, result_then
from gpuledger.tools.reporting import Silent
from support.cli import Cli
from support.counted_reads import CountedReads
from support.fold_snapshots import recorded_messages
from support.objects import BUCKET, bucket_server, use_server

EVERY_150 = FoldSnapshotSettings(events_min=150)
MESSAGES = len(recorded_messages())
STANDS_AT = 300
SKIPS_MAX = 5
"""The recorded log has no more events about skipped positions, which are read beside the tail."""


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with bucket_server() as (url, _):
        yield url


@pytest.fixture
async def recorded(ledger: JetStreamLedger) -> JetStreamLedger:
    """A ledger with events of every type, up to `STANDS_AT`."""
    await _publish(ledger, recorded_messages()[:STANDS_AT])
    return ledger


async def _publish(ledger: JetStreamLedger, messages: Sequence[Message]) -> None:
    await ledger.publish_many([Outgoing(one.subject, f"m{one.sequence}", one.data) for one in messages])


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.long)])
async def backend(
    request: pytest.FixtureRequest,
    recorded: JetStreamLedger,
    url: str,
    clean_nats_url: str,
    tmp_path: Path,
    bucket: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Backend:
    use_server(monkeypatch, bucket)
    objects_url = tmp_path.as_uri() if request.param == "folder" else f"s3://{BUCKET}/{tmp_path.name}"
    return Backend(CountedReads(recorded), url, clean_nats_url, None, objects_url=objects_url)


async def _everything(backend: Backend, until: int) -> list[object]:
    rows = [await rows_as_recorded(backend, noun.source, until) for noun in NOUNS.values()]
    tables = (await availability_as_of(backend, until)).tables()
    return [*rows, {name: dict(table.rows) for name, table in tables.items() if table.spec.retires is None}]


@pytest.mark.parametrize("until", [200, STANDS_AT, 340, MESSAGES])
async def test_the_past_is_the_same_and_only_the_tail_is_read(backend: Backend, until: int) -> None:
    ledger = backend.ledger
    assert isinstance(ledger, CountedReads)
    assert (await snapshots.take(backend, [], also_last=True)).stopped == []
    await _publish(ledger, recorded_messages()[STANDS_AT:])
    await snapshots.take(backend, [], also_last=True, settings=EVERY_150)
    stands = {number_of(one.at.sequence) for one in await snapshots.stored(backend, [])}
    assert stands == {STANDS_AT, MESSAGES}
    ledger.restart()
    await rows_as_recorded(backend, NOUNS["devices"].source, until)
    begins = max((one for one in stands if one <= until), default=0)
    assert ledger.read_messages <= MESSAGES - begins + SKIPS_MAX  # a batch goes beyond `until`
    assert await _everything(backend, until) == await _everything(replace(backend, objects_url=None), until)


EVERY_TABLE = " UNION ALL ".join(
    f"SELECT '{spec.name}' AS name, to_jsonb(t)::text AS row FROM gpuledger_live.{spec.name} AS t"
    for projection in all_projections()
    for spec in projection.specs
)


async def _every_table(backend: Backend, until: int, bounds: Bounds = BOUNDS) -> list[tuple[object, object]]:
    found = await result_then(backend, EVERY_TABLE, PointInTime(recorded=(None, until)), bounds)
    return sorted((row["name"], row["row"]) for row in found.rows)


@pytest.fixture
async def taken(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> Backend:
    """Snapshots in the middle and at the head; what retired before the second is in pieces of its own."""
    monkeypatch.setattr(writer, "PART_ROWS_MAX", 6)
    await snapshots.take(backend, [], also_last=True)
    await _publish(backend.ledger, recorded_messages()[STANDS_AT:])
    await snapshots.take(backend, [], also_last=True)
    return backend


@pytest.mark.parametrize("until", [200, STANDS_AT, 340, MESSAGES])
async def test_a_query_of_the_past_begins_at_a_snapshot_with_every_row(taken: Backend, until: int) -> None:
    ledger = taken.ledger
    assert isinstance(ledger, CountedReads)
    ledger.restart()
    found = await _every_table(taken, until)
    begins = max((one for one in (STANDS_AT, MESSAGES) if one <= until), default=0)
    when_recorded = MESSAGES - until + 1
    assert ledger.read_messages <= MESSAGES - begins + when_recorded + SKIPS_MAX
    assert len({name for name, _ in found}) > len(all_projections())
    assert found == await _every_table(replace(taken, objects_url=None), until)


async def test_the_rows_of_a_snapshot_count_against_the_room_of_a_query(taken: Backend) -> None:
    with pytest.raises(ScratchFullError):
        await _every_table(taken, MESSAGES, Bounds(scratch_mib_max=0))


async def test_a_query_begins_at_the_snapshot_before_one_whose_rows_are_damaged(taken: Backend, tmp_path: Path) -> None:
    if taken.objects_url != tmp_path.as_uri():
        pytest.skip("files are easier to damage")
    _damage(tmp_path, _retired_pieces(tmp_path, MESSAGES) - _retired_pieces(tmp_path, STANDS_AT))
    hearer = Hearer()
    found = await _every_table(replace(taken, reporter=hearer), MESSAGES)
    assert any(f"at 1/{MESSAGES} is not used: The piece" in one for one in hearer.messages), hearer.messages
    assert not any(f"at 1/{STANDS_AT} " in one for one in hearer.messages), hearer.messages
    assert found == await _every_table(replace(taken, objects_url=None), MESSAGES)


class Hearer(Silent):
    """Keeps what is reported."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def message(self, text: str) -> None:
        self.messages.append(text)


def _retired_pieces(folder: Path, at: int) -> set[str]:
    manifests = [one.read_bytes().partition(b"\n")[2] for one in folder.rglob(f"{at:020d}-*.json")]
    tables = [table for one in manifests for table in json.loads(one)["tables"].values()]
    return {digest for table in tables for digest, _, _ in table["retired"]}


def _damage(folder: Path, digests: set[str]) -> None:
    assert digests
    for digest in digests:
        next(folder.rglob(f"{digest}.parquet")).write_bytes(b"damaged")


async def test_each_is_checked_and_old_ones_are_deleted(backend: Backend) -> None:
    await snapshots.take(backend, [], also_last=True, settings=EVERY_150)
    found = [one async for one in snapshots.checked(backend, [])]
    assert {one.projection for one in found} == {one.name for one in all_projections()}
    assert all(one.is_right for one in found), [one for one in found if not one.is_right]


async def test_one_process_takes_them_at_a_time(backend: Backend) -> None:
    async with connect(backend.database_url, application_name="another") as connection:
        assert await try_hold(connection, SNAPSHOTS_LOCK)
        with pytest.raises(ToolBusyError, match="Another process takes snapshots"):
            await snapshots.take(backend, [], also_last=True)


async def test_the_lock_is_free_before_the_session_ends(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL takes its time to notice that a session is closed, so the next command could find the lock taken."""
    was_free: list[bool] = []

    @asynccontextmanager
    async def observed(url: str, *, application_name: str) -> AsyncIterator[AsyncConnection]:
        async with connect(url, application_name=application_name) as connection:
            yield connection
            async with connect(url, application_name="another") as another:
                was_free.append(await try_lock(another, SNAPSHOTS_LOCK))

    monkeypatch.setattr(snapshots, "connect", observed)
    await snapshots.take(backend, [], also_last=True, settings=EVERY_150)
    assert was_free == [True]


async def test_without_an_object_store_a_command_says_what_to_set(recorded: JetStreamLedger, url: str) -> None:
    with pytest.raises(RequestError, match="Set GPULEDGER_OBJECTS_URL to file:/folder or s3://bucket/prefix"):
        await snapshots.take(Backend(recorded, url, "", None), [], also_last=True)


async def test_up_has_a_process_take_what_is_due(
    recorded: JetStreamLedger, url: str, clean_nats_url: str, tmp_path: Path
) -> None:
    pauses = SnapshotPauses(look_s=0.01)
    service = SnapshotService(recorded, clean_nats_url, url, tmp_path.as_uri(), events_min=100, pauses=pauses)
    assert await service.look()
    assert service.looked_at == await recorded.head()
    elsewhere = SnapshotService(recorded, clean_nats_url, url, "gs://nowhere", events_min=100, pauses=pauses)
    assert not await elsewhere.look()


async def test_the_commands(
    recorded: JetStreamLedger,
    url: str,
    clean_nats_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert await recorded.head() == STANDS_AT
    environ = {"NATS_URL": clean_nats_url, "DATABASE_URL": url, "GPULEDGER_OBJECTS_URL": tmp_path.as_uri()}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    await asyncio.to_thread(_use_commands, Cli(capsys))


def _use_commands(cli: Cli) -> None:
    before = cli("get", "devices", "--as-recorded", "290", "-o", "json").out
    count = len(all_projections())
    assert f"{count} snapshots taken." in cli("snapshots", "take").err
    (row,) = cli("snapshots", "list", "devices", "-o", "json").json()
    assert row["position"] == f"1/{STANDS_AT}"
    assert f"Every snapshot is as the log says: {count} checked." in cli("snapshots", "check").err
    assert "0 snapshots and 0 pieces of 0 bytes deleted." in cli("snapshots", "clean").err
    assert cli("get", "devices", "--as-recorded", "290", "-o", "json").out == before
