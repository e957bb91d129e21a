"""Checks changes of GPUDevices: the assignment to a pool, and the labels that people may set. Pure.

A rule checks only what the request changes, so that an annotation whose pool is gone does not block other changes. It
does not check the annotation that the product writes where a pool approves automatically: that is decided already.
"""

from collections.abc import Mapping
from typing import Any, Final

from gpuledger.api.kinds import CLUSTER_GPU_POOLS, GPU_POOLS
from gpuledger.api.labels import (
    ANNOTATION_ASSIGNMENT,
    ANNOTATION_CLUSTER_ASSIGNMENT,
    LABEL_EVACUATE,
    LABEL_FALSE,
    LABEL_IGNORE,
    LABEL_TRUE,
    is_our_label,
)
from gpuledger.api.phases import DeviceState
from gpuledger.api.sharing import SHARING_ENABLED
from gpuledger.domain.pools.spec import facts_of, mismatch, selects
from gpuledger.edge.admission.cache import AdmissionCache, CachedDevice, CachedPool
from gpuledger.edge.admission.errors import DenialError
from gpuledger.edge.admission.rules.access import is_by_the_product, is_trusted
from gpuledger.edge.kube.objects import mapping
from gpuledger.edge.webhooks.serving.review import (
    ALLOWED,
    UPDATE,
    AdmissionRequest,
    AdmissionResponse,
    Object,
)
from gpuledger.events.drain_mode import MODES

ASSIGNMENTS: Final = (ANNOTATION_ASSIGNMENT, ANNOTATION_CLUSTER_ASSIGNMENT)


def review_device(request: AdmissionRequest, cache: AdmissionCache) -> AdmissionResponse:
    """Allow or deny a change of a GPUDevice."""
    if request.operation == UPDATE and cache.settings.enabled:
        _check_labels(request, cache.home)
        if not is_by_the_product(request, cache.home):
            _check_assignment(request, cache)
    return ALLOWED


def _check_labels(request: AdmissionRequest, home: str) -> None:
    new, old = _labels(request.new), _labels(request.old)
    changed = {key for key in new.keys() | old.keys() if new.get(key) != old.get(key)}
    ours = ", ".join(sorted(filter(is_our_label, changed)))
    if ours and not is_trusted(request.user, home):
        message = f"gpuledger keeps {ours} of {request.name}. Leave it as it is, and set labels of your own."
        raise DenialError("LabelNotYours", message)
    if LABEL_IGNORE in changed and new.get(LABEL_IGNORE, LABEL_TRUE) not in (LABEL_TRUE, LABEL_FALSE):
        message = f"The label {LABEL_IGNORE} of {request.name} is {new[LABEL_IGNORE]!r}."
        raise DenialError("InvalidIgnoreLabel", f"{message} Use {LABEL_TRUE} or {LABEL_FALSE}.")
    if LABEL_EVACUATE in changed and new.get(LABEL_EVACUATE, MODES[0]) not in MODES:
        message = f"The label {LABEL_EVACUATE} of {request.name} is {new[LABEL_EVACUATE]!r}."
        raise DenialError("InvalidEvacuateLabel", f"{message} Use one of {', '.join(MODES)}, or remove it.")


def _check_assignment(request: AdmissionRequest, cache: AdmissionCache) -> None:
    new, old = _assignments(request.new), _assignments(request.old)
    if new == old or not new:
        return
    if len(new) > 1:
        message = f"{request.name} has both {ANNOTATION_ASSIGNMENT} and {ANNOTATION_CLUSTER_ASSIGNMENT}. Keep one."
        raise DenialError("AmbiguousAssignment", message)
    ((annotation, name),) = new.items()
    pool, device = _pool(annotation, name, cache), cache.device(request.name)
    if device is None:
        message = f"gpuledger has not recorded {request.name} yet. Try again once its status has a state."
        raise DenialError("DeviceUnknown", message)
    _check_owner(device, cache)
    _check_match(device, pool)
    _check_state(request, device, pool)


def _pool(annotation: str, name: str, cache: AdmissionCache) -> CachedPool:
    is_cluster = annotation == ANNOTATION_CLUSTER_ASSIGNMENT
    found = list(cache.pools_named(name))
    for pool in found:
        if bool(pool.ref.namespace) != is_cluster:
            return pool
    kind = (CLUSTER_GPU_POOLS if is_cluster else GPU_POOLS).kind
    if found:
        other = ANNOTATION_ASSIGNMENT if is_cluster else ANNOTATION_CLUSTER_ASSIGNMENT
        message = f"There is no {kind} {name}, but the {found[0].ref}. Use the annotation {other}."
        raise DenialError("PoolKindMismatch", message)
    raise DenialError("PoolNotFound", f"There is no {kind} {name!r}. Create the pool first, or check the name.")


def _check_owner(device: CachedDevice, cache: AdmissionCache) -> None:
    """A card is offered by exactly one: a pool, or the sharing of its node."""
    label, node = cache.sharing.sharing, device.row.node
    if device.node_labels.get(label) == SHARING_ENABLED:
        message = f"{device.row.name} is in the node {node}, whose label {label}={SHARING_ENABLED} shares its cards."
        raise DenialError("CardShared", f"{message} Remove the label from the node first, or annotate another device.")


def _check_match(device: CachedDevice, pool: CachedPool) -> None:
    why = mismatch(pool.spec, facts_of(device.row))
    if why is None and not selects(pool.spec.nodes, device.row.node, device.node_labels):
        why = f"The pool's nodeSelector does not select its node {device.row.node}."
    if why is not None:
        raise DenialError("DeviceMismatch", f"{device.row.name} does not fit {pool.ref}. {why}")


def _check_state(request: AdmissionRequest, device: CachedDevice, pool: CachedPool) -> None:
    if device.pool is None or device.phase is None:
        _check_readiness(request, device, pool)
    # People may take over a device that a pool took automatically; they could not get it back otherwise.
    elif device.pool != pool.ref.id and not device.is_automatic:
        message = f"{request.name} is in the pool {device.pool}. Remove its annotation, and wait until it is Ready."
        raise DenialError("DeviceInUse", message)


def _check_readiness(request: AdmissionRequest, device: CachedDevice, pool: CachedPool) -> None:
    name, node = device.row.name, device.row.node
    if pool.spec.definition.deleting:
        raise DenialError("PoolDeleting", f"{pool.ref} is being deleted. Use another pool.")
    if _labels(request.new).get(LABEL_IGNORE) == LABEL_TRUE:
        raise DenialError("DeviceIgnored", f"{name} has the label {LABEL_IGNORE}={LABEL_TRUE}. Remove it first.")
    if not device.row.managed:
        raise DenialError("DeviceNotManaged", f"{name} is in the node {node}, which is not managed. Manage it first.")
    if device.row.missing or device.prepared != DeviceState.READY:
        state = "missing" if device.row.missing else device.prepared
        raise DenialError("DeviceNotReady", f"{name} is {state}. Wait until it is Ready, then annotate it.")


def _labels(device: Object) -> Mapping[str, Any]:
    return mapping(device, "metadata", "labels")


def _assignments(device: Object) -> dict[str, str]:
    annotations = mapping(device, "metadata", "annotations")
    return {name: str(annotations[name]) for name in ASSIGNMENTS if annotations.get(name)}
