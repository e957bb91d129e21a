"""Kubernetes objects as the server itself lays them out for people: the Table of meta.k8s.io, listed and watched.

The columns are those of the CRD or the built-in kind, so that `gpuledger get` and `kubectl get` show the same. What is
read of an object is its row: `{"metadata", "cells"}`; nothing else of it is transferred.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, TypeVar

from gpuledger.api.kinds import Resource
from gpuledger.cli.render import Column
from gpuledger.edge.kube.client import (
    ALL,
    LIST_OBJECTS_MAX,
    PAGE_LIMIT,
    Batch,
    ClientSettings,
    KubeClient,
    KubeRequest,
    Object,
    ObjectList,
    Selection,
)
from gpuledger.edge.kube.errors import GoneError, ResponseError

if TYPE_CHECKING:
    from kubernetes.aio.client.configuration import Configuration

T = TypeVar("T")

TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io"
NUMBERS: Final = frozenset({"integer", "number"})


class TableClient(KubeClient):
    """A client whose lists and watches are of rows. `columns` are those of the last list."""

    def __init__(self, configuration: "Configuration", settings: ClientSettings | None = None) -> None:
        super().__init__(configuration, settings)
        self.columns: tuple[Column, ...] = ()

    async def collect(
        self, resource: Resource, read: Callable[[Object], T], selection: Selection = ALL, *, page: int = PAGE_LIMIT
    ) -> ObjectList[T]:
        """What `read` makes of every row. If a page expires on the way, it lists again, all at once."""
        try:
            return await self._rows(resource, read, selection, page)
        except GoneError:
            return await self._rows(resource, read, selection, page=0)

    async def watch(
        self, resource: Resource, resource_version: str, selection: Selection = ALL, *, timeout_s: int | None = None
    ) -> AsyncGenerator[Batch]:
        """The events after a resource version, their objects being rows; raises what `KubeClient.watch` does."""
        timeout_s = timeout_s or self.settings.stream_timeout_s
        query = {"watch": "1", "resourceVersion": resource_version, "allowWatchBookmarks": "true"}
        query |= {"timeoutSeconds": str(timeout_s)} | selection.query()
        request = _request("watch", resource, selection, query)
        async with aclosing(self.stream(request, timeout_s)) as stream:
            async for batch in stream:
                yield [{"type": event["type"], "object": _row_of_event(event["object"])} for event in batch]

    async def _rows(
        self, resource: Resource, read: Callable[[Object], T], selection: Selection, page: int
    ) -> ObjectList[T]:
        kept: list[T] = []
        query = selection.query() | ({"limit": str(page)} if page else {})
        while True:
            table = await self.send(_request("list", resource, selection, query))
            self.columns = tuple(map(_column, table.get("columnDefinitions") or ())) or self.columns
            kept.extend(read(_row(row)) for row in table.get("rows") or ())
            if len(kept) > LIST_OBJECTS_MAX:
                raise ResponseError(f"{self.url} has more than {LIST_OBJECTS_MAX} {resource.plural}. Select fewer.")
            metadata = table.get("metadata") or {}
            if not (token := metadata.get("continue")):
                return ObjectList(kept, str(metadata.get("resourceVersion", "")))
            query["continue"] = token


def _request(verb: str, resource: Resource, selection: Selection, query: dict[str, str]) -> KubeRequest:
    path = resource.path(selection.namespace)
    return KubeRequest(f"{verb} {resource.full_name}", "GET", path, query, accept=TABLE)


def _column(definition: Object) -> Column:
    name = str(definition["name"])
    wide, right = bool(definition.get("priority")), definition.get("type") in NUMBERS
    return Column(name, name, wide=wide, right=right)


def _row(row: Object) -> Object:
    return {"metadata": row["object"]["metadata"], "cells": row["cells"]}


def _row_of_event(table: Object) -> Object:
    """The row of an event's Table; a bookmark may have none, and only carries a resource version."""
    rows = table.get("rows")
    return _row(rows[0]) if rows else {"metadata": table["metadata"], "cells": []}
