"""Checks new pods that request units of a pool, and adds the pool's scheduling hints to them. Pure.

The pool has to exist, to be configured, to be large enough, and to be open to the pod's namespace. A pod that requests
no units is allowed before anything is looked up.
"""

from gpuledger.api.conditions import PoolConditionType
from gpuledger.api.labels import LABEL_ENABLED, LABEL_TRUE
from gpuledger.api.pool_ref import PoolRef
from gpuledger.edge.admission.cache import AdmissionCache, CachedPool
from gpuledger.edge.admission.errors import DenialError
from gpuledger.edge.admission.rules.requests import PoolRequest, containers_with_units, pool_request
from gpuledger.edge.admission.rules.scheduling_hints import with_hints
from gpuledger.edge.admission.serving.patch import additions
from gpuledger.edge.admission.serving.review import ALLOWED, CREATE, AdmissionRequest, AdmissionResponse

MODULE_DISABLED = "The GPU module is disabled, so admission did not check the pod's pool."


def review_pod(request: AdmissionRequest, cache: AdmissionCache) -> AdmissionResponse:
    """Allow a new pod, with a patch, or deny it."""
    containers = containers_with_units(request.new) if request.operation == CREATE else []
    if not containers:
        return ALLOWED
    if not cache.settings.enabled:
        return AdmissionResponse(warnings=(MODULE_DISABLED,))
    wish = pool_request(containers, request.namespace)
    pool = _pool(wish.pool, request.namespace, cache)
    _check_namespace(request.namespace, cache)
    _check_pool(pool)
    _check_capacity(pool, wish)
    return AdmissionResponse(patch=tuple(additions(request.new, with_hints(request.new, pool, cache.settings))))


def _pool(ref: PoolRef, namespace: str, cache: AdmissionCache) -> CachedPool:
    if (found := cache.pool(ref)) is not None:
        return found
    where = f" in the namespace {ref.namespace}" if ref.namespace else ""
    message = f"There is no {ref.kind} {ref.name}{where}, which {ref.resource_name} stands for."
    raise DenialError("PoolNotFound", f"{message} {_way_out(ref.name, namespace, cache)}")


def _way_out(name: str, namespace: str, cache: AdmissionCache) -> str:
    others = [one.ref for one in cache.pools_named(name)]
    if not others:
        return "Check the name with `kubectl get gpupools,clustergpupools -A`."
    usable = next((one for one in others if one.namespace in ("", namespace)), None)
    if usable is None:
        return f"The GPUPool {name} is in another namespace, and only pods there can use it."
    return f"There is a {usable.kind} of that name: ask for {usable.resource_name}."


def _check_namespace(namespace: str, cache: AdmissionCache) -> None:
    if not cache.allows_gpus(namespace):
        message = f"The namespace {namespace} may not use GPUs. Label it {LABEL_ENABLED}={LABEL_TRUE}."
        raise DenialError("NamespaceNotEnabled", message)


_CONDITIONS = (
    ("PoolNotSupported", PoolConditionType.SUPPORTED, True),
    ("PoolMisconfigured", PoolConditionType.MISCONFIGURED, False),
    ("PoolNotConfigured", PoolConditionType.CONFIGURED, True),
    ("PoolInMaintenance", PoolConditionType.MAINTENANCE, False),
)
"""Reason, type of condition, and the status that it needs."""


def _check_pool(pool: CachedPool) -> None:
    if pool.spec.definition.deleting:
        raise DenialError("PoolDeleting", f"{pool.ref} is being deleted. Ask for another pool.")
    if pool.total is None:
        raise DenialError("PoolNotConfigured", f"{pool.ref} has just been created. Try again once it is Configured.")
    for reason, kind, needed in _CONDITIONS:
        if pool.is_true(kind) != needed:
            raise DenialError(reason, _condition_text(pool, kind))


def _condition_text(pool: CachedPool, kind: str) -> str:
    found = pool.conditions.get(kind)
    status, why = (found.status, f" ({found.reason}) {found.message}") if found else ("Unknown", "")
    text = f"{pool.ref} cannot be used: its condition {kind} is {status}{why}".strip().rstrip(".")
    return f"{text}. `kubectl describe` of the pool shows what to fix."


def _check_capacity(pool: CachedPool, request: PoolRequest) -> None:
    total = None if pool.total is None else pool.total.total
    if total == 0:
        message = f"{pool.ref} has no device, so its capacity is 0. Assign devices to it, or ask for another pool."
        raise DenialError("PoolWithoutCapacity", message)
    if total is not None and request.units > total:
        message = f"The pod asks for {request.units} of {request.pool.resource_name}, and the whole pool has {total}."
        raise DenialError("CapacityExceeded", f"{message} Ask for {total} or fewer.")
