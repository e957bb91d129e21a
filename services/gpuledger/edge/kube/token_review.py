"""What a TokenReview says about the token of a service account, and what it is bound to. Pure.

Whose a token is follows from the API server's answer alone, never from what its holder says. No text holds a part of
the token.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from gpuledger.api.kinds import TOKEN_REVIEWS
from gpuledger.edge.kube.schema.object_names import dns_subdomain_problem
from gpuledger.edge.kube.transport import KubeRequest, Object

NODE_NAME: Final = "authentication.kubernetes.io/node-name"
"""Where a review of a token that is bound to a pod names the pod's node, since Kubernetes 1.30."""

POD_NAME: Final = "authentication.kubernetes.io/pod-name"
POD_UID: Final = "authentication.kubernetes.io/pod-uid"

_PREFIX: Final = "system:serviceaccount:"


class TokenProblem(Enum):
    """Why a token identifies nobody."""

    NOT_AUTHENTICATED = "not-authenticated"
    OTHER_AUDIENCE = "other-audience"


class InvalidToken(NamedTuple):
    """A token that identifies nobody, and why."""

    problem: TokenProblem
    message: str


class TokenIdentity(NamedTuple):
    """Whose a token is, by the name of a user, and the node and the pod with its UID that it is bound to, if any."""

    user: str
    node: str | None
    pod: str | None
    pod_uid: str | None = None

    @property
    def account(self) -> tuple[str, str] | None:
        """The service account by namespace and name; None: the user is none."""
        namespace, colon, name = self.user.removeprefix(_PREFIX).partition(":")
        return (namespace, name) if self.user.startswith(_PREFIX) and colon and namespace and name else None


def review_of(token: str, audience: str, action: str) -> KubeRequest:
    """The request that has a token reviewed for an audience; `action` is what messages call it."""
    review: Object = {"apiVersion": TOKEN_REVIEWS.api_version, "kind": TOKEN_REVIEWS.kind}
    review |= {"spec": {"token": token, "audiences": [audience]}}
    return KubeRequest(action, "POST", TOKEN_REVIEWS.path(), {}, review)


def identity_of(token: str, status: Mapping[str, Any], audience: str) -> TokenIdentity | InvalidToken:
    """Who the holder of a token is, by the status of its review."""
    if status.get("authenticated") is not True:
        reason = shown(str(status.get("error") or "it gives no reason").replace(token, "..."))
        return InvalidToken(TokenProblem.NOT_AUTHENTICATED, f"the API server does not accept its token: {reason}")
    audiences = status.get("audiences")
    if not isinstance(audiences, list) or audience not in audiences:
        return InvalidToken(TokenProblem.OTHER_AUDIENCE, f"its token is not for the audience {audience}")
    user = _mapping(status.get("user"))
    extra = _mapping(user.get("extra"))
    node, pod, uid = (_one_name(extra, key) for key in (NODE_NAME, POD_NAME, POD_UID))
    return TokenIdentity(str(user.get("username")), node, pod, uid)


def shown(text: object) -> str:
    """What somebody else has written, cut and in one line."""
    return "".join(one if one.isprintable() else "?" for one in str(text)[:200])


def _one_name(extra: Mapping[str, Any], key: str) -> str | None:
    names = extra.get(key)
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        return None
    return None if dns_subdomain_problem(names[0]) else names[0]


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
