"""Lists the built-in resources that the server serves: their names, verbs, subresources, types and strategies.

The names are those of Kubernetes 1.36. A resource that is not listed here is answered with 404.
`python -m gpuledger.local.kubeapi.builtin` writes the structure of the types.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Required, TypedDict, Unpack

from gpuledger.local.kubeapi import deployment_scales
from gpuledger.local.kubeapi.builtin_events import core_event, events_v1
from gpuledger.local.kubeapi.builtin_shapes import shape, write
from gpuledger.local.kubeapi.crds import CrdStrategy
from gpuledger.local.kubeapi.resources import ALL_VERBS, Form, ServedResource, Strategy, Subresource
from gpuledger.local.kubeapi.strategies import (
    admission_policies,
    core_data,
    core_workloads,
    dra,
    ephemeral_containers,
    rbac,
    webhook_configurations,
)
from gpuledger.local.kubeapi.strategies.core_namespaces import NamespaceStrategy
from gpuledger.local.kubeapi.strategies.core_workloads import StatefulSetStrategy, StoredStrategy
from gpuledger.local.kubeapi.strategies.events import CoreEventStrategy, EventStrategy
from gpuledger.local.kubeapi.strategies.leases import LeaseStrategy
from gpuledger.local.kubeapi.strategies.nodes import NodeStrategy
from gpuledger.local.kubeapi.strategies.pods import PodStrategy
from gpuledger.local.kubeapi.strategies.policy import PdbStrategy
from gpuledger.local.kubeapi.strategies.resource_quotas import ResourceQuotaStrategy
from gpuledger.local.kubeapi.strategies.storage import StorageClassStrategy

CREATE = ("create",)
PARTIAL = ("get", "patch", "update")
WITHOUT_COLLECTION = tuple(verb for verb in ALL_VERBS if verb != "deletecollection")

_MODELS = {
    ("", "v1", "Event"): "CoreV1Event",
    ("authentication.k8s.io", "v1", "TokenRequest"): "AuthenticationV1TokenRequest",
    ("events.k8s.io", "v1", "Event"): "EventsV1Event",
    ("resource.k8s.io", "v1", "ResourceClaim"): "ResourceV1ResourceClaim",
}


def model(group: str, version: str, kind: str) -> str:
    """The name of a type among the client's models."""
    return _MODELS.get((group, version, kind), f"V{version[1:]}{kind}")


_EVENTS = Form(("", "events"), events_v1, core_event)


class _More(TypedDict, total=False):
    """Optional properties. `sub` names subresources of the resource's own kind, or describes others."""

    strategy: Required[Strategy]
    sub: tuple[str | Subresource, ...]
    verbs: tuple[str, ...]
    categories: tuple[str, ...]
    lacks: tuple[str, ...]


class _Group:
    """Makes the resources of one group and version."""

    def __init__(self, group: str, version: str = "v1") -> None:
        self._group = group
        self._version = version

    def namespaced(self, kind: str, plural: str, *short: str, **more: Unpack[_More]) -> ServedResource:
        return replace(self.cluster(kind, plural, *short, **more), namespaced=True)

    def cluster(self, kind: str, plural: str, *short: str, **more: Unpack[_More]) -> ServedResource:
        return ServedResource(
            group=self._group,
            version=self._version,
            kind=kind,
            plural=plural,
            singular=kind.lower(),
            namespaced=False,
            short_names=short,
            categories=more.get("categories", ()),
            verbs=more.get("verbs", ALL_VERBS),
            subresources=tuple(_sub(one, kind) for one in more.get("sub", ())),
            shape=shape(model(self._group, self._version, kind)),
            strategy=more["strategy"],
            lacks=more.get("lacks", ()),
        )


def _sub(one: str | Subresource, kind: str) -> Subresource:
    return one if isinstance(one, Subresource) else Subresource(one, PARTIAL, kind)


_ALL = ("all",)
_API_EXTENSIONS = ("api-extensions",)
_ROLE, _BINDING, _REVIEW = rbac.RoleStrategy(), rbac.RoleBindingStrategy(), Strategy()

_core = _Group("")
_apps = _Group("apps")
_batch = _Group("batch")
_authentication = _Group("authentication.k8s.io")
_authorization = _Group("authorization.k8s.io")
_rbac = _Group("rbac.authorization.k8s.io")
_admission = _Group("admissionregistration.k8s.io")
_dra = _Group("resource.k8s.io")

_CORE = (
    _core.namespaced("ConfigMap", "configmaps", "cm", strategy=core_data.ConfigMapStrategy()),
    _core.namespaced("Event", "events", "ev", strategy=CoreEventStrategy()),
    _core.namespaced("LimitRange", "limitranges", "limits", strategy=StoredStrategy({}, has_generation=False)),
    _core.cluster(
        "Namespace",
        "namespaces",
        "ns",
        sub=(Subresource("finalize", ("update",), "Namespace"), "status"),
        verbs=WITHOUT_COLLECTION,
        strategy=NamespaceStrategy(),
    ),
    _core.cluster("Node", "nodes", "no", sub=("status",), lacks=("proxy",), strategy=NodeStrategy()),
    _core.namespaced(
        "PersistentVolumeClaim",
        "persistentvolumeclaims",
        "pvc",
        sub=("status",),
        strategy=StoredStrategy(
            core_workloads.CLAIM_SPEC,
            core_workloads.CLAIM_STATUS,
            has_generation=False,
            answers_deleted_object=True,
        ),
    ),
    _core.cluster(
        "PersistentVolume",
        "persistentvolumes",
        "pv",
        sub=("status",),
        strategy=StoredStrategy(core_workloads.VOLUME_SPEC, core_workloads.VOLUME_STATUS, has_generation=False),
    ),
    _core.namespaced(
        "Pod",
        "pods",
        "po",
        categories=_ALL,
        sub=(
            Subresource("binding", CREATE, "Binding"),
            Subresource(ephemeral_containers.SUBRESOURCE, ("get", "patch", "update"), "Pod"),
            Subresource("eviction", CREATE, "Eviction", "policy", "v1"),
            Subresource("log", ("get",), "Pod"),
            "status",
        ),
        lacks=("attach", "exec", "log", "portforward", "proxy", "resize"),
        strategy=PodStrategy(),
    ),
    _core.namespaced(
        "ResourceQuota",
        "resourcequotas",
        "quota",
        sub=("status",),
        strategy=ResourceQuotaStrategy(),
    ),
    _core.namespaced("Secret", "secrets", strategy=core_data.SecretStrategy()),
    _core.namespaced(
        "ServiceAccount",
        "serviceaccounts",
        "sa",
        sub=(Subresource("token", CREATE, "TokenRequest", "authentication.k8s.io", "v1"),),
        strategy=core_data.ServiceAccountStrategy(),
    ),
    _core.namespaced(
        "Service",
        "services",
        "svc",
        categories=_ALL,
        sub=("status",),
        lacks=("proxy",),
        strategy=StoredStrategy(
            core_workloads.SERVICE_SPEC,
            core_workloads.SERVICE_STATUS,
            has_generation=False,
            answers_deleted_object=True,
        ),
    ),
)

_WORKLOADS = (
    _apps.namespaced(
        "DaemonSet",
        "daemonsets",
        "ds",
        categories=_ALL,
        sub=("status",),
        strategy=StoredStrategy(
            core_workloads.DAEMON_SET_SPEC, core_workloads.DAEMON_SET_STATUS, template=core_workloads.TEMPLATE
        ),
    ),
    _apps.namespaced(
        "Deployment",
        "deployments",
        "deploy",
        categories=_ALL,
        sub=(deployment_scales.SUBRESOURCE, "status"),
        strategy=StoredStrategy(core_workloads.DEPLOYMENT_SPEC, {}, template=core_workloads.TEMPLATE),
    ),
    _apps.namespaced(
        "StatefulSet",
        "statefulsets",
        "sts",
        categories=_ALL,
        sub=("status",),
        lacks=("scale",),
        strategy=StatefulSetStrategy(),
    ),
    replace(_Group("events.k8s.io").namespaced("Event", "events", "ev", strategy=EventStrategy()), form=_EVENTS),
)

_ACCESS = (
    _authentication.cluster("SelfSubjectReview", "selfsubjectreviews", verbs=CREATE, strategy=_REVIEW),
    _authentication.cluster("TokenReview", "tokenreviews", verbs=CREATE, strategy=_REVIEW),
    _authorization.namespaced("LocalSubjectAccessReview", "localsubjectaccessreviews", verbs=CREATE, strategy=_REVIEW),
    _authorization.cluster("SelfSubjectAccessReview", "selfsubjectaccessreviews", verbs=CREATE, strategy=_REVIEW),
    _authorization.cluster("SelfSubjectRulesReview", "selfsubjectrulesreviews", verbs=CREATE, strategy=_REVIEW),
    _authorization.cluster("SubjectAccessReview", "subjectaccessreviews", verbs=CREATE, strategy=_REVIEW),
)

_BATCH = (
    _batch.namespaced(
        "CronJob",
        "cronjobs",
        "cj",
        categories=_ALL,
        sub=("status",),
        strategy=StoredStrategy(core_workloads.CRON_JOB_SPEC, {}, template=core_workloads.JOB_TEMPLATE),
    ),
    _batch.namespaced(
        "Job",
        "jobs",
        categories=_ALL,
        sub=("status",),
        strategy=StoredStrategy(core_workloads.JOB_SPEC, {}, template=core_workloads.TEMPLATE),
    ),
    _Group("policy").namespaced(
        "PodDisruptionBudget", "poddisruptionbudgets", "pdb", sub=("status",), strategy=PdbStrategy()
    ),
)

_RBAC = (
    _rbac.cluster("ClusterRoleBinding", "clusterrolebindings", strategy=_BINDING),
    _rbac.cluster("ClusterRole", "clusterroles", strategy=_ROLE),
    _rbac.namespaced("RoleBinding", "rolebindings", strategy=_BINDING),
    _rbac.namespaced("Role", "roles", strategy=_ROLE),
)

_PLATFORM = (
    _Group("storage.k8s.io").cluster("StorageClass", "storageclasses", "sc", strategy=StorageClassStrategy()),
    _admission.cluster(
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        categories=_API_EXTENSIONS,
        strategy=webhook_configurations.MutatingConfigurationStrategy(),
    ),
    _admission.cluster(
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        categories=_API_EXTENSIONS,
        sub=("status",),
        strategy=admission_policies.PolicyStrategy(),
    ),
    _admission.cluster(
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        categories=_API_EXTENSIONS,
        strategy=admission_policies.BindingStrategy(),
    ),
    _admission.cluster(
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        categories=_API_EXTENSIONS,
        strategy=webhook_configurations.ValidatingConfigurationStrategy(),
    ),
    _Group("apiextensions.k8s.io").cluster(
        "CustomResourceDefinition",
        "customresourcedefinitions",
        "crd",
        "crds",
        categories=_API_EXTENSIONS,
        sub=("status",),
        strategy=CrdStrategy(),
    ),
    _Group("scheduling.k8s.io").cluster("PriorityClass", "priorityclasses", "pc", strategy=Strategy()),
    _Group("coordination.k8s.io").namespaced("Lease", "leases", strategy=LeaseStrategy()),
)

_DRA = (
    _dra.cluster("DeviceClass", "deviceclasses", strategy=dra.DeviceClassStrategy()),
    _dra.namespaced("ResourceClaim", "resourceclaims", sub=("status",), strategy=dra.ResourceClaimStrategy()),
    _dra.namespaced("ResourceClaimTemplate", "resourceclaimtemplates", strategy=dra.ResourceClaimTemplateStrategy()),
    _dra.cluster("ResourceSlice", "resourceslices", strategy=dra.ResourceSliceStrategy()),
    *(
        _Group("resource.k8s.io", version).cluster(
            "DeviceTaintRule", "devicetaintrules", sub=("status",), strategy=dra.DeviceTaintRuleStrategy()
        )
        for version in ("v1beta2", "v1alpha3")
    ),
)

BUILTIN: tuple[ServedResource, ...] = (*_CORE, *_WORKLOADS, *_ACCESS, *_BATCH, *_RBAC, *_PLATFORM, *_DRA)
"""Every built-in resource, groups in Kubernetes' order of discovery."""


def models() -> Iterator[str]:
    """The client's models of all objects that requests can contain."""
    yield "V1DeleteOptions"
    for one in BUILTIN:
        yield model(one.group, one.version, one.kind)
        others = (sub for sub in one.subresources if sub.kind != one.kind)
        yield from (model(sub.group or one.group, sub.version or one.version, sub.kind) for sub in others)


if __name__ == "__main__":
    write(Path(__file__).parents[4] / "schemas" / "gpuledger" / "schemas" / "kubernetes", models())
