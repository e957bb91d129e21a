"""The permissions of every role on a real server: enough for all that it does, and for nothing else."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from nats.aio.client import Client

from gpuledger.events.position import Position
from gpuledger.events.publishing import SourceKind
from gpuledger.ledger.api import Outgoing
from gpuledger.ledger.connect import connected
from gpuledger.ledger.errors import PermissionDeniedError
from gpuledger.ledger.jetstream import JetStreamLedger, connect_ledger
from gpuledger.ledger.permissions import SERVICE_KINDS, Role
from gpuledger.ledger.restoring import begin_generation
from gpuledger.ledger.stream import create_ledger
from gpuledger.tools.doctor import LedgerChecks, Status
from gpuledger.tools.log_restore import skip_positions
from support.ledgers import HEARTBEAT_S, everything, read_count
from support.nats_logins import WrittenServer
from support.roles import ADMIN, role_server, url_of
from support.servers import delete_streams, nats_answer
from support.waiting import eventually

RECORDED = {
    Role.SERVICES: tuple(f"ledger.svc.{kind}" for kind in SERVICE_KINDS),
    Role.GATEWAY: (f"ledger.svc.{SourceKind.GATEWAYS}",),
    Role.PREFLIGHT: (f"ledger.svc.{SourceKind.PREFLIGHT}",),
    Role.EXTENDER: (f"ledger.svc.{SourceKind.EXTENDER}",),
    Role.READER: (),
    Role.IMPORTER: ("ledger.svc.import",),
    Role.SKIPPER: (f"ledger.svc.{SourceKind.OPERATORS}",),
    Role.OPERATOR: (),
    Role.RESTORER: (),
}
"""The origins under which each role records events; the restorer has subjects of its own instead."""

ORIGINS = {origin for origins in RECORDED.values() for origin in origins}
OF_STREAMS = (
    "$JS.API.STREAM.CREATE.MINE",
    "$JS.API.STREAM.CREATE.LEDGER_1",
    "$JS.API.STREAM.UPDATE.LEDGER_1",
    "$JS.API.STREAM.PURGE.LEDGER_1",
    "$JS.API.STREAM.DELETE.LEDGER_1",
    "$JS.API.STREAM.SNAPSHOT.LEDGER_1",
    "$JS.API.STREAM.RESTORE.LEDGER_1",
)
OF_NOBODY = (
    "$JS.API.STREAM.MSG.DELETE.LEDGER_1",
    "$JS.API.STREAM.PEER.REMOVE.LEDGER_1",
    "$JS.API.STREAM.LEADER.STEPDOWN.LEDGER_1",
    "$JS.API.META.LEADER.STEPDOWN",
    "$JS.API.SERVER.REMOVE",
    "$JS.API.ACCOUNT.PURGE.X",
    "$JS.API.CONSUMER.CREATE.LEDGER_1",
    "$JS.API.CONSUMER.DURABLE.CREATE.LEDGER_1.mine",
    "$JS.API.CONSUMER.LIST.LEDGER_1",
    "$JS.API.CONSUMER.NAMES.LEDGER_1",
    "$JS.API.CONSUMER.MSG.NEXT.OTHER.theirs",
    "$JS.API.CONSUMER.PAUSE.LEDGER_1.theirs",
    "$JS.API.CONSUMER.LEADER.STEPDOWN.LEDGER_1.theirs",
    "$JS.ACK.OTHER.theirs.1.1.1.1.0",
    "$SYS.REQ.SERVER.PING",
    "archived.1.x",
    "_INBOX.x",
    "ledger",
    "anything",
)
NOT_HEARD = (">", "ledger.>", "archived.>", "$JS.>", "$JS.API.>", "$SYS.>", "*.*")


@pytest.fixture(scope="module")
def running() -> Iterator[WrittenServer]:
    with role_server() as server:
        yield server


@pytest.fixture
def server(running: WrittenServer) -> WrittenServer:
    delete_streams(url_of(running, ADMIN))
    return running


@pytest.fixture
async def admin(server: WrittenServer) -> AsyncIterator[JetStreamLedger]:
    """The ledger, made by the operator, for somebody who may do anything."""
    async with connected(url_of(server, Role.OPERATOR), name="migrate") as connection:
        await create_ledger(connection, "ledger")
    async with opened(server, ADMIN) as ledger:
        yield ledger


def opened(server: WrittenServer, user: str) -> AbstractAsyncContextManager[JetStreamLedger]:
    return connect_ledger(url_of(server, user), name=user, heartbeat_s=HEARTBEAT_S)


def event(origin: str, number: int) -> Outgoing:
    return Outgoing(f"{origin}.device.d.happened", f"{origin}-{number}", str(number).encode())


@pytest.mark.parametrize("role", Role)
async def test_a_role_reads_all_of_the_ledger(role: Role, server: WrittenServer, admin: JetStreamLedger) -> None:
    await admin.publish_many([event("ledger.svc.pools", number) for number in range(20_000)])
    async with opened(server, role) as ledger, ledger.read() as reader:
        assert {use.scope for use in await ledger.storage()} == {"account", "stream"}
        assert len(await everything(ledger)) == await ledger.head() == 20_000
        assert await ledger.last_sequence("ledger.svc.pools.>") == 20_000
        await ledger.confirm(await ledger.anchor_at(20_000))
        assert len(await read_count(reader, 20_000)) == 20_000
    async with connected(url_of(server, ADMIN), name="test") as connection:

        async def has_no_consumer() -> bool:
            return not await connection.jetstream.consumers_info("LEDGER_1")

        await eventually(has_no_consumer)  # a reader removes its own, and does not wait for that


@pytest.mark.parametrize("role", Role)
async def test_a_role_records_what_is_its_own(role: Role, server: WrittenServer, admin: JetStreamLedger) -> None:
    async with opened(server, role) as ledger:
        for origin in RECORDED[role]:
            await ledger.publish(event(origin, 0))
            await ledger.publish_many([event(origin, number) for number in range(1, 100)])
    assert await admin.head() == 100 * len(RECORDED[role])


@pytest.mark.parametrize("role", Role)
async def test_what_a_role_may_not_record_is_refused_at_once(
    role: Role, server: WrittenServer, admin: JetStreamLedger
) -> None:
    async with opened(server, role) as ledger:
        for origin in sorted(ORIGINS - set(RECORDED[role]) | {"ledger.node.n1"}):
            with pytest.raises(
                PermissionDeniedError, match=r"does not let us publish to ledger\..*`gpuledger permissi"
            ):
                await ledger.publish(event(origin, 0))
    assert await admin.head() == 0


@pytest.mark.parametrize("role", Role)
async def test_nothing_else_may_be_published(role: Role, server: WrittenServer, admin: JetStreamLedger) -> None:
    await admin.publish(event("ledger.svc.pools", 0))
    subjects = OF_NOBODY if role in {Role.OPERATOR, Role.RESTORER} else (*OF_STREAMS, *OF_NOBODY)
    async with intruder(server, role) as (client, errors):
        for subject in subjects:
            await client.publish(subject, b"{}", reply=client.new_inbox())
        await settle(client)
    assert errors == [f'nats: permissions violation for publish to "{subject.lower()}"' for subject in subjects]
    assert await admin.head() == 1


@pytest.mark.parametrize("role", Role)
async def test_nothing_but_answers_may_be_listened_to(
    role: Role, server: WrittenServer, admin: JetStreamLedger
) -> None:
    async with intruder(server, role) as (client, errors):
        for subject in NOT_HEARD:
            await client.subscribe(subject)
        await settle(client)
    assert errors == [f'nats: permissions violation for subscription to "{subject.lower()}"' for subject in NOT_HEARD]


@pytest.mark.parametrize("role", [Role.OPERATOR, Role.RESTORER])
async def test_a_generation_is_begun_by_those_for_whom_streams_are(
    role: Role, server: WrittenServer, admin: JetStreamLedger
) -> None:
    async with connected(url_of(server, role), name="restore") as connection:
        assert (await begin_generation(connection)).number == 2


@pytest.mark.parametrize("role", sorted(set(Role) - {Role.OPERATOR, Role.RESTORER}))
async def test_a_generation_is_begun_by_nobody_else(role: Role, server: WrittenServer, admin: JetStreamLedger) -> None:
    async with connected(url_of(server, role), name="restore") as connection:
        with pytest.raises(PermissionDeniedError, match=r"publish to \$js\.api\.stream\.update\.ledger_1\."):
            await begin_generation(connection)
    assert admin.generation == 1


async def test_a_skip_is_recorded_by_the_skipper(server: WrittenServer, admin: JetStreamLedger) -> None:
    async with opened(server, Role.SKIPPER) as ledger:
        assert await skip_positions(ledger, [(Position(1, 1), "broken")]) == [Position(1, 1)]


async def test_doctor_needs_no_more_than_a_reader(server: WrittenServer, admin: JetStreamLedger) -> None:
    found = [check async for check in LedgerChecks(url_of(server, Role.READER), None).run()]
    assert Status.FAILED not in {check.status for check in found}


async def test_a_consumer_cannot_deliver_into_the_stream_that_it_reads(
    server: WrittenServer, admin: JetStreamLedger
) -> None:
    """Who may create a consumer names the subject of its messages; the server refuses those of the stream itself."""
    await admin.publish(event("ledger.svc.pools", 0))
    request = (
        b'{"stream_name": "LEDGER_1", "config": {"name": "x", "deliver_subject": "ledger.svc.pools.pool.p.changed",'
        b' "ack_policy": "none", "deliver_policy": "all", "filter_subject": "ledger.>"}}'
    )
    with pytest.raises(AssertionError, match="forms a cycle"):
        nats_answer(url_of(server, Role.READER), "$JS.API.CONSUMER.CREATE.LEDGER_1.x.ledger.>", request)
    assert await admin.head() == 1


async def test_who_may_ask_can_have_an_answer_recorded(server: WrittenServer, admin: JetStreamLedger) -> None:
    """Why only trusted people get a role: a server sends its answer wherever a request says, as with agents."""
    subject = "ledger.svc.pools.pool.p.changed"
    async with intruder(server, Role.READER) as (client, errors), admin.read() as reader:
        await client.publish("$JS.API.STREAM.NAMES", b"", reply=subject)
        recorded = await read_count(reader, 1)
    assert not errors
    assert [message.subject for message in recorded] == [subject]


@asynccontextmanager
async def intruder(server: WrittenServer, role: Role) -> AsyncIterator[tuple[Client, list[str]]]:
    """A client with a role's credentials that does what it is told, and what the server says to it."""
    errors: list[str] = []

    async def on_error(error: Exception) -> None:
        errors.append(str(error))

    client = Client()
    await client.connect(url_of(server, role), error_cb=on_error)
    yield client, errors
    await client.close()


async def settle(client: Client) -> None:
    """Return when the server has had its say; the library's ping may overtake what was sent before it."""
    await client.flush()
    await client.flush()
