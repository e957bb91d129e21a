"""Handles each HTTP method on a resource."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

from aiohttp import web

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi import answers, bodies, decoding, deployment_scales, scales
from gpuledger.local.kubeapi.actions import action_of
from gpuledger.local.kubeapi.errors import ApiError, PlainError, bad_request, method_not_allowed, not_implemented
from gpuledger.local.kubeapi.negotiation import Representation, not_acceptable
from gpuledger.local.kubeapi.options import (
    DeleteOptions,
    ListOptions,
    Query,
    delete_options,
    least_revision,
    list_options,
    refuse_force,
    require_manager,
    revision_of,
    write_options,
)
from gpuledger.local.kubeapi.reading import list_page, selection, too_large
from gpuledger.local.kubeapi.registry import PAGE_NOT_FOUND
from gpuledger.local.kubeapi.requests import ApiRequest
from gpuledger.local.kubeapi.store import Store, copy_of, key_of
from gpuledger.local.kubeapi.watching import watch
from gpuledger.local.kubeapi.writing import Change, Writer

_SCALE_VERBS = {"GET": "get", "PUT": "update", "PATCH": "patch"}

Endpoint = Callable[[web.Request, ApiRequest, Representation], Awaitable[web.StreamResponse]]


class ResourceEndpoints:
    """The methods of resources, over one store."""

    def __init__(self, store: Store, writer: Writer, *, bookmark_every_s: float) -> None:
        self._bookmark_every_s = bookmark_every_s
        self._store = store
        self._writer = writer
        self._watches: set[asyncio.Task[object]] = set()
        self._by_method: dict[str, Endpoint] = {
            "GET": self._get,
            "HEAD": self._get,
            "POST": self._post,
            "PUT": self._put,
            "PATCH": self._patch,
            "DELETE": self._delete,
        }

    async def answer(self, http: web.Request, request: ApiRequest, form: Representation) -> web.StreamResponse:
        """Handle a request.

        Raises:
            ApiError: it cannot be done; nothing changed.
        """
        endpoint = self._by_method.get(http.method)
        if endpoint is None:
            raise method_not_allowed(http.method.lower())
        if request.target.subresource in request.target.resource.lacks:
            raise await self._lacking(http, request)
        if deployment_scales.is_of_deployment(request.target):
            endpoint = self._scale
        return await endpoint(http, request, form)

    @property
    def watches(self) -> int:
        """The number of open watches."""
        return len(self._watches)

    def end_watches(self) -> None:
        """End every watch that is open."""
        for task in self._watches:
            task.cancel()

    async def _lacking(self, http: web.Request, request: ApiRequest) -> ApiError:
        """The answer for a subresource that the server lacks: 501, but that of Kubernetes where it is an error too."""
        target, content_type = request.target, http.headers.get("Content-Type", "")
        if not (scales.is_of_custom_resource(target) and http.method == "PATCH" and _applies(content_type)):
            return not_implemented(f"{target.resource.plural}/{target.subresource}")
        require_manager(write_options(_query(http), http.headers.get("User-Agent", ""), "PatchOptions"))
        config = scales.read_configuration(await http.read(), content_type)
        self._writer.found(target)
        return scales.unconvertible(config)

    async def _get(self, http: web.Request, request: ApiRequest, form: Representation) -> web.StreamResponse:
        target, query = request.target, _query(http)
        if http.method == "HEAD" and not target.resource.is_custom:
            raise method_not_allowed("head")
        if target.name:
            _require_verb(request, "get")
            if (revision := least_revision(query)) > self._store.revision:
                raise too_large(revision, self._store.revision)
            obj = self._writer.found(target)
            return answers.one(obj, request, form, query)
        _require_verb(request, "list")
        options = list_options(query)
        if options.watches:
            _require_verb(request, "watch")
            return await self._watch(http, request, form, options)
        return answers.many(list_page(self._store, target, options), request, form, query)

    async def _post(self, http: web.Request, request: ApiRequest, form: Representation) -> web.StreamResponse:
        query, target = _query(http), request.target
        _require_verb(request, "create")
        _require_namespace(request, "create")
        if target.name and not target.subresource and not target.resource.is_custom:
            raise method_not_allowed("create")
        options = write_options(query, http.headers.get("User-Agent", ""), "CreateOptions")
        obj = bodies.read_object(await http.read(), http.headers.get("Content-Type", ""), request, options)
        action = action_of(target)
        if action is not None:
            return answers.status(await action(self._writer, request, obj, options), request, 201)
        if target.name:
            obj.setdefault("metadata", {}).setdefault("name", target.name)
        created = await self._writer.create(request, obj, options)
        return answers.one(created, request, form, query, code=201)

    async def _put(self, http: web.Request, request: ApiRequest, form: Representation) -> web.StreamResponse:
        _require_name(request, "update")
        _require_verb(request, "update")
        options = write_options(_query(http), http.headers.get("User-Agent", ""), "UpdateOptions")
        obj = bodies.read_object(await http.read(), http.headers.get("Content-Type", ""), request, options)
        stored, is_new = await self._writer.update(request, _instead(obj), options)
        return answers.one(stored, request, form, _query(http), code=201 if is_new else 200)

    async def _patch(self, http: web.Request, request: ApiRequest, form: Representation) -> web.StreamResponse:
        query, body = _query(http), await http.read()
        _require_name(request, "patch")
        _require_verb(request, "patch")
        options = write_options(query, http.headers.get("User-Agent", ""), "PatchOptions")
        content_type = http.headers.get("Content-Type", "")
        if applies := _applies(content_type):
            require_manager(options)
            change: Change = bodies.applied(body, content_type, request, options)
        else:
            refuse_force(query)
            change = bodies.patched(body, content_type, request, options)
        stored, is_new = await self._writer.update(request, change, options, applies=applies, is_patch=True)
        return answers.one(stored, request, form, query, code=201 if is_new else 200)

    async def _scale(self, http: web.Request, request: ApiRequest, form: Representation) -> web.StreamResponse:
        """The scale of a Deployment: read, replaced or patched."""
        target, query = request.target, _query(http)
        verb = _SCALE_VERBS.get(http.method)
        if verb is None:
            raise method_not_allowed(http.method.lower())
        if form.kind or form.is_yaml:
            raise not_implemented("a scale in any form but JSON")
        if verb == "get":
            return answers.status(deployment_scales.scale_of(self._writer.found(target)), request, 200)
        body, content_type = await http.read(), http.headers.get("Content-Type", "")
        if _applies(content_type):
            raise not_implemented("an apply of a scale")
        read, agent = deployment_scales.scale_request(request), http.headers.get("User-Agent", "")
        if verb == "update":
            options = write_options(query, agent, "UpdateOptions")
            change = _instead(bodies.read_object(body, content_type, read, options))
        else:
            refuse_force(query)
            options = write_options(query, agent, "PatchOptions")
            change = bodies.patched(body, content_type, read, options)
        scaling = deployment_scales.scaling(target, change)
        stored, _ = await self._writer.update(request, scaling, options, is_patch=verb == "patch")
        return answers.status(deployment_scales.scale_of(stored), request, 200)

    async def _delete(self, http: web.Request, request: ApiRequest, form: Representation) -> web.StreamResponse:
        query, body = _query(http), await http.read()
        target = request.target
        given = bodies.read_delete_options(body, http.headers.get("Content-Type", "")) if body else {}
        options = delete_options(query, given)
        if not target.name:
            _require_namespace(request, "deletecollection")
            return await self._delete_collection(request, form, query, options)
        _require_verb(request, "delete")
        obj, is_gone = await self._writer.delete(request, options)
        if is_gone and not target.resource.strategy.answers_deleted_object:
            return answers.status(answers.deleted(obj, request), request, 200)
        return answers.one(obj, request, form, query)

    async def _delete_collection(
        self, request: ApiRequest, form: Representation, query: Query, options: DeleteOptions
    ) -> web.StreamResponse:
        _require_verb(request, "deletecollection")
        target = request.target
        page = list_page(self._store, target, list_options(query))
        for obj in page.objects:
            namespace, name = key_of(obj)
            one = replace(request, target=target._replace(namespace=namespace, name=name))
            if self._writer.current(one.target) is not None:
                await self._writer.delete(one, options)
        return answers.many(page, request, form, query)

    async def _watch(
        self, http: web.Request, request: ApiRequest, form: Representation, options: ListOptions
    ) -> web.StreamResponse:
        query, chosen = _query(http), selection(request.target, options)
        revision = revision_of(options)
        if form.is_yaml:
            raise not_acceptable("only the following media types are accepted: application/json")
        response = web.StreamResponse(headers={"Content-Type": form.media_type})
        response.enable_chunked_encoding()
        await response.prepare(http)
        is_first = True
        with self._watched(), suppress(ConnectionError):
            every_s = self._bookmark_every_s
            served = partial(self._writer.registry.serves, request.target.resource)
            seen = watch(self._store, request.target, options, chosen, revision, served, bookmark_every_s=every_s)
            async for events in seen:
                lines = []
                for event in events:
                    lines.append(answers.event_line(event, request, form, query, is_first=is_first))
                    is_first = False
                await response.write(b"".join(lines))
            await response.write_eof()
        return response

    @contextmanager
    def _watched(self) -> Iterator[None]:
        task = asyncio.current_task()
        assert task is not None, "requests are tasks"
        self._watches.add(task)
        try:
            yield
        finally:
            self._watches.discard(task)


def _instead(obj: Object) -> Change:
    """The change that puts an object in the place of any other."""
    return lambda _: copy_of(obj)


def _query(http: web.Request) -> Query:
    return Query({name: http.query.getall(name) for name in http.query})


def _applies(content_type: str) -> bool:
    return decoding.media_type_of(content_type) == bodies.APPLY_PATCH


def _require_verb(request: ApiRequest, verb: str) -> None:
    target = request.target
    subresource = target.resource.subresource(target.subresource)
    if verb not in (subresource.verbs if subresource else target.resource.verbs):
        raise method_not_allowed(verb)


def _require_namespace(request: ApiRequest, verb: str) -> None:
    """Refuse requests over all namespaces, except lists and watches."""
    target = request.target
    if target.resource.namespaced and not target.namespace:
        raise PlainError(404, PAGE_NOT_FOUND) if target.resource.is_custom else method_not_allowed(verb)


def _require_name(request: ApiRequest, verb: str) -> None:
    """Refuse writes to a whole collection."""
    _require_namespace(request, verb)
    if not request.target.name:
        raise bad_request("name must be provided") if request.target.resource.is_custom else method_not_allowed(verb)
