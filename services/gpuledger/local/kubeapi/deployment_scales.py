"""The scale of a Deployment: an object of a kind of its own, of which a write changes the number of replicas.

As in Kubernetes a scale has the identity and the version of its Deployment, and shows no zero: `spec` is then empty.
Webhooks and policies for `deployments/scale` get the Deployment here, and not the scale.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from gpuledger.edge.kube.schema.causes import Cause, Object, invalid
from gpuledger.local.kubeapi.builtin_shapes import shape
from gpuledger.local.kubeapi.registry import Target
from gpuledger.local.kubeapi.requests import ApiRequest
from gpuledger.local.kubeapi.resources import ServedResource, Subresource
from gpuledger.local.kubeapi.write_checks import fit_url, refuse_invalid
from gpuledger.local.kubeapi.writing import Change

SUBRESOURCE: Final = Subresource("scale", ("get", "patch", "update"), "Scale", "autoscaling", "v1")

_DEPLOYMENTS: Final = ("apps", "deployments")
_IDENTITY: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
_SCALES: Final = ServedResource(
    "autoscaling", "v1", "Scale", "deployments", "scale", namespaced=True, shape=shape("V1Scale")
)


def is_of_deployment(target: Target) -> bool:
    """Whether a target is the scale of a Deployment."""
    return target.resource.key == _DEPLOYMENTS and target.subresource == SUBRESOURCE.name


def scale_request(request: ApiRequest) -> ApiRequest:
    """The request as one about an object of the kind Scale, by which a body is read."""
    return replace(request, target=request.target._replace(resource=_SCALES, subresource=""))


def scale_of(deployment: Object) -> Object:
    """The scale of a Deployment."""
    metadata, spec = deployment["metadata"], deployment.get("spec") or {}
    replicas = spec.get("replicas") or 0
    status: Object = {"replicas": (deployment.get("status") or {}).get("replicas") or 0}
    if selector := selector_text(spec.get("selector") or {}):
        status["selector"] = selector
    return {
        "kind": _SCALES.kind,
        "apiVersion": _SCALES.api_version,
        "metadata": {name: metadata[name] for name in _IDENTITY if name in metadata},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def scaling(target: Target, change: Change) -> Change:
    """The change of a Deployment that a change of its scale is.

    Raises:
        ApiError: 400 for a scale of another name; 422 for a number of replicas that cannot be.
    """

    def changed(deployment: Object) -> Object:
        scale = change(scale_of(deployment))
        fit_url(target._replace(resource=_SCALES), scale)
        replicas = (scale.get("spec") or {}).get("replicas") or 0
        refuse_invalid(_SCALES, scale, list(_causes(replicas)))
        given = {name: scale["metadata"].get(name) for name in ("uid", "resourceVersion")}
        spec = deployment["spec"] | {"replicas": replicas}
        return deployment | {"metadata": deployment["metadata"] | given, "spec": spec}

    return changed


def selector_text(selector: Mapping[str, Any]) -> str:
    """A LabelSelector as the text that `kubectl get --selector` takes, sorted by key."""
    terms = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    terms += [(one["key"], _expression_text(one)) for one in selector.get("matchExpressions") or ()]
    return ",".join(text for _, text in sorted(terms))


def _expression_text(one: Mapping[str, Any]) -> str:
    key, values = one["key"], ",".join(sorted(one.get("values") or ()))
    match one["operator"]:
        case "In":
            return f"{key} in ({values})"
        case "NotIn":
            return f"{key} notin ({values})"
        case "Exists":
            return f"{key}"
    return f"!{key}"


def _causes(replicas: int) -> Iterator[Cause]:
    if replicas < 0:
        yield invalid("spec.replicas", replicas, "must be greater than or equal to 0")
