"""Has webhooks and policies review a write before an object is stored, as they are registered in the store."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi.admission_request import KindVersion, Question
from gpuledger.local.kubeapi.policies import NAMESPACE_KEY, Review, outcome_of
from gpuledger.local.kubeapi.reading import presented
from gpuledger.local.kubeapi.registry import ResourceRegistry
from gpuledger.local.kubeapi.requests import ApiRequest
from gpuledger.local.kubeapi.resources import ServedResource
from gpuledger.local.kubeapi.store import Store, copy_of
from gpuledger.local.kubeapi.webhook_matching import ADMISSION_GROUP
from gpuledger.local.kubeapi.webhooks import Webhooks
from gpuledger.runtime.clock import NewId

MUTATING = (ADMISSION_GROUP, "mutatingwebhookconfigurations")
VALIDATING = (ADMISSION_GROUP, "validatingwebhookconfigurations")
POLICIES = (ADMISSION_GROUP, "validatingadmissionpolicies")
BINDINGS = (ADMISSION_GROUP, "validatingadmissionpolicybindings")

ServicePlaces = Mapping[tuple[str, str], tuple[str, int]]
"""The addresses of services by namespace and name, since the server has no cluster network."""


class Admission:
    """Asks the webhooks and evaluates the policies of the store."""

    def __init__(self, store: Store, registry: ResourceRegistry, new_id: NewId, places: ServicePlaces) -> None:
        self._store = store
        self._registry = registry
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

    async def mutate(
        self, request: ApiRequest, operation: str, obj: Object | None, old: Object | None, options: Mapping[str, Any]
    ) -> Object | None:
        """The object after all mutating webhooks: the argument itself if none is registered.

        Raises:
            ApiError: a webhook refuses the object, or fails and fails closed.
        """
        if self._webhooks is None or not self._asks(MUTATING, request):
            return obj
        configurations = self._store.collection(MUTATING).objects()
        question = self._question(request, operation, obj or old or {}, options)
        objects = (_presented(request, obj), _presented(request, old))
        return await self._webhooks.mutate(configurations, question, *objects, request.warnings)

    async def validate(
        self, request: ApiRequest, operation: str, obj: Object | None, old: Object | None, options: Mapping[str, Any]
    ) -> None:
        """Evaluate the policies, then call the validating webhooks.

        Raises:
            ApiError: one of them refuses the object, or fails and fails closed.
        """
        has_policies = self._has_policies(request)
        has_webhooks = self._webhooks is not None and self._asks(VALIDATING, request)
        if not has_policies and not has_webhooks:
            return
        question = self._question(request, operation, obj or old or {}, options)
        if has_policies:
            resource = request.target.resource
            new, before = (None if one is None else presented(resource, one) for one in (obj, old))
            self._evaluate(Review(question, new, before, self._namespace), request.warnings)
        if has_webhooks and self._webhooks is not None:
            configurations = self._store.collection(VALIDATING).objects()
            objects = (_presented(request, obj), _presented(request, old))
            await self._webhooks.validate(configurations, question, *objects, request.warnings)

    def _asks(self, kind: tuple[str, str], request: ApiRequest) -> bool:
        return bool(len(self._store.collection(kind))) and request.target.resource.group != ADMISSION_GROUP

    def _has_policies(self, request: ApiRequest) -> bool:
        is_bound = all(len(self._store.collection(kind)) for kind in (POLICIES, BINDINGS))
        return is_bound and request.target.resource.key not in {POLICIES, BINDINGS}

    def _evaluate(self, review: Review, warnings: list[str]) -> None:
        policies, bindings = (self._store.collection(kind).objects() for kind in (POLICIES, BINDINGS))
        outcome = outcome_of(policies, bindings, review)
        warnings.extend(outcome.warnings)
        if outcome.refusal is not None:
            raise outcome.refusal

    def _question(self, request: ApiRequest, operation: str, obj: Object, options: Mapping[str, Any]) -> Question:
        target = request.target
        resource, name = target.resource, obj["metadata"].get("name", "")
        return Question(
            operation,
            _version(resource),
            name,
            name if resource.key == NAMESPACE_KEY else target.namespace,
            target.subresource,
            resource.namespaced,
            _user_of(request),
            dict(options),
            tuple(_version(one) for one in self._registry if _is_other_version(one, resource)),
        )

    def _place(self, namespace: str, name: str, port: int) -> tuple[str, int] | None:
        return self._places.get((namespace, name))

    def _namespace(self, name: str) -> Object | None:
        return self._store.collection(NAMESPACE_KEY).get("", name)

    def _labels(self, namespace: str) -> Mapping[str, str]:
        labels: Mapping[str, str] = (self._namespace(namespace) or {"metadata": {}})["metadata"].get("labels") or {}
        return labels


def _user_of(request: ApiRequest) -> Object:
    user = {"username": request.user, "groups": list(request.groups)}
    return {**user, "extra": dict(request.extra)} if request.extra else user


def _version(resource: ServedResource) -> KindVersion:
    return KindVersion(resource.group, resource.version, resource.kind, resource.plural)


def _is_other_version(one: ServedResource, resource: ServedResource) -> bool:
    return (one.group, one.plural) == (resource.group, resource.plural) and one.version != resource.version


def _presented(request: ApiRequest, obj: Object | None) -> Object | None:
    return None if obj is None else copy_of(presented(request.target.resource, obj))
