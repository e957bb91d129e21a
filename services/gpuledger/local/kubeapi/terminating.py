"""Decides how the deletion of a namespace or a CRD begins, and when it may end. Pure."""

from collections.abc import Callable, Mapping

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi.store import copy_of

CRD_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
NAMESPACE_FINALIZER = "kubernetes"

NAMESPACES = ("", "namespaces")
IMMORTAL = frozenset({"default", "kube-system", "kube-public"})
"""Namespaces that may not be deleted."""

CRDS = ("apiextensions.k8s.io", "customresourcedefinitions")


def terminating_namespace(namespace: Object, deleted_at: str) -> Object:
    """A namespace whose deletion begins; it ends once the namespace is empty."""
    then = copy_of(namespace)
    then["metadata"].setdefault("deletionTimestamp", deleted_at)
    then["status"] = {**then.get("status", {}), "phase": "Terminating"}
    return then


def terminating_crd(crd: Object, deleted_at: str) -> Object:
    """A CRD whose deletion begins; it ends once its objects are gone."""
    then = copy_of(crd)
    then["metadata"].setdefault("deletionTimestamp", deleted_at)
    finalizers = then["metadata"].setdefault("finalizers", [])
    if CRD_FINALIZER not in finalizers:
        finalizers.append(CRD_FINALIZER)
    return then


BEGIN: Mapping[tuple[str, str], Callable[[Object, str], Object]] = {
    NAMESPACES: terminating_namespace,
    CRDS: terminating_crd,
}
"""The state that DELETE stores instead of removing the object at once, by resource."""


def without_finalizer(obj: Object, finalizer: str) -> Object:
    """The object without this finalizer."""
    then = copy_of(obj)
    holder = then["spec"] if finalizer == NAMESPACE_FINALIZER else then["metadata"]
    holder["finalizers"] = [name for name in holder.get("finalizers", []) if name != finalizer]
    if not holder["finalizers"]:
        del holder["finalizers"]
    return then
