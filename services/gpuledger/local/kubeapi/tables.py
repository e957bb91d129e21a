"""Shows objects as a Table (`meta.k8s.io`), as `kubectl get` requests it.

The strategies of custom resources bring their columns; `table_columns` has those of built-in types. A row includes the
object, its metadata or nothing, as requested.
"""

from collections.abc import Iterable
from datetime import datetime

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi.resources import ServedResource, TableColumn
from gpuledger.local.kubeapi.table_cells import with_age
from gpuledger.local.kubeapi.table_columns import BUILTIN_TABLES

META_VERSION = "meta.k8s.io/v1"

_AGES = with_age()


def table(
    resource: ServedResource,
    objects: Iterable[Object],
    *,
    list_metadata: Object,
    include_object: str = "Metadata",
    now: datetime,
    watch: bool = False,
) -> Object:
    """A Table of the objects. `include_object` is Metadata, Object or None; later tables of a `watch` omit columns."""
    return {
        "kind": "Table",
        "apiVersion": META_VERSION,
        "metadata": list_metadata,
        "columnDefinitions": None if watch else [_definition(column) for column in columns(resource)],
        "rows": [_row(resource, obj, include_object, now) for obj in objects],
    }


def columns(resource: ServedResource) -> list[TableColumn]:
    """The columns of a resource's table."""
    if resource.is_custom:
        return list(resource.strategy.columns())
    return list(BUILTIN_TABLES.get(resource.key, _AGES).columns)


def cells(resource: ServedResource, obj: Object, now: datetime) -> list[object]:
    """The cells of one object, in the order of the columns."""
    if resource.is_custom:
        return list(resource.strategy.cells(obj, now))
    return BUILTIN_TABLES.get(resource.key, _AGES).cells(obj, now)


def partial(obj: Object) -> Object:
    """An object's metadata alone."""
    return {"kind": "PartialObjectMetadata", "apiVersion": META_VERSION, "metadata": obj["metadata"]}


def _row(resource: ServedResource, obj: Object, include_object: str, now: datetime) -> Object:
    if include_object == "Object":
        shown: Object | None = {"kind": resource.kind, "apiVersion": resource.api_version} | obj
    else:
        shown = partial(obj) if include_object == "Metadata" else None
    return {"cells": cells(resource, obj, now), "object": shown}


def _definition(column: TableColumn) -> Object:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    }
