"""Settings, read from the environment in one place. Units stand last in names."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

NATS_URL = "NATS_URL"
DATABASE_URL = "DATABASE_URL"
DATA_DIR = "GPULEDGER_DATA_DIR"
METRICS_LISTEN = "GPULEDGER_METRICS_LISTEN"
COMPONENTS = "GPULEDGER_COMPONENTS"
ADMISSION_LISTEN = "GPULEDGER_ADMISSION_LISTEN"
NAMESPACE = "GPULEDGER_NAMESPACE"
KUBECONFIG = "KUBECONFIG"
KUBERNETES_SERVICE_HOST = "KUBERNETES_SERVICE_HOST"
"""Kubernetes sets it in every pod."""

SERVICE_ACCOUNT_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
"""Where a pod finds its service account's token, if it is given one."""

DEFAULT_DATA_DIR = Path("~/.local/share/gpuledger")
DEFAULT_METRICS_LISTEN = "127.0.0.1:0"
DEFAULT_NAMESPACE = "d8-gpu-operator"


COMPONENT_NAMES = ("validator", "gfd", "dcgm", "dcgm-exporter")


class SettingsError(Exception):
    """The environment contradicts itself; the message says how to mend it."""


@dataclass(frozen=True, slots=True)
class Servers:
    """Real servers to use in place of embedded ones."""

    nats_url: str
    database_url: str


@dataclass(frozen=True, slots=True)
class ComponentSettings:
    """The DaemonSets that prepare GPUs and watch over them: whether they are ours to keep, where, and of which images.

    `images` are by component. `runtime_class` empty leaves the choice of a container runtime to the node.
    """

    manage: bool = False
    namespace: str = DEFAULT_NAMESPACE
    images: Mapping[str, str] = field(default_factory=dict)
    runtime_class: str = ""
    pull_secrets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """The admission webhooks of a real cluster: where they listen, and the namespace in which a Service leads to them.

    Without `listen` that cluster gets none. The embedded API server has its own, at an address of their own choice.
    """

    listen: str | None = None
    namespace: str = DEFAULT_NAMESPACE


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
    components: ComponentSettings = ComponentSettings()
    webhooks: WebhookSettings = WebhookSettings()

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
        read_components(environ.get(COMPONENTS)),
        WebhookSettings(environ.get(ADMISSION_LISTEN) or None, environ.get(NAMESPACE) or DEFAULT_NAMESPACE),
    )


def read_components(text: str | None) -> ComponentSettings:
    """What the variable says of the components: a JSON object; without it none is kept.

    Raises:
        SettingsError: it is no such object, or names no image for a component that is to be kept.
    """
    try:
        given = json.loads(text or "{}")
        read = ComponentSettings(**given)
        settings = replace(read, pull_secrets=tuple(read.pull_secrets))
    except (TypeError, ValueError) as error:
        names = ", ".join(one.name for one in fields(ComponentSettings))
        raise SettingsError(f"{COMPONENTS} is no JSON object with {names}: {error}") from error
    missing = [name for name in COMPONENT_NAMES if not settings.images.get(name)] if settings.manage else []
    if missing:
        raise SettingsError(f"{COMPONENTS} names no image for {', '.join(missing)}; give one in its `images`.")
    return settings
