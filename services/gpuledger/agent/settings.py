"""Settings of an agent: what the command line says, and where it is silent the environment."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from gpuledger.events.payload import NAME_LENGTH_MAX
from gpuledger.settings import DEFAULT_METRICS_LISTEN, METRICS_LISTEN, NATS_URL, SettingsError

NODE_NAME: Final = "NODE_NAME"
"""A DaemonSet sets it from its pod's `spec.nodeName`."""

EXPORTER_URL: Final = "GPULEDGER_EXPORTER_URL"
DEFAULT_EXPORTER_URL: Final = "http://127.0.0.1:9400/metrics"


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Whose agent it is, where it records, and what it looks at."""

    node: str
    nats_url: str
    exporter_url: str
    listen: str


def read_agent_settings(
    environ: Mapping[str, str],
    *,
    node: str | None = None,
    nats_url: str | None = None,
    exporter_url: str | None = None,
    listen: str | None = None,
) -> AgentSettings:
    """The settings in force; what is given wins over the environment.

    Raises:
        SettingsError: something is missing, or is nothing that can be used.
    """
    exporter = exporter_url or environ.get(EXPORTER_URL) or DEFAULT_EXPORTER_URL
    _check_url(exporter)
    return AgentSettings(
        _node(node or environ.get(NODE_NAME)),
        _nats_url(nats_url or environ.get(NATS_URL)),
        exporter,
        listen or environ.get(METRICS_LISTEN) or DEFAULT_METRICS_LISTEN,
    )


def _node(name: str | None) -> str:
    if not name:
        raise SettingsError(f"Nobody says which node this is; give --node, or set {NODE_NAME}.")
    if len(name) > NAME_LENGTH_MAX or "/" in name:
        raise SettingsError(f"{name[:80]!r} is no name of a node; give --node as `kubectl get nodes` shows it.")
    return name


def _nats_url(url: str | None) -> str:
    if not url:
        raise SettingsError(f"Nobody says where the ledger is; give --nats-url, or set {NATS_URL}.")
    return url


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise SettingsError(f"--exporter: {url!r} is no URL such as {DEFAULT_EXPORTER_URL}.")
