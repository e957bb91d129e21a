"""What becomes of a new pod: the init containers of its checks, in front of its own, and what they need. Pure.

A pod's own containers and volumes are never changed. What a pod brings along under our names, such as a container with
the name of a check or our label, is replaced by ours, or removed where it gets no checks; so the second time nothing
changes. A pod gets checks if it requests GPUs, as far as anybody could find out in time.
"""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, Final, NamedTuple

from gpuledger.api.preflight import (
    ANNOTATION_AUTHORITY,
    ANNOTATION_GANG,
    ANNOTATION_GANG_SIZE,
    ANNOTATION_GANG_SOURCE,
    ANNOTATION_INJECTED,
    LABEL_PREFLIGHT,
    check_container,
    gang_config_map,
)
from gpuledger.domain.preflight.gangs import Gang, gang_of
from gpuledger.edge.kube.objects import items, mapping
from gpuledger.edge.preflight.amended import amended
from gpuledger.edge.preflight.claims import Classes
from gpuledger.edge.preflight.configuration import Check, PreflightConfiguration
from gpuledger.edge.preflight.connection import READABLE, Connection, connection_of
from gpuledger.edge.preflight.containers import GANG_VOLUME, Surroundings, container_of
from gpuledger.edge.preflight.devices import containers_of, devices_of
from gpuledger.edge.preflight.nccl import nccl_settings
from gpuledger.edge.preflight.selection import CheckSelection, Circumstances, LeftOut, selected
from gpuledger.edge.webhooks.serving.review import Object

LABEL_VALUE: Final = "true"
LABEL_ENFORCE: Final = "pod-security.kubernetes.io/enforce"
MIRROR: Final = "kubernetes.io/config.mirror"
"""On pods that a kubelet mirrors: their node runs them already."""

OS_LABEL: Final = "kubernetes.io/os"
WINDOWS: Final = "windows"

OWN_ANNOTATIONS: Final = (
    ANNOTATION_INJECTED,
    ANNOTATION_GANG,
    ANNOTATION_GANG_SOURCE,
    ANNOTATION_GANG_SIZE,
    ANNOTATION_AUTHORITY,
)


class PodFindings(NamedTuple):
    """What others have about a pod.

    The object of its namespace (None: nobody could find it in time), the classes of its claims, an authority as PEM.
    """

    namespace: Object | None
    classes: Classes
    authority: str = ""


class Injection(NamedTuple):
    """A pod as it is to be, and how that came about.

    `result` is `injected`, or why there are no checks: `exempt`, `no-gpus`, `unresolved` (nobody could find out whether
    its claims are about GPUs), `no-checks` or `no-connection`.
    """

    pod: Object
    result: str
    warnings: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    unresolved: tuple[str, ...] = ()


def inject(pod: Object, found: PodFindings, configuration: PreflightConfiguration) -> Injection:
    """The pod with its checks."""
    names = names_in(configuration)
    if _is_exempt(pod):
        return Injection(_cleaned(pod, names), "exempt")
    containers = containers_of(pod, names)
    gpus = devices_of(containers.all, found.classes, configuration.gpu_detection)
    unresolved = tuple(claim for claim, classes in found.classes.items() if classes is None)
    if not gpus:
        return Injection(
            _cleaned(pod, names), "unresolved" if unresolved else "no-gpus", _unresolved(unresolved), (), unresolved
        )
    networks = devices_of(containers.all, found.classes, configuration.network_detection)
    gang = gang_of(pod, configuration.discovery)
    chosen = selected(configuration.checks, pod, Circumstances(found.namespace, gang is not None, bool(networks)))
    warnings = (*chosen.warnings, *_unresolved(unresolved))
    if not chosen.checks:
        return Injection(_cleaned(pod, names), "no-checks", warnings, chosen.left_out, unresolved)
    labels = None if found.namespace is None else mapping(found.namespace, "metadata", "labels")
    level = None if labels is None else str(labels.get(LABEL_ENFORCE, ""))
    connection = connection_of(configuration.connector, level, found.authority)
    if connection is None:
        return Injection(
            _cleaned(pod, names), "no-connection", (*warnings, _no_connection(str(level))), chosen.left_out, unresolved
        )
    around = Surroundings(
        pod, containers, gpus, networks,
        nccl_settings(containers.all, configuration.nccl_env_patterns, items(pod, "spec", "volumes")),
        connection, None,
    )  # fmt: skip
    changed = _Changed(pod, names).with_checks(chosen, around, gang, configuration)
    return Injection(changed, "injected", warnings, chosen.left_out, unresolved)


def needs_lookups(pod: Object, configuration: PreflightConfiguration) -> bool:
    """Whether it takes the pod's namespace or claims to decide about the pod."""
    if _is_exempt(pod):
        return False
    containers = containers_of(pod, names_in(configuration))
    has_claims = configuration.has_device_classes and bool(items(pod, "spec", "resourceClaims"))
    return has_claims or bool(devices_of(containers.all, {}, configuration.gpu_detection))


def names_in(configuration: PreflightConfiguration) -> frozenset[str]:
    """The names of the containers of all configured checks."""
    return frozenset(check_container(check.name) for check in configuration.checks)


def _unresolved(claims: Sequence[str]) -> tuple[str, ...]:
    if not claims:
        return ()
    return (f"The preflight checks leave out the claims {', '.join(claims)}: nobody could find out in time what for.",)


def _no_connection(level: str) -> str:
    return (
        f"The pod gets no preflight checks: its namespace enforces the level {level} of Pod Security, which refuses "
        "folders of the node, and connector.target names no health gateway to report to."
    )


def _is_exempt(pod: Object) -> bool:
    """Whether nobody could run checks: a mirror of a pod that a node runs already, or one for Windows."""
    system = mapping(pod, "spec", "os").get("name") or mapping(pod, "spec", "nodeSelector").get(OS_LABEL)
    return MIRROR in mapping(pod, "metadata", "annotations") or system == WINDOWS


def _cleaned(pod: Object, names: frozenset[str]) -> Object:
    """The pod without our label and annotations, and without init containers with these names of checks."""
    metadata, spec = dict(mapping(pod, "metadata")), dict(mapping(pod, "spec"))
    for kind, keys in (("labels", (LABEL_PREFLIGHT,)), ("annotations", OWN_ANNOTATIONS)):
        if isinstance(metadata.get(kind), Mapping):
            metadata[kind] = {key: value for key, value in metadata[kind].items() if key not in keys}
    if isinstance(spec.get("initContainers"), list):
        spec["initContainers"] = [one for one in spec["initContainers"] if mapping(one).get("name") not in names]
    return {**pod, "metadata": metadata, "spec": spec}


class _Changed:
    """A copy of a pod that gets its checks; what does not change is the pod's own."""

    def __init__(self, pod: Object, names: frozenset[str]) -> None:
        self._pod: dict[str, Any] = dict(_cleaned(pod, names))
        self._there = {one.get("name"): one for one in map(mapping, items(pod, "spec", "initContainers"))}

    def with_checks(
        self, chosen: CheckSelection, around: Surroundings, gang: Gang | None, configuration: PreflightConfiguration
    ) -> Object:
        """The pod with all that the checks need."""
        coordinated = gang if any(check.is_for_gangs for check in chosen.checks) else None
        connection = self._connected(around.connection)
        volume = None if coordinated is None else self._volume(GANG_VOLUME, _gang_volume(coordinated))
        around = around._replace(connection=connection, gang_volume=volume)
        spec = self._pod["spec"]
        others = spec.get("initContainers") or []
        checks = (container_of(one, around, configuration) for one in chosen.checks)
        spec["initContainers"] = [*(amended(one, self._there.get(one["name"], {})) for one in checks), *others]
        self._mark(chosen.checks, dict(connection.annotations) | _gang_annotations(coordinated))
        return self._pod

    def _connected(self, connection: Connection) -> Connection:
        name = self._volume(connection.volume["name"], connection.volume)
        return connection._replace(mount=connection.mount | {"name": name})

    def _volume(self, name: str, volume: Mapping[str, Any]) -> str:
        """Add a volume; the name that it has, which is another one where the pod's own volume has that name."""
        spec = self._pod["spec"]
        there = {one.get("name"): one for one in map(mapping, spec.get("volumes") or [])}
        for number in count():
            tried = {**volume, "name": f"{name}-{number}" if number else name}
            if tried["name"] not in there:
                spec["volumes"] = [*(spec.get("volumes") or []), tried]
                return str(tried["name"])
            if there[tried["name"]] == tried:
                return str(tried["name"])
        raise AssertionError("a pod has finitely many volumes")

    def _mark(self, checks: Sequence[Check], annotations: Mapping[str, str]) -> None:
        metadata = self._pod.setdefault("metadata", {})
        metadata["labels"] = {**(metadata.get("labels") or {}), LABEL_PREFLIGHT: LABEL_VALUE}
        injected = {ANNOTATION_INJECTED: ",".join(check.name for check in checks)}
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **injected, **annotations}


def _gang_volume(gang: Gang) -> dict[str, Any]:
    """The gang's ConfigMap, which may come later: a pod must not wait for it before it runs its first check."""
    source = {"name": gang_config_map(gang.id), "optional": True, "defaultMode": READABLE}
    return {"name": GANG_VOLUME, "configMap": source}


def _gang_annotations(gang: Gang | None) -> dict[str, str]:
    if gang is None:
        return {}
    found = {ANNOTATION_GANG: gang.id, ANNOTATION_GANG_SOURCE: gang.source}
    return found if gang.size is None else {**found, ANNOTATION_GANG_SIZE: str(gang.size)}
