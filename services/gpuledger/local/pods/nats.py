"""nats-server in a pod of the chart: its configuration follows from the passwords and certificates in its Secret.

The configuration is written anew at each start, so the rights of roles are those of this build.
"""

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from gpuledger.api.bundled import ISSUER_KEY, ROUTES_KEY
from gpuledger.ledger.server_config import (
    CLUSTER_PORT,
    ClusterRoutes,
    ServerConfig,
    TlsFiles,
    server_config_text,
)
from gpuledger.local.pods.foreground import PodServer
from gpuledger.local.servers.errors import ServerStartError
from gpuledger.local.servers.files import write_private
from gpuledger.local.servers.nats import find_binary
from gpuledger.local.servers.privileges import Launch, as_ourselves
from gpuledger.tools.bundled.desired import nats_logins

CLUSTER: str = "gpuledger"
ROUTES_USER: str = "routes"


class NatsOptions(NamedTuple):
    """Where the server keeps and finds what it needs, and the hosts of all servers of its cluster, itself included."""

    secret: Path
    data: Path
    runtime: Path
    server_name: str
    peers: tuple[str, ...]
    port: int
    monitoring_port: int


class PodNats(PodServer):
    """nats-server with JetStream, alone or in a cluster."""

    name = "nats-server"
    stop_signal = signal.SIGTERM

    def __init__(self, options: NatsOptions) -> None:
        super().__init__(options.secret)
        self._options = options
        self._configuration = options.runtime / "nats.conf"

    def prepare(self) -> Launch:
        """Write the configuration."""
        (self._options.data / "jetstream").mkdir(mode=0o700, parents=True, exist_ok=True)
        self.renew()
        return as_ourselves("TERM")

    def command(self) -> Sequence[str]:
        """The command line of the server."""
        return (str(find_binary()), "--config", str(self._configuration))

    def renew(self) -> bool:
        """Write the configuration anew, which the server reloads."""
        write_private(self._configuration, configuration(self._options))
        return False


def configuration(options: NatsOptions) -> str:
    """The server's configuration.

    Raises:
        ServerStartError: the Secret lacks something.
    """
    secret = options.secret
    passwords = {user: _text(secret / key) for key, user in nats_logins().items()}
    cluster = None
    if len(options.peers) > 1:
        routes = tuple(f"nats://{host}:{CLUSTER_PORT}" for host in options.peers)
        cluster = ClusterRoutes(CLUSTER, routes, ROUTES_USER, _text(secret / ROUTES_KEY))
    return server_config_text(
        ServerConfig(
            options.server_name,
            str(options.data / "jetstream"),
            passwords,
            _text(secret / ISSUER_KEY),
            port=options.port,
            monitoring_port=options.monitoring_port,
            tls=TlsFiles(str(secret / "tls.crt"), str(secret / "tls.key"), str(secret / "ca.crt")),
            cluster=cluster,
        )
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ServerStartError(
            f"The Secret of the NATS server has no {path.name} ({error.strerror}). Run `gpuledger credentials create`, "
            "as the chart's job does, and mount the Secret."
        ) from error
