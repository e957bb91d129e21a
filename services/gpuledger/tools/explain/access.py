"""Which claims and pods an answer may name: those that Kubernetes would let the user read.

The API server is asked once per namespace, and first about all namespaces at once. Without an API server the rights in
the database decide: whoever can read the ledger reads all of it. The setting claimReferences is about the statuses in
Kubernetes and not about answers.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from gpuledger.api.kinds import PODS, RESOURCE_CLAIMS, Resource
from gpuledger.edge.kube.client import KubeClient, KubeRequest
from gpuledger.edge.kube.errors import KubeConfigError, KubeError, UnavailableError
from gpuledger.tools.cluster import KubeAccess, KubeReply, concurrently, if_reachable

REVIEWS_MAX: Final = 200
"""Namespaces that a command asks about; claims and pods of any others are not named."""

ACCESS_REVIEWS: Final = Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview")
PLURALS: Final = {RESOURCE_CLAIMS: "claims", PODS: "pods"}

_CLAIM_ERROR = re.compile(r"^ResourceClaim ([^/\s]+)/\S+")


class Readable(NamedTuple):
    """Whose claims or pods may be named: those of all namespaces, or of some; `basis` explains it to the reader."""

    basis: str
    everywhere: bool = False
    namespaces: frozenset[str] = frozenset()

    def may_name(self, namespace: str) -> bool:
        """Whether those of a namespace may be named."""
        return self.everywhere or namespace in self.namespaces


async def readable(
    access: KubeAccess | None, namespaces: Iterable[str], resource: Resource = RESOURCE_CLAIMS
) -> Readable:
    """Whose claims, or pods, may be named, of these namespaces; without `access` Kubernetes is not asked."""
    if access is None:
        return _everything("Kubernetes was not asked")
    requested_namespaces = sorted(set(namespaces) - {""})[:REVIEWS_MAX]
    reply: KubeReply[Readable] = await if_reachable(
        access, lambda client: _reviewed(client, resource, requested_namespaces)
    )
    return reply.value or _everything(f"Kubernetes was not asked: {reply.problem}")


def elided(status: Mapping[str, Any], may_name: Callable[[str], bool]) -> dict[str, Any]:
    """A status without the names of claims that may not be named; how many there are stays."""
    found = dict(status)
    found["devices"] = [_device(one, may_name) for one in status.get("devices") or ()]
    pool = status.get("poolStatus") or {}
    if errors := pool.get("validationErrors"):
        found["poolStatus"] = {**pool, "validationErrors": [_error(one, may_name) for one in errors]}
    return found


def with_claims(status: Mapping[str, Any], recorded: Mapping[str, Any]) -> dict[str, Any]:
    """A status of Kubernetes that names no claims (the setting Redacted), with those that the ledger has recorded."""
    holders = {one["name"]: one.get("allocations") or () for one in recorded.get("devices") or ()}
    devices = [_with_allocations(one, holders.get(one.get("name"), ())) for one in status.get("devices") or ()]
    return {**status, **({"devices": devices} if devices else {})}


def namespaces_in(status: Mapping[str, Any]) -> set[str]:
    """The namespaces of the claims that a status names."""
    devices = status.get("devices") or ()
    found = {one.get("claimNamespace") or "" for device in devices for one in device.get("allocations") or ()}
    errors = (status.get("poolStatus") or {}).get("validationErrors") or ()
    return (found | {match[1] for one in errors if (match := _CLAIM_ERROR.match(one))}) - {""}


def names_and_count(names: Iterable[str], unnamed: int, singular: str = "claim") -> str:
    """Claims or pods by name, and how many cannot be named: `team-a/train and (2 claims)`."""
    several = f"({unnamed} {singular}{'' if unnamed == 1 else 's'})" if unnamed else ""
    return " and ".join(filter(None, (", ".join(dict.fromkeys(names)), several)))


def _everything(why: str) -> Readable:
    return Readable(f"all, as the database has them; {why}", everywhere=True)


async def _reviewed(client: KubeClient, resource: Resource, namespaces: list[str]) -> Readable:
    try:
        if await _may_read(client, resource, ""):
            return Readable(f"all, as you may read {PLURALS[resource]} everywhere", everywhere=True)
        answers = await concurrently(lambda namespace: _may_read(client, resource, namespace), namespaces)
    except (UnavailableError, KubeConfigError):
        raise
    except KubeError as error:
        return Readable(f"none, because Kubernetes did not report what you may read: {error}")
    allowed = frozenset(namespace for namespace, answer in zip(namespaces, answers, strict=True) if answer)
    return Readable(f"of namespaces in which you may read {PLURALS[resource]}", namespaces=allowed)


async def _may_read(client: KubeClient, resource: Resource, namespace: str) -> bool:
    attributes = {"verb": "get", "group": resource.group, "resource": resource.plural}
    body = {
        "apiVersion": ACCESS_REVIEWS.api_version,
        "kind": ACCESS_REVIEWS.kind,
        "spec": {"resourceAttributes": attributes | ({"namespace": namespace} if namespace else {})},
    }
    review = await client.send(KubeRequest("review access", "POST", ACCESS_REVIEWS.path(), {}, body))
    return (review.get("status") or {}).get("allowed") is True


def _device(device: Mapping[str, Any], may_name: Callable[[str], bool]) -> dict[str, Any]:
    if not device.get("allocations"):
        return dict(device)
    return {**device, "allocations": [_allocation(one, may_name) for one in device["allocations"]]}


def _with_allocations(device: Mapping[str, Any], recorded: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    shown = device.get("allocations") or ()
    is_same = len(shown) == len(recorded) and not any(one.get("claimName") for one in shown)
    return {**device, "allocations": [*recorded]} if shown and is_same else dict(device)


def _allocation(allocation: Mapping[str, Any], may_name: Callable[[str], bool]) -> dict[str, Any]:
    if may_name(str(allocation.get("claimNamespace") or "")):
        return dict(allocation)
    kept = {key: value for key, value in allocation.items() if key == "capacity"}
    return {"claimNamespace": "", "claimName": "", "claimUID": "", **kept}


def _error(error: str, may_name: Callable[[str], bool]) -> str:
    found = _CLAIM_ERROR.match(error)
    return error if found is None or may_name(found[1]) else _CLAIM_ERROR.sub("A ResourceClaim", error)
