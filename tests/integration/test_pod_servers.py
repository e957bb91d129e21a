"""NATS and PostgreSQL as the chart's pods run them: renewed secrets take effect, and nothing comes in without TLS."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest

from gpuledger.api.bundled import BundledServers
from gpuledger.ledger.connect import connected
from gpuledger.ledger.errors import LedgerUnavailableError
from gpuledger.local.pods.foreground import PodServer, serve
from gpuledger.local.pods.nats import NatsOptions, PodNats
from gpuledger.local.pods.postgres import PodPostgres, PostgresOptions
from gpuledger.local.servers.errors import ServerStartError
from gpuledger.runtime.clock import random_secret, system_clock
from gpuledger.runtime.settings import NatsIdentity
from gpuledger.runtime.tasks import end
from gpuledger.tools.bundled.desired import desired_secrets
from support.kube_server import free_ports
from support.servers import short_directory
from support.waiting import eventually

CHECK_S = 0.1


class Place:
    """Folders with the Secrets, and the ports of both servers."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.nats_port, self.monitoring_port, self.postgres_port = free_ports(root / "ports", 3)
        self.made = desired_secrets({}, BundledServers("lab", "gpu"), system_clock(), random_secret)
        self.write()

    def write(self) -> None:
        for part, data in self.made.items():
            folder = self.root / part
            folder.mkdir(exist_ok=True)
            for key, value in data.items():
                (folder / key).write_bytes(value)

    def renew(self, part: str, key: str | None = None) -> None:
        """Draw the Secret of a server, or one key of it, anew."""
        left = {} if key is None else {name: value for name, value in self.made[part].items() if name != key}
        current = self.made | {part: left}
        self.made = desired_secrets(current, BundledServers("lab", "gpu"), system_clock(), random_secret)
        self.write()

    def runtime(self, name: str) -> Path:
        folder = self.root / f"r-{name}"
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def nats(self) -> PodNats:
        folders = (self.root / "nats", self.root / "d-nats", self.runtime("nats"))
        return PodNats(NatsOptions(*folders, "n0", (), self.nats_port, self.monitoring_port))

    def postgres(self) -> PodPostgres:
        folders = (self.root / "postgres", self.root / "d-postgres", self.runtime("postgres"))
        return PodPostgres(PostgresOptions(*folders, self.postgres_port))

    def url(self, **options: str) -> str:
        """The database's URL, as the services have it, but for the address."""
        given = self.made["services"]["DATABASE_URL"].decode()
        found = given.replace("lab-postgres.gpu.svc:5432", f"127.0.0.1:{self.postgres_port}")
        tls = {"sslmode": "verify-full", "sslrootcert": str(self.root / "services" / "ca.crt"), **options}
        return f"{found}?{'&'.join(f'{key}={value}' for key, value in tls.items())}"

    async def answers(self, **options: str) -> bool:
        try:
            connection = await psycopg.AsyncConnection.connect(self.url(**options), connect_timeout=5)
        except psycopg.OperationalError:
            return False
        async with connection:
            return (await (await connection.execute("SELECT 1")).fetchone()) == (1,)

    async def lets_in(self, login: str) -> bool:
        """Whether NATS takes the login of a client's Secret."""
        identity = NatsIdentity(self.root / login / "nats.creds", self.root / login / "ca.crt")
        try:
            url = f"tls://127.0.0.1:{self.nats_port}"
            async with connected(url, name="test", identity=identity):
                return True
        except LedgerUnavailableError:
            return False


@pytest.fixture
def place() -> Iterator[Place]:
    with short_directory() as root:
        yield Place(root)


@asynccontextmanager
async def running(server: PodServer) -> AsyncIterator["asyncio.Task[None]"]:
    task = asyncio.create_task(serve(server, check_interval_s=CHECK_S))
    try:
        yield task
    finally:
        await end([task])
        if not task.cancelled():
            task.result()


async def test_another_password_of_the_database_takes_effect(place: Place) -> None:
    async with running(place.postgres()):
        await eventually(place.answers)
        old = place.url()
        place.renew("postgres", "password")
        await eventually(place.answers)
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            await psycopg.AsyncConnection.connect(old)


async def test_a_renewed_certificate_is_shown_while_sessions_go_on(place: Place) -> None:
    async with running(place.postgres()):
        await eventually(place.answers)
        async with await psycopg.AsyncConnection.connect(place.url()) as session:
            ours = (place.root / "services" / "ca.crt").read_bytes()
            place.renew("ca")
            await eventually(place.answers)
            assert (place.root / "services" / "ca.crt").read_bytes() != ours
            assert (await (await session.execute("SELECT 2")).fetchone()) == (2,)


async def test_nothing_comes_to_the_database_without_tls_nor_as_its_superuser(place: Place) -> None:
    async with running(place.postgres()):
        await eventually(place.answers)
        with pytest.raises(psycopg.OperationalError, match="no connection without TLS is accepted"):
            await psycopg.AsyncConnection.connect(place.url(sslmode="disable"))
        with pytest.raises(psycopg.OperationalError, match="pg_hba"):
            await psycopg.AsyncConnection.connect(place.url(user="postgres"))


async def test_what_was_sent_in_the_clear_never_gets_into_the_encrypted_session(place: Place) -> None:
    async with running(place.postgres()):
        await eventually(place.answers)
        reader, writer = await asyncio.open_connection("127.0.0.1", place.postgres_port)
        request = b"\x00\x00\x00\x08\x04\xd2\x16\x2f"
        writer.write(request + b"Q\x00\x00\x00\x0dSELECT 1\x00")
        assert await reader.readexactly(1) == b"S"
        assert b"Z" not in await reader.read(), "the handshake failed and the session ended"
        writer.close()


async def test_a_long_query_can_be_cancelled(place: Place) -> None:
    async with running(place.postgres()):
        await eventually(place.answers)
        async with await psycopg.AsyncConnection.connect(place.url(), autocommit=True) as session:
            query = asyncio.create_task(session.execute("SELECT pg_sleep(3600)"))

            async def is_cancelled() -> bool:
                await session.cancel_safe(timeout=5)
                return query.done()

            await eventually(is_cancelled)
            with pytest.raises(psycopg.errors.QueryCanceled):
                await query


async def test_rows_of_many_megabytes_come_through_whole(place: Place) -> None:
    async with running(place.postgres()):
        await eventually(place.answers)
        async with await psycopg.AsyncConnection.connect(place.url()) as session:
            sent = "x" * (8 * 1024 * 1024)
            found = await (await session.execute("SELECT %s::text", (sent,))).fetchone()
            assert found == (sent,)


async def test_another_password_of_nats_takes_effect_without_a_restart(place: Place) -> None:
    async with running(place.nats()):
        await eventually(lambda: place.lets_in("reader"))
        place.renew("nats", "reader")
        await eventually(lambda: place.lets_in("reader"))
        assert await place.lets_in("services")


async def test_a_server_that_ends_by_itself_ends_the_container(place: Place) -> None:
    (place.root / "nats" / "tls.key").write_bytes(b"no key")
    with pytest.raises(ServerStartError, match="ended by itself"):
        await serve(place.nats(), check_interval_s=CHECK_S)


async def test_a_secret_that_lacks_something_is_named(place: Place) -> None:
    (place.root / "postgres" / "password").unlink()
    with pytest.raises(ServerStartError, match=r"no password .*gpuledger credentials create"):
        await serve(place.postgres(), check_interval_s=CHECK_S)
