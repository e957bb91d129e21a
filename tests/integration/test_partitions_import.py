"""`gpuledger log import` into several partitions, interrupted anywhere: the log is the archive's, event by event."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from nats.js.api import StreamConfig
from nats.js.manager import JetStreamManager

from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.ledger.api import Outgoing, Receipt
from gpuledger.ledger.connect import connected
from gpuledger.ledger.errors import LogLostError, RestoreInterruptedError
from gpuledger.ledger.partition_filling import FillingPublisher
from gpuledger.ledger.partitions import partition_of
from gpuledger.ledger.stream import ledger_streams
from gpuledger.local.servers.nats import NatsServer
from gpuledger.readmodels.projections import DevicesProjection
from gpuledger.runtime.settings import Servers
from gpuledger.tools import log_restore
from gpuledger.tools.preparation import prepare_ledger
from support.ledgers import SEVERAL_PARTITIONS, publish_raw
from support.log_imports import bring_back, exported, recorded
from support.servers import nats_answer

EVENTS = 60
CHUNK = 20
SUBJECT = b"ledger.node.n1.device.d.seen"
CHANGES_MAX = 30  # more than an import makes of streams of four partitions and their order


@pytest.fixture(autouse=True)
def few_projections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_restore, "all_projections", lambda: (SourcesProjection(), DevicesProjection()))


@pytest.fixture
def servers(clean_nats_url: str, url: str) -> Servers:
    return Servers(clean_nats_url, url)


@pytest.fixture
async def archive(servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An export of a ledger that is still there."""
    monkeypatch.setattr(log_restore, "MESSAGES_PER_PUBLISH", CHUNK)
    return await exported(servers, tmp_path / "log.jsonl", EVENTS, SEVERAL_PARTITIONS)


@pytest.fixture
async def empty(fresh_nats: NatsServer, migrated_url: str) -> Servers:
    """Servers with nothing but an empty ledger."""
    await prepare_ledger(fresh_nats.url, migrated_url, partitions=SEVERAL_PARTITIONS)
    return Servers(fresh_nats.url, migrated_url)


def after_a_change(patched: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Act behind each request that creates or alters a stream."""
    for name in ("add_stream", "update_stream"):
        really = getattr(JetStreamManager, name)

        async def changed(self: JetStreamManager, config: StreamConfig, really: Any = really) -> None:
            await really(self, config)
            act()

        patched.setattr(JetStreamManager, name, changed)


def killed() -> None:
    raise asyncio.CancelledError


async def interrupted(servers: Servers, archive: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Import, ended behind its first change of a stream, until the ledger is open; returns how often it was ended."""
    for kills in range(1, CHANGES_MAX):
        with monkeypatch.context() as patched, suppress(asyncio.CancelledError):
            after_a_change(patched, killed)
            await bring_back(servers, archive)
        with suppress(RestoreInterruptedError):
            await recorded(servers)
            return kills
    return CHANGES_MAX


async def test_a_new_generation_is_begun_filled_and_opened_wherever_it_is_killed(
    servers: Servers, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await recorded(servers)
    kills = await interrupted(servers, archive, monkeypatch)
    # The order is marked; partitions and order lose their subjects, are made anew, and are opened.
    assert kills == 1 + 3 * (SEVERAL_PARTITIONS + 1)
    async with connected(servers.nats_url, name="test") as connection:
        assert max(await ledger_streams(connection)) == 2
    assert (await recorded(servers))[:EVENTS] == before == await recorded(servers, 1)


async def test_an_empty_ledger_is_fenced_filled_and_opened_wherever_it_is_killed(
    servers: Servers, archive: Path, empty: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await interrupted(empty, archive, monkeypatch) == 1 + 2 * (SEVERAL_PARTITIONS + 1)
    assert await recorded(empty) == await recorded(servers)
    async with connected(empty.nats_url, name="test") as connection:
        assert list(await ledger_streams(connection)) == [1]


@pytest.mark.parametrize("lacking", ["a partition", "the order", "the order of the last ones"])
async def test_what_an_interrupted_import_left_in_partitions_is_not_recorded_again(
    servers: Servers, archive: Path, empty: Servers, monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    """The next one passes them by, also where it records smaller pieces of the archive at a time."""
    with monkeypatch.context() as patched, suppress(asyncio.CancelledError):
        fail_without(patched, lacking)
        await bring_back(empty, archive)
    monkeypatch.setattr(log_restore, "MESSAGES_PER_PUBLISH", CHUNK // 4)
    assert await bring_back(empty, archive) == (1, EVENTS, 0)
    assert await recorded(empty) == await recorded(servers)


def fail_without(patched: pytest.MonkeyPatch, lacking: str) -> None:
    """End the import before what is lacking is recorded."""
    start, record = FillingPublisher.start, FillingPublisher._record

    async def started(self: FillingPublisher) -> None:
        await start(self)
        really, times = self._ordering.publish, EVENTS // CHUNK if lacking == "the order of the last ones" else 1

        async def refused(messages: Sequence[Outgoing]) -> list[Receipt]:
            nonlocal times
            times -= 1
            if not times:
                raise asyncio.CancelledError
            return await really(messages)

        patched.setattr(self._ordering, "publish", refused)

    async def partly(self: FillingPublisher, partition: int, *rest: Any) -> None:
        if partition != partition_of(SUBJECT.decode(), SEVERAL_PARTITIONS):
            await record(self, partition, *rest)

    if lacking == "a partition":
        patched.setattr(FillingPublisher, "_record", partly)
    patched.setattr(FillingPublisher, "start", started)


async def test_who_records_something_while_the_first_partitions_are_fenced_is_kept(
    servers: Servers, archive: Path, empty: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger was empty when the import began, and is not when it takes the subjects away."""
    came: list[bytes] = []

    def publish_once() -> None:
        if not came:
            came.append(SUBJECT)
            publish_raw(empty.nats_url, SUBJECT, b"{}", SEVERAL_PARTITIONS)

    with monkeypatch.context() as patched:
        after_a_change(patched, publish_once)
        assert await bring_back(empty, archive) == (2, EVENTS, 1)
    assert await recorded(empty, 1) == [(SUBJECT.decode(), 1)]
    assert (await recorded(empty))[:EVENTS] == await recorded(servers)


async def test_without_one_of_its_partitions_nothing_is_begun(servers: Servers, archive: Path, empty: Servers) -> None:
    assert nats_answer(empty.nats_url, "$JS.API.STREAM.DELETE.LEDGER_1_P2OF4")["success"]
    before = nats_answer(empty.nats_url, "$JS.API.STREAM.INFO.LEDGER_1")["config"]
    with pytest.raises(LogLostError, match=r"has no stream LEDGER_1_P2OF4. Restore its stream from a backup"):
        await bring_back(empty, archive)
    assert nats_answer(empty.nats_url, "$JS.API.STREAM.INFO.LEDGER_1")["config"] == before
