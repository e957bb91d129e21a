"""Serves the POST endpoints that do more than create an object: binding, eviction, access reviews, tokens."""

from collections.abc import Awaitable, Callable, Mapping

from gpuledger.api.kinds import TOKEN_REVIEWS
from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi import reviews
from gpuledger.local.kubeapi.access import policies_of
from gpuledger.local.kubeapi.controllers import BUDGETS
from gpuledger.local.kubeapi.options import DeleteOptions, WriteOptions
from gpuledger.local.kubeapi.reading import presented
from gpuledger.local.kubeapi.registry import Target
from gpuledger.local.kubeapi.requests import ApiRequest
from gpuledger.local.kubeapi.store import copy_of
from gpuledger.local.kubeapi.strategies import pods, policy
from gpuledger.local.kubeapi.tokens import Find
from gpuledger.local.kubeapi.write_checks import check_preconditions
from gpuledger.local.kubeapi.writing import Writer

REVIEW_GROUPS = frozenset({"authorization.k8s.io", "authentication.k8s.io"})

Action = Callable[[Writer, ApiRequest, Object, WriteOptions], Awaitable[Object]]


async def bind(writer: Writer, request: ApiRequest, body: Object, options: WriteOptions) -> Object:
    """Give a pod its node.

    Raises:
        ApiError: the pod does not exist, is bound already or is held back by gates.
    """
    pod = writer.found(request.target)
    bound = pods.bound(copy_of(pod), body, request.now)
    if not options.dry_run:
        writer.replace(request.target.resource, bound)
    return _success(201)


async def evict(writer: Writer, request: ApiRequest, body: Object, options: WriteOptions) -> Object:
    """Delete a pod if the disruption budgets allow it.

    A precondition is checked behind the budget, and before anything of the pod changes.

    Raises:
        ApiError: 429, a budget does not; 500, two budgets apply; 409, a precondition fails; or the pod
            cannot be deleted.
    """
    pod = writer.found(request.target)
    budgets = writer.store.collection(BUDGETS).objects(request.target.namespace)
    decided = policy.evicted(copy_of(pod), body, budgets, request.now)
    requested: Object = body.get("deleteOptions") or {}
    uid, version = _preconditions(requested)
    dry_run = options.dry_run or bool(requested.get("dryRun"))
    budget_resource = writer.registry.of_group(*BUDGETS)
    if not dry_run and decided.budget is not None and budget_resource is not None:
        writer.replace(budget_resource, decided.budget)
    grace_s, propagation = requested.get("gracePeriodSeconds"), requested.get("propagationPolicy") or ""
    check_preconditions(request.target, pod, DeleteOptions(dry_run, grace_s, propagation, uid, version))
    if not dry_run:
        writer.replace(request.target.resource, decided.pod)
    deletion = DeleteOptions(dry_run, grace_s, propagation, uid)
    await writer.delete(request, deletion)
    return _success(201)


async def review(writer: Writer, request: ApiRequest, body: Object, _: WriteOptions) -> Object:
    """Answer an access review from the stored RBAC objects, or the review of a token.

    Raises:
        ApiError: the review is invalid.
    """
    if request.target.resource.plural == TOKEN_REVIEWS.plural:
        return writer.tokens.review(body, _core_objects(writer), request.now)
    target, policies = request.target, policies_of(writer.store)
    reviewer = reviews.Reviewer(target.namespace, request.user, request.groups, policies, request.now)
    return presented(target.resource, reviews.review(target.resource.plural, body, reviewer))


async def request_token(writer: Writer, request: ApiRequest, body: Object, _: WriteOptions) -> Object:
    """Issue a token of a service account.

    Raises:
        ApiError: there is no such account, or no such token may be requested.
    """
    account = writer.found(request.target)
    return writer.tokens.request(account, body, _core_objects(writer), request.now)


ACTIONS: Mapping[tuple[str, str, str], Action] = {
    ("", "pods", "binding"): bind,
    ("", "pods", "eviction"): evict,
    ("", "serviceaccounts", "token"): request_token,
}
"""POST on a subresource, by group, plural and subresource."""


def action_of(target: Target) -> Action | None:
    """The action of a POST to this target; None if it creates an object."""
    if target.resource.group in REVIEW_GROUPS:
        return review
    return ACTIONS.get((*target.resource.key, target.subresource))


def _preconditions(options: Object) -> tuple[str, str]:
    """The uid and the resourceVersion that the pod must have; empty ones are no conditions."""
    given = options.get("preconditions") or {}
    return given.get("uid") or "", given.get("resourceVersion") or ""


def _core_objects(writer: Writer) -> Find:
    return lambda plural, namespace, name: writer.store.collection(("", plural)).get(namespace, name)


def _success(code: int) -> Object:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code}
