"""Which gang a pod belongs to, and how many pods that gang has. Pure; nothing here raises on what users write.

A gang is found on the pod alone, so that the webhook needs no request for it: a field of its spec, an annotation or a
label, as its scheduler defines them. Its size stands on the pod too, or in the object that the source names.

The id of a gang names its ConfigMap, so it is a DNS label; the digest of the source in it keeps apart what reads alike,
such as `a-b` of group `c` and `a` of group `b-c`, or one name of two schedulers. Pods of one source are one gang within
a namespace.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from gpuledger.api.kinds import Resource
from gpuledger.events.payload import NAME_LENGTH_MAX
from gpuledger.events.preflight import PEERS_MAX

Object = Mapping[str, Any]

_NATIVE_GROUP: Final = "scheduling.k8s.io"
_VOLCANO_GROUP: Final = "scheduling.volcano.sh"
_KUEUE_GROUP: Final = "kueue.x-k8s.io"

VOLCANO_ANNOTATIONS: Final = (
    "scheduling.k8s.io/group-name",
    "scheduling.volcano.sh/group-name",
    "volcano.sh/pod-group",
    "scheduling.volcano.sh/pod-group",
)
"""Annotations of pods with the name of Volcano's PodGroup: the first that a pod has holds. Volcano writes the first."""

KUEUE_GROUP_LABEL: Final = "kueue.x-k8s.io/pod-group-name"
KUEUE_COUNT_ANNOTATION: Final = "kueue.x-k8s.io/pod-group-total-count"
KUEUE_WORKLOAD_LABEL: Final = "kueue.x-k8s.io/workload-name"
KUEUE_WORKLOAD_ANNOTATION: Final = "kueue.x-k8s.io/workload"
"""Kueue puts it on the pod template of a job that it starts; the label is what NVSentinel reads."""

ID_SLUG_MAX: Final = 40
ID_DIGEST_BYTES: Final = 6

_DNS_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?").fullmatch
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?").fullmatch
_COUNT = re.compile(r"[0-9]{1,9}").fullmatch


class GangMethod(StrEnum):
    """How gangs are found, as the configuration's `gangDiscovery.method` spells it."""

    WORKLOAD_REF = "workloadRef"
    """Kubernetes' own: `spec.schedulingGroup` (1.36), and `spec.workloadRef` before (1.35)."""

    VOLCANO = "volcano"
    KUEUE = "kueue"
    LABELS = "labels"


class GangDiscovery(NamedTuple):
    """The methods, of which the first that finds a gang holds; `labels` needs the keys of its labels.

    The size may be an annotation of that key as well.
    """

    methods: tuple[GangMethod, ...] = (GangMethod.WORKLOAD_REF,)
    gang_id_label: str | None = None
    gang_size_label: str | None = None


class GangSource(StrEnum):
    """What makes pods a gang: the first part of its source, before the names that identify it there."""

    SCHEDULING_GROUP = "scheduling-group"
    WORKLOAD = "workload"
    VOLCANO = "volcano"
    KUEUE_GROUP = "kueue-group"
    KUEUE_WORKLOAD = "kueue-workload"
    LABEL = "label"


class Gang(NamedTuple):
    """A gang as a pod shows it; `source` is such as `scheduling-group/NAME`, `size` is None where the pod lacks it."""

    id: str
    source: str
    size: int | None = None


class GangObject(NamedTuple):
    """The object that has a gang's size, in the namespace of its pods; clusters serve one of `resources` or more."""

    resources: tuple[Resource, ...]
    name: str


def gang_of(pod: Object, discovery: GangDiscovery) -> Gang | None:
    """The gang of a pod; None where it belongs to none. The pod need not have a name yet."""
    for method in discovery.methods:
        found = _METHODS[method](pod, discovery)
        if found is not None:
            return found
    return None


def object_of(source: str) -> GangObject | None:
    """The object that has the size of a gang of this source; None where only its pods have it."""
    kind, _, names = source.partition("/")
    resources = _RESOURCES.get(kind)
    return None if resources is None or not names else GangObject(resources, names.split("/")[0])


def size_in(source: str, obj: Object) -> int | None:
    """How many pods a gang has, by the object of its source; None where that does not say it.

    Of a native group without the policy `gang`, whose pods are scheduled one by one, nobody says it.
    """
    kind, _, names = source.partition("/")
    match kind:
        case GangSource.SCHEDULING_GROUP:
            return _size(_at(obj, "spec", "schedulingPolicy", "gang", "minCount"))
        case GangSource.WORKLOAD:
            return _size_of_pod_group(obj, names.split("/")[1:2])
        case GangSource.VOLCANO:
            return _size(_at(obj, "spec", "minMember"))
        case GangSource.KUEUE_WORKLOAD:
            return _size_of_pod_sets(obj)
        case _:
            return None


def _native(pod: Object, _discovery: GangDiscovery) -> Gang | None:
    group = _name(_at(pod, "spec", "schedulingGroup", "podGroupName"))
    if group is not None:
        return _gang(GangSource.SCHEDULING_GROUP, group)
    reference = _at(pod, "spec", "workloadRef")
    workload, group = _name(_at(reference, "name")), _name(_at(reference, "podGroup"))
    if workload is None or group is None:
        return None
    replica = _name(_at(reference, "podGroupReplicaKey"))
    return _gang(GangSource.WORKLOAD, workload, group, *([] if replica is None else [replica]))


def _volcano(pod: Object, _discovery: GangDiscovery) -> Gang | None:
    named = (_name(_at(pod, "metadata", "annotations", key)) for key in VOLCANO_ANNOTATIONS)
    group = next((one for one in named if one is not None), None)
    return None if group is None else _gang(GangSource.VOLCANO, group)


def _kueue(pod: Object, _discovery: GangDiscovery) -> Gang | None:
    group = _label_value(_at(pod, "metadata", "labels", KUEUE_GROUP_LABEL))
    if group is not None:
        size = _size(_at(pod, "metadata", "annotations", KUEUE_COUNT_ANNOTATION))
        return _gang(GangSource.KUEUE_GROUP, group, size=size)
    workload = _name(_at(pod, "metadata", "annotations", KUEUE_WORKLOAD_ANNOTATION))
    workload = workload or _name(_at(pod, "metadata", "labels", KUEUE_WORKLOAD_LABEL))
    return None if workload is None else _gang(GangSource.KUEUE_WORKLOAD, workload)


def _labels(pod: Object, discovery: GangDiscovery) -> Gang | None:
    if discovery.gang_id_label is None:
        return None
    group = _label_value(_at(pod, "metadata", "labels", discovery.gang_id_label))
    if group is None:
        return None
    size_label = discovery.gang_size_label
    size = None if size_label is None else _size_on(pod, size_label)
    return _gang(GangSource.LABEL, group, size=size)


def _size_on(pod: Object, key: str) -> int | None:
    """The size by a label of a pod, or by an annotation, which is where LeaderWorkerSet has it."""
    found = (_size(_at(pod, "metadata", part, key)) for part in ("labels", "annotations"))
    return next((one for one in found if one is not None), None)


_METHODS: Final[Mapping[GangMethod, Callable[[Object, GangDiscovery], Gang | None]]] = {
    GangMethod.WORKLOAD_REF: _native,
    GangMethod.VOLCANO: _volcano,
    GangMethod.KUEUE: _kueue,
    GangMethod.LABELS: _labels,
}


def _served(group: str, plural: str, kind: str, *versions: str) -> tuple[Resource, ...]:
    """A kind in the versions of its group in which clusters may serve it, the newest first."""
    return tuple(Resource(group, version, plural, kind, namespaced=True) for version in versions)


_RESOURCES: Final[Mapping[str, tuple[Resource, ...]]] = {
    GangSource.SCHEDULING_GROUP: _served(
        _NATIVE_GROUP, "podgroups", "PodGroup", "v1", "v1beta1", "v1alpha3", "v1alpha2"
    ),
    GangSource.WORKLOAD: _served(_NATIVE_GROUP, "workloads", "Workload", "v1alpha1"),
    GangSource.VOLCANO: _served(_VOLCANO_GROUP, "podgroups", "PodGroup", "v1beta1"),
    GangSource.KUEUE_WORKLOAD: _served(_KUEUE_GROUP, "workloads", "Workload", "v1beta2", "v1beta1"),
}


def _gang(kind: GangSource, *names: str, size: int | None = None) -> Gang | None:
    """The gang; None where its source is longer than an event can hold."""
    source = "/".join((kind, *names))
    if len(source) > NAME_LENGTH_MAX:
        return None
    slug = re.sub(r"[^a-z0-9]+", "-", "-".join(names).lower())[:ID_SLUG_MAX].strip("-")
    digest = blake2b(source.encode(), digest_size=ID_DIGEST_BYTES).hexdigest()
    return Gang(f"{slug}-{digest}", source, size)


def _size_of_pod_group(workload: Object, group: Sequence[str]) -> int | None:
    for one in _listed(workload, "spec", "podGroups"):
        if [_at(one, "name")] == list(group):
            return _size(_at(one, "policy", "gang", "minCount"))
    return None


def _size_of_pod_sets(workload: Object) -> int | None:
    """The pods of all pod sets that request devices: those without, such as launchers, have no checks.

    Kueue may admit fewer pods of a set than it has (partial admission): then no more are created.
    """
    pod_sets = list(_listed(workload, "spec", "podSets"))
    with_devices = [one for one in pod_sets if _requests_devices(one)]
    admitted = {
        str(_at(one, "name")): _size(_at(one, "count"))
        for one in _listed(workload, "status", "admission", "podSetAssignments")
    }
    counts = [admitted.get(str(_at(one, "name"))) or _size(_at(one, "count")) for one in with_devices or pod_sets]
    counted = [one for one in counts if one is not None]
    return _size(sum(counted)) if counted else None


def _requests_devices(pod_set: Object) -> bool:
    if any(True for _ in _listed(pod_set, "template", "spec", "resourceClaims")):
        return True
    for one in _listed(pod_set, "template", "spec", "containers"):
        for field in ("limits", "requests"):
            resources = _at(one, "resources", field)
            if isinstance(resources, Mapping) and any("/" in str(name) for name in resources):
                return True
    return False


def _at(value: object, *path: str) -> object:
    """What stands at a path; None where nothing does."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _listed(value: object, *path: str) -> Iterator[Object]:
    found = _at(value, *path)
    return (one for one in found if isinstance(one, Mapping)) if isinstance(found, list) else iter(())


def _name(value: object) -> str | None:
    """The name of an object; None for what none can have."""
    return value if isinstance(value, str) and len(value) <= NAME_LENGTH_MAX and _DNS_NAME(value) else None


def _label_value(value: object) -> str | None:
    return value if isinstance(value, str) and _LABEL_VALUE(value) else None


def _size(value: object) -> int | None:
    """A number of pods, at most `PEERS_MAX`; labels and annotations have it as text."""
    if isinstance(value, str):
        value = int(value) if _COUNT(value) else None
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 1 <= value <= PEERS_MAX else None
