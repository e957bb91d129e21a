"""GPUDevices: who gives one to which pool, and which labels people may set. Pure.

Only what a request changes is looked at, so that an annotation whose pool is gone does not block other changes. The
product writes the annotation itself where a pool approves by itself; that was decided already and is not asked again.
"""

from collections.abc import Mapping
from typing import Any, Final

from gpuledger.api.labels import (
    ANNOTATION_ASSIGNMENT,
    ANNOTATION_CLUSTER_ASSIGNMENT,
    LABEL_FALSE,
    LABEL_IGNORE,
    LABEL_PRECISION_PREFIX,
    LABEL_PRODUCT,
    LABEL_TRUE,
    LABEL_VENDOR,
)
from gpuledger.api.phases import DeviceState
from gpuledger.domain.pools.spec import facts_of, mismatch, selects
from gpuledger.edge.admission.cache import AdmissionCache, CachedDevice, CachedPool
from gpuledger.edge.admission.rules.access import is_by_the_product, is_trusted
from gpuledger.edge.admission.serving.review import ALLOWED, UPDATE, Object, Problem, Review, Verdict, part

ASSIGNMENTS: Final = (ANNOTATION_ASSIGNMENT, ANNOTATION_CLUSTER_ASSIGNMENT)


def review_device(review: Review, cache: AdmissionCache) -> Verdict:
    """Whether a GPUDevice may be changed so."""
    if review.operation != UPDATE or not cache.settings.enabled:
        return ALLOWED
    problem = _label_problem(review, cache.home)
    if problem is None and not is_by_the_product(review, cache.home):
        problem = _assignment_problem(review, cache)
    return ALLOWED if problem is None else problem.verdict()


def _label_problem(review: Review, home: str) -> Problem | None:
    new, old = _labels(review.new), _labels(review.old)
    changed = {key for key in new.keys() | old.keys() if new.get(key) != old.get(key)}
    ours = sorted(key for key in changed if _is_ours(key))
    if ours and not is_trusted(review.user, home):
        message = f"{', '.join(ours)} of {review.name} says what was found. Leave it as it is; set labels of your own."
        return Problem("LabelNotYours", message)
    if LABEL_IGNORE in changed and new.get(LABEL_IGNORE, LABEL_TRUE) not in (LABEL_TRUE, LABEL_FALSE):
        message = (
            f"The label {LABEL_IGNORE} of {review.name} is {new[LABEL_IGNORE]!r}. Use {LABEL_TRUE} or {LABEL_FALSE}."
        )
        return Problem("InvalidIgnoreLabel", message)
    return None


def _is_ours(key: str) -> bool:
    return key in (LABEL_PRODUCT, LABEL_VENDOR) or key.startswith(LABEL_PRECISION_PREFIX)


def _assignment_problem(review: Review, cache: AdmissionCache) -> Problem | None:
    new, old = _assigned(review.new), _assigned(review.old)
    if new == old or not new:
        return None
    if len(new) > 1:
        message = f"{review.name} has both {ANNOTATION_ASSIGNMENT} and {ANNOTATION_CLUSTER_ASSIGNMENT}. Keep one."
        return Problem("AmbiguousAssignment", message)
    ((annotation, name),) = new.items()
    pool = _pool(annotation, name, cache)
    if isinstance(pool, Problem):
        return pool
    device = cache.device(review.name)
    if device is None:
        message = f"Nothing is known of {review.name} yet. Try again once its status has a state."
        return Problem("DeviceUnknown", message)
    return _match_problem(device, pool) or _state_problem(review, device, pool)


def _pool(annotation: str, name: str, cache: AdmissionCache) -> CachedPool | Problem:
    wants_cluster = annotation == ANNOTATION_CLUSTER_ASSIGNMENT
    found = list(cache.pools_named(name))
    for pool in found:
        if bool(pool.ref.namespace) != wants_cluster:
            return pool
    kind = "ClusterGPUPool" if wants_cluster else "GPUPool"
    if found:
        other = ANNOTATION_ASSIGNMENT if wants_cluster else ANNOTATION_CLUSTER_ASSIGNMENT
        return Problem("PoolKindMismatch", f"There is no {kind} {name}, but the {found[0].ref}. Annotate {other}.")
    message = f"There is no {kind} {name!r}. Create the pool first, or check the name."
    return Problem("PoolNotFound", message)


def _match_problem(device: CachedDevice, pool: CachedPool) -> Problem | None:
    why = mismatch(pool.spec, facts_of(device.row))
    if why is None and not selects(pool.spec.nodes, device.row.node, device.node_labels):
        why = f"Its node {device.row.node} is none that the pool's nodeSelector selects."
    if why is None:
        return None
    return Problem("DeviceMismatch", f"{device.row.name} does not fit {pool.ref}. {why}")


def _state_problem(review: Review, device: CachedDevice, pool: CachedPool) -> Problem | None:
    if device.pool is None or device.phase is None:
        return _readiness_problem(review, device, pool)
    if device.pool == pool.ref.id or device.is_automatic:
        return None  # What a pool took by itself people may ask for; it cannot be had back otherwise.
    message = f"{review.name} is in the pool {device.pool}. Remove its annotation, and wait until the device is Ready."
    return Problem("DeviceInUse", message)


def _readiness_problem(review: Review, device: CachedDevice, pool: CachedPool) -> Problem | None:
    name, node = device.row.name, device.row.node
    if pool.spec.said.deleting:
        return Problem("PoolDeleting", f"{pool.ref} is being deleted. Use another pool.")
    if _labels(review.new).get(LABEL_IGNORE) == LABEL_TRUE:
        return Problem("DeviceIgnored", f"{name} has the label {LABEL_IGNORE}={LABEL_TRUE}. Remove it first.")
    if not device.row.managed:
        return Problem("DeviceNotManaged", f"{name} is in the node {node}, which is not managed. Manage it first.")
    if device.row.missing or device.prepared != DeviceState.READY:
        state = "not seen now" if device.row.missing else device.prepared
        return Problem("DeviceNotReady", f"{name} is {state}. Wait until it is Ready, then annotate it.")
    return None


def _labels(device: Object) -> Mapping[str, Any]:
    return part(device, "metadata", "labels")


def _assigned(device: Object) -> dict[str, str]:
    annotations = part(device, "metadata", "annotations")
    return {name: str(annotations[name]) for name in ASSIGNMENTS if annotations.get(name)}
