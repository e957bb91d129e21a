"""`gpuledger log backup` and `log restore`: the log comes back exactly, or not at all."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from gpuledger.events.position import Offset, events_up_to, is_after, is_at_or_after
from gpuledger.ledger.api import Outgoing
from gpuledger.ledger.connect import connected
from gpuledger.ledger.errors import NoLedgerError, PermissionDeniedError, RestoreInterruptedError, StreamConfigError
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.ledger.partitions import partition_streams
from gpuledger.ledger.permissions import Role
from gpuledger.ledger.restoring import begin_generation
from gpuledger.ledger.snapshot import ABOUT, DATA, load_stream
from gpuledger.ledger.stream import create_ledger
from gpuledger.local.servers.nats import NatsServer
from gpuledger.runtime.settings import ANONYMOUS
from gpuledger.tools.errors import RequestError, ToolError
from gpuledger.tools.log_backup import back_up, bring_back
from gpuledger.tools.preparation import prepare_ledger
from gpuledger.tools.reporting import SILENT
from support.ledgers import everything, jetstream_ledger, numbers_of, outgoing
from support.roles import role_server, url_of
from support.servers import nats_answer, nats_server


@pytest.fixture
def empty_nats() -> Iterator[NatsServer]:
    """Another server, with nothing in it."""
    with nats_server() as server:
        yield server


async def save(url: str, folder: Path) -> list[tuple[str, Offset]]:
    return [(one.name, one.last_sequence) for one in await back_up(url, ANONYMOUS, folder, SILENT)]


async def restore(url: str, folder: Path) -> list[tuple[str, Offset]]:
    return [(one.name, one.last_sequence) for one in await bring_back(url, ANONYMOUS, folder, SILENT)]


async def test_a_log_comes_back_with_positions_times_and_ids(
    clean_nats_url: str, empty_nats: NatsServer, tmp_path: Path
) -> None:
    folder = tmp_path / "copy"
    async with jetstream_ledger(clean_nats_url) as ledger:
        await ledger.publish_many([outgoing(number) for number in range(5_000)])
        before = await everything(ledger)
        assert await save(clean_nats_url, folder) == [("LEDGER_1", 5_000)]
    assert await restore(empty_nats.url, folder) == [("LEDGER_1", 5_000)]
    configs = [nats_answer(url, "$JS.API.STREAM.INFO.LEDGER_1")["config"] for url in (clean_nats_url, empty_nats.url)]
    assert configs[0] == configs[1]
    async with jetstream_ledger(empty_nats.url) as ledger:
        assert await everything(ledger) == before
        assert (await ledger.publish(outgoing(4_999))).sequence in {5_000, 5_001}
        assert is_after((await ledger.publish(outgoing(5_000))).sequence, 5_000)


async def test_a_copy_is_taken_while_others_publish(
    clean_nats_url: str, empty_nats: NatsServer, tmp_path: Path
) -> None:
    async with jetstream_ledger(clean_nats_url) as ledger:
        await ledger.publish_many([outgoing(number) for number in range(20_000)])
        publishing = asyncio.create_task(ledger.publish_many([outgoing(number) for number in range(20_000, 40_000)]))
        ((_, last),) = await save(clean_nats_url, tmp_path / "copy")
        await publishing
    await restore(empty_nats.url, tmp_path / "copy")
    async with jetstream_ledger(empty_nats.url) as ledger:
        assert numbers_of(await everything(ledger)) == list(range(events_up_to(last)))
    assert is_at_or_after(last, 20_000)


async def test_partitions_come_back_with_their_order(
    clean_nats_url: str, empty_nats: NatsServer, tmp_path: Path
) -> None:
    """Nobody finds a ledger before the order is back; what was recorded while the copy was taken is there or is not."""
    folder = tmp_path / "copy"
    async with jetstream_ledger(clean_nats_url, partitions=4) as ledger:
        await ledger.publish_many([of(number) for number in range(200)])
        before = await everything(ledger)
        publishing = asyncio.create_task(ledger.publish_many([of(number) for number in range(200, 400)]))
        copied = await save(clean_nats_url, folder)
        await publishing
        after = await everything(ledger)
    assert [name for name, _ in copied] == ["LEDGER_1", *partition_streams("LEDGER_1", 4)]
    async with connected(empty_nats.url, name="test") as connection:
        await load_stream(connection, folder / "LEDGER_1_P2OF4", lambda _: None)
    with pytest.raises(NoLedgerError):
        async with connect_ledger(empty_nats.url, name="reader"):
            pass
    assert await restore(empty_nats.url, folder) == [*copied[1:], copied[0]]
    async with jetstream_ledger(empty_nats.url) as ledger:
        assert ledger.partitions == 4
        restored = await everything(ledger)
        assert restored[:200] == before
        assert restored == after[: len(restored)]
        assert is_after((await ledger.publish(of(500))).sequence, len(restored))
    (folder / "LEDGER_1_P3OF4" / ABOUT).unlink()
    with pytest.raises(StreamConfigError, match="holds no complete copy"):
        await restore(empty_nats.url, folder)


def of(number: int) -> Outgoing:
    """A message of one of ten nodes, which are in all of four partitions."""
    return Outgoing(f"ledger.node.n{number % 10}.device.d.happened", f"e-{number}", str(number).encode())


async def two_generations(url: str, folder: Path) -> None:
    async with jetstream_ledger(url) as ledger:
        await ledger.publish_many([outgoing(number) for number in range(100)])
    async with connected(url, name="test") as connection:
        await begin_generation(connection)
    async with jetstream_ledger(url) as ledger:
        await ledger.publish_many([outgoing(number) for number in range(200)])
    assert await save(url, folder) == [("LEDGER_1", 100), ("LEDGER_2", 200)]


async def test_a_restore_that_was_interrupted_goes_on(
    clean_nats_url: str, empty_nats: NatsServer, tmp_path: Path
) -> None:
    await two_generations(clean_nats_url, tmp_path / "copy")
    async with connected(empty_nats.url, name="test") as connection:
        await load_stream(connection, tmp_path / "copy" / "LEDGER_1", lambda _: None)
    with pytest.raises(RestoreInterruptedError, match="a restore was interrupted"):
        async with connect_ledger(empty_nats.url, name="reader"):
            pass
    async with connected(empty_nats.url, name="test") as connection:
        with pytest.raises(RestoreInterruptedError, match="a restore was interrupted"):
            await create_ledger(connection, "another")
    with pytest.raises(RestoreInterruptedError, match="a restore was interrupted"):
        await prepare_ledger(empty_nats.url, "postgresql://nobody@127.0.0.1:1/none", may_alter=True)
    assert await restore(empty_nats.url, tmp_path / "copy") == [("LEDGER_1", 100), ("LEDGER_2", 200)]
    async with jetstream_ledger(empty_nats.url) as ledger:
        assert (ledger.generation, await ledger.head()) == (2, 200)


async def test_no_ledger_is_replaced(clean_nats_url: str, tmp_path: Path) -> None:
    async with jetstream_ledger(clean_nats_url) as ledger:
        await ledger.publish(outgoing(0))
        await save(clean_nats_url, tmp_path / "copy")
        await ledger.publish(outgoing(1))
        with pytest.raises(ToolError, match=r"has a ledger; a restore never replaces one\. Stop its server and move"):
            await restore(clean_nats_url, tmp_path / "copy")
        assert await ledger.head() == 2


async def test_a_copy_that_is_damaged_or_cut_off_is_refused(
    clean_nats_url: str, empty_nats: NatsServer, tmp_path: Path
) -> None:
    await two_generations(clean_nats_url, tmp_path / "copy")
    stream = tmp_path / "copy" / "LEDGER_2"
    whole, about = (stream / DATA).read_bytes(), (stream / ABOUT).read_bytes()
    for data in (whole[:-1], whole + b"x", whole[:100] + bytes((whole[100] ^ 1,)) + whole[101:]):
        (stream / DATA).write_bytes(data)
        with pytest.raises(StreamConfigError, match=r"is damaged: its data are not what was written\. Take another"):
            await restore(empty_nats.url, tmp_path / "copy")
    (stream / DATA).write_bytes(whole)
    for text in (b"", b"{}", orjson.dumps({"config": {"name": "LEDGER_2"}, "state": None, "sha256": ""})):
        (stream / ABOUT).write_bytes(text)
        with pytest.raises(StreamConfigError, match="holds no complete copy"):
            await restore(empty_nats.url, tmp_path / "copy")
    (stream / ABOUT).write_bytes(about)
    assert "streams" not in nats_answer(empty_nats.url, "$JS.API.STREAM.NAMES") or not nats_answer(
        empty_nats.url, "$JS.API.STREAM.NAMES"
    ).get("streams")
    await restore(empty_nats.url, tmp_path / "copy")


async def test_a_folder_that_is_there_or_holds_nothing_is_refused(clean_nats_url: str, tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="has no ledger"):
        await save(clean_nats_url, tmp_path / "copy")
    with pytest.raises(RequestError, match="holds no copy of a ledger"):
        await restore(clean_nats_url, tmp_path)
    async with jetstream_ledger(clean_nats_url):
        with pytest.raises(RequestError, match=r"exists\. Choose another name"):
            await save(clean_nats_url, tmp_path)


async def test_streams_are_copied_by_the_operator_alone(tmp_path: Path) -> None:
    with role_server() as server, role_server() as empty:
        async with jetstream_ledger(url_of(server, Role.OPERATOR)):
            pass
        with pytest.raises(PermissionDeniedError, match=r"publish to \$js\.api\.stream\.snapshot\.ledger_1\."):
            await save(url_of(server, Role.SERVICES), tmp_path / "copy")
        await save(url_of(server, Role.OPERATOR), tmp_path / "copies")
        with pytest.raises(PermissionDeniedError, match=r"publish to \$js\.api\.stream\.restore\.ledger_1\."):
            await restore(url_of(empty, Role.READER), tmp_path / "copies")
        assert await restore(url_of(empty, Role.OPERATOR), tmp_path / "copies") == [("LEDGER_1", 0)]
