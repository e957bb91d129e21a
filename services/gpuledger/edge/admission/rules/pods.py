"""Pods: one pool each, that is there, set up, and open to the pod's namespace; and the hints that follow. Pure.

A pod that asks for nothing of ours is allowed before anything is looked up.
"""

from typing import Any

from gpuledger.api.conditions import PoolConditionType
from gpuledger.api.labels import LABEL_ENABLED, LABEL_TRUE, pool_resource
from gpuledger.edge.admission.cache import Known, KnownPool, PoolName
from gpuledger.edge.admission.rules.requests import Asked, asked_of_pools
from gpuledger.edge.admission.rules.scheduling_hints import hinted
from gpuledger.edge.admission.serving.patch import additions
from gpuledger.edge.admission.serving.review import ALLOWED, CREATE, Problem, Review, Verdict

MODULE_DISABLED = "The GPU module is disabled, so nobody looked whether the pod's pool is there."


def review_pod(review: Review, known: Known) -> Verdict:
    """Whether a new pod may use the pool that it asks for, and what it gets from it."""
    asked = asked_of_pools(review.new) if review.operation == CREATE else None
    if asked is None:
        return ALLOWED
    if not known.settings.enabled:
        return Verdict(warnings=(MODULE_DISABLED,))
    changed = asked if isinstance(asked, Problem) else _changed(review, asked, known)
    return changed.verdict() if isinstance(changed, Problem) else Verdict(patch=tuple(additions(review.new, changed)))


def _changed(review: Review, asked: Asked, known: Known) -> dict[str, Any] | Problem:
    """The pod with its hints, or why it cannot have the pool."""
    pool = _pool(asked, review.namespace, known)
    if isinstance(pool, Problem):
        return pool
    problem = _gate_problem(review.namespace, known) or _pool_problem(pool) or _capacity_problem(pool, asked)
    return problem or hinted(review.new, pool, known.settings)


def _pool(asked: Asked, namespace: str, known: Known) -> KnownPool | Problem:
    name = PoolName("" if asked.is_cluster else namespace, asked.pool)
    if (found := known.pool(name)) is not None:
        return found
    where = "" if asked.is_cluster else f" in the namespace {namespace}"
    message = f"There is no {name.kind} {asked.pool}{where}, which {asked.resource} stands for."
    return Problem("PoolNotFound", f"{message} {_way_out(asked, namespace, known)}")


def _way_out(asked: Asked, namespace: str, known: Known) -> str:
    others = [one.name for one in known.pools_named(asked.pool)]
    if not others:
        return "Check the name with `kubectl get gpupools,clustergpupools -A`."
    usable = next((one for one in others if one.namespace in ("", namespace)), None)
    if usable is None:
        return f"The GPUPool {asked.pool} is in another namespace, and only pods there can use it."
    resource = pool_resource(asked.pool, cluster=not usable.namespace)
    return f"There is a {usable.kind} of that name: ask for {resource}."


def _gate_problem(namespace: str, known: Known) -> Problem | None:
    if known.has_gate_open(namespace):
        return None
    message = f"The namespace {namespace} may not use GPUs. Label it {LABEL_ENABLED}={LABEL_TRUE}."
    return Problem("NamespaceNotEnabled", message)


def _pool_problem(pool: KnownPool) -> Problem | None:
    """Why nobody can use the pool now."""
    if pool.spec.deleting:
        return Problem("PoolDeleting", f"{pool.name} is being deleted. Ask for another pool.")
    if pool.decided is None:
        return Problem("PoolNotConfigured", f"{pool.name} has just been created. Try again once it is Configured.")
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


def _told(pool: KnownPool, kind: str) -> str:
    found = pool.condition(kind)
    status, why = (found.status, f" ({found.reason}) {found.message}") if found else ("Unknown", "")
    said = f"{pool.name} cannot be used: its condition {kind} is {status}{why}".strip().rstrip(".")
    return f"{said}. `kubectl describe` of the pool shows what to mend."


def _capacity_problem(pool: KnownPool, asked: Asked) -> Problem | None:
    total = pool.decided.total if pool.decided else None
    if total == 0:
        message = f"{pool.name} has no device, so its capacity is 0. Assign devices to it, or ask for another pool."
        return Problem("PoolWithoutCapacity", message)
    if total is not None and asked.amount > total:
        message = f"The pod asks for {asked.amount} of {asked.resource}, and the whole pool has {total}."
        return Problem("CapacityExceeded", f"{message} Ask for {total} or fewer.")
    return None
