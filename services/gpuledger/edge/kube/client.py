"""Client of a Kubernetes API server: get, list, watch, create, apply, patch and delete any kind of object.

Objects are plain dictionaries; model classes would cost more than they help. Every request has a time-out, every list a
bound, every failure is a `KubeError`. The client must never retry on its own.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar
from urllib.parse import quote

from gpuledger.api.kinds import FIELD_MANAGER, PODS, Resource
from gpuledger.edge.kube.errors import GoneError, ResponseError
from gpuledger.edge.kube.kubeconfig import load_configuration
from gpuledger.edge.kube.transport import JSON, ClientSettings, KubeRequest, Object, Transport

if TYPE_CHECKING:
    from kubernetes.aio.client.configuration import Configuration

T = TypeVar("T")

Batch = list[Object]
"""Events of a watch that came together, or objects."""

Propagation = Literal["Background", "Foreground", "Orphan"]

PAGE_LIMIT: Final = 500
"""Objects a page of a list."""

LIST_OBJECTS_MAX: Final = 250_000
"""Objects in a list. More than that is refused rather than held in memory."""

LIST_RESTARTS_MAX: Final = 3
"""How often a list is begun anew because its pages expired, the last time in one page."""

MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
"""The type of an apply in JSON too, because JSON is YAML."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a kind: of one namespace or all, and by selectors as kubectl takes them."""

    namespace: str | None = None
    labels: str = ""
    fields: str = ""

    def query(self) -> dict[str, str]:
        """The selectors as query parameters."""
        given = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {key: value for key, value in given.items() if value}


ALL: Final = Selection()


@dataclass(frozen=True, slots=True)
class ObjectList(Generic[T]):
    """A list at one moment; a watch from `resource_version` on misses nothing."""

    items: list[T]
    resource_version: str


class KubeClient:
    """Talks to one API server; `open_client` makes one. Every method raises `KubeError`."""

    def __init__(self, configuration: "Configuration", settings: ClientSettings | None = None) -> None:
        self.settings = settings or ClientSettings()
        self._transport = Transport(configuration, self.settings)
        self.url = self._transport.url

    async def close(self) -> None:
        """Give the connections back."""
        await self._transport.close()

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        """One object.

        Raises:
            NotFoundError: there is none of that name.
        """
        return await self.send(_on("get", "GET", resource, name, namespace))

    async def list(
        self, resource: Resource, selection: Selection = ALL, *, page: int = PAGE_LIMIT
    ) -> ObjectList[Object]:
        """All objects that are selected, at one moment."""
        return await self.collect(resource, lambda item: item, selection, page=page)

    async def list_cached(self, resource: Resource, selection: Selection) -> Batch:
        """The objects that are selected, which are few, as the server's cache has them: perhaps of a moment ago."""
        query = selection.query() | {"resourceVersion": "0"}
        path = resource.path(selection.namespace)
        answer = await self.send(KubeRequest(f"list {resource.full_name}", "GET", path, query))
        return [*(answer.get("items") or ())]

    async def collect(
        self, resource: Resource, read: Callable[[Object], T], selection: Selection = ALL, *, page: int = PAGE_LIMIT
    ) -> ObjectList[T]:
        """Like `list`, but keeps only what `read` returns for each object, page by page."""
        for _ in range(LIST_RESTARTS_MAX - 1):
            try:
                return await self._pages(resource, read, selection, page)
            except GoneError:
                continue
        return await self._pages(resource, read, selection, page=0)

    async def create(self, resource: Resource, obj: Object) -> Object:
        """Create an object; returns it as the server keeps it.

        Raises:
            AlreadyExistsError: there is one of that name.
            InvalidError: it does not hold up; the causes name the fields.
        """
        name, namespace = _identity(obj)
        what = f'create {resource.full_name} "{name}"'
        return await self.send(KubeRequest(what, "POST", resource.path(namespace), _manager(), obj))

    async def replace(self, resource: Resource, obj: Object, *, subresource: str | None = None) -> Object:
        """Put an object in place of the one that is there, if that still has the object's resourceVersion.

        Raises:
            ConflictError: it was changed meanwhile.
        """
        name, namespace = _identity(obj)
        return await self.send(_on("replace", "PUT", resource, name, namespace, subresource, _manager(), obj))

    async def apply(
        self,
        resource: Resource,
        obj: Object,
        *,
        subresource: str | None = None,
        force: bool = False,
        field_manager: str = FIELD_MANAGER,
    ) -> Object:
        """Server-side apply: the object is created, or made to have these fields, which `field_manager` then owns.

        `force` takes fields that others own. Fields applied earlier and left out now are removed.

        Raises:
            ConflictError: somebody else owns a field; the causes name fields and managers.
        """
        name, namespace = _identity(obj)
        query = {"fieldManager": field_manager, "force": "true" if force else "false"}
        body = {"apiVersion": resource.api_version, "kind": resource.kind} | obj
        request = _on("apply", "PATCH", resource, name, namespace, subresource, query, body, APPLY_PATCH)
        return await self.send(request)

    async def merge_patch(
        self,
        resource: Resource,
        name: str,
        patch: Mapping[str, Any],
        namespace: str | None = None,
        *,
        subresource: str | None = None,
    ) -> Object:
        """Set some fields; null removes one."""
        request = _on("patch", "PATCH", resource, name, namespace, subresource, _manager(), patch, MERGE_PATCH)
        return await self.send(request)

    async def json_patch(
        self,
        resource: Resource,
        name: str,
        operations: Sequence[Mapping[str, Any]],
        namespace: str | None = None,
        *,
        subresource: str | None = None,
    ) -> Object:
        """Carry out a JSON patch (RFC 6902).

        Raises:
            InvalidError: an operation, such as a `test`, fails.
        """
        request = _on("patch", "PATCH", resource, name, namespace, subresource, _manager(), operations, JSON_PATCH)
        return await self.send(request)

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: Propagation = "Background",
    ) -> Object:
        """Delete an object, if it still has that uid and resource version where they are given.

        Raises:
            NotFoundError: there is none.
            ConflictError: it is another by now.
        """
        given = {"uid": uid, "resourceVersion": resource_version}
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if preconditions := {key: value for key, value in given.items() if value}:
            body["preconditions"] = preconditions
        return await self.send(_on("delete", "DELETE", resource, name, namespace, body=body))

    async def evict(self, name: str, namespace: str, *, uid: str) -> None:
        """Have a pod evicted, if it still has that uid.

        Raises:
            DisruptionBudgetError: a budget does not allow it for now.
            NotFoundError: there is none.
            ConflictError: it is another by now.
        """
        body: Object = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        await self.send(_on("evict", "POST", PODS, name, namespace, "eviction", body=body))

    def watch(
        self, resource: Resource, resource_version: str, selection: Selection = ALL, *, timeout_s: int | None = None
    ) -> AsyncGenerator[Batch]:
        """The events after a resource version, as they come: at least one a time, bookmarks included.

        Ends when the server ends the stream. An `ERROR` event is raised as an error.

        Raises:
            GoneError: the server does not know that version; list again.
            UnavailableError: the stream broke off, or fell silent.
        """
        timeout_s = timeout_s or self.settings.stream_timeout_s
        query = {"watch": "1", "resourceVersion": resource_version, "allowWatchBookmarks": "true"}
        query |= {"timeoutSeconds": str(timeout_s)} | selection.query()
        request = KubeRequest(f"watch {resource.full_name}", "GET", resource.path(selection.namespace), query)
        return self.stream(request, timeout_s)

    async def send(self, request: KubeRequest) -> Object:
        """Send any other request; returns the answer's object."""
        return await self._transport.send(request)

    def stream(self, request: KubeRequest, timeout_s: float) -> AsyncGenerator[Batch]:
        """The events of any watch; the server should end it after `timeout_s`."""
        return self._transport.stream(request, timeout_s)

    async def _pages(
        self, resource: Resource, read: Callable[[Object], T], selection: Selection, page: int
    ) -> ObjectList[T]:
        kept: list[T] = []
        query, what = selection.query(), f"list {resource.full_name}"
        if page:
            query["limit"] = str(page)
        while True:
            answer = await self.send(KubeRequest(what, "GET", resource.path(selection.namespace), query))
            kept.extend(map(read, answer.get("items") or ()))
            if len(kept) > LIST_OBJECTS_MAX:
                raise ResponseError(f"{self.url} has more than {LIST_OBJECTS_MAX} {resource.plural}. Select fewer.")
            metadata = answer.get("metadata") or {}
            if not (token := metadata.get("continue")):
                return ObjectList(kept, str(metadata.get("resourceVersion", "")))
            query["continue"] = token


@asynccontextmanager
async def open_client(
    kubeconfig: Path | None = None, *, context: str | None = None, settings: ClientSettings | None = None
) -> AsyncIterator[KubeClient]:
    """A client for the cluster of a kubeconfig; without one, of `KUBECONFIG` or of the pod that we run in.

    Raises:
        KubeConfigError: there is no usable configuration.
    """
    client = KubeClient(await load_configuration(kubeconfig, context=context), settings)
    try:
        yield client
    finally:
        await client.close()


def _on(
    verb: str,
    method: str,
    resource: Resource,
    name: str,
    namespace: str | None,
    subresource: str | None = None,
    query: Mapping[str, str] | None = None,
    body: object = None,
    content_type: str = JSON,
) -> KubeRequest:
    path = f"{resource.path(namespace)}/{quote(name, safe='')}"
    of = f"{resource.full_name}/{subresource}" if subresource else resource.full_name
    path = f"{path}/{subresource}" if subresource else path
    return KubeRequest(f'{verb} {of} "{name}"', method, path, query or {}, body, content_type)


def _manager() -> dict[str, str]:
    return {"fieldManager": FIELD_MANAGER}


def _identity(obj: Object) -> tuple[str, str | None]:
    metadata = obj["metadata"]
    return metadata.get("name") or metadata.get("generateName") or "", metadata.get("namespace")


__all__ = [
    "ALL", "Batch", "ClientSettings", "KubeClient", "KubeRequest", "Object", "ObjectList", "Selection", "open_client",
]  # fmt: skip
