"""The permissions of an agent on real servers: enough for all that it does, and for nothing else."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import nats
import pytest
from nats.aio.client import Client

from gpuledger.events.publishing import Rule
from gpuledger.events.rule import RuleEnforced
from gpuledger.ledger import edge as edge_ledger
from gpuledger.ledger.api import Outgoing
from gpuledger.ledger.edge import connect_edge
from gpuledger.ledger.errors import LedgerUnavailableError, PermissionDeniedError
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.ledger.permissions import desired_devices_subject, inbox_prefix, node_labels_subject
from gpuledger.ledger.queries import StreamQueries
from support.edges import LAYOUTS, ConfinedServer, confined_server
from support.events import event, outgoing
from support.ledgers import DEADLINE_S, everything, jetstream_ledger
from support.servers import delete_streams

NODE, OTHER = "gpu-01.example.com", "gpu-02.example.com"
WRITTEN = "ledger.node.gpu-01%2Eexample%2Ecom"
LABELS = node_labels_subject(NODE)
WANTED, OTHERS_WANTED = desired_devices_subject(NODE), desired_devices_subject(OTHER)

NOT_PUBLISHED = (
    "ledger.node.gpu-02%2Eexample%2Ecom.node.gpu-02%2Eexample%2Ecom.devices-observed",
    "ledger.node.gpu-01.example.com.x",
    "ledger.svc.pools.node.gpu-01%2Eexample%2Ecom.devices-wanted",
    "ledger.svc.import.device.d.inserted",
    "$JS.API.INFO",
    "$JS.API.STREAM.LIST",
    "$JS.API.STREAM.INFO.LEDGER_1",
    "$JS.API.STREAM.CREATE.MINE",
    "$JS.API.STREAM.UPDATE.LEDGER_1",
    "$JS.API.STREAM.DELETE.LEDGER_1",
    "$JS.API.STREAM.PURGE.LEDGER_1",
    "$JS.API.STREAM.MSG.DELETE.LEDGER_1",
    "$JS.API.STREAM.MSG.GET.LEDGER_1",
    "$JS.API.STREAM.SNAPSHOT.LEDGER_1",
    "$JS.API.STREAM.RESTORE.LEDGER_1",
    "$JS.API.CONSUMER.CREATE.LEDGER_1",
    "$JS.API.CONSUMER.CREATE.LEDGER_1.mine.ledger.>",
    "$JS.API.CONSUMER.DURABLE.CREATE.LEDGER_1.mine",
    "$JS.API.CONSUMER.MSG.NEXT.LEDGER_1.mine",
    "$JS.API.CONSUMER.DELETE.LEDGER_1.mine",
    "$JS.API.DIRECT.GET.LEDGER_1",
    f"$JS.API.DIRECT.GET.LEDGER_1.{OTHERS_WANTED}",
    f"$JS.API.DIRECT.GET.LEDGER_1.{node_labels_subject(OTHER)}",
    "$JS.API.DIRECT.GET.LEDGER_1.ledger.svc.watchers.node.gpu-01%2Eexample%2Ecom.observed",
    "$JS.API.DIRECT.GET.LEDGER_1.ledger.svc.pools.pool.p.changed",
    "$JS.ACK.LEDGER_1.mine.1.1.1.1.1",
    "$JS.FC.LEDGER_1.mine.x",
    "$SYS.REQ.SERVER.PING",
    "_INBOX.x",
    f"{inbox_prefix(NODE)}.x",
    f"{inbox_prefix(OTHER)}.x",
    "archived.1.x",
    "anything",
)

NOT_HEARD = (
    ">",
    "ledger.>",
    f"{WRITTEN}.>",
    "ledger.node.gpu-02%2Eexample%2Ecom.>",
    OTHERS_WANTED,
    LABELS,
    "ledger.svc.pools.node.*.devices-wanted",
    "_INBOX.>",
    "_INBOX_node.>",
    "_INBOX_node.*.>",
    f"{inbox_prefix(OTHER)}.>",
    "$JS.>",
    "$JS.API.>",
    "$SYS.>",
    "*.*",
)


def fact(number: int, written: str = WRITTEN) -> Outgoing:
    return Outgoing(f"{written}.device.d.happened", f"{written}-{number}", str(number).encode())


def orders(number: int, subject: str = WANTED) -> Outgoing:
    return Outgoing(subject, f"{subject}-{number}", str(number).encode())


def denied_to(what: str, subject: str) -> str:
    """The client library's message about it."""
    return f'nats: permissions violation for {what} to "{subject.lower()}"'


async def has_come(event: asyncio.Event) -> None:
    async with asyncio.timeout(DEADLINE_S):
        await event.wait()


@pytest.fixture(scope="module", params=LAYOUTS)
def running(request: pytest.FixtureRequest) -> Iterator[ConfinedServer]:
    with confined_server(request.param, [NODE, OTHER]) as server:
        yield server


@pytest.fixture
def server(running: ConfinedServer) -> ConfinedServer:
    delete_streams(running.url)
    return running


@pytest.fixture
async def ledger(server: ConfinedServer) -> AsyncIterator[JetStreamLedger]:
    async with jetstream_ledger(server.url) as opened:
        yield opened


class Intruder:
    """Somebody with an agent's credentials and a client that does what it is told."""

    def __init__(self) -> None:
        self.client = Client()
        self.recorded: list[str] = []

    async def connect(self, url: str) -> None:
        async def on_error(error: Exception) -> None:
            self.recorded.append(str(error))

        await self.client.connect(url, error_cb=on_error, inbox_prefix=inbox_prefix(NODE))

    async def settle(self) -> None:
        """Return when the server has had its say; the library's ping may overtake what was sent before it."""
        await self.client.flush()
        await self.client.flush()


@pytest.fixture
async def intruder(server: ConfinedServer, ledger: JetStreamLedger) -> AsyncIterator[Intruder]:
    await ledger.publish_many([orders(1), orders(1, OTHERS_WANTED)])
    intruder = Intruder()
    await intruder.connect(server.agent_url(NODE))
    yield intruder
    await intruder.client.close()


async def test_an_agent_may_do_all_that_it_does(server: ConfinedServer, ledger: JetStreamLedger) -> None:
    poke = asyncio.Event()
    url = server.agent_url(NODE)
    async with connect_edge(url, name="agent", node=NODE) as edge, edge.notified(WANTED, poke.set):
        assert await edge.newest(WANTED) is None
        assert (await edge.publish(fact(0))).sequence == 1
        receipts = await edge.publish_many([fact(number) for number in range(1, 2_500)])
        assert [receipt.sequence for receipt in receipts] == list(range(2, 2_501))
        assert await edge.publish(fact(7)) == (8, True)
        await ledger.publish(orders(1))
        await has_come(poke)
        newest = await edge.newest(WANTED)
        assert newest is not None
        assert (newest.data, newest.sequence) == (b"1", 2_501 if ledger.partitions == 1 else 1)


async def test_an_agent_reads_the_labels_of_its_node(server: ConfinedServer, ledger: JetStreamLedger) -> None:
    async with connect_edge(server.agent_url(NODE), name="agent", node=NODE) as edge:
        assert await edge.newest(LABELS) is None
        await ledger.publish_many([orders(1, LABELS), orders(2, LABELS)])
        newest = await edge.newest(LABELS)
        assert newest is not None
        assert newest.data == b"2"
        with pytest.raises(PermissionDeniedError, match="does not let us publish to"):
            await edge.newest(node_labels_subject(OTHER))


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_it_may_after_the_server_was_away_as_well(layout: str) -> None:
    poke = asyncio.Event()
    with confined_server(layout, [NODE]) as server:
        url = server.agent_url(NODE)
        async with (
            jetstream_ledger(server.url) as ledger,
            connect_edge(url, name="agent", node=NODE) as edge,
            edge.notified(WANTED, poke.set),
        ):
            await edge.publish(fact(0))
            server.kill()
            await has_come(poke)
            await asyncio.to_thread(server.start)
            receipts = await edge.publish_many([fact(number) for number in range(100)])
            assert receipts[0] == (1, True)
            poke.clear()
            await ledger.publish(orders(1))
            await has_come(poke)
            newest = await edge.newest(WANTED)
            assert newest is not None
            assert newest.data == b"1"


def allocation(number: int) -> Outgoing:
    return Outgoing(f"{WRITTEN}.allocation.n%2Fns%2Fp%2Fc.observed", f"allocation-{number}", str(number).encode())


SHARED = f"{WRITTEN}.allocation.~.observed"
RULE = outgoing(event(RuleEnforced(), Rule.SHARED_SUBJECTS, source="/services/sources"))


async def test_names_share_a_subject_once_the_agent_learns_that_they_may(
    server: ConfinedServer, ledger: JetStreamLedger
) -> None:
    async with connect_edge(server.agent_url(NODE), name="agent", node=NODE) as edge:
        await edge.publish_many([allocation(1), fact(1)])
        await ledger.publish(RULE)
        await edge.publish_many([allocation(2), fact(2)])
        await edge.publish(allocation(3))
        assert (await edge.publish(allocation(1))).duplicate
    found = [one.subject for one in await everything(ledger, subject_filter=f"{WRITTEN}.>")]
    assert found == [allocation(1).subject, fact(1).subject, SHARED, fact(2).subject, SHARED]


async def test_credentials_of_before_there_was_the_rule_go_on_with_names(
    server: ConfinedServer, ledger: JetStreamLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server refuses the question, for which nothing is lost and no time passes."""
    monkeypatch.setattr(edge_ledger, "SHARED_SUBJECTS_SUBJECT", "ledger.svc.sources.rule.publishers.enforced")
    await ledger.publish(RULE)
    async with (
        connect_edge(server.agent_url(NODE), name="agent", node=NODE) as edge,
        edge.notified(WANTED, lambda: None),
        asyncio.timeout(DEADLINE_S),
    ):
        for number in (1, 2):
            await edge.publish_many([allocation(number), fact(number)])
        assert await edge.newest(WANTED) is None
    found = [one.subject for one in await everything(ledger)]
    assert found == [RULE.subject, *[allocation(1).subject, fact(1).subject] * 2]


async def test_an_account_without_the_import_is_asked_a_few_times(
    server: ConfinedServer, ledger: JetStreamLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def no_responders(_: StreamQueries, _stream: str, subject: str) -> None:
        asked.append(subject)
        raise LedgerUnavailableError("nobody responds")

    async with connect_edge(server.agent_url(NODE), name="agent", node=NODE) as edge:
        monkeypatch.setattr(StreamQueries, "newest", no_responders)
        for number in range(2 * edge_ledger.RULE_QUERIES_FAILED_MAX):
            await edge.publish_many([allocation(number), fact(number)])
    assert asked == [RULE.subject] * edge_ledger.RULE_QUERIES_FAILED_MAX
    assert SHARED not in {one.subject for one in await everything(ledger)}


@pytest.mark.one_stream("looks at a message of the stream")
async def test_batches_are_recorded_as_such(server: ConfinedServer, ledger: JetStreamLedger) -> None:
    async with connect_edge(server.agent_url(NODE), name="agent", node=NODE) as edge:
        await edge.publish_many([fact(number) for number in range(50)])
    client = await nats.connect(server.url)
    message = await client.jetstream().get_msg("LEDGER_1", 50)
    await client.close()
    assert (message.headers or {})["Nats-Batch-Sequence"] == "50"


async def test_an_agent_may_publish_nothing_else(intruder: Intruder, ledger: JetStreamLedger) -> None:
    head = await ledger.head()
    for subject in NOT_PUBLISHED:
        await intruder.client.publish(subject, b"{}", reply=f"{inbox_prefix(NODE)}.answer")
    await intruder.settle()
    assert intruder.recorded == [denied_to("publish", subject) for subject in NOT_PUBLISHED]
    assert await ledger.head() == head


async def test_an_agent_may_listen_to_nothing_else(intruder: Intruder) -> None:
    for subject in NOT_HEARD:
        await intruder.client.subscribe(subject)
    await intruder.settle()
    assert intruder.recorded == [denied_to("subscription", subject) for subject in NOT_HEARD]


@pytest.mark.one_stream("forges the subjects that one stream takes")
async def test_answers_are_sent_under_other_names_only_where_agents_share_the_account(
    server: ConfinedServer, intruder: Intruder, ledger: JetStreamLedger
) -> None:
    """Why agents belong in an account of their own: a server responds to any subject that a request names."""
    forged = ("ledger.svc.pools.pool.p.changed", "ledger.node.gpu-02%2Eexample%2Ecom.device.d.happened", OTHERS_WANTED)
    for index, subject in enumerate(forged):
        await intruder.client.publish(
            f"{WRITTEN}.device.d.happened", b"{}", reply=subject, headers={"Nats-Msg-Id": f"i{index}"}
        )
        await intruder.client.publish(f"$JS.API.DIRECT.GET.LEDGER_1.{WANTED}", b"", reply=subject)
        await intruder.client.publish("$JS.API.STREAM.NAMES", b"", reply=subject)
        await intruder.client.publish("$JS.LEDGER.API.STREAM.NAMES", b"", reply=subject)
    await intruder.settle()
    async with connect_edge(server.agent_url(NODE), name="agent", node=NODE) as edge:
        await edge.publish(fact(1))
    recorded = {message.subject for message in await everything(ledger)}
    allowed = {WANTED, OTHERS_WANTED, f"{WRITTEN}.device.d.happened"}
    assert recorded == (allowed | set(forged) if server.layout == "together" else allowed)


async def test_what_may_not_be_published_is_reported_at_once_and_costs_nothing_else(
    server: ConfinedServer, ledger: JetStreamLedger
) -> None:
    others = "ledger.node.gpu-02%2Eexample%2Ecom"
    async with (
        connect_edge(server.agent_url(NODE), name="agent", node=NODE, publish_timeout_s=10 * DEADLINE_S) as edge,
        asyncio.timeout(DEADLINE_S),
    ):
        for events in ([fact(1, others)], [fact(number, others) for number in range(100)]):
            with pytest.raises(
                PermissionDeniedError, match=r"does not let us publish to .*`gpuledger agent permissions NODE`"
            ):
                await edge.publish_many(events)
        with pytest.raises(PermissionDeniedError, match="does not let us publish to"):
            await edge.newest(OTHERS_WANTED)
        with pytest.raises(PermissionDeniedError, match="does not let us listen on"):
            async with edge.notified(OTHERS_WANTED, lambda: None):
                pass
        assert edge.is_usable
        assert (await edge.publish(fact(2))).sequence == 1


async def test_another_nodes_credentials_are_reported(server: ConfinedServer, ledger: JetStreamLedger) -> None:
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(PermissionDeniedError, match=r"does not let us (listen on _inbox_node|publish to)"):
            async with connect_edge(server.agent_url(OTHER), name="agent", node=NODE):
                pass


async def test_no_ledger_is_made_by_an_agent(server: ConfinedServer) -> None:
    with pytest.raises(LedgerUnavailableError, match="There is no ledger on this server yet"):
        async with connect_edge(server.agent_url(NODE), name="agent", node=NODE, stream_timeout_s=0.5):
            pass


async def test_a_wrong_password_is_reported(server: ConfinedServer) -> None:
    url = server.agent_url(NODE).replace(":agent@", ":wrong@")
    with pytest.raises(LedgerUnavailableError, match=r"(?i)authorization"):
        async with connect_edge(url, name="agent", node=NODE, connect_timeout_s=2.0):
            pass
