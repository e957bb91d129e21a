"""Three servers with the configuration that the chart's have: certificates between them, roles, and one that dies."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nats.errors import Error as NatsError

from gpuledger.edge.authcallout.keys import issuer_of
from gpuledger.edge.kube.pki import certificate_pem, key_pem, new_authority, new_serving
from gpuledger.ledger.api import Outgoing
from gpuledger.ledger.connect import connected
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.ledger.permissions import Role, role_user
from gpuledger.ledger.server_config import ClusterConfig, ServerConfig, TlsFiles, config_text
from gpuledger.ledger.stream import create_ledger, stream_name
from gpuledger.local.servers.nats import NatsServer
from gpuledger.local.servers.ports import HOST
from gpuledger.runtime.settings import NatsIdentity
from support.auth_callout import PASSWORDS
from support.ports import free_ports
from support.servers import short_directory
from support.waiting import eventually

SIZE = 3
LIFE = timedelta(hours=1)
OURS = "ledger.svc.inventory.device.d.seen"

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


class Member(NatsServer):
    """One server, as `gpuledger serve nats` configures it, on loopback."""

    def __init__(self, directory: Path, tls: TlsFiles, routes: list[int], number: int, issuer: str) -> None:
        super().__init__(directory)
        self._tls = tls
        self._routes = routes
        self._number = number
        self._issuer = issuer

    def _configuration_text(self, port: int) -> str:
        routes = [f"nats://{HOST}:{one}" for one in self._routes]
        return config_text(
            ServerConfig(
                f"{HOST}:{port}",
                f"{HOST}:{self._monitoring_port}",
                self.directory / "jetstream",
                f"n{self._number}",
                PASSWORDS,
                self._issuer,
                self._tls,
                ClusterConfig("lab", f"{HOST}:{self._routes[self._number]}", routes),
            )
        )

    def _probe(self) -> str | None:
        """None once it greets: alone it has no leader."""
        try:
            with socket.create_connection((HOST, self.port), 1.0) as connection:
                return None if connection.recv(4) == b"INFO" else "it does not greet"
        except OSError as error:
            return str(error)


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_directory() as folder:
        yield folder


@pytest.fixture
def members(folder: Path) -> Iterator[list[Member]]:
    now = datetime.now(UTC)
    authority = new_authority("test", now, LIFE)
    served = new_serving("nats", [HOST], authority, now, LIFE, is_peer=True)
    files = {"ca.crt": certificate_pem(authority.certificate), "tls.crt": certificate_pem(served.certificate)}
    for name, text in (files | {"tls.key": key_pem(served.key)}).items():
        (folder / name).write_bytes(text)
    tls = TlsFiles(folder / "tls.crt", folder / "tls.key", folder / "ca.crt")
    routes = free_ports(SIZE)
    issuer = issuer_of(Ed25519PrivateKey.generate())
    with ExitStack() as stack:
        yield [
            stack.enter_context(Member(folder / f"n{number}", tls, routes, number, issuer)) for number in range(SIZE)
        ]


def url_of(role: Role, members: list[Member]) -> str:
    return ",".join(f"tls://{role_user(role)}:{PASSWORDS[role]}@{HOST}:{one.port}" for one in members)


async def test_three_servers_keep_one_ledger_while_one_of_them_is_away(
    folder: Path, members: list[Member], caplog: pytest.LogCaptureFixture
) -> None:
    identity = NatsIdentity(ca=folder / "ca.crt")
    operator, services = (url_of(role, members) for role in (Role.OPERATOR, Role.SERVICES))
    async with connected(operator, name="migrate", identity=identity, timeout_s=30) as connection:

        async def are_three() -> bool:
            try:
                return b'"error"' not in (await connection.client.request("$JS.API.INFO", b"", timeout=1)).data
            except NatsError:
                return False

        await eventually(are_three)
        await create_ledger(connection, "the-ledger", SIZE)
        config = (await connection.jetstream.stream_info(stream_name(1))).config
        assert config.num_replicas == SIZE
    async with connect_ledger(services, name="services", identity=identity) as ledger:
        assert (await ledger.publish(Outgoing(OURS, "1", b"{}"))).sequence
        members[0].kill()
        first, second = [await ledger.publish(Outgoing(OURS, str(number), b"{}")) for number in (2, 3)]
        assert first.sequence != second.sequence
    assert "eof_received" not in caplog.text, "asyncio warns of an end that TLS cannot have"
