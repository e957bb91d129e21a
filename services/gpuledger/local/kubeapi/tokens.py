"""Issues tokens of service accounts, and reviews them, as Kubernetes 1.36 does.

A token is bound to its account and, where the request says so, to a pod or a node; it is void once one of these is
gone. Nothing here lets a request in: whoever reaches the server may do everything.
"""

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from gpuledger.edge.kube.schema.causes import Cause, Object, invalid
from gpuledger.local.kubeapi.access import AUTHENTICATED, SERVICE_ACCOUNT, SERVICE_ACCOUNTS
from gpuledger.local.kubeapi.errors import bad_request, conflict, not_found, not_implemented, unprocessable
from gpuledger.local.kubeapi.resources import timestamp
from gpuledger.runtime.clock import NewId

GROUP: Final = "authentication.k8s.io"
ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
"""Also the audience of tokens that are for no other."""

DEFAULT_S: Final = 3600
MIN_S: Final = 600
MAX_S: Final = 1 << 32
PRIVATE: Final = "kubernetes.io"
EXTRA: Final = f"authentication.{PRIVATE}"
_SIGNATURE_BYTES: Final = 64
_VOID: Final = "service account token has been invalidated"

Find = Callable[[str, str, str], Object | None]
"""An object of the core group by plural, namespace and name."""


class Bound(NamedTuple):
    """What a token is bound to besides its account."""

    pod: Object | None = None
    node: Object | None = None


class TokenIssuer:
    """The key of one server."""

    def __init__(self, new_id: NewId) -> None:
        self._key = generate_private_key(SECP256R1())
        self._new_id = new_id

    def request(self, account: Object, body: Object, find: Find, now: datetime) -> Object:
        """Answer a TokenRequest for an account.

        Raises:
            ApiError: 422, the lifetime is out of bounds; 400, 404 or 409, it cannot be bound to that object.
        """
        spec = body.get("spec") or {}
        meta = account["metadata"]
        audiences = list(spec.get("audiences") or [ISSUER])
        life_s = spec.get("expirationSeconds", DEFAULT_S)
        if causes := _causes(life_s):
            raise unprocessable(GROUP, "TokenRequest", "", causes)
        bound = _bound(spec.get("boundObjectRef"), meta, find)
        ends = now + timedelta(seconds=life_s)
        token = self._signed(
            {
                "aud": audiences,
                "exp": int(ends.timestamp()),
                "iat": int(now.timestamp()),
                "iss": ISSUER,
                "jti": self._new_id(),
                PRIVATE: _private(meta, bound),
                "nbf": int(now.timestamp()),
                "sub": f"{SERVICE_ACCOUNT}{meta['namespace']}:{meta['name']}",
            }
        )
        return {
            "kind": "TokenRequest",
            "apiVersion": f"{GROUP}/v1",
            "metadata": {
                "name": meta["name"],
                "namespace": meta["namespace"],
                "creationTimestamp": timestamp(now),
            },
            "spec": {"boundObjectRef": None, **spec, "audiences": audiences, "expirationSeconds": life_s},
            "status": {"token": token, "expirationTimestamp": timestamp(ends)},
        }

    def review(self, body: Object, find: Find, now: datetime) -> Object:
        """Answer a TokenReview.

        Raises:
            ApiError: 400, it has no token.
        """
        spec = body.get("spec") or {}
        if not spec.get("token"):
            raise bad_request("token is required for TokenReview in authentication")
        head = {"kind": "TokenReview", "apiVersion": f"{GROUP}/v1", "metadata": {}}
        return head | {"spec": spec, "status": self._status(spec["token"], spec.get("audiences") or [], find, now)}

    def _status(self, token: str, requested: Sequence[str], find: Find, now: datetime) -> Object:
        claims = self._verified(token)
        if claims is None:
            return _refused("invalid bearer token")
        targets = list(requested) or [ISSUER]
        audiences = [one for one in targets if one in claims["aud"]]
        if not audiences:
            named, expected = (json.dumps(every).replace(",", "") for every in (claims["aud"], targets))
            return _refused(
                f"invalid bearer token, token audiences {named} is invalid for the target audiences {expected}"
            )
        if now.timestamp() >= claims["exp"]:
            return _refused("invalid bearer token, service account token has expired")
        if not _stands(claims[PRIVATE], find):
            return _refused(f"invalid bearer token, {_VOID}")
        return {"authenticated": True, "user": _user(claims), "audiences": audiences}

    def _signed(self, claims: Object) -> str:
        text = f"{_part({'alg': 'ES256', 'typ': 'JWT'})}.{_part(claims)}"
        r, s = decode_dss_signature(self._key.sign(text.encode(), ECDSA(SHA256())))
        return f"{text}.{_url(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"

    def _verified(self, token: str) -> Any:
        text, _, signature = token.rpartition(".")
        try:
            raw = base64.urlsafe_b64decode(signature + "=" * (-len(signature) % 4))
            if len(raw) != _SIGNATURE_BYTES:
                return None
            pair = (int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
            self._key.public_key().verify(encode_dss_signature(*pair), text.encode(), ECDSA(SHA256()))
        except (InvalidSignature, ValueError):
            return None
        body = text.partition(".")[2]
        return json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))


def _causes(life_s: int) -> list[Cause]:
    field = "spec.expirationSeconds"
    if life_s < MIN_S:
        return [invalid(field, life_s, "may not specify a duration less than 10 minutes")]
    if life_s > MAX_S:
        return [invalid(field, life_s, "may not specify a duration larger than 2^32 seconds")]
    return []


def _bound(reference: Object | None, account: Object, find: Find) -> Bound:
    if reference is None:
        return Bound()
    kind, name, version = (reference.get(one) or "" for one in ("kind", "name", "apiVersion"))
    if (kind, version) == ("Pod", "v1"):
        pod = _referenced(reference, find("pods", account["namespace"], name), "pods", "Pod")
        if (pod["spec"].get("serviceAccountName") or "default") != account["name"]:
            name = account["name"]
            text = f'cannot bind token for serviceaccount "{name}" to pod running with different serviceaccount name.'
            raise bad_request(text)
        node = pod["spec"].get("nodeName")
        return Bound(pod, _node_of(node, find) if node else None)
    if (kind, version) == ("Node", "v1"):
        return Bound(node=_referenced(reference, find("nodes", "", name), "nodes", "Node"))
    if (kind, version) == ("Secret", "v1"):
        raise not_implemented("tokens that are bound to a secret")
    raise bad_request(f"cannot bind token to object of type {version}, Kind={kind}")


def _node_of(name: str, find: Find) -> Object:
    """A pod's node, which may be gone from the API."""
    return find("nodes", "", name) or {"metadata": {"name": name}}


def _referenced(reference: Object, found: Object | None, plural: str, kind: str) -> Object:
    name = reference.get("name") or ""
    if found is None:
        raise not_found("", plural, name)
    expected, uid = reference.get("uid"), found["metadata"]["uid"]
    if expected and expected != uid:
        text = f"the UID in the bound object reference ({expected}) does not match the UID in record. The object might "
        raise conflict("", kind, name, text + "have been deleted and then recreated")
    return found


def _private(account: Object, bound: Bound) -> Object:
    claims = {"namespace": account["namespace"], "serviceaccount": _named(account)}
    if bound.pod is not None:
        claims["pod"] = _named(bound.pod["metadata"])
    if bound.node is not None:
        claims["node"] = _named(bound.node["metadata"])
    return claims


def _named(metadata: Object) -> Object:
    return {key: metadata[key] for key in ("name", "uid") if key in metadata}


def _stands(private: Mapping[str, Any], find: Find) -> bool:
    """Whether the account of a token, and what it is bound to, are still there."""
    namespace = private["namespace"]
    places = [("serviceaccounts", namespace, private["serviceaccount"])]
    if "pod" in private:
        places.append(("pods", namespace, private["pod"]))
    elif "node" in private:
        places.append(("nodes", "", private["node"]))
    for plural, inside, named in places:
        found = find(plural, inside, named["name"])
        if found is None or found["metadata"]["uid"] != named["uid"]:
            return False
    return True


def _user(claims: Object) -> Object:
    private = claims[PRIVATE]
    extra = {f"{EXTRA}/credential-id": [f"JTI={claims['jti']}"]}
    for what in ("node", "pod"):
        if what in private:
            extra |= {f"{EXTRA}/{what}-{key}": [value] for key, value in private[what].items()}
    groups = [SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{private['namespace']}", AUTHENTICATED]
    uid = private["serviceaccount"]["uid"]
    return {"username": claims["sub"], "uid": uid, "groups": groups, "extra": dict(sorted(extra.items()))}


def _refused(error: str) -> Object:
    return {"user": {}, "error": f"[{error}]" if "," in error else error}


def _part(document: Object) -> str:
    return _url(json.dumps(document, separators=(",", ":")).encode())


def _url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
