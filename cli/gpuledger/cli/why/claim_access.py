"""Which claims, or pods, may be named to whoever runs a command: those that Kubernetes would let them read.

The API server is asked once a namespace, and first whether all may be read. Without one the database's own rights have
to do: whoever can read the ledger reads all of it. Where the setting is Redacted no claim is named to anybody.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from gpuledger.api.kinds import MODULE_CONFIG, PODS, RESOURCE_CLAIMS, Resource
from gpuledger.cli.backend import Backend, bring_current
from gpuledger.cli.cluster import ASKED_AT_ONCE, Access, Answer, if_reachable
from gpuledger.cli.lookup import rows_where
from gpuledger.db.readonly import read_only
from gpuledger.deciders.inventory.projection import InventoryProjection
from gpuledger.domain.inventory.state import MODULE_SETTINGS
from gpuledger.edge.kube.client import Ask, KubeClient
from gpuledger.edge.kube.errors import KubeConfigError, KubeError, UnavailableError

REVIEWS_MAX: Final = 200
"""Namespaces that a command asks about; claims and pods of any others are not named."""

ACCESS_REVIEWS: Final = Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview")
REDACTED: Final = "Redacted"
CALLED: Final = {RESOURCE_CLAIMS: "claims", PODS: "pods"}
"""What may be named, in words."""

_NAMED = re.compile(r"^ResourceClaim ([^/\s]+)/\S+")


class Readable(NamedTuple):
    """Whose claims or pods may be named: of every namespace, or of these; `told` says in words how that was found."""

    told: str
    everywhere: bool = False
    namespaces: frozenset[str] = frozenset()

    def may_name(self, namespace: str) -> bool:
        """Whether those of a namespace may be named."""
        return self.everywhere or namespace in self.namespaces


NOTHING: Final = Readable("none, because the setting claimReferences is Redacted")


async def readable(access: Access | None, namespaces: Iterable[str], resource: Resource = RESOURCE_CLAIMS) -> Readable:
    """Whose claims, or pods, may be named, of these namespaces; without `access` nobody is asked."""
    if access is None:
        return _everything("Kubernetes was not asked")
    wanted = sorted(set(namespaces) - {""})
    answer: Answer[Readable] = await if_reachable(access, lambda client: _reviewed(client, resource, wanted))
    return answer.value or _everything(f"Kubernetes was not asked: {answer.problem}")


async def is_redacted(place: Backend) -> bool:
    """Whether the setting in force has claims named to nobody."""
    await bring_current(place, [InventoryProjection()])
    async with read_only(place.database_url, application_name="gpuledger settings") as connection:
        rows = await rows_where(connection, MODULE_SETTINGS, {"module": MODULE_CONFIG})
    return any(row["claim_references"] == REDACTED for row in rows)


def elided(status: Mapping[str, Any], may_name: Callable[[str], bool]) -> dict[str, Any]:
    """A status without the names of claims that may not be named; how many there are stays."""
    found = dict(status)
    found["devices"] = [_device(one, may_name) for one in status.get("devices") or ()]
    pool = status.get("poolStatus") or {}
    if errors := pool.get("validationErrors"):
        found["poolStatus"] = {**pool, "validationErrors": [_error(one, may_name) for one in errors]}
    return found


def namespaces_in(status: Mapping[str, Any]) -> set[str]:
    """The namespaces of the claims that a status names."""
    devices = status.get("devices") or ()
    found = {one.get("claimNamespace") or "" for device in devices for one in device.get("allocations") or ()}
    errors = (status.get("poolStatus") or {}).get("validationErrors") or ()
    return (found | {match[1] for one in errors if (match := _NAMED.match(one))}) - {""}


def claims_words(claims: Iterable[str], unnamed: int, called: str = "claim") -> str:
    """Claims by name, and how many cannot be named: `team-a/train`, `(2 claims)`."""
    several = f"({unnamed} {called}{'' if unnamed == 1 else 's'})" if unnamed else ""
    return " and ".join(filter(None, (", ".join(dict.fromkeys(claims)), several)))


def _everything(why: str) -> Readable:
    return Readable(f"all, as the database has them; {why}", everywhere=True)


async def _reviewed(client: KubeClient, resource: Resource, namespaces: list[str]) -> Readable:
    try:
        if await _may_read(client, resource, ""):
            return Readable(f"all, as you may read {CALLED[resource]} everywhere", everywhere=True)
        gate = asyncio.Semaphore(ASKED_AT_ONCE)

        async def ask(namespace: str) -> bool:
            async with gate:
                return await _may_read(client, resource, namespace)

        asked = namespaces[:REVIEWS_MAX]
        answers = await asyncio.gather(*map(ask, asked))
    except (UnavailableError, KubeConfigError):
        raise
    except KubeError as error:
        return Readable(f"none, because Kubernetes does not say what you may read: {error}")
    allowed = frozenset(namespace for namespace, answer in zip(asked, answers, strict=True) if answer)
    return Readable(f"of namespaces in which you may read {CALLED[resource]}", namespaces=allowed)


async def _may_read(client: KubeClient, resource: Resource, namespace: str) -> bool:
    asked = {"verb": "get", "group": resource.group, "resource": resource.plural}
    body = {
        "apiVersion": ACCESS_REVIEWS.api_version,
        "kind": ACCESS_REVIEWS.kind,
        "spec": {"resourceAttributes": asked | ({"namespace": namespace} if namespace else {})},
    }
    review = await client.ask(Ask("ask what may be read", "POST", ACCESS_REVIEWS.path(), {}, body))
    return (review.get("status") or {}).get("allowed") is True


def _device(device: Mapping[str, Any], may_name: Callable[[str], bool]) -> dict[str, Any]:
    if not device.get("allocations"):
        return dict(device)
    return {**device, "allocations": [_allocation(one, may_name) for one in device["allocations"]]}


def _allocation(allocation: Mapping[str, Any], may_name: Callable[[str], bool]) -> dict[str, Any]:
    if may_name(str(allocation.get("claimNamespace") or "")):
        return dict(allocation)
    kept = {key: value for key, value in allocation.items() if key == "capacity"}
    return {"claimNamespace": "", "claimName": "", "claimUID": "", **kept}


def _error(error: str, may_name: Callable[[str], bool]) -> str:
    found = _NAMED.match(error)
    return error if found is None or may_name(found[1]) else _NAMED.sub("A ResourceClaim", error)
