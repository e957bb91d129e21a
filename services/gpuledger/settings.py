"""Settings, read from the environment in one place. Units stand last in names."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

NATS_URL = "NATS_URL"
DATABASE_URL = "DATABASE_URL"
DATA_DIR = "GPULEDGER_DATA_DIR"
METRICS_LISTEN = "GPULEDGER_METRICS_LISTEN"
KUBECONFIG = "KUBECONFIG"
KUBERNETES_SERVICE_HOST = "KUBERNETES_SERVICE_HOST"
"""Kubernetes sets it in every pod."""

SERVICE_ACCOUNT_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
"""Where a pod finds its service account's token, if it is given one."""

DEFAULT_DATA_DIR = Path("~/.local/share/gpuledger")
DEFAULT_METRICS_LISTEN = "127.0.0.1:0"


class SettingsError(Exception):
    """The environment contradicts itself; the message says how to mend it."""


@dataclass(frozen=True, slots=True)
class Servers:
    """Real servers to use in place of embedded ones."""

    nats_url: str
    database_url: str


@dataclass(frozen=True, slots=True)
class Settings:
    """What the environment says. Without `servers`, embedded ones run under `data_dir`.

    `kubeconfig` names a real cluster, which is used in place of the embedded API server; without it, the cluster of the
    pod that we run in, where `has_service_account` says that it lets us in.
    """

    data_dir: Path
    servers: Servers | None
    metrics_listen: str
    kubeconfig: str | None = None
    has_service_account: bool = False

    @property
    def has_cluster(self) -> bool:
        """Whether there is a real cluster to work with."""
        return self.kubeconfig is not None or self.has_service_account


def read_settings(environ: Mapping[str, str], data_dir: Path | None = None) -> Settings:
    """The settings in force. Servers that are named win over a data directory, wherever that is given.

    Raises:
        SettingsError: only one of the two servers is named.
    """
    nats_url, database_url = environ.get(NATS_URL), environ.get(DATABASE_URL)
    servers = None
    if nats_url or database_url:
        if not (nats_url and database_url):
            given, missing = (NATS_URL, DATABASE_URL) if nats_url else (DATABASE_URL, NATS_URL)
            raise SettingsError(f"{given} is set but {missing} is not; set both, or neither for embedded servers.")
        servers = Servers(nats_url, database_url)
    chosen = data_dir or Path(environ.get(DATA_DIR) or DEFAULT_DATA_DIR)
    return Settings(
        chosen.expanduser().absolute(),
        servers,
        environ.get(METRICS_LISTEN) or DEFAULT_METRICS_LISTEN,
        environ.get(KUBECONFIG) or None,
        bool(environ.get(KUBERNETES_SERVICE_HOST)) and SERVICE_ACCOUNT_TOKEN.is_file(),
    )
