"""Decides what the Secrets of the servers that the chart brings should hold. Pure but for chance.

What is there is kept: a password never changes by itself, and a certificate only where its time has come. Each client's
Secret holds its own login and nothing of others.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gpuledger.api.bundled import (
    AGENTS_PART,
    AUTHORITY_PART,
    CALLOUT,
    CREDENTIALS_KEY,
    DATABASE,
    DATABASE_CLIENTS,
    DATABASE_READ_URL_KEY,
    DATABASE_URL_KEY,
    DATABASE_USER,
    GATEWAY,
    ISSUER_KEY,
    NATS_LOGINS,
    NATS_PART,
    NATS_PORT,
    NATS_URL_KEY,
    PASSWORD_KEY,
    POSTGRES_PART,
    POSTGRES_PORT,
    REPLICATION_KEY,
    REWIND_KEY,
    SEED_KEY,
    BundledServers,
)
from gpuledger.edge.authcallout.keys import issuer_of
from gpuledger.edge.webhooks.certificates.authority import (
    BUNDLE,
    Pair,
    Profile,
    authority_at,
    read_pair,
    serving_at,
)
from gpuledger.edge.webhooks.errors import CertificateError
from gpuledger.ledger.nkeys import KeyKind, KeyTextError, seed_key, seed_text
from gpuledger.ledger.server_config import user_of

SERVER_LIFE: Final = timedelta(days=365)
AUTHORITY_NAME: Final = "gpuledger servers CA"
_NATS: Final = Profile("gpuledger NATS", SERVER_LIFE, is_peer=True)
_POSTGRES: Final = Profile("gpuledger PostgreSQL", SERVER_LIFE, is_peer=True)
_GATEWAY: Final = Profile("gpuledger health gateway", SERVER_LIFE)
_LOCAL: Final = ("localhost", "127.0.0.1")
"""For commands in the server's own pod, and those of `kubectl port-forward`."""

_ANY_STANDBY: Final = "target_session_attrs=prefer-standby&load_balance_hosts=random"
"""Of three servers one that follows, and the leader while none does; the chart uses that URL where there are three."""

Data = Mapping[str, bytes]
Draw = Callable[[], bytes]
"""Draws 32 bytes that nobody can guess."""


def desired_secrets(
    current: Mapping[str, Data], servers: BundledServers, now: datetime, draw: Draw
) -> dict[str, dict[str, bytes]]:
    """The data of each Secret, by the end of its name; `current` has those that exist."""
    authority = authority_at(_pair(current.get(AUTHORITY_PART)), now, AUTHORITY_NAME)
    made = {AUTHORITY_PART: authority.data()}
    clients: dict[str, dict[str, bytes]] = {part: {BUNDLE: authority.bundle} for part in DATABASE_CLIENTS}
    if servers.nats:
        made |= _nats(current, servers, authority, now, draw, clients)
    if servers.postgres:
        made[POSTGRES_PART] = _postgres(current.get(POSTGRES_PART, {}), servers, authority, now, draw)
        password = made[POSTGRES_PART][PASSWORD_KEY].decode()
        leader = _database_url(password, (servers.postgres_host,))
        members = f"{_database_url(password, servers.postgres_peers())}?{_ANY_STANDBY}"
        for data in clients.values():
            data |= {DATABASE_URL_KEY: leader.encode(), DATABASE_READ_URL_KEY: members.encode()}
    return made | clients


def _nats(
    current: Mapping[str, Data],
    servers: BundledServers,
    authority: Pair,
    now: datetime,
    draw: Draw,
    clients: dict[str, dict[str, bytes]],
) -> dict[str, dict[str, bytes]]:
    """The Secrets of the server, the auth callout, the gateway and the agents; the other clients get their logins."""
    before = current.get(NATS_PART, {})
    hosts = (servers.nats_host, *servers.nats_peers(), *_LOCAL)
    certificate = serving_at(_pair(before), authority, hosts, now, _NATS)
    passwords = {login: before.get(login) or draw().hex().encode() for login in NATS_LOGINS}
    raw = _raw_seed(current.get(CALLOUT, {})) or draw()
    url = {NATS_URL_KEY: f"tls://{servers.nats_host}:{NATS_PORT}".encode()}
    callout: dict[str, bytes] = {BUNDLE: authority.bundle, SEED_KEY: seed_text(KeyKind.ACCOUNT, raw).encode()}
    gateway = dict(serving_at(_pair(current.get(GATEWAY)), authority, servers.gateway_hosts, now, _GATEWAY).data())
    for login, data in (clients | {CALLOUT: callout, GATEWAY: gateway}).items():
        lines = f"user: {user_of(login)}\npassword: {passwords[login].decode()}\n"
        data.update(url, **{CREDENTIALS_KEY: lines.encode()})
    issuer = issuer_of(Ed25519PrivateKey.from_private_bytes(raw))
    return {
        NATS_PART: certificate.data() | passwords | {ISSUER_KEY: issuer.encode()},
        CALLOUT: callout,
        GATEWAY: gateway,
        AGENTS_PART: {BUNDLE: authority.bundle},
    }


def _postgres(before: Data, servers: BundledServers, authority: Pair, now: datetime, draw: Draw) -> dict[str, bytes]:
    hosts = (servers.postgres_host, *servers.postgres_peers(), *_LOCAL)
    certificate = serving_at(_pair(before), authority, hosts, now, _POSTGRES)
    keys = (PASSWORD_KEY, REPLICATION_KEY, REWIND_KEY)
    return certificate.data() | {key: before.get(key) or draw().hex().encode() for key in keys}


def _database_url(password: str, hosts: Iterable[str]) -> str:
    addresses = ",".join(f"{host}:{POSTGRES_PORT}" for host in hosts)
    return f"postgresql://{DATABASE_USER}:{password}@{addresses}/{DATABASE}"


def _raw_seed(data: Data) -> bytes | None:
    """The callout's key, unless there is none yet or somebody damaged it."""
    try:
        return seed_key(KeyKind.ACCOUNT, data.get(SEED_KEY, b"").decode(errors="replace").strip())
    except KeyTextError:
        return None


def _pair(data: Data | None) -> Pair | None:
    try:
        return read_pair(data or {})
    except CertificateError:
        return None
