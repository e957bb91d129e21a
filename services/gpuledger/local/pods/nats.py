"""nats-server in a pod of the chart: its configuration follows from the passwords and certificates in its Secret.

The configuration is written anew at each start, so the rights of roles are those of this build.
"""

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from gpuledger.api.bundled import ISSUER_KEY, NATS_CLUSTER_PORT, NATS_LOGINS
from gpuledger.ledger.server_config import ClusterConfig, ServerConfig, TlsFiles, config_text
from gpuledger.local.pods.foreground import PodServer
from gpuledger.local.servers.errors import ServerStartError
from gpuledger.local.servers.files import write_private
from gpuledger.local.servers.go_memory import container_limit
from gpuledger.local.servers.nats import find_binary
from gpuledger.local.servers.privileges import Launch, as_ourselves

CLUSTER: Final = "gpuledger"
EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 - in a pod, whose address only the cluster knows


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
        return as_ourselves("TERM", container_limit(os.environ))

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
    cluster = None
    if len(options.peers) > 1:
        routes = [f"nats://{host}:{NATS_CLUSTER_PORT}" for host in options.peers]
        cluster = ClusterConfig(CLUSTER, f"{EVERYWHERE}:{NATS_CLUSTER_PORT}", routes)
    return config_text(
        ServerConfig(
            f"{EVERYWHERE}:{options.port}",
            f"{EVERYWHERE}:{options.monitoring_port}",
            options.data / "jetstream",
            options.server_name,
            {login: _text(secret / login) for login in NATS_LOGINS},
            _text(secret / ISSUER_KEY),
            TlsFiles(secret / "tls.crt", secret / "tls.key", secret / "ca.crt"),
            cluster,
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
