"""What the admission plugins of every real server add to new objects from others that are stored."""

from gpuledger.kube.embedded.errors import Object
from gpuledger.kube.embedded.resources import Resource
from gpuledger.kube.embedded.store import Store
from gpuledger.kube.embedded.strategies.pods import prioritised

PODS = ("", "pods")
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
