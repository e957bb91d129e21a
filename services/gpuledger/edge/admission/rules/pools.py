"""Checks new and changed GPUPools and ClusterGPUPools: their specs, what may not change, and unique names. Pure.

The assignment annotation and the resource name a pool by its name alone, so no two pools may share one, whatever their
namespaces and kinds. Two pools that are created in the same moment may both pass: the later one gets the condition
NameCollision.
"""

from collections.abc import Iterator
from typing import Any, Final

from gpuledger.api.labels import ANNOTATION_MAINTENANCE
from gpuledger.api.pool_ref import PoolRef
from gpuledger.api.pool_spec import (
    BACKEND_DEVICE_PLUGIN,
    BACKEND_DRA,
    MAINTENANCE_CONFIRMED,
    MAINTENANCE_ENABLED,
    PROVIDER_NVIDIA,
)
from gpuledger.domain.pools.validation import without_approval
from gpuledger.edge.admission.cache import AdmissionCache
from gpuledger.edge.admission.errors import DenialError
from gpuledger.edge.admission.rules.pool_manifest import manifest_problems
from gpuledger.edge.kube.objects import mapping
from gpuledger.edge.webhooks.serving.review import (
    ALLOWED,
    CREATE,
    DELETE,
    AdmissionRequest,
    AdmissionResponse,
    Object,
)

IMMUTABLE: Final = ("provider", "backend", "resource", "deviceSelector")
_DEFAULTS: Final[Object] = {
    "provider": PROVIDER_NVIDIA,
    "backend": BACKEND_DEVICE_PLUGIN,
    "resource": {"slicesPerUnit": 1},
}
"""The value of a field that is left out; writing it in is not a change."""

DRA_IS_NOT_SERVED: Final = "backend DRA is not served yet: the pool will stay with Supported=False and take no device."


def review_pool(request: AdmissionRequest, cache: AdmissionCache) -> AdmissionResponse:
    """Allow or deny the creation, change or deletion of a pool."""
    if request.operation == DELETE:
        return _deletion(request, cache)
    spec, old = mapping(request.new, "spec"), mapping(request.old, "spec")
    _check_maintenance(request)
    if request.operation != CREATE and spec == old:
        return ALLOWED
    _check_spec(request, cache)
    if request.operation == CREATE:
        _check_name(request, cache)
    else:
        _check_immutable(spec, old)
    return AdmissionResponse(warnings=tuple(_warnings(spec)))


def _warnings(spec: Object) -> Iterator[str]:
    """What is allowed, and does not do what its author may expect."""
    if spec.get("backend") == BACKEND_DRA:
        yield DRA_IS_NOT_SERVED
    assignment = mapping(spec, "deviceAssignment")
    if warning := without_approval(
        requires_annotation=assignment.get("requireAnnotation") is not False,
        has_selector=assignment.get("autoApproveSelector") is not None,
    ):
        yield warning


def _check_maintenance(request: AdmissionRequest) -> None:
    new, old = (
        mapping(one, "metadata", "annotations").get(ANNOTATION_MAINTENANCE) for one in (request.new, request.old)
    )
    if new != old and new not in (None, "", MAINTENANCE_ENABLED, MAINTENANCE_CONFIRMED):
        message = f"The annotation {ANNOTATION_MAINTENANCE} is {new!r}."
        raise DenialError("InvalidMaintenance", f"{message} Use {MAINTENANCE_ENABLED} or {MAINTENANCE_CONFIRMED}.")


def _check_spec(request: AdmissionRequest, cache: AdmissionCache) -> None:
    """A change answers only for the problems that it adds: rules may be newer, and some fields cannot be corrected."""
    slices_max = cache.settings.max_slices_per_device
    before = [] if request.operation == CREATE else list(manifest_problems(request.old, slices_max=slices_max))
    added = [one for one in manifest_problems(request.new, slices_max=slices_max) if one not in before]
    if added:
        raise DenialError("InvalidPool", f"{'; '.join(added)}. Correct these fields.")


def _check_name(request: AdmissionRequest, cache: AdmissionCache) -> None:
    own = PoolRef(request.name or str(mapping(request.new, "metadata").get("name") or ""), request.namespace)
    other = next((one.ref for one in cache.pools_named(own.name) if one.ref != own), None)
    if other is not None:
        message = f"There is the {other} already, and names of pools are unique in the cluster. Choose another name."
        raise DenialError("PoolNameTaken", message)


def _check_immutable(spec: Object, old: Object) -> None:
    changed = [name for name in IMMUTABLE if _value(spec, name) != _value(old, name)]
    if changed:
        raise immutable_error(changed)


def immutable_error(fields: list[str]) -> DenialError:
    """Denies a change of these fields of a spec."""
    listed = " and ".join(f"spec.{name}" for name in fields)
    return DenialError("PoolImmutable", f"{listed} cannot change once the pool exists. Create a new pool instead.")


def _value(spec: Object, name: str) -> Any:  # noqa: ANN401 - JSON
    default = _DEFAULTS.get(name)
    if isinstance(default, dict):
        return {**default, **mapping(spec, name)}
    return spec.get(name, default) or default


def _deletion(request: AdmissionRequest, cache: AdmissionCache) -> AdmissionResponse:
    pool = cache.pool(PoolRef(request.name, request.namespace))
    total = None if pool is None or pool.total is None else pool.total.total
    if not total:
        return ALLOWED
    warning = f"The pool still offers {total} units; agents release its devices before it goes."
    return AdmissionResponse(warnings=(warning,))
