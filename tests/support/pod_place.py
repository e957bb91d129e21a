"""Folders and ports of one NATS and one PostgreSQL server, to run them as the chart's pods do."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import psycopg

from gpuledger.api.bundled import BundledServers
from gpuledger.ledger.connect import connected
from gpuledger.ledger.errors import LedgerUnavailableError
from gpuledger.local.pods.foreground import PodServer, serve
from gpuledger.local.pods.nats import NatsOptions, PodNats
from gpuledger.local.pods.postgres import PodPostgres
from gpuledger.local.pods.postgres_pod import PostgresOptions
from gpuledger.runtime.clock import random_secret, system_clock
from gpuledger.runtime.settings import NatsIdentity
from gpuledger.runtime.tasks import end
from gpuledger.tools.bundled.desired import desired_secrets
from support.ports import free_ports

CHECK_S: Final = 0.1


class Place:
    """Folders with the Secrets, and the ports of both servers."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.nats_port, self.monitoring_port, self.postgres_port = free_ports(3)
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


@asynccontextmanager
async def running(server: PodServer) -> AsyncIterator["asyncio.Task[None]"]:
    """Run it until the block ends; it must not end by itself."""
    task = asyncio.create_task(serve(server, check_interval_s=CHECK_S))
    try:
        yield task
    finally:
        await end([task])
        if not task.cancelled():
            task.result()
