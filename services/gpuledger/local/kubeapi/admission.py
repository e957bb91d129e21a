"""Calls the admission webhooks that are registered in the store before an object is stored."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi.reading import presented
from gpuledger.local.kubeapi.requests import ApiRequest
from gpuledger.local.kubeapi.store import Store, copy_of
from gpuledger.local.kubeapi.webhook_matching import KindVersion, Question
from gpuledger.local.kubeapi.webhooks import Webhooks
from gpuledger.runtime.clock import NewId

GROUP = "admissionregistration.k8s.io"
MUTATING, VALIDATING = (GROUP, "mutatingwebhookconfigurations"), (GROUP, "validatingwebhookconfigurations")

ServicePlaces = Mapping[tuple[str, str], tuple[str, int]]
"""The addresses of services by namespace and name, since the server has no cluster network."""


class WebhookAdmission:
    """Calls the webhooks of the stored configurations."""

    def __init__(self, store: Store, new_id: NewId, places: ServicePlaces) -> None:
        self._store = store
        self._new_id = new_id
        self._places = places
        self._webhooks: Webhooks | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Hold the HTTP session for calls until the block ends."""
        async with aiohttp.ClientSession() as session:
            self._webhooks = Webhooks(session, self._new_id, self._place, self._labels)
            try:
                yield
            finally:
                self._webhooks = None

    def has_webhooks(self, request: ApiRequest) -> bool:
        """Whether any webhook is registered."""
        registered = len(self._store.collection(MUTATING)) + len(self._store.collection(VALIDATING))
        return bool(registered) and self._webhooks is not None and request.target.resource.group != GROUP

    async def mutate(
        self, request: ApiRequest, operation: str, obj: Object | None, old: Object | None, options: Mapping[str, Any]
    ) -> Object | None:
        """The object after all mutating webhooks."""
        assert self._webhooks is not None, "asked only while it can ask"
        configurations = self._store.collection(MUTATING).objects()
        question = _question(request, operation, obj or old or {}, options)
        objects = (_presented(request, obj), _presented(request, old))
        return await self._webhooks.mutate(configurations, question, *objects, request.warnings)

    async def validate(
        self, request: ApiRequest, operation: str, obj: Object | None, old: Object | None, options: Mapping[str, Any]
    ) -> None:
        """Call the validating webhooks.

        Raises:
            ApiError: a webhook refuses the object, or fails and fails closed.
        """
        assert self._webhooks is not None, "asked only while it can ask"
        configurations = self._store.collection(VALIDATING).objects()
        question = _question(request, operation, obj or old or {}, options)
        objects = (_presented(request, obj), _presented(request, old))
        await self._webhooks.validate(configurations, question, *objects, request.warnings)

    def _place(self, namespace: str, name: str, port: int) -> tuple[str, int] | None:
        return self._places.get((namespace, name))

    def _labels(self, namespace: str) -> Mapping[str, str]:
        found = self._store.collection(("", "namespaces")).get("", namespace)
        labels: Mapping[str, str] = (found or {"metadata": {}})["metadata"].get("labels") or {}
        return labels


def _question(request: ApiRequest, operation: str, obj: Object, options: Mapping[str, Any]) -> Question:
    target = request.target
    resource = target.resource
    return Question(
        operation,
        KindVersion(resource.group, resource.version, resource.kind, resource.plural),
        obj["metadata"].get("name", ""),
        target.namespace,
        target.subresource,
        resource.namespaced,
        {"username": request.user, "groups": list(request.groups)},
        dict(options),
    )


def _presented(request: ApiRequest, obj: Object | None) -> Object | None:
    return None if obj is None else copy_of(presented(request.target.resource, obj))
