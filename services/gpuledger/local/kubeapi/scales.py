"""Validates the counts that the scale of a custom resource stands for, and refuses applies to its `/scale`.

The server lacks the endpoint. A real one has it, but answers 500 to every apply there, because it converts the result
as if it were a custom resource.
"""

from collections.abc import Iterator
from typing import Any

from gpuledger.edge.kube.schema.causes import Cause, Object, invalid
from gpuledger.local.kubeapi.decoding import parse_patch
from gpuledger.local.kubeapi.errors import ApiError, bad_request, internal
from gpuledger.local.kubeapi.managed import described
from gpuledger.local.kubeapi.registry import Target

SCALE = "scale"
COUNT_MAX = 2**31 - 1
API_VERSION, KIND = "autoscaling/v1", "Scale"


def is_of_custom_resource(target: Target) -> bool:
    """Whether a target is the scale of a custom resource."""
    return target.resource.is_custom and target.subresource == SCALE


def count_causes(obj: Object, path: str) -> Iterator[Cause]:
    """Everything wrong with the count at a path of plain fields, such as `.spec.replicas`; none counts as 0."""
    found = _at(obj, path)
    if isinstance(found, bool) or not isinstance(found, int):
        yield invalid(path, 0, f"accessor error: {found!r} is not an int64")
    elif found < 0:
        yield invalid(path, found, "should be a non-negative integer")
    elif found > COUNT_MAX:
        yield invalid(path, found, f"should be less than or equal to {COUNT_MAX}")


def read_configuration(body: bytes, content_type: str) -> Object:
    """The configuration of an apply to a scale.

    Raises:
        ApiError: 400, it is none.
    """
    config, _ = parse_patch(body, content_type)
    if not isinstance(config, dict):
        raise bad_request("the applied configuration is no object")
    if (config.get("apiVersion"), config.get("kind")) != (API_VERSION, KIND):
        raise bad_request(f"invalid object type: {config.get('apiVersion', '')}, Kind={config.get('kind', '')}")
    return config


def unconvertible(config: Object) -> ApiError:
    """500, the answer of Kubernetes to an apply to the scale of a custom resource."""
    problem = f"request to convert CR to an invalid group/version: {API_VERSION}"
    return internal(f"failed to convert new object ({described(config)}) to proper version: {problem}")


def _at(obj: Object, path: str) -> Any:
    found: Any = obj
    for name in path.removeprefix(".").split("."):
        if not isinstance(found, dict):
            return found
        if name not in found:
            return 0
        found = found[name]
    return found
