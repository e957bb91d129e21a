"""Which Kubernetes API server a command reads, and what it adds to the ledger: Events, quotas, and access rights.

A kubeconfig given by option wins over `KUBECONFIG`, that over the one that `gpuledger up` writes into the data
directory, that over the pod's own account and `~/.kube/config`. Commands that can do without an API server go on
without one and say so.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

from gpuledger.api.kinds import Resource
from gpuledger.edge.kube.client import KubeClient, Object, Selection
from gpuledger.edge.kube.errors import KubeError, NotFoundError, RefusedError
from gpuledger.edge.kube.kubeconfig import DEFAULT_KUBECONFIG, IN_CLUSTER, KUBECONFIG, load_configuration
from gpuledger.runtime.settings import read_settings

T = TypeVar("T")
R = TypeVar("R")
Client = TypeVar("Client", bound=KubeClient)

OWN_KUBECONFIG: Final = "kubeconfig"
"""The file in the data directory in which `gpuledger up` writes how to reach the API server that it serves."""

CORE_EVENTS: Final = Resource("", "v1", "events", "Event", namespaced=True)
"""Events as `kubectl describe` selects them; both forms of an event can be read here."""

QUOTAS: Final = Resource("", "v1", "resourcequotas", "ResourceQuota", namespaced=True)

CONCURRENT_REQUESTS: Final = 8
"""Requests to the API server that run at the same time."""


class KubeAccess(NamedTuple):
    """How the command line says that the API server is to be found."""

    kubeconfig: Path | None = None
    context: str | None = None
    data_dir: Path | None = None


class KubeReply(NamedTuple, Generic[T]):
    """What the API server replied; without a reply `value` is None and `problem` says why."""

    value: T | None
    problem: str = ""


class KubeEvent(NamedTuple):
    """A Kubernetes Event; `time` is when it was last seen, `about` is `<kind>/<name>`."""

    time: datetime
    first_at: datetime
    times: int
    type: str
    reason: str
    about: str
    message: str
    reporter: str


def kubeconfig_of(access: KubeAccess, environ: Mapping[str, str] = os.environ) -> Path | None:
    """The file to use; None where the environment, the pod or the home directory decides."""
    if access.kubeconfig or access.context or environ.get(KUBECONFIG):
        return access.kubeconfig
    own = read_settings(environ, access.data_dir).data_dir / OWN_KUBECONFIG
    return own if own.is_file() else None


def has_cluster(access: KubeAccess, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the command line or the environment names a cluster, or a file is where one would be looked for."""
    if kubeconfig_of(access, environ) or access.context or environ.get(KUBECONFIG) or IN_CLUSTER in environ:
        return True
    return Path(DEFAULT_KUBECONFIG).expanduser().is_file()


@asynccontextmanager
async def open_kube(access: KubeAccess, kind: type[Client]) -> AsyncIterator[Client]:
    """A client of that class for the cluster in force.

    Raises:
        KubeConfigError: there is no usable configuration.
    """
    client = kind(await load_configuration(kubeconfig_of(access), context=access.context))
    try:
        yield client
    finally:
        await client.close()


async def if_reachable(access: KubeAccess, request: Callable[[KubeClient], Awaitable[T]]) -> KubeReply[T]:
    """The reply of the API server, if there is one and it replies."""
    try:
        async with open_kube(access, KubeClient) as client:
            return KubeReply(await request(client))
    except KubeError as error:
        return KubeReply(None, str(error))


async def concurrently(request: Callable[[T], Awaitable[R]], items: Iterable[T]) -> list[R]:
    """The results of one request per item, in the order of the items, no more than a few at the same time."""
    limit = asyncio.Semaphore(CONCURRENT_REQUESTS)

    async def limited(item: T) -> R:
        async with limit:
            return await request(item)

    return await asyncio.gather(*map(limited, items))


async def object_or_none(
    client: KubeClient, resource: Resource, name: str, namespace: str | None = None
) -> Object | None:
    """An object; None where there is none, or where the cluster does not have its kind."""
    try:
        return await client.get(resource, name, namespace)
    except NotFoundError:
        return None


async def events_about(client: KubeClient, objects: Sequence[tuple[str, str]]) -> list[KubeEvent]:
    """The Events about objects, each a kind and a name, of all namespaces, by time."""

    async def of_object(obj: tuple[str, str]) -> list[KubeEvent]:
        fields = f"involvedObject.kind={obj[0]},involvedObject.name={obj[1]}"
        return (await client.collect(CORE_EVENTS, event_of, Selection(fields=fields))).items

    found = await concurrently(of_object, dict.fromkeys(objects))
    return sorted((one for several in found for one in several), key=lambda event: (event.time, event.reason))


def event_of(obj: Object) -> KubeEvent:
    """The Event that an object of `v1` is. Its times are in one of several places, depending on who wrote it."""
    series, about = obj.get("series") or {}, obj.get("involvedObject") or {}
    created = obj["metadata"]["creationTimestamp"]
    first = obj.get("eventTime") or obj.get("firstTimestamp") or obj.get("lastTimestamp") or created
    last = series.get("lastObservedTime") or obj.get("lastTimestamp") or first
    return KubeEvent(
        time=datetime.fromisoformat(last),
        first_at=datetime.fromisoformat(first),
        times=int(series.get("count") or obj.get("count") or 1),
        type=str(obj.get("type") or ""),
        reason=str(obj.get("reason") or ""),
        about=f"{about.get('kind', '')}/{about.get('name', '')}",
        message=str(obj.get("message") or "").strip(),
        reporter=str(obj.get("reportingComponent") or (obj.get("source") or {}).get("component") or "unknown"),
    )


async def quotas_on(client: KubeClient, resource: str, namespace: str | None) -> tuple[list[dict[str, Any]], str]:
    """The quotas on a resource in one namespace or in all; or why they cannot be read."""
    key = f"requests.{resource}"
    try:
        found = (await client.list(QUOTAS, Selection(namespace))).items
    except RefusedError as error:
        return [], str(error)
    return [_quota(one, key) for one in found if key in _hard(one)], ""


def _hard(quota: Object) -> Mapping[str, Any]:
    """What a quota limits, including limits for which Kubernetes has not counted the use yet."""
    return {**((quota.get("spec") or {}).get("hard") or {}), **((quota.get("status") or {}).get("hard") or {})}


def _quota(quota: Object, key: str) -> dict[str, Any]:
    metadata, used = quota["metadata"], (quota.get("status") or {}).get("used") or {}
    return {
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "used": used.get(key),
        "hard": _hard(quota)[key],
    }
