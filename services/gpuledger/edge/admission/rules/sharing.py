"""Checks new pods that ask for shares of devices, and rewrites what they ask for. Pure; reads nothing but the pod.

Kubernetes wants requests and limits of extended resources to be equal, so what only one of both has is copied. `gpu`,
and `nvidia.com/gpu` of pods that ask for sharing, become the resources that nodes offer. A pod that nobody could ever
place is refused with what is allowed in its place, rather than left Pending.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from gpuledger.api.sharing import GPU, NVIDIA_GPU, SharingNames
from gpuledger.domain.pools.requests import Units, is_sidecar, read_units
from gpuledger.domain.sharing.admission import ContainerAmounts, admitted_pod
from gpuledger.domain.sharing.annotation import quantity_text
from gpuledger.domain.sharing.container_env import HIDING, VISIBLE_DEVICES, confines
from gpuledger.domain.sharing.hints import hints_of
from gpuledger.domain.sharing.model import Amounts, Refusal
from gpuledger.edge.admission.errors import DenialError
from gpuledger.edge.admission.rules.requests import containers_with_units
from gpuledger.edge.kube.objects import items, mapping
from gpuledger.edge.webhooks.serving.review import AdmissionResponse, Object

DEFAULT_SCHEDULER: Final = "default-scheduler"
KINDS: Final = ("limits", "requests")
_REPLACED: Final = (GPU, NVIDIA_GPU)


class SharingContainer(NamedTuple):
    """A container of a pod, its place in the pod, and what of its limits and requests is about shared devices."""

    place: str
    name: str
    is_init: bool
    is_sidecar: bool
    resources: Mapping[str, Any]
    given: Mapping[str, Mapping[str, Any]]
    """By kind: limits and requests."""


def asks_for_shares(pod: Object, names: SharingNames) -> bool:
    """Whether the pod asks for shared devices, validly or not.

    `nvidia.com/gpu` alone does so only where the sharing scheduler is to place the pod.
    """
    resources = {name for one in _containers(pod, names) for kind in KINDS for name in one.given[kind]}
    return bool(resources - {NVIDIA_GPU}) or (bool(resources) and _is_for_scheduler(pod, names))


def review_shares(pod: Object, names: SharingNames) -> AdmissionResponse:
    """Allow a new pod that asks for shared devices, with a patch.

    Raises:
        DenialError: it could never be placed; the message says which container, what is wrong, and what is allowed.
    """
    if units := containers_with_units(pod):
        message = f"The container {units[0].name} asks for units of a pool, and others of the pod for shared devices."
        raise DenialError("SharedAndPoolRequest", f"{message} Ask for one of both, or make two pods of it.")
    _check_node(pod)
    _check_variables(pod)
    _check_hints(pod, names)
    containers = [one for one in _containers(pod, names) if any(one.given.values())]
    merged = [_merged(one) for one in containers]
    before = [
        ContainerAmounts(one.name, _short(amounts, names), one.is_init, one.is_sidecar)
        for one, amounts in zip(containers, merged, strict=True)
    ]
    after = admitted_pod(before)
    if isinstance(after, Refusal):
        raise DenialError("InvalidSharingRequest", after.reason)
    patch: list[Object] = []
    for one, amounts, new in zip(containers, merged, after, strict=True):
        patch += _resource_patch(one, _desired(one, amounts, new, names))
    return AdmissionResponse(patch=(*patch, *_scheduler_patch(pod, names)))


def _containers(pod: Object, names: SharingNames) -> Iterator[SharingContainer]:
    for plural, is_init in (("initContainers", True), ("containers", False)):
        for index, one in enumerate(map(mapping, items(pod, "spec", plural))):
            resources = mapping(one, "resources")
            given = {kind: _of_sharing(mapping(resources, kind), names) for kind in KINDS}
            stays = is_init and is_sidecar(one)
            place = f"/spec/{plural}/{index}/resources"
            yield SharingContainer(place, str(one.get("name", "")), is_init, stays, resources, given)


def _of_sharing(resources: Object, names: SharingNames) -> Object:
    return {name: value for name, value in resources.items() if names.short(name) is not None}


def _is_for_scheduler(pod: Object, names: SharingNames) -> bool:
    return names.scheduler is not None and mapping(pod, "spec").get("schedulerName") == names.scheduler


def _check_node(pod: Object) -> None:
    """A pod that skips the scheduler has no devices of its own, and its kubelet may ask for those of another pod."""
    if node := mapping(pod, "spec").get("nodeName"):
        message = f"spec.nodeName is {node} already, so no scheduler would choose devices for the pod."
        raise DenialError("SchedulerBypassed", f"{message} Leave it out; `spec.nodeSelector` can name the node.")


def _check_variables(pod: Object) -> None:
    """What a pod sets itself counts more than what a device plugin sets, so it may not choose its cards or limits."""
    for plural in ("initContainers", "containers"):
        for container in map(mapping, items(pod, "spec", plural)):
            for name in filter(confines, map(_set_variable, items(container, "env"))):
                message = f"The container {container.get('name', '')} sets the variable {name}, which says what"
                way_out = f"Leave it out; {VISIBLE_DEVICES} may be void, for a container that is to see no GPU."
                raise DenialError("ReservedVariable", f"{message} containers get of the pod's devices. {way_out}")


def _set_variable(entry: object) -> str:
    """The name of a variable; empty if it only hides GPUs."""
    one = mapping(entry)
    name, value = str(one.get("name", "")), one.get("value") or ""
    hides = name == VISIBLE_DEVICES and value in HIDING and not one.get("valueFrom")
    return "" if hides else name


def _check_hints(pod: Object, names: SharingNames) -> None:
    annotations = mapping(pod, "metadata", "annotations")
    keys = (names.allocate_hint, names.joint_allocate, names.partition_spec)
    found = hints_of(*(None if annotations.get(key) is None else str(annotations[key]) for key in keys))
    if isinstance(found, Refusal):
        raise DenialError("InvalidSharingHint", found.reason)


def _merged(container: SharingContainer) -> dict[str, Units]:
    """What the container asks for by resource, of limits and requests that have to be the same."""
    found: dict[str, Units] = {}
    for kind in KINDS:
        for resource, value in container.given[kind].items():
            units = read_units(value)
            if not units.is_exact:
                message = f"{value!r} of {resource} in the {kind} of the container {container.name} is no whole number."
                raise DenialError("InvalidQuantity", f"{message} Ask for a whole number, such as 50 or 4Gi.")
            if found.setdefault(resource, units) != units:
                message = f"The container {container.name} requests {units.number} of {resource}"
                hint = "Make both the same, or leave one of them out."
                raise DenialError("RequestNotLimit", f"{message} with a limit of {found[resource].number}. {hint}")
    return found


def _short(amounts: Mapping[str, Units], names: SharingNames) -> Amounts:
    return {str(names.short(resource)): units.number for resource, units in amounts.items()}


def _desired(
    container: SharingContainer, amounts: Mapping[str, Units], after: Amounts, names: SharingNames
) -> dict[str, Any]:
    """All resources of sharing that limits and requests are to have, as they stand in the pod where they do."""
    given = {**container.given["requests"], **container.given["limits"]}
    gone = {names.resource(short) for short in _REPLACED if short not in after}
    kept = {
        resource: value for resource, value in given.items() if resource not in gone or not amounts[resource].number
    }
    added = {names.resource(short): quantity_text(short, amount) for short, amount in after.items()}
    return {**added, **kept}


def _resource_patch(container: SharingContainer, desired: Mapping[str, Any]) -> Iterator[Object]:
    for kind in KINDS:
        old, place = container.given[kind], f"{container.place}/{kind}"
        if not isinstance(container.resources.get(kind), Mapping):
            yield {"op": "add", "path": place, "value": dict(desired)}
            continue
        for resource in sorted(old.keys() - desired.keys()):
            yield {"op": "remove", "path": f"{place}/{_escaped(resource)}"}
        for resource in sorted(desired.keys() - old.keys()):
            yield {"op": "add", "path": f"{place}/{_escaped(resource)}", "value": desired[resource]}


def _scheduler_patch(pod: Object, names: SharingNames) -> Iterator[Object]:
    """The scheduler of a pod that says nothing of it."""
    spec = mapping(pod, "spec")
    if names.scheduler and spec.get("schedulerName") in (None, "", DEFAULT_SCHEDULER):
        yield {"op": "add", "path": "/spec/schedulerName", "value": names.scheduler}


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
