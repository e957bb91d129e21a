"""Reads settings from the environment, in one place: those of services, and what agents share. Names end with units."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from gpuledger.runtime.preflight_files import PreflightFiles, read_preflight_files

NATS_URL = "NATS_URL"
WEBSOCKETS = ("ws://", "wss://")
"""How URLs in `NATS_URL` begin that need the NATS client's transport over WebSockets."""

NATS_CREDENTIALS = "GPULEDGER_NATS_CREDENTIALS"
NATS_CA = "GPULEDGER_NATS_CA"
NATS_CERTIFICATE = "GPULEDGER_NATS_CERTIFICATE"
NATS_KEY = "GPULEDGER_NATS_KEY"
NATS_TOKEN_FILE = "GPULEDGER_NATS_TOKEN_FILE"  # noqa: S105 - the name of a variable
NATS_FILES = (NATS_CREDENTIALS, NATS_CA, NATS_CERTIFICATE, NATS_KEY, NATS_TOKEN_FILE)
"""The variables of a `NatsIdentity`, in its order."""

CALLOUT_SEED = "GPULEDGER_CALLOUT_SEED"
CALLOUT_ACCOUNT = "GPULEDGER_CALLOUT_ACCOUNT"
CALLOUT_ACCOUNT_SEED = "GPULEDGER_CALLOUT_ACCOUNT_SEED"
CALLOUT_XKEY = "GPULEDGER_CALLOUT_XKEY"
CALLOUT_SERVICE_ACCOUNT = "GPULEDGER_CALLOUT_SERVICE_ACCOUNT"
CALLOUT_AUDIENCE = "GPULEDGER_CALLOUT_AUDIENCE"
NATS_REPLICAS = "GPULEDGER_NATS_REPLICAS"
PARTITIONS = "GPULEDGER_PARTITIONS"
"""How many partitions a new ledger has; one that is there keeps its own."""

DATABASE_URL = "DATABASE_URL"
DATABASE_READ_URL = "DATABASE_READ_URL"
"""The PostgreSQL server, such as a standby, that answers commands which only ask; without it that of `DATABASE_URL`."""

DATA_DIR = "GPULEDGER_DATA_DIR"
OBJECTS_URL = "GPULEDGER_OBJECTS_URL"
"""Where the object store is: file:/folder or s3://bucket/prefix."""

ARCHIVE_URL = "GPULEDGER_ARCHIVE_URL"
"""Where the log is archived: file:/folder or s3://bucket/prefix."""

ARCHIVE_CLOSE = "GPULEDGER_ARCHIVE_CLOSE"
"""When `gpuledger up` closes a generation of the log: `month`, a size such as `50GiB`, or both with a comma."""

POSTGRES_BIN = "GPULEDGER_POSTGRES_BIN"
"""The folder with the programs of PostgreSQL; the wheel's where it is not set."""

COMPONENTS = "GPULEDGER_COMPONENTS"
MODULE_SETTINGS = "GPULEDGER_MODULE_SETTINGS"
DEPLOYMENTS = "GPULEDGER_DEPLOYMENTS"
"""The Deployments that the services run in, `NAMESPACE/NAME`, with commas; the chart sets it."""

COVERAGE_NAMESPACE = "GPULEDGER_COVERAGE_NAMESPACE"
"""Where a Job waits that compares the labels of nodes; the chart sets it where it keeps one."""

UNTOUCHED_NAMESPACES = "GPULEDGER_UNTOUCHED_NAMESPACES"
"""Patterns of namespaces that no drain evicts from, with commas; the chart sets it, with the release's own one."""

METRICS_LISTEN, ADMISSION_LISTEN = "GPULEDGER_METRICS_LISTEN", "GPULEDGER_ADMISSION_LISTEN"
NAMESPACE = "GPULEDGER_NAMESPACE"
KUBECONFIG = "KUBECONFIG"
KUBERNETES_SERVICE_HOST = "KUBERNETES_SERVICE_HOST"
"""Kubernetes sets it in every pod."""

SERVICE_ACCOUNT_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
"""The service account's token of a pod that has one."""

PARTITIONS_MAX = 64
"""Each takes a stream of NATS, and each reader of the log a consumer of it."""

DEFAULT_DATA_DIR = Path("~/.local/share/gpuledger")
OBJECTS_FOLDER = "objects"
"""The object store's folder of a data directory."""

DEFAULT_METRICS_LISTEN = "127.0.0.1:0"
DEFAULT_NAMESPACE = "d8-gpu-operator"
DEFAULT_CALLOUT_AUDIENCE = "gpuledger-agents"


COMPONENT_NAMES = ("validator", "gfd", "dcgm", "dcgm-exporter")


class SettingsError(Exception):
    """The environment contradicts itself; the message says how to fix it."""


class NatsIdentity(NamedTuple):
    """The files with our identity on a NATS server and the authorities that we trust.

    `credentials` is a `.creds` file with a user's JWT and seed, or one with a seed alone (an NKEY), with a user and
    password, or with a token. `ca` has the authorities of trusted servers, and without it the system's count;
    `certificate` and `key` go together. `token` holds the token of a service account and nothing else, for a server
    that asks an auth callout service; it is read again at every connect.
    """

    credentials: Path | None = None
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    token: Path | None = None


ANONYMOUS: Final = NatsIdentity()


@dataclass(frozen=True, slots=True)
class Servers:
    """Real servers to use in place of embedded ones, and the files that log us in to NATS.

    `nats_replicas` is how many replicas the stream must have; None leaves it to the cluster. `database_read_url` is the
    read replica's; without it `database_url` answers everything.
    """

    nats_url: str
    database_url: str
    nats_identity: NatsIdentity = ANONYMOUS
    nats_replicas: int | None = None
    database_read_url: str | None = None


@dataclass(frozen=True, slots=True)
class ArchiveSettings:
    """Where the log is archived, and when a generation of it is closed by itself."""

    url: str
    close: str


@dataclass(frozen=True, slots=True)
class ComponentSettings:
    """The DaemonSets that prepare and monitor GPUs: whether gpuledger manages them, in which namespace and images.

    `images` are by component. An empty `runtime_class` leaves the choice of a container runtime to the node.
    `label_nodes` says whether gpuledger labels the nodes that its inventory finds GPUs on, so that components run there
    without Node Feature Discovery. `shared_hostengine`: pods may ask the host engine of their node, by a Service.
    """

    manage: bool = False
    namespace: str = DEFAULT_NAMESPACE
    images: Mapping[str, str] = field(default_factory=dict)
    runtime_class: str = ""
    pull_secrets: tuple[str, ...] = ()
    label_nodes: bool = False
    shared_hostengine: bool = False


class OwnDeployment(NamedTuple):
    """A Deployment that the services run in."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"Deployment {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """The admission webhooks of a real cluster: their address, and the namespace of the Service in front of them.

    Without `listen` that cluster gets none. The embedded API server has webhooks at an address of its own.
    """

    listen: str | None = None
    namespace: str = DEFAULT_NAMESPACE


@dataclass(frozen=True, slots=True)
class CalloutSettings:
    """The auth callout service: its server, the file with its issuer's key, and whose tokens it accepts for what.

    `service_account` is the agents', as (namespace, name). For a server in operator mode, `account` is the public key
    of the account that agents are placed in, and `account_seed` the file with a key that signs its users. `xkey` is the
    file with the key for which the server encrypts its questions.
    """

    nats_url: str
    nats_identity: NatsIdentity
    seed: Path
    service_account: tuple[str, str]
    audience: str
    metrics_listen: str
    kubeconfig: str | None
    account: str | None = None
    account_seed: Path | None = None
    xkey: Path | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one process. Without `servers`, embedded ones run under `data_dir`.

    `kubeconfig` names a real cluster, which replaces the embedded API server. Without it a pod with a service account
    (`has_service_account`) uses its own cluster. `module` are the module's settings where no ModuleConfig has them.
    `objects_url` is the object store's; embedded servers have it below `data_dir` where none is named, and others then
    have none. With `archive`, `up` closes generations of the log by itself. `partitions` is how many a new ledger has;
    None: one. `deployments` are the chart's, in which the services run; without the chart there are none.
    `coverage_namespace` is where the chart keeps a Job waiting that compares the labels of nodes.
    `untouched_namespaces` are patterns of those that no drain evicts from.
    """

    data_dir: Path
    servers: Servers | None
    metrics_listen: str
    kubeconfig: str | None = None
    has_service_account: bool = False
    components: ComponentSettings = ComponentSettings()
    webhooks: WebhookSettings = WebhookSettings()
    module: Mapping[str, Any] = field(default_factory=dict)
    objects_url: str | None = None
    archive: ArchiveSettings | None = None
    partitions: int | None = None
    deployments: tuple[OwnDeployment, ...] = ()
    coverage_namespace: str | None = None
    untouched_namespaces: tuple[str, ...] = ()
    preflight: PreflightFiles = field(default_factory=PreflightFiles)

    @property
    def has_cluster(self) -> bool:
        """Whether there is a real cluster."""
        return self.kubeconfig is not None or self.has_service_account


def read_settings(environ: Mapping[str, str], data_dir: Path | None = None) -> Settings:
    """The settings in force. Named servers take precedence over a data directory.

    Raises:
        SettingsError: only one of the two servers is named, or another variable cannot be used.
    """
    servers = _servers(environ)
    chosen = data_dir or Path(environ.get(DATA_DIR) or DEFAULT_DATA_DIR)
    return Settings(
        chosen.expanduser().absolute(),
        servers,
        environ.get(METRICS_LISTEN) or DEFAULT_METRICS_LISTEN,
        environ.get(KUBECONFIG) or None,
        bool(environ.get(KUBERNETES_SERVICE_HOST)) and SERVICE_ACCOUNT_TOKEN.is_file(),
        read_components(environ.get(COMPONENTS)),
        WebhookSettings(environ.get(ADMISSION_LISTEN) or None, environ.get(NAMESPACE) or DEFAULT_NAMESPACE),
        _module(environ.get(MODULE_SETTINGS)),
        environ.get(OBJECTS_URL) or (None if servers else objects_folder(chosen).as_uri()),
        _archive(environ),
        _partitions(environ),
        _deployments(environ.get(DEPLOYMENTS) or ""),
        environ.get(COVERAGE_NAMESPACE) or None,
        tuple(filter(None, map(str.strip, (environ.get(UNTOUCHED_NAMESPACES) or "").split(",")))),
        read_preflight_files(environ),
    )


def uses_websockets(environ: Mapping[str, str]) -> bool:
    """Whether one of the NATS servers is reached over WebSockets."""
    return any(url.strip().startswith(WEBSOCKETS) for url in environ.get(NATS_URL, "").split(","))


def _servers(environ: Mapping[str, str]) -> Servers | None:
    nats_url, database_url = environ.get(NATS_URL), environ.get(DATABASE_URL)
    read_url = environ.get(DATABASE_READ_URL) or None
    if nats_url and database_url:
        return Servers(nats_url, database_url, read_nats_identity(environ), _replicas(environ), read_url)
    if nats_url or database_url:
        given, missing = (NATS_URL, DATABASE_URL) if nats_url else (DATABASE_URL, NATS_URL)
        raise SettingsError(f"{given} is set but {missing} is not; set both, or neither for embedded servers.")
    if read_url:
        raise SettingsError(f"{DATABASE_READ_URL} is set but {NATS_URL} and {DATABASE_URL} are not; set all three.")
    return None


def _archive(environ: Mapping[str, str]) -> ArchiveSettings | None:
    url, close = environ.get(ARCHIVE_URL), environ.get(ARCHIVE_CLOSE)
    if not close:
        return None
    if not url:
        raise SettingsError(f"{ARCHIVE_CLOSE} is set but {ARCHIVE_URL} is not; name the archive's folder or bucket.")
    return ArchiveSettings(url, close)


def objects_folder(data_dir: Path) -> Path:
    """The folder of the object store of embedded servers with this data directory."""
    return data_dir.expanduser().absolute() / OBJECTS_FOLDER


def read_nats_identity(environ: Mapping[str, str]) -> NatsIdentity:
    """The files that log a service or an agent in to NATS.

    Raises:
        SettingsError: one is missing.
    """
    identity = NatsIdentity(*(_file(environ, name) for name in NATS_FILES))
    if (identity.certificate is None) != (identity.key is None):
        raise SettingsError(f"A certificate and its key belong together; set both {NATS_CERTIFICATE} and {NATS_KEY}.")
    if identity.token is not None and identity.credentials is not None:
        raise SettingsError(f"One login is enough; set either {NATS_TOKEN_FILE} or {NATS_CREDENTIALS}.")
    return identity


def read_callout_settings(environ: Mapping[str, str]) -> CalloutSettings:
    """The settings of the auth callout service.

    Raises:
        SettingsError: one is missing or invalid.
    """
    url, account = environ.get(NATS_URL), environ.get(CALLOUT_SERVICE_ACCOUNT, "")
    if not url:
        raise SettingsError(f"The server's URL is missing; set {NATS_URL}, such as to nats://127.0.0.1:4222.")
    if not Path(environ.get(CALLOUT_SEED, "")).is_file():
        raise SettingsError(f"The issuer's key is missing; set {CALLOUT_SEED} to the file that has it (a seed, SA...).")
    seed, identity = Path(environ[CALLOUT_SEED]), read_nats_identity(environ)
    if identity.credentials is None and identity.certificate is None and "@" not in url:
        raise SettingsError(f"The service has no login; set {NATS_CREDENTIALS} to a file with its user and password.")
    namespace, slash, name = account.partition("/")
    if not slash or not namespace or not name or "/" in name:
        raise SettingsError(f"{CALLOUT_SERVICE_ACCOUNT} is {account!r}; it is the agents' account as NAMESPACE/NAME.")
    return CalloutSettings(
        url,
        identity,
        seed,
        (namespace, name),
        environ.get(CALLOUT_AUDIENCE) or DEFAULT_CALLOUT_AUDIENCE,
        environ.get(METRICS_LISTEN) or DEFAULT_METRICS_LISTEN,
        environ.get(KUBECONFIG) or None,
        *_operator_mode(environ),
        _file(environ, CALLOUT_XKEY),
    )


def _operator_mode(environ: Mapping[str, str]) -> tuple[str | None, Path | None]:
    """The agents' account and the file with a key that signs its users; both, or neither."""
    account, seed = environ.get(CALLOUT_ACCOUNT) or None, _file(environ, CALLOUT_ACCOUNT_SEED)
    if (account is None) != (seed is None):
        raise SettingsError(
            f"The agents' account and its key belong together; set both {CALLOUT_ACCOUNT} (A...) and "
            f"{CALLOUT_ACCOUNT_SEED} for a server in operator mode, or neither."
        )
    return account, seed


def _replicas(environ: Mapping[str, str]) -> int | None:
    text = environ.get(NATS_REPLICAS)
    if not text:
        return None
    if text not in {"1", "3", "5"}:
        raise SettingsError(f"{NATS_REPLICAS} is {text!r}; it is 1, 3 or 5, or unset: three if the cluster has them.")
    return int(text)


def _partitions(environ: Mapping[str, str]) -> int | None:
    text = environ.get(PARTITIONS)
    if not text:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= PARTITIONS_MAX:
        raise SettingsError(f"{PARTITIONS} is {text!r}; it is a number from 1 to {PARTITIONS_MAX}, or unset: one.")
    return int(text)


def _deployments(text: str) -> tuple[OwnDeployment, ...]:
    given = [one.partition("/") for one in text.split(",") if one]
    if wrong := ["".join(one) for one in given if not all(one) or "/" in one[2]]:
        raise SettingsError(f"{DEPLOYMENTS} names {wrong[0]!r}; a Deployment is NAMESPACE/NAME, several have commas.")
    return tuple(OwnDeployment(namespace, name) for namespace, _, name in given)


def _file(environ: Mapping[str, str], name: str) -> Path | None:
    text = environ.get(name)
    if not text:
        return None
    path = Path(text).expanduser()
    if not path.is_file():
        raise SettingsError(f"{name} names {text}, which is not a file; mount it there, or leave the variable unset.")
    return path


def _module(text: str | None) -> Mapping[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError as error:
        raise SettingsError(f"{MODULE_SETTINGS} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise SettingsError(f"{MODULE_SETTINGS} is no JSON object; it has the names of a ModuleConfig's spec.settings.")
    return found


def read_components(text: str | None) -> ComponentSettings:
    """The components from the variable's JSON object; without it gpuledger manages none.

    Raises:
        SettingsError: it is not such an object, or lacks an image for a component.
    """
    try:
        read = ComponentSettings(**json.loads(text or "{}"))
        settings = replace(read, pull_secrets=tuple(read.pull_secrets))
    except (TypeError, ValueError) as error:
        names = ", ".join(one.name for one in fields(ComponentSettings))
        raise SettingsError(f"{COMPONENTS} is not a JSON object with {names}: {error}") from error
    missing = [name for name in COMPONENT_NAMES if not settings.images.get(name)] if settings.manage else []
    if missing:
        raise SettingsError(f"{COMPONENTS} names no image for {', '.join(missing)}; give one in its `images`.")
    return settings
