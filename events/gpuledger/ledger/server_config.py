"""The configuration of nats-server for a ledger whose agents log in by an auth callout. Pure.

The server has three accounts of ours. The ledger's and the callout's users log in by passwords; the agents' account has
no users at all until the callout service issues them. What each may do is decided in `permissions`, never here. In
operator mode all of that stands in JWTs.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final, NamedTuple

from gpuledger.ledger.permissions import (
    AGENTS_ACCOUNT,
    ANSWER_EXPIRES_S,
    CALLOUT_ACCOUNT,
    CALLOUT_SUBJECT,
    CALLOUT_USER,
    LEDGER_ACCOUNT,
    Role,
    exports_text,
    imports_text,
    permissions_text,
    role_permissions,
    role_user,
)

LOGIN_TIMEOUT_S: Final = 4
"""How long the server waits for a login, an answer of the callout service included."""

TOKEN_CHARS_MAX: Final = 12_288
"""The longest token that logs an agent in; those of service accounts have one or two thousand characters."""

CONTROL_LINE_BYTES_MAX: Final = TOKEN_CHARS_MAX + 4096
"""The longest command of a client: a login with such a token."""

_ANSWER_EXPIRES: Final = f"{ANSWER_EXPIRES_S}s"
SYSTEM_ACCOUNT: Final = "SYS"
SYSTEM_USER: Final = "gpuledger-system"
CALLOUT_LOGIN: Final = "callout"
SYSTEM_LOGIN: Final = "system"
LOGINS: Final = (*Role, CALLOUT_LOGIN, SYSTEM_LOGIN)
"""What passwords are named by."""

REQUIRED_LOGINS: Final = (Role.SERVICES, Role.OPERATOR, CALLOUT_LOGIN)
ISSUER_VARIABLE: Final = "GPULEDGER_CALLOUT_ISSUER"


class TlsFiles(NamedTuple):
    """Files with the server's certificate and key; `ca` are the authorities of the other servers of a cluster."""

    certificate: PurePath
    key: PurePath
    ca: PurePath | None = None


class ClusterConfig(NamedTuple):
    """A cluster of servers, which find each other at `routes`; a server skips the route to itself."""

    name: str
    listen: str
    routes: Sequence[str]


class ServerJwts(NamedTuple):
    """What a server in operator mode knows: its operator, the accounts by their public keys, and the sentinel.

    The sentinel is whom a client counts as that has no JWT, until the callout service has decided.
    """

    operator: str
    accounts: Mapping[str, str]
    sentinel: str


class ServerConfig(NamedTuple):
    """What differs between servers. Passwords are by login; without them the server's environment has them.

    `xkey` encrypts what the server asks the callout service. In operator mode there are `jwts`, which have all logins
    and keys; with a `resolver` folder the server has the accounts' JWTs there, and takes new ones while it runs.
    """

    listen: str = "0.0.0.0:4222"
    monitor: str = "0.0.0.0:8222"
    store: PurePath = PurePath("/data/jetstream")
    server_name: str | None = None
    passwords: Mapping[str, str] | None = None
    issuer: str | None = None
    tls: TlsFiles | None = None
    cluster: ClusterConfig | None = None
    xkey: str | None = None
    jwts: ServerJwts | None = None
    resolver: PurePath | None = None


def config_text(config: ServerConfig) -> str:
    """The whole configuration, in the server's language."""
    name = _quoted(config.server_name) if config.server_name else "$HOSTNAME"
    lines = [
        f"server_name: {name}",
        f"listen: {_quoted(config.listen)}",
        f"http: {_quoted(config.monitor)}",
        f"max_control_line: {CONTROL_LINE_BYTES_MAX}",
        f"jetstream: {{ store_dir: {_quoted(str(config.store))}, sync_interval: always }}",
    ]
    if config.tls is not None:
        lines.append(f"tls: {_tls_text(config.tls, is_mutual=False)}")
    if config.cluster is not None:
        lines.append(_cluster_text(config.cluster, config.tls))
    if config.jwts is not None:
        return "\n".join((*lines, *_operator_lines(config.jwts, config.resolver), ""))
    return "\n".join((*lines, _accounts_text(config.passwords), _authorization_text(config), ""))


def password_variable(login: str) -> str:
    """The variable of the server's environment that has a password."""
    return f"GPULEDGER_NATS_PASSWORD_{login.upper()}"


def _accounts_text(passwords: Mapping[str, str] | None) -> str:
    ledger = [_role_user_text(Role(one), passwords) for one in _logins(passwords) if one in set(Role)]
    callout = _callout_user_text(passwords)
    system = f"{{ user: {SYSTEM_USER}, password: {_password(SYSTEM_LOGIN, passwords)} }}"
    users, exports = _indented(_list_text("users", ledger)), _indented(exports_text())
    blocks = (
        f"{LEDGER_ACCOUNT}: {{\n  jetstream: enabled\n  {users}\n  {exports}\n}}",
        f"{AGENTS_ACCOUNT}: {{\n  {_indented(imports_text())}\n}}",
        f"{CALLOUT_ACCOUNT}: {{\n  {_indented(_list_text('users', [callout]))}\n}}",
        f"{SYSTEM_ACCOUNT}: {{\n  {_list_text('users', [system] if _has(SYSTEM_LOGIN, passwords) else [])}\n}}",
    )
    inner = "".join(f"  {_indented(block)}\n" for block in blocks)
    return f"accounts: {{\n{inner}}}\nsystem_account: {SYSTEM_ACCOUNT}"


def _operator_lines(jwts: ServerJwts, folder: PurePath | None) -> Sequence[str]:
    """A folder is filled by people: at each start a server would replace newer JWTs there by those that it names."""
    preload = "".join(f"  {account}: {jwt}\n" for account, jwt in sorted(jwts.accounts.items()))
    memory = f"resolver: MEMORY\nresolver_preload: {{\n{preload}}}"
    return (
        f"operator: {jwts.operator}",
        memory if folder is None else f"resolver: {{ type: full, dir: {_quoted(str(folder))} }}",
        f"default_sentinel: {_quoted(jwts.sentinel)}",
        f"authorization: {{ timeout: {LOGIN_TIMEOUT_S} }}",
    )


def _authorization_text(config: ServerConfig) -> str:
    issuer = config.issuer or f"${ISSUER_VARIABLE}"
    users = [user_of(login) for login in _logins(config.passwords)]
    xkey = f"    xkey: {config.xkey}\n" if config.xkey else ""
    return (
        f"authorization: {{\n  timeout: {LOGIN_TIMEOUT_S}\n  auth_callout: {{\n    issuer: {issuer}\n"
        f"    account: {CALLOUT_ACCOUNT}\n    auth_users: {json.dumps(users)}\n{xkey}  }}\n}}"
    )


def user_of(login: str) -> str:
    """The user that a login is for."""
    return {CALLOUT_LOGIN: CALLOUT_USER, SYSTEM_LOGIN: SYSTEM_USER}.get(login) or role_user(Role(login))


def _role_user_text(role: Role, passwords: Mapping[str, str] | None) -> str:
    return _user_text(role_user(role), _password(role, passwords), permissions_text(role_permissions(role)))


def _callout_user_text(passwords: Mapping[str, str] | None) -> str:
    """It listens to logins, answers each once, and does nothing else."""
    permissions = (
        f"permissions: {{\n  publish: {{ deny: [{_quoted('>')}] }}\n"
        f"  subscribe: {{ allow: [{_quoted(CALLOUT_SUBJECT)}] }}\n"
        f"  allow_responses: {{ max: 1, expires: {_quoted(_ANSWER_EXPIRES)} }}\n}}"
    )
    return _user_text(CALLOUT_USER, _password(CALLOUT_LOGIN, passwords), permissions)


def _user_text(user: str, password: str, permissions: str) -> str:
    return f"{{\n  user: {_quoted(user)}\n  password: {password}\n  {_indented(permissions)}\n}}"


def _cluster_text(cluster: ClusterConfig, tls: TlsFiles | None) -> str:
    lines = [
        f"name: {_quoted(cluster.name)}",
        f"listen: {_quoted(cluster.listen)}",
        f"routes: {json.dumps(list(cluster.routes))}",
    ]
    if tls is not None and tls.ca is not None:
        lines.append(f"tls: {_tls_text(tls, is_mutual=True)}")
    return "cluster: {\n" + "".join(f"  {line}\n" for line in lines) + "}"


def _tls_text(tls: TlsFiles, *, is_mutual: bool) -> str:
    files: dict[str, Any] = {"cert_file": str(tls.certificate), "key_file": str(tls.key)}
    if is_mutual:
        files |= {"ca_file": str(tls.ca), "verify": True}
    return json.dumps(files)


def _logins(passwords: Mapping[str, str] | None) -> list[str]:
    return [login for login in LOGINS if _has(login, passwords)]


def _has(login: str, passwords: Mapping[str, str] | None) -> bool:
    return login in (passwords if passwords is not None else (*REQUIRED_LOGINS, Role.READER))


def _password(login: str, passwords: Mapping[str, str] | None) -> str:
    return f"${password_variable(login)}" if passwords is None else _quoted(passwords.get(login, ""))


def _list_text(name: str, entries: Sequence[str]) -> str:
    return f"{name}: [" + "".join(f"\n  {_indented(entry)}" for entry in entries) + ("\n]" if entries else "]")


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
