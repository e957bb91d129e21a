"""The JWTs of a NATS server in operator mode whose agents log in by an auth callout. Pure.

An operator's key signs accounts, and an account's keys sign users. The accounts and permissions are those of
`server_config`; the server keeps neither users nor passwords. Here is the one place that says what stands in the JWTs.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gpuledger.ledger.jwt import UNLIMITED, VERSION, Claims, SigningKey, encoded
from gpuledger.ledger.nkeys import KeyKind
from gpuledger.ledger.permissions import (
    AGENTS_ACCOUNT,
    ANSWER_EXPIRES_S,
    CALLOUT_ACCOUNT,
    CALLOUT_SUBJECT,
    CALLOUT_USER,
    LEDGER_ACCOUNT,
    Permissions,
    Role,
    exported_services,
    exported_streams,
    role_permissions,
    role_user,
)
from gpuledger.ledger.server_config import SYSTEM_ACCOUNT, SYSTEM_USER, ServerJwts

OPERATOR_NAME: Final = "gpuledger"
SENTINEL_USER: Final = "gpuledger-sentinel"
"""As whom the server takes a client that has no JWT, until the callout service has decided. It may do nothing."""

_EVERYTHING: Final = (">",)
_NANOSECONDS: Final = 10**9
_LIMITS: Final = dict.fromkeys(("subs", "data", "payload"), UNLIMITED)
_ACCOUNT_LIMITS: Final = {
    **_LIMITS,
    **dict.fromkeys(("imports", "exports", "conn", "leaf"), UNLIMITED),
    "wildcards": True,
}
_JETSTREAM: Final = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), UNLIMITED)

Draw = Callable[[], bytes]
"""Draws 32 bytes that nobody can guess."""


class OperatorKeys(NamedTuple):
    """The keys of an operator and its accounts, and the two that the callout service signs with."""

    operator: SigningKey
    system: SigningKey
    ledger: SigningKey
    agents: SigningKey
    callout: SigningKey
    agents_signing: SigningKey
    callout_signing: SigningKey


class Login(NamedTuple):
    """A user's public key, and the file with which it logs in."""

    public: str
    credentials: str


def new_keys(draw: Draw) -> OperatorKeys:
    """Keys that nobody has had before."""
    accounts = (_new_key(KeyKind.ACCOUNT, draw) for _ in range(len(OperatorKeys._fields) - 1))
    return OperatorKeys(_new_key(KeyKind.OPERATOR, draw), *accounts)


def server_jwts(keys: OperatorKeys, callout_user: str, xkey: str | None, draw: Draw, now_s: int) -> ServerJwts:
    """The JWTs of a server that asks the user of the callout service about logins; `xkey` encrypts its questions."""
    operator = {"type": "operator", "version": VERSION, "system_account": keys.system.public}
    return ServerJwts(
        encoded(_claims(keys.operator.public, OPERATOR_NAME, operator, now_s), keys.operator),
        {
            keys.system.public: _account(keys, keys.system, SYSTEM_ACCOUNT, {}, now_s),
            keys.ledger.public: _account(keys, keys.ledger, LEDGER_ACCOUNT, _ledger(), now_s),
            keys.agents.public: _account(keys, keys.agents, AGENTS_ACCOUNT, _agents(keys, now_s), now_s),
            keys.callout.public: _account(
                keys, keys.callout, CALLOUT_ACCOUNT, _callout(keys, callout_user, xkey), now_s
            ),
        },
        _sentinel(keys, draw, now_s),
    )


def role_login(keys: OperatorKeys, role: Role, draw: Draw, now_s: int) -> Login:
    """The login of a role's user."""
    return _login(keys.ledger, role_user(role), permission_claims(role_permissions(role)), draw, now_s)


def system_login(keys: OperatorKeys, draw: Draw, now_s: int) -> Login:
    """The login of the user who sees what servers do, and gives them new account JWTs."""
    return _login(keys.system, SYSTEM_USER, {}, draw, now_s)


def callout_login(keys: OperatorKeys, draw: Draw, now_s: int) -> Login:
    """The login of the callout service: it listens to questions, answers each once, and does nothing else."""
    answers = {"max": 1, "ttl": ANSWER_EXPIRES_S * _NANOSECONDS}
    permissions = {"pub": {"deny": list(_EVERYTHING)}, "sub": {"allow": [CALLOUT_SUBJECT]}, "resp": answers}
    return _login(keys.callout, CALLOUT_USER, permissions, draw, now_s)


def permission_claims(permissions: Permissions) -> Claims:
    """Permissions as a user's JWT has them."""
    return {"pub": {"allow": list(permissions.publish)}, "sub": {"allow": list(permissions.subscribe)}}


def user_nats(permissions: Mapping[str, Any]) -> Claims:
    """What a user's JWT says about the user, besides its name and its time."""
    return {"type": "user", "version": VERSION, **_LIMITS, **permissions}


def credentials_text(jwt: str, seed: str) -> str:
    """The text of a `.creds` file."""
    parts = (("NATS USER JWT", jwt), ("USER NKEY SEED", seed))
    return "\n".join(f"-----BEGIN {label}-----\n{text}\n------END {label}------\n" for label, text in parts)


def _new_key(kind: KeyKind, draw: Draw) -> SigningKey:
    return SigningKey(kind, Ed25519PrivateKey.from_private_bytes(draw()))


def _claims(subject: str, name: str, nats: Claims, now_s: int) -> Claims:
    return {"iat": now_s, "sub": subject, "name": name, "nats": nats}


def _login(account: SigningKey, name: str, permissions: Claims, draw: Draw, now_s: int) -> Login:
    key = _new_key(KeyKind.USER, draw)
    jwt = encoded(_claims(key.public, name, user_nats(permissions), now_s), account)
    return Login(key.public, credentials_text(jwt, key.seed))


def _sentinel(keys: OperatorKeys, draw: Draw, now_s: int) -> str:
    nothing = {"deny": list(_EVERYTHING)}
    nats = user_nats({"pub": nothing, "sub": nothing, "bearer_token": True})
    return encoded(_claims(_new_key(KeyKind.USER, draw).public, SENTINEL_USER, nats, now_s), keys.callout)


def _account(keys: OperatorKeys, account: SigningKey, name: str, more: Claims, now_s: int) -> str:
    limits = {"limits": {**_ACCOUNT_LIMITS, **(_JETSTREAM if account is keys.ledger else {})}}
    nats = {"type": "account", "version": VERSION, **limits, **more}
    return encoded(_claims(account.public, name, nats, now_s), keys.operator)


def _ledger() -> Claims:
    """It exports to those whom it gives an activation, and to nobody else."""
    exports = [{"name": subject, "subject": subject, "type": kind, "token_req": True} for kind, subject, _ in _shared()]
    return {"exports": exports}


def _agents(keys: OperatorKeys, now_s: int) -> Claims:
    imports = [
        {
            "name": subject,
            "subject": subject,
            "type": kind,
            "account": keys.ledger.public,
            "local_subject": local,
            "token": _activation(keys, kind, subject, now_s),
        }
        for kind, subject, local in _shared()
    ]
    return {"imports": imports, "signing_keys": [keys.agents_signing.public]}


def _activation(keys: OperatorKeys, kind: str, subject: str, now_s: int) -> str:
    nats = {"type": "activation", "version": VERSION, "subject": subject, "kind": kind}
    return encoded(_claims(keys.agents.public, subject, nats, now_s), keys.ledger)


def _callout(keys: OperatorKeys, user: str, xkey: str | None) -> Claims:
    authorization: Claims = {"auth_users": [user], "allowed_accounts": [keys.agents.public]}
    authorization |= {} if xkey is None else {"xkey": xkey}
    return {"authorization": authorization, "signing_keys": [keys.callout_signing.public]}


def _shared() -> Sequence[tuple[str, str, str]]:
    """The kind of each subject that the ledger's account exports, the subject, and its name in the agents' account."""
    services = (("service", subject, local) for subject, local in exported_services())
    return (*services, *(("stream", subject, subject) for subject in exported_streams()))
