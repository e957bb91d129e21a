"""The settings of an agent, read from its environment; options of the command line become variables of it."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, cast, get_args
from urllib.parse import urlsplit

from gpuledger.api.sharing import DEFAULT_NAMES, SharingNames
from gpuledger.events.payload import NAME_LENGTH_MAX
from gpuledger.runtime.node_label_settings import DEFAULT_INSTANCE_TYPE_LABEL, read_instance_type_label
from gpuledger.runtime.placement_settings import NODE_NAME
from gpuledger.runtime.settings import (
    ANONYMOUS,
    DEFAULT_METRICS_LISTEN,
    METRICS_LISTEN,
    NATS_URL,
    NatsIdentity,
    SettingsError,
    read_nats_identity,
)
from gpuledger.runtime.sharing_settings import read_sharing_names

EXPORTER_URL: Final = "GPULEDGER_EXPORTER_URL"
STATE_DIR: Final = "GPULEDGER_AGENT_STATE_DIR"
HARDWARE: Final = "GPULEDGER_HARDWARE"
KUBELET_DIR: Final = "GPULEDGER_KUBELET_DIR"
ALLOCATE: Final = "GPULEDGER_ALLOCATE"
CDI_KIND: Final = "GPULEDGER_CDI_KIND"
CDI_DIRS: Final = "GPULEDGER_CDI_DIRS"
XID_CLASSES: Final = "GPULEDGER_XID_CLASSES"
HEALTH_SOCKET: Final = "GPULEDGER_HEALTH_SOCKET"
HEALTH_NAMESPACES: Final = "GPULEDGER_HEALTH_NAMESPACES"
POD_LOGS: Final = "GPULEDGER_POD_LOGS"
CONTAINER_LOGS: Final = "GPULEDGER_CONTAINER_LOGS"
PREFLIGHT_NAMESPACES: Final = "GPULEDGER_PREFLIGHT_NAMESPACES"
SPOOL_EVENTS: Final = "GPULEDGER_SPOOL_EVENTS"
SPOOL_MIB: Final = "GPULEDGER_SPOOL_MIB"
RUNTIME_PROXY_DIR: Final = "GPULEDGER_RUNTIME_PROXY_DIR"
DEVICES_DIR: Final = "GPULEDGER_DEVICES_DIR"
CONFIG_FACTS_DIR: Final = "GPULEDGER_CONFIG_FACTS_DIR"

NATS_SCHEMES: Final = frozenset({"nats", "tls", "ws", "wss"})
EXPORTER_SCHEMES: Final = frozenset({"http", "https"})
DEFAULT_EXPORTER_URL: Final = "http://127.0.0.1:9400/metrics"
DEFAULT_STATE_DIR: Final = "/var/lib/gpuledger/agent"
DEFAULT_HARDWARE: Final = "nvml"
DEFAULT_KUBELET_DIR: Final = "/var/lib/kubelet"
DEFAULT_CDI_KIND: Final = "nvidia.com/gpu"
DEFAULT_CDI_DIRS: Final = "/etc/cdi:/var/run/cdi"
DEFAULT_POD_LOGS: Final = "/var/log/pods"
DEFAULT_CONTAINER_LOGS: Final = "/var/log/containers"
DEFAULT_SPOOL_EVENTS: Final = 100_000
DEFAULT_SPOOL_MIB: Final = 128

_NODE_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*").fullmatch
"""What Kubernetes allows as the name of an object (RFC 1123, a subdomain)."""

Strategy = Literal["env", "cdi", "both"]
"""How a container gets its devices: by `NVIDIA_VISIBLE_DEVICES`, by Container Device Interface names, or both."""


@dataclass(frozen=True, slots=True)
class NatsSettings:
    """Where the ledger is, and how the agent authenticates."""

    url: str
    identity: NatsIdentity = ANONYMOUS


@dataclass(frozen=True, slots=True)
class KubeletSettings:
    """Where the kubelet is, how containers get their devices, and what shares of devices are called."""

    directory: Path = Path(DEFAULT_KUBELET_DIR)
    allocate: Strategy = "env"
    cdi_kind: str = DEFAULT_CDI_KIND
    cdi_dirs: tuple[Path, ...] = tuple(map(Path, DEFAULT_CDI_DIRS.split(":")))
    names: SharingNames = DEFAULT_NAMES


@dataclass(frozen=True, slots=True)
class HealthSettings:
    """The socket for health monitors (None: there is none), and the namespaces whose pods may report.

    In `preflight_namespaces` the checks may that gpuledger adds to pods. `pod_logs` and `container_logs` are the
    kubelet's folders, whose entries name the pods of the node, and their containers. `instance_type_label` is the label
    of the node that the gateway answers.
    """

    socket: Path | None = None
    namespaces: frozenset[str] = frozenset()
    pod_logs: Path = Path(DEFAULT_POD_LOGS)
    container_logs: Path = Path(DEFAULT_CONTAINER_LOGS)
    preflight_namespaces: frozenset[str] = frozenset()
    instance_type_label: str = DEFAULT_INSTANCE_TYPE_LABEL


@dataclass(frozen=True, slots=True)
class SpoolSettings:
    """How much may wait for the ledger on the node's disk."""

    events_max: int = DEFAULT_SPOOL_EVENTS
    bytes_max: int = DEFAULT_SPOOL_MIB * 1024 * 1024


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """All settings of an agent; `health.classes` parses `xid_classes`.

    `runtime_proxy` is the folder that the node's runtime proxy shares, None: there is no such proxy; `devices` the one
    whose files declare devices, None: none does; `config_facts` the one in which the node's agent of machine
    configuration leaves its reports, None: there is no such agent.
    """

    node: str
    nats: NatsSettings
    exporter_url: str
    listen: str
    state_dir: Path
    hardware: str
    kubelet: KubeletSettings
    health: HealthSettings
    spool: SpoolSettings
    xid_classes: str
    runtime_proxy: Path | None = None
    devices: Path | None = None
    config_facts: Path | None = None


def read_agent_settings(environ: Mapping[str, str]) -> AgentSettings:
    """The settings in an environment.

    Raises:
        SettingsError: a setting is missing or invalid.
    """
    exporter = environ.get(EXPORTER_URL) or DEFAULT_EXPORTER_URL
    if not _is_url(exporter, EXPORTER_SCHEMES):
        raise SettingsError(f"--exporter: {exporter!r} is not a URL such as {DEFAULT_EXPORTER_URL}.")
    return AgentSettings(
        _node(environ.get(NODE_NAME)),
        _nats(environ),
        exporter,
        environ.get(METRICS_LISTEN) or DEFAULT_METRICS_LISTEN,
        read_state_dir(environ),
        read_hardware(environ),
        _kubelet(environ),
        _health(environ),
        _spool(environ),
        environ.get(XID_CLASSES, ""),
        _folder(environ, RUNTIME_PROXY_DIR),
        _folder(environ, DEVICES_DIR),
        _folder(environ, CONFIG_FACTS_DIR),
    )


def read_state_dir(environ: Mapping[str, str]) -> Path:
    """The agent's folder on the node's disk."""
    return Path(environ.get(STATE_DIR) or DEFAULT_STATE_DIR).expanduser().absolute()


def read_hardware(environ: Mapping[str, str]) -> str:
    """The kind of hardware: `nvml`, `simulated:SPEC` or `recorded:FILE`."""
    return environ.get(HARDWARE) or DEFAULT_HARDWARE


def _folder(environ: Mapping[str, str], variable: str) -> Path | None:
    folder = environ.get(variable)
    return Path(folder).absolute() if folder else None


def _node(name: str | None) -> str:
    if not name:
        raise SettingsError(f"The node's name is missing; give --node, or set {NODE_NAME}.")
    return checked_node(name)


def checked_node(name: str) -> str:
    """The name, if a node of Kubernetes may have it; another name would become a node of its own in the ledger.

    Raises:
        SettingsError: no node may have it.
    """
    if len(name) > NAME_LENGTH_MAX or not _NODE_NAME(name):
        raise SettingsError(f"{name[:80]!r} is not the name of a node; give it as `kubectl get nodes` shows it.")
    return name


def _nats(environ: Mapping[str, str]) -> NatsSettings:
    url = environ.get(NATS_URL)
    if not url:
        raise SettingsError(f"The ledger's URL is missing; give --nats-url, or set {NATS_URL}.")
    if not all(_is_url(one.strip(), NATS_SCHEMES) for one in url.split(",")):
        raise SettingsError(f"--nats-url, or {NATS_URL}, is not a URL such as nats://127.0.0.1:4222.")
    return NatsSettings(url, read_nats_identity(environ))


def _is_url(url: str, schemes: Collection[str]) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _kubelet(environ: Mapping[str, str]) -> KubeletSettings:
    strategy = environ.get(ALLOCATE) or "env"
    if strategy not in get_args(Strategy):
        raise SettingsError(f"{ALLOCATE} is {strategy!r}; it is one of {', '.join(get_args(Strategy))}.")
    dirs = environ.get(CDI_DIRS) or DEFAULT_CDI_DIRS
    return KubeletSettings(
        Path(environ.get(KUBELET_DIR) or DEFAULT_KUBELET_DIR).absolute(),
        cast("Strategy", strategy),
        environ.get(CDI_KIND) or DEFAULT_CDI_KIND,
        tuple(Path(one) for one in dirs.split(":") if one),
        read_sharing_names(environ),
    )


def _health(environ: Mapping[str, str]) -> HealthSettings:
    path = environ.get(HEALTH_SOCKET)
    return HealthSettings(
        Path(path).absolute() if path else None,
        _names(environ, HEALTH_NAMESPACES),
        Path(environ.get(POD_LOGS) or DEFAULT_POD_LOGS),
        Path(environ.get(CONTAINER_LOGS) or DEFAULT_CONTAINER_LOGS),
        _names(environ, PREFLIGHT_NAMESPACES),
        read_instance_type_label(environ),
    )


def _names(environ: Mapping[str, str], variable: str) -> frozenset[str]:
    return frozenset(filter(None, (name.strip() for name in environ.get(variable, "").split(","))))


def _spool(environ: Mapping[str, str]) -> SpoolSettings:
    mib = _number(environ, SPOOL_MIB, DEFAULT_SPOOL_MIB)
    return SpoolSettings(_number(environ, SPOOL_EVENTS, DEFAULT_SPOOL_EVENTS), mib * 1024 * 1024)


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name)
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise SettingsError(f"{name} is {text!r}; it is a whole number above 0.")
    return int(text)
