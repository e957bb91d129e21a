"""What only a ledger on a server can suffer: kills, lost consumers, foreign streams, archived generations."""

import asyncio
import logging
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import nats
import pytest
from nats.js import JetStreamContext
from nats.js.api import StreamConfig
from nats.js.errors import APIError

from gpuledger.events.subjects import ALL
from gpuledger.ledger.api import Expected, Outgoing
from gpuledger.ledger.connect import connected
from gpuledger.ledger.errors import (
    GenerationError,
    LedgerError,
    LedgerUnavailableError,
    PublishError,
    StreamConfigError,
)
from gpuledger.ledger.jetstream import JetStreamLedger, connect_ledger
from gpuledger.ledger.restoring import begin_generation
from gpuledger.ledger.stream import create_ledger, stream_config
from gpuledger.local.servers.nats import NatsServer
from support.ledgers import DEADLINE_S, everything, jetstream_ledger, new_ledger, numbers_of, outgoing, read_count
from support.waiting import eventually

EVENTS = 5000
KILLS_AT = (1000, 2500, 4000)
STREAM = "LEDGER_1"


@asynccontextmanager
async def raw(url: str) -> AsyncIterator[JetStreamContext]:
    """The server seen past the ledger, as an operator's tool would."""
    client = await nats.connect(url)
    try:
        yield client.jetstream()
    finally:
        await client.close()


@pytest.fixture
async def ledger(clean_nats_url: str) -> AsyncIterator[JetStreamLedger]:
    async with jetstream_ledger(clean_nats_url) as opened:
        yield opened


async def test_kills_of_the_server_lose_nothing_double_nothing_and_keep_the_order(fresh_nats: NatsServer) -> None:
    sent = [outgoing(number) for number in range(EVENTS)]
    async with (
        new_ledger(fresh_nats.url, name="publisher") as writing,
        new_ledger(fresh_nats.url, name="reader") as following,
        following.read() as reader,
    ):
        publishing = asyncio.create_task(writing.publish_many(sent))
        seen: list[int] = []
        for kill_at in (*KILLS_AT, EVENTS):
            seen += numbers_of(await read_count(reader, kill_at - len(seen)))
            if kill_at < EVENTS:
                fresh_nats.kill()
                fresh_nats.start()
        receipts = await asyncio.wait_for(publishing, DEADLINE_S)
        assert seen == list(range(EVENTS))
        assert [receipt.sequence for receipt in receipts] == list(range(1, EVENTS + 1))
        assert numbers_of(await everything(writing)) == list(range(EVENTS))


async def test_expectations_hold_across_a_kill(fresh_nats: NatsServer) -> None:
    device = "ledger.*.*.device.d.>"
    async with new_ledger(fresh_nats.url, name="publisher") as ledger:
        for number in range(60):
            publishing = asyncio.create_task(ledger.publish(outgoing(number), Expected(device, number)))
            if number % 20 == 10:
                await asyncio.sleep(0)
                fresh_nats.kill()
                fresh_nats.start()
            assert (await publishing).sequence == number + 1
        assert numbers_of(await everything(ledger)) == list(range(60))


async def test_a_publisher_gives_up_within_its_bound(fresh_nats: NatsServer) -> None:
    async with (
        new_ledger(fresh_nats.url, name="patient") as patient,
        jetstream_ledger(fresh_nats.url, publish_timeout_s=0.5) as ledger,
    ):
        await patient.publish(outgoing(1))
        fresh_nats.kill()
        with pytest.raises(PublishError, match=r"not acknowledged within 0\.5 s"):
            await ledger.publish(outgoing(2))
        fresh_nats.start()
        await eventually(lambda: records(ledger, 3))
        assert numbers_of(await everything(ledger))[:1] == [1]


async def records(ledger: JetStreamLedger, number: int) -> bool:
    try:
        await ledger.publish(outgoing(number))
    except LedgerError:
        return False
    return True


class Deaf:
    """A task that does not hear its cancellation."""

    def __init__(self, task: "asyncio.Task[None]") -> None:
        self.done, self.cancelled = task.done, task.cancelled

    def cancel(self) -> None:
        pass


async def test_a_closed_connection_tries_no_more_though_the_cancellation_got_lost(fresh_nats: NatsServer) -> None:
    async with connected(fresh_nats.url, name="test") as connection:
        client = connection.client
        fresh_nats.kill()

        async def tries() -> bool:
            return client._reconnection_task is not None

        await eventually(tries)
        trying = client._reconnection_task
        assert trying is not None
        client._reconnection_task = Deaf(trying)  # type: ignore[assignment] # what the library asks of a task
    done, _ = await asyncio.wait([trying], timeout=DEADLINE_S)
    assert done


async def test_a_reader_gives_up_within_its_bound(fresh_nats: NatsServer) -> None:
    async with jetstream_ledger(fresh_nats.url, restore_timeout_s=0.3) as ledger, ledger.read() as reader:
        await ledger.publish(outgoing(1))
        await read_count(reader, 1)
        fresh_nats.kill()
        # The second is the message where a request was under way.
        with pytest.raises(LedgerUnavailableError, match=r"Start it again|does not answer .* running\?"):
            await asyncio.wait_for(reader.next_batch(), DEADLINE_S)


async def test_a_reader_survives_the_loss_of_its_consumer(ledger: JetStreamLedger, clean_nats_url: str) -> None:
    async with raw(clean_nats_url) as jetstream, ledger.read() as reader:
        seen: list[int] = []
        for start in range(0, 3000, 1000):
            await ledger.publish_many([outgoing(number) for number in range(start, start + 500)])
            for consumer in await jetstream.consumers_info(STREAM):
                await jetstream.delete_consumer(STREAM, consumer.name)
            await ledger.publish_many([outgoing(number) for number in range(start + 500, start + 1000)])
            seen += numbers_of(await read_count(reader, start + 1000 - len(seen)))
        assert seen == list(range(3000))


async def test_a_closed_reader_leaves_no_consumer(ledger: JetStreamLedger, clean_nats_url: str) -> None:
    await ledger.publish(outgoing(1))
    async with ledger.read() as reader:
        await read_count(reader, 1)
    await everything(ledger)

    async with raw(clean_nats_url) as jetstream:

        async def no_consumers() -> bool:
            return not await jetstream.consumers_info(STREAM)

        await eventually(no_consumers)


async def test_a_reader_whose_flow_is_held_back_still_gets_everything(ledger: JetStreamLedger) -> None:
    large = [outgoing(number)._replace(data=b"%d%s" % (number, b" " * 100_000)) for number in range(400)]
    await ledger.publish_many(large)
    async with ledger.read() as reader:
        numbers = numbers_of(await reader.next_batch(limit=1))
        await ledger.publish_many([outgoing(number) for number in range(400, 500)])
        while len(numbers) < 500:
            numbers += numbers_of(await reader.next_batch(limit=10))
    assert numbers == list(range(500))


async def test_the_server_denies_purging_and_deleting(ledger: JetStreamLedger, clean_nats_url: str) -> None:
    await ledger.publish(outgoing(1))
    async with raw(clean_nats_url) as jetstream:
        with pytest.raises(APIError):
            await jetstream.purge_stream(STREAM)
        with pytest.raises(APIError):
            await jetstream.delete_msg(STREAM, 1)
        with pytest.raises(APIError):
            await jetstream.update_stream(stream_config(1).evolve(deny_purge=False))
    assert numbers_of(await everything(ledger)) == [1]


async def test_opening_again_finds_what_is_there(ledger: JetStreamLedger, clean_nats_url: str) -> None:
    await ledger.publish(outgoing(1))
    async with jetstream_ledger(clean_nats_url) as again:
        assert again.generation == 1
        assert numbers_of(await everything(again)) == [1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"deny_purge": False}, "deny_purge is False, not True"),
        ({"deny_delete": False}, "deny_delete is False, not True"),
        ({"max_age": 3600}, "max_age is 3600"),
        ({"max_msgs_per_subject": 5}, "max_msgs_per_subject is 5"),
        ({"subjects": ["ledger.svc.>"]}, "subjects is"),
        ({"storage": "memory"}, "storage is memory, not file"),
        ({"discard": "old"}, "discard is old, not new"),
    ],
)
async def test_a_stream_that_could_lose_events_is_refused(
    clean_nats_url: str, change: dict[str, object], words: str
) -> None:
    async with raw(clean_nats_url) as jetstream:
        await jetstream.add_stream(stream_config(1).evolve(**change))
    with pytest.raises(StreamConfigError, match=words):
        async with jetstream_ledger(clean_nats_url):
            pass


async def test_another_stream_on_our_subjects_is_refused(clean_nats_url: str) -> None:
    async with raw(clean_nats_url) as jetstream:
        await jetstream.add_stream(StreamConfig(name="OTHER", subjects=[ALL]))
    with pytest.raises(StreamConfigError, match="Free the subject"):
        async with jetstream_ledger(clean_nats_url):
            pass


async def test_a_server_without_a_cluster_keeps_one_replica(clean_nats_url: str) -> None:
    async with raw(clean_nats_url) as jetstream, connected(clean_nats_url, name="migrate") as connection:
        with pytest.raises(StreamConfigError, match=r"with 3 replicas: .*non-clustered.*ask for fewer, or add servers"):
            await create_ledger(connection, "the-ledger", 3)
        await create_ledger(connection, "the-ledger")
        assert (await jetstream.stream_info("LEDGER_1")).config.num_replicas == 1
        with pytest.raises(StreamConfigError, match=r"with 3 replicas: .*ask for fewer, or add servers"):
            await create_ledger(connection, "the-ledger", 3)


async def test_a_server_that_is_too_old_is_refused(clean_nats_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuledger.ledger.connect.SERVER_VERSION_MIN", (99, 0))
    with pytest.raises(LedgerUnavailableError, match=r"has version 2\.[0-9.]+\. Use 99\.0 or newer"):
        async with connect_ledger(clean_nats_url, name="test"):
            pass


async def test_a_new_generation_keeps_the_old_one_readable(clean_nats_url: str) -> None:
    async with jetstream_ledger(clean_nats_url) as old:
        await old.publish_many([outgoing(number) for number in range(10)])
        async with connected(clean_nats_url, name="restore") as connection:
            assert (await begin_generation(connection)).number == 2
        with pytest.raises(GenerationError, match="LEDGER_2"):
            await old.publish(outgoing(10))
        for count in (1, 20):
            with pytest.raises(GenerationError, match="another stream"):
                await old.publish_many([outgoing(number) for number in range(count)], Expected(ALL, 10))
        assert numbers_of(await everything(old, subject_filter="ledger.*.*.device.>")) == list(range(10))
    async with jetstream_ledger(clean_nats_url) as new:
        assert new.generation == 2
        assert numbers_of(await everything(new)) == [10]
    async with connect_ledger(clean_nats_url, name="test", generation=1) as archived:
        assert numbers_of(await everything(archived)) == list(range(10))
        with pytest.raises(GenerationError, match="archived"):
            await archived.publish(outgoing(11))


async def test_an_unknown_generation_is_an_error(clean_nats_url: str) -> None:
    with pytest.raises(GenerationError, match="LEDGER_7"):
        async with connect_ledger(clean_nats_url, name="test", generation=7):
            pass


async def test_a_server_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(LedgerUnavailableError, match=r"^Cannot reach NATS at nats://127.0.0.1:1: .*NATS_URL\.$"):
        async with connect_ledger("nats://user:secret@127.0.0.1:1", name="test", connect_timeout_s=0.3):
            pass


@pytest.mark.parametrize(
    "url", ["", "localhost", "http://localhost:4222", "nats://", "nats://a:b:c", "nats://a,b", "nats://[::1"]
)
async def test_a_malformed_url_is_one_sentence(url: str) -> None:
    with pytest.raises(LedgerUnavailableError, match=r"^Cannot reach NATS at .*NATS_URL\.$"):
        async with connect_ledger(url, name="test", connect_timeout_s=0.3):
            pass


@pytest.mark.parametrize(
    "password", ["hidden/secret", "hidden#secret", "hidden?secret", "hidden,secret", "hidden[secret", "s@hidden/secret"]
)
async def test_a_password_that_makes_the_url_malformed_is_not_shown(password: str) -> None:
    with pytest.raises(
        LedgerUnavailableError, match=r"^Cannot reach NATS at nats://127\.0\.0\.1:1: .*NATS_URL\.$"
    ) as caught:
        async with connect_ledger(f"nats://user:{password}@127.0.0.1:1", name="test", connect_timeout_s=0.3):
            pass
    assert "secret" not in str(caught.value)
    assert "hidden" not in str(caught.value)


async def test_the_error_of_a_wrong_password_does_not_show_it(nats_url: str) -> None:
    wrong = nats_url.replace("@", "-wrong@")
    with pytest.raises(LedgerUnavailableError, match=r"(?i)authorization") as caught:
        async with connect_ledger(wrong, name="test", connect_timeout_s=2.0):
            pass
    assert "-wrong" not in str(caught.value)


async def test_a_server_that_hangs_up_may_refuse_us() -> None:
    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"max_payload": 1048576}\r\n')
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()  # with this option the other side reads that the connection was reset

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(LedgerUnavailableError, match="refuses the authorization"):
            async with connect_ledger(f"nats://127.0.0.1:{port}", name="test", connect_timeout_s=0.5):
                pass


async def test_a_message_beyond_the_servers_bound_costs_only_itself(ledger: JetStreamLedger) -> None:
    with pytest.raises(PublishError, match="raise max_payload"):
        await ledger.publish(outgoing(1)._replace(data=b" " * 1024 * 1024))
    await ledger.publish(outgoing(2))
    assert numbers_of(await everything(ledger)) == [2]


async def test_an_invalid_subject_is_refused(ledger: JetStreamLedger) -> None:
    with pytest.raises(PublishError, match="subject"):
        await ledger.publish(Outgoing("ledger.svc.a\r\nPUB x 0", "id", b""))
    await ledger.publish(outgoing(2))


async def test_publishing_where_no_stream_listens_is_an_error(clean_nats_url: str) -> None:
    async with jetstream_ledger(clean_nats_url, publish_timeout_s=2.0) as ledger:
        with pytest.raises(PublishError, match="no stream takes the subject"):
            await ledger.publish(Outgoing("elsewhere", "id", b""))


async def test_a_closed_ledger_is_unavailable(clean_nats_url: str) -> None:
    async with jetstream_ledger(clean_nats_url) as ledger:
        pass
    with pytest.raises(LedgerUnavailableError, match="closed"):
        await ledger.publish(outgoing(1))
    with pytest.raises(LedgerUnavailableError, match="closed"):
        await ledger.head()


async def test_a_lost_connection_is_logged_not_printed(
    fresh_nats: NatsServer, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO, "gpuledger.ledger")
    async with jetstream_ledger(fresh_nats.url) as ledger:
        fresh_nats.kill()
        fresh_nats.start()
        await ledger.publish(outgoing(1))
    assert "is back" in caplog.text
    assert {record.name for record in caplog.records} <= {"gpuledger.ledger"}
    assert "Traceback" not in caplog.text + capsys.readouterr().err
