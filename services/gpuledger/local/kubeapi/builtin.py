"""Which built-in resources the embedded API server serves: their names, verbs, subresources and types.

Names are what Kubernetes 1.36 says in discovery. What a resource does of its own is its strategy's.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypedDict, Unpack

from gpuledger.local.kubeapi.builtin_events import core_event, events_v1
from gpuledger.local.kubeapi.builtin_shapes import shape
from gpuledger.local.kubeapi.crds import CrdStrategy
from gpuledger.local.kubeapi.resources import ALL_VERBS, Form, Resource, Strategy, Subresource
from gpuledger.local.kubeapi.strategies.core import STRATEGIES as CORE_STRATEGIES
from gpuledger.local.kubeapi.strategies.more import STRATEGIES as MORE_STRATEGIES


class _Conditional(Strategy):
    """PUT has to tell the resourceVersion."""

    updates_unconditionally = False


class _Ungenerated(_Conditional):
    """Its generation is not counted."""

    has_generation = False


STRATEGIES: Mapping[tuple[str, str], Strategy] = {
    ("apiextensions.k8s.io", "customresourcedefinitions"): CrdStrategy(),
    ("apps", "controllerrevisions"): _Ungenerated(),
    ("node.k8s.io", "runtimeclasses"): _Ungenerated(),
    ("storage.k8s.io", "csinodes"): _Ungenerated(),
    ("storage.k8s.io", "csidrivers"): _Ungenerated(),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): _Conditional(),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): _Conditional(),
    **MORE_STRATEGIES,
    **CORE_STRATEGIES,
}

CREATE = ("create",)
PARTIAL = ("get", "patch", "update")
WITHOUT_COLLECTION = tuple(verb for verb in ALL_VERBS if verb != "deletecollection")

_MODELS = {
    ("", "v1", "Event"): "CoreV1Event",
    ("events.k8s.io", "v1", "Event"): "EventsV1Event",
    ("resource.k8s.io", "v1", "ResourceClaim"): "ResourceV1ResourceClaim",
    ("authentication.k8s.io", "v1", "TokenRequest"): "AuthenticationV1TokenRequest",
}
_SINGULAR = {"endpoints": "endpoints"}


def model(group: str, version: str, kind: str) -> str:
    """The name of a type among the client's models."""
    return _MODELS.get((group, version, kind), f"V{version[1:]}{kind}")


_EVENTS = Form(("", "events"), events_v1, core_event)


class _More(TypedDict, total=False):
    """What not every resource has. `sub` names subresources of the resource's own kind, or describes others."""

    sub: tuple[str | Subresource, ...]
    verbs: tuple[str, ...]
    categories: tuple[str, ...]


class _Group:
    """Makes the resources of one group and version."""

    def __init__(self, group: str, version: str = "v1") -> None:
        self._group = group
        self._version = version

    def namespaced(self, kind: str, plural: str, *short: str, **more: Unpack[_More]) -> Resource:
        return replace(self.cluster(kind, plural, *short, **more), namespaced=True)

    def cluster(self, kind: str, plural: str, *short: str, **more: Unpack[_More]) -> Resource:
        return Resource(
            group=self._group,
            version=self._version,
            kind=kind,
            plural=plural,
            singular=_SINGULAR.get(plural, kind.lower()),
            namespaced=False,
            short_names=short,
            categories=more.get("categories", ()),
            verbs=more.get("verbs", ALL_VERBS),
            subresources=tuple(_sub(one, kind) for one in more.get("sub", ())),
            shape=shape(model(self._group, self._version, kind)),
            strategy=STRATEGIES.get((self._group, plural)) or Strategy(),
        )


def _sub(one: str | Subresource, kind: str) -> Subresource:
    return one if isinstance(one, Subresource) else Subresource(one, PARTIAL, kind)


_ALL = ("all",)
_SCALE = Subresource("scale", PARTIAL, "Scale", "autoscaling", "v1")
_SCALED = (_SCALE, "status")

_core = _Group("")
_apps = _Group("apps")
_batch = _Group("batch")
_authorization = _Group("authorization.k8s.io")
_authentication = _Group("authentication.k8s.io")
_rbac = _Group("rbac.authorization.k8s.io")
_storage = _Group("storage.k8s.io")
_admission = _Group("admissionregistration.k8s.io")
_dra = _Group("resource.k8s.io")

_CORE = (
    _core.namespaced("Binding", "bindings", verbs=CREATE),
    _core.namespaced("ConfigMap", "configmaps", "cm"),
    _core.namespaced("Endpoints", "endpoints", "ep"),
    _core.namespaced("Event", "events", "ev"),
    _core.namespaced("LimitRange", "limitranges", "limits"),
    _core.cluster(
        "Namespace",
        "namespaces",
        "ns",
        sub=(Subresource("finalize", ("update",), "Namespace"), "status"),
        verbs=WITHOUT_COLLECTION,
    ),
    _core.cluster("Node", "nodes", "no", sub=("status",)),
    _core.namespaced("PersistentVolumeClaim", "persistentvolumeclaims", "pvc", sub=("status",)),
    _core.cluster("PersistentVolume", "persistentvolumes", "pv", sub=("status",)),
    _core.namespaced(
        "Pod",
        "pods",
        "po",
        categories=_ALL,
        sub=(
            Subresource("binding", CREATE, "Binding"),
            "ephemeralcontainers",
            Subresource("eviction", CREATE, "Eviction", "policy", "v1"),
            Subresource("log", ("get",), "Pod"),
            "resize",
            "status",
        ),
    ),
    _core.namespaced("PodTemplate", "podtemplates"),
    _core.namespaced("ReplicationController", "replicationcontrollers", "rc", categories=_ALL, sub=_SCALED),
    _core.namespaced("ResourceQuota", "resourcequotas", "quota", sub=("status",)),
    _core.namespaced("Secret", "secrets"),
    _core.namespaced(
        "ServiceAccount",
        "serviceaccounts",
        "sa",
        sub=(Subresource("token", CREATE, "TokenRequest", "authentication.k8s.io", "v1"),),
    ),
    _core.namespaced("Service", "services", "svc", categories=_ALL, sub=("status",)),
)

_WORKLOADS = (
    _apps.namespaced("ControllerRevision", "controllerrevisions"),
    _apps.namespaced("DaemonSet", "daemonsets", "ds", categories=_ALL, sub=("status",)),
    _apps.namespaced("Deployment", "deployments", "deploy", categories=_ALL, sub=_SCALED),
    _apps.namespaced("ReplicaSet", "replicasets", "rs", categories=_ALL, sub=_SCALED),
    _apps.namespaced("StatefulSet", "statefulsets", "sts", categories=_ALL, sub=_SCALED),
    replace(_Group("events.k8s.io").namespaced("Event", "events", "ev"), form=_EVENTS),
)

_ACCESS = (
    _authentication.cluster("SelfSubjectReview", "selfsubjectreviews", verbs=CREATE),
    _authentication.cluster("TokenReview", "tokenreviews", verbs=CREATE),
    _authorization.namespaced("LocalSubjectAccessReview", "localsubjectaccessreviews", verbs=CREATE),
    _authorization.cluster("SelfSubjectAccessReview", "selfsubjectaccessreviews", verbs=CREATE),
    _authorization.cluster("SelfSubjectRulesReview", "selfsubjectrulesreviews", verbs=CREATE),
    _authorization.cluster("SubjectAccessReview", "subjectaccessreviews", verbs=CREATE),
)

_BATCH = (
    _batch.namespaced("CronJob", "cronjobs", "cj", categories=_ALL, sub=("status",)),
    _batch.namespaced("Job", "jobs", categories=_ALL, sub=("status",)),
    _Group("policy").namespaced("PodDisruptionBudget", "poddisruptionbudgets", "pdb", sub=("status",)),
)

_RBAC = (
    _rbac.cluster("ClusterRoleBinding", "clusterrolebindings"),
    _rbac.cluster("ClusterRole", "clusterroles"),
    _rbac.namespaced("RoleBinding", "rolebindings"),
    _rbac.namespaced("Role", "roles"),
)

_PLATFORM = (
    _storage.cluster("CSIDriver", "csidrivers"),
    _storage.cluster("CSINode", "csinodes"),
    _storage.cluster("StorageClass", "storageclasses", "sc"),
    _admission.cluster("MutatingWebhookConfiguration", "mutatingwebhookconfigurations", categories=("api-extensions",)),
    _admission.cluster(
        "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", categories=("api-extensions",)
    ),
    _Group("apiextensions.k8s.io").cluster(
        "CustomResourceDefinition",
        "customresourcedefinitions",
        "crd",
        "crds",
        categories=("api-extensions",),
        sub=("status",),
    ),
    _Group("scheduling.k8s.io").cluster("PriorityClass", "priorityclasses", "pc"),
    _Group("coordination.k8s.io").namespaced("Lease", "leases"),
    _Group("node.k8s.io").cluster("RuntimeClass", "runtimeclasses"),
    _Group("discovery.k8s.io").namespaced("EndpointSlice", "endpointslices"),
)

_DRA = (
    _dra.cluster("DeviceClass", "deviceclasses"),
    _dra.namespaced("ResourceClaim", "resourceclaims", sub=("status",)),
    _dra.namespaced("ResourceClaimTemplate", "resourceclaimtemplates"),
    _dra.cluster("ResourceSlice", "resourceslices"),
    _Group("resource.k8s.io", "v1beta2").cluster("DeviceTaintRule", "devicetaintrules", sub=("status",)),
    _Group("resource.k8s.io", "v1alpha3").cluster("DeviceTaintRule", "devicetaintrules", sub=("status",)),
)

BUILTIN: tuple[Resource, ...] = (*_CORE, *_WORKLOADS, *_ACCESS, *_BATCH, *_RBAC, *_PLATFORM, *_DRA)
"""Every built-in resource, groups in Kubernetes' order of discovery."""
