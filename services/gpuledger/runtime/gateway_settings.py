"""The settings of the health gateway, from the environment."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gpuledger.runtime.settings import (
    DEFAULT_METRICS_LISTEN,
    KUBECONFIG,
    METRICS_LISTEN,
    NATS_URL,
    NatsIdentity,
    SettingsError,
    read_nats_identity,
)

LISTEN: Final = "GPULEDGER_GATEWAY_LISTEN"
LISTEN_MTLS: Final = "GPULEDGER_GATEWAY_MTLS_LISTEN"
CERTIFICATE: Final = "GPULEDGER_GATEWAY_CERTIFICATE"
KEY: Final = "GPULEDGER_GATEWAY_KEY"
CLIENT_CA: Final = "GPULEDGER_GATEWAY_CLIENT_CA"
AUDIENCE: Final = "GPULEDGER_GATEWAY_AUDIENCE"
REPORTERS: Final = "GPULEDGER_GATEWAY_REPORTERS"
CLUSTER_REPORTERS: Final = "GPULEDGER_GATEWAY_CLUSTER_REPORTERS"
CERTIFICATES: Final = "GPULEDGER_GATEWAY_CERTIFICATES"
PREFLIGHT_NAMESPACES: Final = "GPULEDGER_GATEWAY_PREFLIGHT_NAMESPACES"

DEFAULT_AUDIENCE: Final = "gpuledger-health"
EVERY_ACCOUNT: Final = "*"
CLUSTER: Final = "*"
"""The node of a certificate's name that reports about every node."""

Account = tuple[str, str]
"""A service account by namespace and name."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The gateway's certificate and key, and the authority of clients' certificates; PEM."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """Where the gateway serves and whom.

    `listen` is for clients with tokens, `listen_mtls` for those with certificates; None: there is none. `reporters` may
    report about their own nodes, `cluster_reporters` about every node; the name `*` is every account of a namespace.
    `certificates` has the node by a name in a client certificate, `*` for every node. In `preflight_namespaces` the
    preflight checks of pods may report.
    """

    nats_url: str
    nats_identity: NatsIdentity
    tls: TlsFiles
    listen: str | None
    listen_mtls: str | None
    audience: str = DEFAULT_AUDIENCE
    reporters: frozenset[Account] = frozenset()
    cluster_reporters: frozenset[Account] = frozenset()
    certificates: Mapping[str, str] = field(default_factory=dict)
    metrics_listen: str = DEFAULT_METRICS_LISTEN
    kubeconfig: str | None = None
    preflight_namespaces: frozenset[str] = frozenset()


def read_gateway_settings(environ: Mapping[str, str]) -> GatewaySettings:
    """The settings of the health gateway.

    Raises:
        SettingsError: one is missing or invalid.
    """
    url = environ.get(NATS_URL)
    if not url:
        raise SettingsError(f"The server's URL is missing; set {NATS_URL}, such as to nats://127.0.0.1:4222.")
    listen, listen_mtls = environ.get(LISTEN) or None, environ.get(LISTEN_MTLS) or None
    if listen is None and listen_mtls is None:
        raise SettingsError(
            f"The gateway has no address; set {LISTEN}, such as to 0.0.0.0:9444, for monitors with tokens, or "
            f"{LISTEN_MTLS} for those with certificates."
        )
    client_ca = _file(environ, CLIENT_CA) if environ.get(CLIENT_CA) else None
    if (listen_mtls is None) != (client_ca is None):
        raise SettingsError(
            f"{LISTEN_MTLS} and {CLIENT_CA} belong together: certificates of clients are checked by their authority."
        )
    return GatewaySettings(
        url,
        read_nats_identity(environ),
        TlsFiles(_file(environ, CERTIFICATE), _file(environ, KEY), client_ca),
        listen,
        listen_mtls,
        environ.get(AUDIENCE) or DEFAULT_AUDIENCE,
        _accounts(environ, REPORTERS),
        _accounts(environ, CLUSTER_REPORTERS),
        _certificates(environ.get(CERTIFICATES) or "{}"),
        environ.get(METRICS_LISTEN) or DEFAULT_METRICS_LISTEN,
        environ.get(KUBECONFIG) or None,
        frozenset(filter(None, (name.strip() for name in environ.get(PREFLIGHT_NAMESPACES, "").split(",")))),
    )


def _file(environ: Mapping[str, str], name: str) -> Path:
    path = Path(environ.get(name, ""))
    if not path.is_file():
        raise SettingsError(f"{name} is {environ.get(name, '')!r}, which is no file; set it to a PEM file.")
    return path


def _accounts(environ: Mapping[str, str], name: str) -> frozenset[Account]:
    """Accounts as NAMESPACE/NAME; a NAMESPACE alone is every account in it."""
    accounts = set()
    for one in (part.strip() for part in environ.get(name, "").split(",")):
        if not one:
            continue
        namespace, slash, account = one.partition("/")
        if not namespace or "/" in account or (slash and not account):
            raise SettingsError(f"{name} has {one!r}; list NAMESPACE or NAMESPACE/SERVICEACCOUNT, separated by commas.")
        accounts.add((namespace, account or EVERY_ACCOUNT))
    return frozenset(accounts)


def _certificates(text: str) -> Mapping[str, str]:
    hint = 'it has to be a JSON object such as {"csp-monitor.example": "*", "rack-7.example": "gpu-07"}'
    try:
        found = json.loads(text)
    except ValueError as error:
        raise SettingsError(f"{CERTIFICATES} is no JSON ({error}); {hint}.") from error
    if not isinstance(found, dict) or not all(isinstance(one, str) and one for pair in found.items() for one in pair):
        raise SettingsError(f"{CERTIFICATES} cannot be used; {hint}.")
    return found
