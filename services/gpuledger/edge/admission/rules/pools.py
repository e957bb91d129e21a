"""GPUPools and ClusterGPUPools: the static rules, what may not change, and names that are unique in the cluster. Pure.

The assignment annotation and the resource name a pool by its name alone, so no two pools may share one, whatever their
namespaces and kinds. Two that are created in the same moment may both pass: the later gets the condition NameCollision.
"""

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
from gpuledger.edge.admission.cache import AdmissionCache
from gpuledger.edge.admission.rules.pool_spec import problems_of
from gpuledger.edge.admission.serving.review import ALLOWED, CREATE, DELETE, Object, Problem, Review, Verdict, part

IMMUTABLE: Final = ("provider", "backend", "resource", "deviceSelector")
_DEFAULTS: Final[Object] = {
    "provider": PROVIDER_NVIDIA,
    "backend": BACKEND_DEVICE_PLUGIN,
    "resource": {"slicesPerUnit": 1},
}
"""What stands where a field is left out; to write it in is no change."""

DRA_IS_NOT_SERVED: Final = (
    "backend DRA is not served yet: the pool will be kept with Supported=False and take no device."
)


def review_pool(review: Review, cache: AdmissionCache) -> Verdict:
    """Whether a pool may be created, changed or deleted so."""
    if review.operation == DELETE:
        return _deletion(review, cache)
    spec, old = part(review.new, "spec"), part(review.old, "spec")
    problem = _maintenance_problem(review)
    if problem is None and review.operation != CREATE and spec == old:
        return ALLOWED
    if problem is None:
        problem = _form_problem(review, cache)
    if problem is None:
        problem = _name_problem(review, cache) if review.operation == CREATE else _change_problem(spec, old)
    if problem is not None:
        return problem.verdict()
    return Verdict(warnings=(DRA_IS_NOT_SERVED,)) if spec.get("backend") == BACKEND_DRA else ALLOWED


def _maintenance_problem(review: Review) -> Problem | None:
    new, old = (part(one, "metadata", "annotations").get(ANNOTATION_MAINTENANCE) for one in (review.new, review.old))
    if new == old or new in (None, "", MAINTENANCE_ENABLED, MAINTENANCE_CONFIRMED):
        return None
    message = (
        f"The annotation {ANNOTATION_MAINTENANCE} is {new!r}. Use {MAINTENANCE_ENABLED} or {MAINTENANCE_CONFIRMED}."
    )
    return Problem("InvalidMaintenance", message)


def _form_problem(review: Review, cache: AdmissionCache) -> Problem | None:
    """What a change did not bring in is not held against it: rules come later, and some fields cannot be corrected."""
    slices_max = cache.settings.max_slices_per_device
    before = [] if review.operation == CREATE else list(problems_of(review.old, slices_max=slices_max))
    found = [one for one in problems_of(review.new, slices_max=slices_max) if one not in before]
    return Problem("InvalidPool", f"{'; '.join(found)}. Correct the fields that are named.") if found else None


def _name_problem(review: Review, cache: AdmissionCache) -> Problem | None:
    own = PoolRef(review.name or str(part(review.new, "metadata").get("name") or ""), review.namespace)
    other = next((one.ref for one in cache.pools_named(own.name) if one.ref != own), None)
    if other is None:
        return None
    message = f"There is the {other} already, and names of pools are unique in the cluster. Choose another name."
    return Problem("PoolNameTaken", message)


def _change_problem(spec: Object, old: Object) -> Problem | None:
    changed = [f"spec.{name}" for name in IMMUTABLE if _said(spec, name) != _said(old, name)]
    if not changed:
        return None
    listed = " and ".join(changed)
    return Problem("PoolImmutable", f"{listed} cannot change once the pool is there. Create a new pool instead.")


def _said(spec: Object, name: str) -> Any:  # noqa: ANN401 - JSON
    default = _DEFAULTS.get(name)
    if isinstance(default, dict):
        return {**default, **part(spec, name)}
    return spec.get(name, default) or default


def _deletion(review: Review, cache: AdmissionCache) -> Verdict:
    pool = cache.pool(PoolRef(review.name, review.namespace))
    total = None if pool is None or pool.total is None else pool.total.total
    if not total:
        return ALLOWED
    return Verdict(warnings=(f"The pool still offers {total} units; its devices are taken back before it goes.",))
