"""Turns results into HTTP responses: an object, a list, a Table, metadata alone, or one line of a watch."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import orjson
import yaml
from aiohttp import web

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi.errors import ApiError, bad_request
from gpuledger.local.kubeapi.negotiation import PARTIAL, PARTIAL_LIST, TABLE, Representation, not_acceptable
from gpuledger.local.kubeapi.options import Query
from gpuledger.local.kubeapi.reading import ListPage, presented, presented_list
from gpuledger.local.kubeapi.requests import ApiRequest
from gpuledger.local.kubeapi.tables import partial, table
from gpuledger.local.kubeapi.watching import BOOKMARK, ERROR, WatchEvent

AS_JSON = Representation()
NOTHING_SUCH = "only the following media types are accepted: application/json, application/yaml"
META_VERSION = "meta.k8s.io/v1"
WARNING_CODE = 299
INCLUDE_OBJECT = ("None", "Metadata", "Object")


def failed(error: ApiError, warnings: Sequence[str]) -> web.Response:
    """The response for an error."""
    headers = {"Retry-After": str(error.retry_after_s)} if error.retry_after_s is not None else {}
    return _response(error.status(), error.code, AS_JSON, warnings, headers)


def status(document: Object, request: ApiRequest, code: int) -> web.Response:
    """The response with a document that is not stored: a Status or a review."""
    return _response(document, code, AS_JSON, request.warnings)


def one(
    obj: Object, request: ApiRequest, representation: Representation, query: Query, *, code: int = 200
) -> web.Response:
    """The response with one object."""
    resource = request.target.resource
    if representation.kind == PARTIAL_LIST:
        raise not_acceptable(NOTHING_SUCH)
    if representation.kind == TABLE:
        document = _table(request, [obj], {"resourceVersion": obj["metadata"].get("resourceVersion", "")}, query)
    elif representation.kind in {PARTIAL, PARTIAL_LIST}:
        document = partial(obj)
    else:
        document = presented(resource, obj)
    return _response(document, code, representation, request.warnings)


def many(page: ListPage, request: ApiRequest, representation: Representation, query: Query) -> web.Response:
    """The response with a list."""
    if representation.kind == PARTIAL:
        raise not_acceptable(NOTHING_SUCH)
    if representation.kind == TABLE:
        document = _table(request, page.objects, page.metadata, query)
    elif representation.kind in {PARTIAL, PARTIAL_LIST}:
        head = {"kind": "PartialObjectMetadataList", "apiVersion": META_VERSION, "metadata": page.metadata}
        document = head | {"items": [partial(obj) for obj in page.objects]}
    else:
        document = presented_list(request.target.resource, page)
    return _response(document, 200, representation, request.warnings)


def event_line(
    event: WatchEvent, request: ApiRequest, representation: Representation, query: Query, *, is_first: bool
) -> bytes:
    """One line of a watch."""
    if event.type == ERROR:
        return _line(event.type, event.object)
    if representation.kind == TABLE:
        document = _event_table(event, request, query, is_first=is_first)
    elif representation.kind in {PARTIAL, PARTIAL_LIST}:
        document = partial(event.object)
    else:
        document = presented(request.target.resource, event.object)
    return _line(event.type, document)


def deleted(obj: Object, request: ApiRequest) -> Object:
    """The Status that confirms a deletion."""
    resource, meta = request.target.resource, obj["metadata"]
    details = {"name": meta["name"], "group": resource.group, "kind": resource.plural, "uid": meta["uid"]}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {key: value for key, value in details.items() if value},
    }


def _event_table(event: WatchEvent, request: ApiRequest, query: Query, *, is_first: bool) -> Object:
    metadata = {"resourceVersion": event.object["metadata"].get("resourceVersion", "")}
    objects = [] if event.type == BOOKMARK else [event.object]
    document = _table(request, objects, metadata, query)
    if not is_first:
        document["columnDefinitions"] = None
    return document


def _table(request: ApiRequest, objects: Sequence[Object], metadata: Object, query: Query) -> Object:
    include = query.first("includeObject") or "Metadata"
    if include not in INCLUDE_OBJECT:
        raise bad_request(f"unrecognized includeObject value: {include!r}")
    now: datetime = request.now
    return table(request.target.resource, objects, list_metadata=metadata, include_object=include, now=now)


def _line(kind: str, document: Mapping[str, Any]) -> bytes:
    return orjson.dumps({"type": kind, "object": document}) + b"\n"


def _response(
    document: Object,
    code: int,
    representation: Representation,
    warnings: Sequence[str],
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    body = (
        yaml.safe_dump(document, sort_keys=False).encode() if representation.is_yaml else orjson.dumps(document) + b"\n"
    )
    response = web.Response(body=body, status=code, headers=headers)
    response.headers["Content-Type"] = representation.media_type
    for text in warnings:
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'{WARNING_CODE} - "{escaped}"')
    return response
