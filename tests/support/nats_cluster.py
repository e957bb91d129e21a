"""A cluster of NATS servers for tests, each of which can be killed and started again."""

import asyncio
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from gpuledger.ledger.errors import LedgerUnavailableError
from gpuledger.local.servers.files import write_private
from gpuledger.local.servers.nats import NatsServer
from gpuledger.local.servers.ports import HOST
from support.ports import free_ports
from support.servers import nats_answer, short_directory
from support.up import eventually

CLUSTER = "lab"
PASSWORD = "cluster"

LEADER_TIMEOUT_S = 0.5
"""For how long one request waits for a leader; what asks on meets a new one soon."""

UNANSWERED = (LedgerUnavailableError, TimeoutError, AssertionError, OSError)
"""What a request ends with while servers come, go or elect a leader; one that is lost then is never answered."""


class ClusterServer(NatsServer):
    """One server of the cluster. It syncs as servers in a cluster do by default, every two minutes."""

    def __init__(self, directory: Path, number: int, route_ports: Sequence[int]) -> None:
        super().__init__(directory)
        self._number = number
        self._route_ports = route_ports
        self.directory.mkdir(parents=True)
        write_private(self.directory / "password", PASSWORD)

    @property
    def name_in_cluster(self) -> str:
        """The name that the servers call it by."""
        return f"n{self._number}"

    def _configuration(self, port: int) -> dict[str, object]:
        routes = [f"nats://{HOST}:{one}" for one in self._route_ports]
        return super()._configuration(port) | {
            "server_name": self.name_in_cluster,
            "jetstream": {"store_dir": str(self.directory / "jetstream")},
            "cluster": {"name": CLUSTER, "listen": f"{HOST}:{self._route_ports[self._number]}", "routes": routes},
        }

    def _probe(self) -> str | None:
        """None once it greets: alone it has no leader to answer anything."""
        try:
            with socket.create_connection((HOST, self.port), 1.0) as connection:
                return None if connection.recv(4) == b"INFO" else "it does not greet"
        except OSError as error:
            return str(error)


class NatsCluster:
    """The servers, and one URL for all of them."""

    def __init__(self, servers: Sequence[ClusterServer]) -> None:
        self.servers = servers

    @property
    def url(self) -> str:
        """The URLs of all servers, as NATS_URL takes them."""
        return ",".join(server.url for server in self.servers)

    def wait_ready(self) -> None:
        """Return when JetStream answers, which it does once a leader is elected."""
        eventually(self._answers)

    def leader(self, stream: str) -> ClusterServer:
        """The server that leads a stream."""
        info = nats_answer(self.url, f"$JS.API.STREAM.INFO.{stream}", timeout_s=LEADER_TIMEOUT_S)
        return self.named(info["cluster"]["leader"])

    def named(self, name: str) -> ClusterServer:
        """The server that the others call by this name."""
        return next(server for server in self.servers if server.name_in_cluster == name)

    async def answer(self, subject: str) -> dict[str, Any] | None:
        """The answer to one request, for which the event loop does not stand still; None where nobody answers now."""
        try:
            return await asyncio.to_thread(nats_answer, self.url, subject, timeout_s=LEADER_TIMEOUT_S)
        except UNANSWERED:
            return None

    def wait_led(self, stream: str, dead: ClusterServer) -> None:
        """Return when a stream has a leader other than a server that died, and so has the metadata group; blocks."""

        def is_led() -> bool:
            try:
                return self.leader(stream) is not dead and self._answers()
            except (*UNANSWERED, KeyError, StopIteration):
                return False

        eventually(is_led)

    def _answers(self) -> bool:
        """Whether the leader of the metadata group answers, as nobody else does."""
        try:
            nats_answer(self.url, "$JS.API.STREAM.NAMES", timeout_s=LEADER_TIMEOUT_S)
        except UNANSWERED:
            return False
        return True


@contextmanager
def nats_cluster(size: int = 3) -> Iterator[NatsCluster]:
    """A cluster with JetStream and nothing in it."""
    with short_directory() as directory, ExitStack() as stack:
        ports = free_ports(size)
        servers = [ClusterServer(directory / f"n{number}", number, ports) for number in range(size)]
        for server in servers:
            stack.enter_context(server)
        cluster = NatsCluster(servers)
        cluster.wait_ready()
        yield cluster
