"""The scale subresource of custom resources: a `Scale` of autoscaling/v1 that is read from and written into an object.

Which fields hold the replicas is said by the paths of the CRD. It never looks at anything else of the object.
"""

from copy import deepcopy
from typing import NamedTuple

from gpuledger.kube.embedded.errors import Cause, Object, internal, invalid
from gpuledger.kube.embedded.jsonpath import first, simple_fields

_KEPT_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


class ScalePaths(NamedTuple):
    """Where an object has its replicas; `selector` may be empty."""

    replicas: str
    status_replicas: str
    selector: str = ""


def scale_of(obj: Object, paths: ScalePaths) -> Object:
    """The object's Scale; raises ApiError where it does not say how many replicas it wants."""
    wanted = first(paths.replicas, obj)
    if wanted is None:
        raise internal(f'the spec replicas field "{paths.replicas}" does not exist')
    status: Object = {"replicas": first(paths.status_replicas, obj) or 0}
    if paths.selector and (selector := first(paths.selector, obj)):
        status["selector"] = selector
    metadata = {name: obj["metadata"][name] for name in _KEPT_METADATA if name in obj["metadata"]}
    spec = {"replicas": wanted} if wanted else {}
    return {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status}


def with_scale(obj: Object, scale: Object, paths: ScalePaths) -> Object:
    """A copy of the object that wants as many replicas as the Scale says; none told is 0."""
    changed = deepcopy(obj)
    at = changed
    *parents, last = simple_fields(paths.replicas) or ("spec", "replicas")
    for name in parents:
        at = at.setdefault(name, {})
    at[last] = (scale.get("spec") or {}).get("replicas", 0)
    return changed


def scale_problems(scale: Object) -> list[Cause]:
    """What is wrong with a Scale."""
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if isinstance(replicas, int) and replicas >= 0:
        return []
    return [invalid("spec.replicas", replicas, "must be greater than or equal to 0")]
