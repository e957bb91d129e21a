"""Checks new pods that request units of a pool, and adds the pool's scheduling hints to them. Pure.

The pool has to exist, to be usable, and to be open to the pod's namespace. A pod that the pool could hold later is
allowed with a warning, and waits as Pending: a Deployment may come before its cards. One that requests more than all
devices that the pool selects would offer is denied. A pod that requests no units is allowed before anything is looked
up.
"""

from collections.abc import Iterator

from gpuledger.api.conditions import PoolConditionType
from gpuledger.api.labels import LABEL_ENABLED, LABEL_TRUE
from gpuledger.api.pool_ref import PoolRef
from gpuledger.edge.admission.cache import AdmissionCache, CachedPool
from gpuledger.edge.admission.errors import DenialError
from gpuledger.edge.admission.rules.requests import PoolRequest, containers_with_units, pool_request
from gpuledger.edge.admission.rules.scheduling_hints import with_hints
from gpuledger.edge.webhooks.serving.patch import additions
from gpuledger.edge.webhooks.serving.review import ALLOWED, CREATE, AdmissionRequest, AdmissionResponse

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
    _check_capacity(pool, wish, cache)
    patch = tuple(additions(request.new, with_hints(request.new, pool, cache.settings)))
    return AdmissionResponse(patch=patch, warnings=tuple(_warnings(pool, wish)))


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
        return  # Nothing was decided about it yet.
    for reason, kind, needed in _CONDITIONS:
        if pool.is_true(kind) != needed:
            raise DenialError(reason, _condition_text(pool, kind))


def _condition_text(pool: CachedPool, kind: str) -> str:
    found = pool.conditions.get(kind)
    status, why = (found.status, f" ({found.reason}) {found.message}") if found else ("Unknown", "")
    text = f"{pool.ref} cannot be used: its condition {kind} is {status}{why}".strip().rstrip(".")
    return f"{text}. `kubectl describe` of the pool shows what to fix."


def _check_capacity(pool: CachedPool, request: PoolRequest, cache: AdmissionCache) -> None:
    offered = _offered(pool)
    potential = cache.potential_units(pool) if request.units > offered else None
    if potential is not None and request.units > (most := max(potential, offered)):
        resource = request.pool.resource_name
        message = f"The pod asks for {request.units} of {resource}, and all devices that the pool selects offer {most}."
        raise DenialError("CapacityExceeded", f"{message} Ask for {most} or fewer.")


def _warnings(pool: CachedPool, request: PoolRequest) -> Iterator[str]:
    offered = _offered(pool)
    if request.units > offered:
        name = f"`gpuledger describe pool {pool.ref.id}`"
        yield (
            f"{pool.ref} offers {offered} units now, and the pod asks for {request.units}: it stays Pending until the "
            f"pool has more. {name} shows which devices it lacks."
        )


def _offered(pool: CachedPool) -> int:
    """How many units the pool has, in use or not."""
    return 0 if pool.total is None or pool.total.total is None else pool.total.total
