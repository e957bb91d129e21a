"""Decides whether an agent may log in, and as which node.

The node is what the API server says about the token, never what the client says. A login ends with its token, and soon:
who loses the right to a node loses the connection within minutes.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

from gpuledger.edge.kube.token_review import InvalidToken, TokenProblem, identity_of, shown
from gpuledger.ledger.jwt import VERSION, Claims, JwtError, unverified
from gpuledger.ledger.operator_mode import permission_claims, user_nats
from gpuledger.ledger.permissions import AGENTS_ACCOUNT, agent_permissions, user_name
from gpuledger.ledger.server_config import TOKEN_CHARS_MAX
from gpuledger.runtime.settings import CALLOUT_ACCOUNT, CALLOUT_ACCOUNT_SEED, CALLOUT_SEED, NATS_TOKEN_FILE

LOGIN_LIFE_MAX_S: Final = 600
"""How long a login lasts before the agent has to show its token again."""

SPREAD_S: Final = 120
"""By how much less it may be, by node, so that not all agents come back at once after a restart of the server."""

LOGIN_LIFE_MIN_S: Final = 5
"""A token that ends sooner is no use; the kubelet renews tokens long before."""

TRIAL_NAME: Final = "trial of the auth callout"
"""What our client calls itself that comes without a token."""

REQUEST_TYPE: Final = "authorization_request"
CONNECTION_TYPES: Final = ("STANDARD", "WEBSOCKET")


class Reason(StrEnum):
    """Why somebody is not let in."""

    NO_TOKEN = "NoToken"  # noqa: S105 - a word for a metric
    NOT_AUTHENTICATED = "NotAuthenticated"
    OTHER_AUDIENCE = "OtherAudience"
    OTHER_ACCOUNT = "OtherAccount"
    NO_NODE = "NoNode"
    EXPIRED = "Expired"
    REVIEW_FAILED = "ReviewFailed"
    OVERLOADED = "Overloaded"
    OTHER_ISSUER = "OtherIssuer"
    INVALID_REQUEST = "InvalidRequest"


FAILURES: Final = frozenset({Reason.REVIEW_FAILED, Reason.OVERLOADED, Reason.OTHER_ISSUER, Reason.INVALID_REQUEST})
"""Reasons that are about us; all others are about who logs in."""


_REASONS: Final[Mapping[TokenProblem, Reason]] = {
    TokenProblem.NOT_AUTHENTICATED: Reason.NOT_AUTHENTICATED,
    TokenProblem.OTHER_AUDIENCE: Reason.OTHER_AUDIENCE,
}


class LoginRules(NamedTuple):
    """For which audience a token has to be, and whose: the user's name of a service account."""

    audience: str
    user: str


@dataclass(frozen=True, slots=True)
class LoginRequest:
    """What a server asks about a client, and whose answer it expects. The token stays out of every text.

    A trial is a client of ours that has no token; a service that starts sees by it what servers ask.
    """

    server: str
    issuer: str
    user_key: str
    host: str
    token: str = field(repr=False)
    is_trial: bool = False


class Answering(NamedTuple):
    """The public keys that we answer with: the issuer's, and in operator mode that of the agents' account."""

    issuer: str
    account: str | None = None


class Granted(NamedTuple):
    """The node whose agent may log in, and until when, in seconds since 1970."""

    node: str
    expires_s: int


class Denied(NamedTuple):
    """Why a login is refused. `message` is for the logs, and holds no part of a token."""

    reason: Reason
    message: str


def login_request(claims: Claims) -> LoginRequest | Denied:
    """The request in the claims of a server."""
    nats = _mapping(claims.get("nats"))
    options, client = _mapping(nats.get("connect_opts")), _mapping(nats.get("client_info"))
    server, user_key = _mapping(nats.get("server_id")).get("id"), nats.get("user_nkey")
    if nats.get("type") != REQUEST_TYPE or not _is_text(server) or not _is_text(user_key) or server != claims["iss"]:
        return Denied(Reason.INVALID_REQUEST, "it is no request of a server to authorize a client")
    token, host = options.get("auth_token"), str(client.get("host") or "an unknown address")
    issuer = str(claims.get("sub") or "")
    is_trial = options.get("name") == TRIAL_NAME and not token
    return LoginRequest(str(server), issuer, str(user_key), host, token if isinstance(token, str) else "", is_trial)


def other_issuer(request: LoginRequest, answering: Answering) -> Denied | None:
    """Why the server would not accept what we sign; None where it may.

    In operator mode a server names its account, and which signing keys that has is not for us to see.
    """
    if answering.account is not None or request.issuer == answering.issuer:
        return None
    advice = f"set {CALLOUT_SEED} to the key of that issuer, or the server's issuer to this key"
    operator = f"if the server is in operator mode, also {CALLOUT_ACCOUNT} and {CALLOUT_ACCOUNT_SEED}"
    return Denied(
        Reason.OTHER_ISSUER,
        f"the server accepts logins of the issuer {request.issuer or '(none)'} alone, and this service signs as "
        f"{answering.issuer}; {advice}; {operator}",
    )


def without_token(request: LoginRequest) -> Denied | None:
    """Why there is nothing to review; None where there is a token."""
    if not request.token:
        advice = f"agents set {NATS_TOKEN_FILE}, and other users have to be in auth_users"
        return Denied(Reason.NO_TOKEN, f"it came without a token, or with a wrong password; {advice}")
    if len(request.token) > TOKEN_CHARS_MAX:
        return Denied(Reason.NO_TOKEN, f"its token is longer than {TOKEN_CHARS_MAX} characters")
    return None


def decide(token: str, status: Mapping[str, Any], rules: LoginRules, now_s: int) -> Granted | Denied:
    """Whether the agent with a token may log in, by the status of the token's review."""
    found = identity_of(token, status, rules.audience)
    if isinstance(found, InvalidToken):
        return Denied(_REASONS[found.problem], found.message)
    if found.user != rules.user:
        return Denied(Reason.OTHER_ACCOUNT, f"it is {shown(found.user)}, and agents are {rules.user}")
    if (node := found.node) is None:
        advice = "it has to be a projected token of a pod, reviewed by Kubernetes 1.30 or newer"
        return Denied(Reason.NO_NODE, f"its token is bound to no node; {advice}")
    expires_s = _token_end_s(token, now_s + _life_s(node))
    if expires_s < now_s + LOGIN_LIFE_MIN_S:
        return Denied(Reason.EXPIRED, f"the token of {node}'s agent has expired; the kubelet renews the file in time")
    return Granted(node, expires_s)


def user_claims(request: LoginRequest, granted: Granted, account: str | None, now_s: int) -> Claims:
    """The claims of the user that the agent of a node becomes: confined to the node, in the agents' account.

    In operator mode that is the `account` with this public key.
    """
    nats = user_nats(permission_claims(agent_permissions(granted.node)))
    nats |= {"allowed_connection_types": list(CONNECTION_TYPES)}
    nats |= {} if account is None else {"issuer_account": account}
    placed = {"aud": AGENTS_ACCOUNT} if account is None else {}
    who = {"sub": request.user_key, "name": user_name(granted.node)}
    return {"iat": now_s, "exp": granted.expires_s, **placed, **who, "nats": nats}


def response_claims(request: LoginRequest, content: Mapping[str, str], now_s: int) -> Claims:
    """The claims of the answer to a server: `jwt` of a user, or `error`."""
    nats = {"type": "authorization_response", "version": VERSION, **content}
    return {"iat": now_s, "aud": request.server, "sub": request.user_key, "name": request.user_key, "nats": nats}


def _life_s(node: str) -> int:
    return LOGIN_LIFE_MAX_S - zlib.crc32(node.encode()) % SPREAD_S


def _token_end_s(token: str, bound_s: int) -> int:
    """When a token ends that the API server has verified, at most the bound, which holds for one that does not say."""
    try:
        end = unverified(token).get("exp")
    except JwtError:
        return bound_s
    return int(max(end, 0)) if isinstance(end, int | float) and end < bound_s else bound_s


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)
