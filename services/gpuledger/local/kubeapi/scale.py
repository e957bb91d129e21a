"""The scale subresource of custom resources: a `Scale` of autoscaling/v1 that is read from and written into an object.

Which fields hold the replicas is said by the paths of the CRD. It never looks at anything else of the object.
"""

from copy import deepcopy
from typing import NamedTuple

from gpuledger.edge.kube.schema.causes import Cause, Object, invalid
from gpuledger.local.kubeapi.errors import internal, unprocessable
from gpuledger.local.kubeapi.jsonpath import first, simple_fields

GROUP, KIND = "autoscaling", "Scale"
_SELECTOR_PARTS = frozenset({"matchLabels", "matchExpressions"})
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
        status["selector"] = selector if isinstance(selector, str) else _selector_text(selector)
    metadata = {name: obj["metadata"][name] for name in _KEPT_METADATA if name in obj["metadata"]}
    spec = {"replicas": wanted} if wanted else {}
    return {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status}


def with_scale(obj: Object, scale: Object, paths: ScalePaths) -> Object:
    """A copy of the object that wants as many replicas as the Scale says; none told is 0.

    Raises:
        ApiError: 422, the Scale is not one.
    """
    meta = scale.get("metadata") or {}
    if causes := scale_problems(scale):
        raise unprocessable(GROUP, KIND, meta.get("name") or "", causes)
    changed = deepcopy(obj)
    _set_replicas(changed, (scale.get("spec") or {}).get("replicas", 0), paths)
    changed["metadata"] |= {name: meta[name] for name in ("resourceVersion", "uid") if meta.get(name)}
    return changed


def applied_scale(scale: Object, paths: ScalePaths, *, api_version: str, kind: str) -> Object:
    """What a configuration of the Scale says of the object itself.

    Raises:
        ApiError: 422, the Scale is not one.
    """
    if causes := scale_problems(scale):
        raise unprocessable(GROUP, KIND, "", causes)
    config: Object = {"apiVersion": api_version, "kind": kind, "metadata": scale.get("metadata") or {}}
    if "replicas" in (scale.get("spec") or {}):
        _set_replicas(config, scale["spec"]["replicas"], paths)
    return config


def _set_replicas(obj: Object, replicas: int, paths: ScalePaths) -> None:
    *parents, last = simple_fields(paths.replicas) or ("spec", "replicas")
    for name in parents:
        obj = obj.setdefault(name, {})
    obj[last] = replicas


def _selector_text(selector: Object) -> str:
    """A label selector as text; that of a replication controller is a map of labels."""
    labels = selector.get("matchLabels") or {} if selector.keys() & _SELECTOR_PARTS else selector
    texts = [f"{key}={value}" for key, value in sorted(labels.items())]
    return ",".join(texts + [_condition(one) for one in selector.get("matchExpressions") or ()])


def _condition(expression: Object) -> str:
    key, operator = expression["key"], expression["operator"]
    if operator in {"Exists", "DoesNotExist"}:
        return key if operator == "Exists" else f"!{key}"
    return f"{key} {operator.lower()} ({','.join(sorted(expression.get('values') or ()))})"


def scale_problems(scale: Object) -> list[Cause]:
    """What is wrong with a Scale."""
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if isinstance(replicas, int) and not isinstance(replicas, bool) and replicas >= 0:
        return []
    return [invalid("spec.replicas", replicas, "must be greater than or equal to 0")]
