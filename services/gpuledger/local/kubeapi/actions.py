"""Endpoints that are neither reading nor writing an object as it is: binding, eviction, scale, reviews, tokens."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi import reviews
from gpuledger.local.kubeapi.controllers import BUDGETS, PODS
from gpuledger.local.kubeapi.custom import CustomStrategy
from gpuledger.local.kubeapi.errors import not_implemented
from gpuledger.local.kubeapi.options import DeleteOptions, WriteOptions
from gpuledger.local.kubeapi.reading import presented
from gpuledger.local.kubeapi.registry import Target
from gpuledger.local.kubeapi.requests import Request
from gpuledger.local.kubeapi.scale import ScalePaths
from gpuledger.local.kubeapi.store import copy_of
from gpuledger.local.kubeapi.strategies import pods, policy, rbac
from gpuledger.local.kubeapi.writing import Writer

RBAC_GROUP = "rbac.authorization.k8s.io"
RBAC_KINDS = ("roles", "rolebindings", "clusterroles", "clusterrolebindings")
REVIEW_GROUPS = frozenset({"authorization.k8s.io", "authentication.k8s.io"})

WORKLOAD_SCALE = ScalePaths(".spec.replicas", ".status.replicas", ".spec.selector")
"""Of Deployments, ReplicaSets and StatefulSets."""

Action = Callable[[Writer, Request, Object, WriteOptions], Awaitable[Object]]


async def bind(writer: Writer, request: Request, body: Object, options: WriteOptions) -> Object:
    """Give a pod its node.

    Raises:
        ApiError: the pod is not there, has one already or may not have one yet.
    """
    pod = writer.found(request.target)
    bound = pods.bound(copy_of(pod), body, request.now)
    if not options.dry_run:
        writer.replace(request.target.resource, bound)
    return _success(201)


async def bind_by_name(writer: Writer, request: Request, body: Object, options: WriteOptions) -> Object:
    """As `bind`; the pod is the one that the binding is named after.

    Raises:
        ApiError: as for `bind`.
    """
    pods_served = writer.registry.of_group(*PODS)
    assert pods_served is not None, "pods are always served"
    name = (body.get("metadata") or {}).get("name") or ""
    target = Target(pods_served, request.target.namespace, name, "binding")
    return await bind(writer, replace(request, target=target), body, options)


async def evict(writer: Writer, request: Request, body: Object, options: WriteOptions) -> Object:
    """Delete a pod if the disruption budgets allow it.

    Raises:
        ApiError: 429, a budget does not; 500, two budgets apply; or the pod cannot be deleted.
    """
    pod = writer.found(request.target)
    budgets = writer.store.collection(BUDGETS).objects(request.target.namespace)
    decided = policy.evicted(copy_of(pod), body, budgets, request.now)
    wanted: Object = body.get("deleteOptions") or {}
    preconditions = wanted.get("preconditions") or {}
    dry_run = options.dry_run or bool(wanted.get("dryRun"))
    budget_resource = writer.registry.of_group(*BUDGETS)
    if not dry_run:
        if decided.budget is not None and budget_resource is not None:
            writer.replace(budget_resource, decided.budget)
        writer.replace(request.target.resource, decided.pod)
    deletion = DeleteOptions(
        dry_run,
        wanted.get("gracePeriodSeconds"),
        wanted.get("propagationPolicy") or "",
        preconditions.get("uid") or "",
        preconditions.get("resourceVersion") or "",
    )
    await writer.delete(request, deletion)
    return _success(201)


async def review(writer: Writer, request: Request, body: Object, _: WriteOptions) -> Object:
    """Answer who may do what, from the RBAC objects that are stored.

    Raises:
        ApiError: the question is not one.
    """
    target = request.target
    policies = {kind: writer.store.collection((RBAC_GROUP, kind)).objects() for kind in RBAC_KINDS}
    answer = reviews.review(
        target.resource.plural,
        body,
        namespace=target.namespace,
        user=request.user,
        groups=request.groups,
        authorize=partial(rbac.allowed, objects=policies),
        rules=partial(rbac.rules_for, objects=policies),
        now=request.now,
    )
    return presented(target.resource, answer)


async def no_token(*_: object) -> Object:
    """Tokens of service accounts are not issued.

    Raises:
        ApiError: 501, always.
    """
    raise not_implemented("tokens of service accounts")


ACTIONS: Mapping[tuple[str, str, str], Action] = {
    ("", "bindings", ""): bind_by_name,
    ("", "pods", "binding"): bind,
    ("", "pods", "eviction"): evict,
    ("", "serviceaccounts", "token"): no_token,
}
"""POST on a subresource, by group, plural and subresource."""


def action_of(target: Target) -> Action | None:
    """What a POST to this target does, where it does not create an object."""
    if target.resource.group in REVIEW_GROUPS:
        return review
    return ACTIONS.get((*target.resource.key, target.subresource))


def scale_paths(target: Target) -> ScalePaths | None:
    """Where a resource keeps its scale; None unless the scale is asked for."""
    if target.subresource != "scale":
        return None
    strategy = target.resource.strategy
    return strategy.scale if isinstance(strategy, CustomStrategy) else WORKLOAD_SCALE


def _success(code: int) -> Object:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code}
