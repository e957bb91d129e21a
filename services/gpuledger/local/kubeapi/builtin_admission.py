"""What the admission plugins of every real server make of new objects by others that are stored."""

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi.quotas import refuse_excess
from gpuledger.local.kubeapi.resources import Resource
from gpuledger.local.kubeapi.store import Store, key_of
from gpuledger.local.kubeapi.strategies.pods import prioritised

PODS = ("", "pods")
QUOTAS = ("", "resourcequotas")
PRIORITY_CLASSES = ("scheduling.k8s.io", "priorityclasses")


def admitted(resource: Resource, obj: Object, store: Store) -> Object:
    """The new object with what belongs to it.

    Raises:
        ApiError: 403, it names what is not there.
    """
    if resource.key == PODS:
        classes = store.collection(PRIORITY_CLASSES).objects()
        return prioritised(obj, {one["metadata"]["name"]: one for one in classes})
    return obj


def refuse_over_quota(resource: Resource, obj: Object, store: Store) -> None:
    """Keep to the quotas of the new object's namespace.

    Raises:
        ApiError: 403, one of them would be exceeded.
    """
    if resource.key == PODS:
        namespace, _ = key_of(obj)
        if quotas := store.collection(QUOTAS).objects(namespace):
            refuse_excess(obj, quotas, store.collection(PODS).objects(namespace))
