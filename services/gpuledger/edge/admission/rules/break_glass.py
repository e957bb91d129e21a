"""Finds uses of the break-glass group: writes by its members that everybody else would be refused. Pure.

The API server decides by the policy `gpu-control-plane-restricted-access`; `is_for_everybody` must say the same as its
expressions do. Nothing here refuses anything: whoever breaks the glass is in a hurry, and the record comes afterwards.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuledger.api.kinds import GPU_DEVICES, GPU_NODE_STATES
from gpuledger.api.labels import ANNOTATION_RETIRED, LABEL_EVACUATE, LABEL_IGNORE
from gpuledger.edge.admission.cache import AdmissionCache
from gpuledger.edge.admission.errors import DenialError
from gpuledger.edge.admission.rules.access import BREAK_GLASS, is_trusted
from gpuledger.edge.admission.rules.devices import ASSIGNMENTS, review_device
from gpuledger.edge.kube.objects import mapping
from gpuledger.edge.webhooks.serving.review import CREATE, DELETE, UPDATE, AdmissionRequest, Object
from gpuledger.events.break_glass import CHANGED_MAX, BreakGlassUse
from gpuledger.events.device import DeviceBreakGlassUsed
from gpuledger.events.node import NodeBreakGlassUsed
from gpuledger.events.payload import NAME_LENGTH_MAX, truncated

PLURALS: Final = (GPU_DEVICES.plural, GPU_NODE_STATES.plural)
OPERATIONS: Final = (CREATE, UPDATE, DELETE)

_OWN_OF_SERVER: Final = frozenset({"managedFields", "resourceVersion", "generation"})
"""What the API server itself changes of an object's metadata with every write."""

_MISSING: Final = object()


def use_of(request: AdmissionRequest, cache: AdmissionCache | None, home: str) -> BreakGlassUse | None:
    """The use that a write amounts to; None where it is none.

    `cache` is None while admission has not read the ledger: then only what the policy refuses counts, and not what the
    webhooks would refuse.
    """
    if request.plural not in PLURALS or request.operation not in OPERATIONS or request.is_dry_run:
        return None
    if BREAK_GLASS not in request.user.groups or not _is_refused_to_others(request, cache, home):
        return None
    content = {
        "user": truncated(_storable(request.user.name)),
        "operation": request.operation,
        "subresource": request.subresource or None,
        "changed": changed_fields(request) if request.operation == UPDATE else (),
    }
    if request.plural == GPU_DEVICES.plural:
        return DeviceBreakGlassUsed.model_validate(content)
    return NodeBreakGlassUsed.model_validate(content)


def name_of(request: AdmissionRequest) -> str:
    """The name of the object; a deletion of a collection has it in each object alone."""
    names = (request.name, *(mapping(one, "metadata").get("name") for one in (request.old, request.new)))
    return _storable(str(next(filter(None, names), "")))


def is_for_everybody(request: AdmissionRequest) -> bool:
    """Whether the policy refuses this to nobody: it sets the marks of a GPUDevice that are for people, and no more."""
    if request.operation != UPDATE or request.plural != GPU_DEVICES.plural or request.subresource:
        return False
    new, old = request.new, request.old
    return (
        _differing(mapping(new, "metadata", "labels"), mapping(old, "metadata", "labels"))
        <= {LABEL_EVACUATE, LABEL_IGNORE}
        and _differing(mapping(new, "metadata", "annotations"), mapping(old, "metadata", "annotations"))
        <= {*ASSIGNMENTS, ANNOTATION_RETIRED}
        and not _differing(new, old) & {"spec", "status"}
        and not _differing(mapping(new, "metadata"), mapping(old, "metadata")) & {"finalizers", "ownerReferences"}
    )


def changed_fields(request: AdmissionRequest) -> tuple[str, ...]:
    """The fields at the first two levels that an update changes, in their order, as many as an event holds."""
    return tuple(sorted(_changed(request.new, request.old)))[:CHANGED_MAX]


def _is_refused_to_others(request: AdmissionRequest, cache: AdmissionCache | None, home: str) -> bool:
    if not is_trusted(request.user, home) and not is_for_everybody(request):
        return True
    if cache is None or request.plural != GPU_DEVICES.plural or request.subresource:
        return False
    try:
        review_device(request, cache)
    except DenialError:
        return True
    return False


def _changed(new: Object, old: Object) -> Iterator[str]:
    for key in _differing(new, old) - {"apiVersion", "kind"}:
        inner = _differing(mapping(new, key), mapping(old, key))
        if not inner:
            yield _field(key)
        for name in inner - (_OWN_OF_SERVER if key == "metadata" else frozenset()):
            yield _field(f"{key}.{name}")


def _differing(new: Mapping[str, Any], old: Mapping[str, Any]) -> set[str]:
    """The keys whose values differ, or that only one of both has."""
    return {key for key in new.keys() | old.keys() if new.get(key, _MISSING) != old.get(key, _MISSING)}


def _field(path: str) -> str:
    return _storable(path)[:NAME_LENGTH_MAX]


def _storable(text: str) -> str:
    """The text as an event may hold it: no table keeps NUL."""
    return text.replace("\0", "\\0")
