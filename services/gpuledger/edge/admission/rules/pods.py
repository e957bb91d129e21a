"""Pods: one pool each, that is there, set up, and open to the pod's namespace; and the hints that follow. Pure.

A pod that asks for nothing of ours is allowed before anything is looked up.
"""

from typing import Any

from gpuledger.api.conditions import PoolConditionType
from gpuledger.api.labels import LABEL_ENABLED, LABEL_TRUE
from gpuledger.api.pool_ref import PoolRef
from gpuledger.edge.admission.cache import AdmissionCache, CachedPool
from gpuledger.edge.admission.rules.requests import PoolRequest, pool_request
from gpuledger.edge.admission.rules.scheduling_hints import hinted
from gpuledger.edge.admission.serving.patch import additions
from gpuledger.edge.admission.serving.review import ALLOWED, CREATE, Problem, Review, Verdict

MODULE_DISABLED = "The GPU module is disabled, so nobody looked whether the pod's pool is there."


def review_pod(review: Review, cache: AdmissionCache) -> Verdict:
    """Whether a new pod may use the pool that it asks for, and what it gets from it."""
    request = pool_request(review.new, review.namespace) if review.operation == CREATE else None
    if request is None:
        return ALLOWED
    if not cache.settings.enabled:
        return Verdict(warnings=(MODULE_DISABLED,))
    changed = request if isinstance(request, Problem) else _changed(review, request, cache)
    return changed.verdict() if isinstance(changed, Problem) else Verdict(patch=tuple(additions(review.new, changed)))


def _changed(review: Review, request: PoolRequest, cache: AdmissionCache) -> dict[str, Any] | Problem:
    """The pod with its hints, or why it cannot have the pool."""
    pool = _pool(request.pool, review.namespace, cache)
    if isinstance(pool, Problem):
        return pool
    problem = _gate_problem(review.namespace, cache) or _pool_problem(pool) or _capacity_problem(pool, request)
    return problem or hinted(review.new, pool, cache.settings)


def _pool(ref: PoolRef, namespace: str, cache: AdmissionCache) -> CachedPool | Problem:
    if (found := cache.pool(ref)) is not None:
        return found
    where = f" in the namespace {ref.namespace}" if ref.namespace else ""
    message = f"There is no {ref.kind} {ref.name}{where}, which {ref.resource_name} stands for."
    return Problem("PoolNotFound", f"{message} {_way_out(ref.name, namespace, cache)}")


def _way_out(name: str, namespace: str, cache: AdmissionCache) -> str:
    others = [one.ref for one in cache.pools_named(name)]
    if not others:
        return "Check the name with `kubectl get gpupools,clustergpupools -A`."
    usable = next((one for one in others if one.namespace in ("", namespace)), None)
    if usable is None:
        return f"The GPUPool {name} is in another namespace, and only pods there can use it."
    return f"There is a {usable.kind} of that name: ask for {usable.resource_name}."


def _gate_problem(namespace: str, cache: AdmissionCache) -> Problem | None:
    if cache.allows_gpus(namespace):
        return None
    message = f"The namespace {namespace} may not use GPUs. Label it {LABEL_ENABLED}={LABEL_TRUE}."
    return Problem("NamespaceNotEnabled", message)


def _pool_problem(pool: CachedPool) -> Problem | None:
    """Why nobody can use the pool now."""
    if pool.spec.said.deleting:
        return Problem("PoolDeleting", f"{pool.ref} is being deleted. Ask for another pool.")
    if pool.total is None:
        return Problem("PoolNotConfigured", f"{pool.ref} has just been created. Try again once it is Configured.")
    for reason, kind, wanted in _CONDITIONS:
        if pool.is_true(kind) != wanted:
            return Problem(reason, _told(pool, kind))
    return None


_CONDITIONS = (
    ("PoolNotSupported", PoolConditionType.SUPPORTED, True),
    ("PoolMisconfigured", PoolConditionType.MISCONFIGURED, False),
    ("PoolNotConfigured", PoolConditionType.CONFIGURED, True),
    ("PoolInMaintenance", PoolConditionType.MAINTENANCE, False),
)
"""Reason, type of condition, and whether it has to hold."""


def _told(pool: CachedPool, kind: str) -> str:
    found = pool.conditions.get(kind)
    status, why = (found.status, f" ({found.reason}) {found.message}") if found else ("Unknown", "")
    said = f"{pool.ref} cannot be used: its condition {kind} is {status}{why}".strip().rstrip(".")
    return f"{said}. `kubectl describe` of the pool shows what to mend."


def _capacity_problem(pool: CachedPool, request: PoolRequest) -> Problem | None:
    total = None if pool.total is None else pool.total.total
    if total == 0:
        message = f"{pool.ref} has no device, so its capacity is 0. Assign devices to it, or ask for another pool."
        return Problem("PoolWithoutCapacity", message)
    if total is not None and request.units > total:
        message = f"The pod asks for {request.units} of {request.pool.resource_name}, and the whole pool has {total}."
        return Problem("CapacityExceeded", f"{message} Ask for {total} or fewer.")
    return None
