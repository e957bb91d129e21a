"""Commands that ask the past begin at a snapshot: the same answers, read from the tail of the log alone."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gpuledger.cli.get.nouns import NOUNS
from gpuledger.compose.snapshots import SnapshotPauses, SnapshotService
from gpuledger.db.engine import connect
from gpuledger.db.locks import SNAPSHOTS_LOCK, try_hold
from gpuledger.events.position import number_of
from gpuledger.ledger.api import Message, Outgoing
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.fold_snapshots.writer import FoldSnapshotSettings
from gpuledger.tools import snapshots
from gpuledger.tools.errors import RequestError, ToolBusyError
from gpuledger.tools.queries.availability import availability_as_of
from gpuledger.tools.queries.backend import Backend, all_projections
from gpuledger.tools.queries.rows import rows_as_recorded
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


@pytest.fixture(params=["folder", "bucket"])
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
