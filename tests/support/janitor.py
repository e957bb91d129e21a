"""The kinds of NVSentinel's janitor as far as remedies meet them, and what their objects show on the way to an outcome.

The fields, their patterns and defaults are those of the CRDs of August 2026, and the statuses those that its
controllers write.
"""

from typing import Any, Final

from gpuledger.api.kinds import Resource
from gpuledger.edge.kube.client import Object

GROUP: Final = "janitor.dgxc.nvidia.com"
GPU_RESETS: Final = Resource(GROUP, "v1alpha1", "gpuresets", "GPUReset")
REBOOT_NODES: Final = Resource(GROUP, "v1alpha1", "rebootnodes", "RebootNode")
TERMINATE_NODES: Final = Resource(GROUP, "v1alpha1", "terminatenodes", "TerminateNode")

_HEX: Final = "[0-9a-fA-F]"
_UUID: Final = f"^GPU-{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}$"
_UUIDS: Final = {"type": "array", "items": {"type": "string", "pattern": _UUID}}
_RESET: Final = {
    "type": "object",
    "required": ["nodeName"],
    "properties": {
        "nodeName": {"type": "string", "minLength": 1},
        "selector": {"type": "object", "properties": {"uuids": _UUIDS}},
    },
}
_OF_NODE: Final = {
    "type": "object",
    "required": ["force", "nodeName"],
    "properties": {"force": {"type": "boolean", "default": False}, "nodeName": {"type": "string"}},
}
_CONDITION: Final = {
    "type": "object",
    "required": ["lastTransitionTime", "message", "reason", "status", "type"],
    "properties": {
        "lastTransitionTime": {"type": "string", "format": "date-time"},
        "message": {"type": "string"},
        "reason": {"type": "string", "minLength": 1},
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "type": {"type": "string"},
    },
}
_CONDITIONS: Final = {"type": "array", "items": _CONDITION}

KINDS: Final[tuple[tuple[Resource, dict[str, Any], dict[str, Any]], ...]] = (
    (GPU_RESETS, _RESET, {"conditions": _CONDITIONS, "phase": {"type": "string"}}),
    (REBOOT_NODES, _OF_NODE, {"conditions": _CONDITIONS}),
    (TERMINATE_NODES, _OF_NODE, {"conditions": _CONDITIONS}),
)
"""Each kind with the schema of its spec, and the properties of its status."""


def janitor_crds() -> list[Object]:
    """The CRDs of the kinds."""
    return [_crd(resource, spec, {"type": "object", "properties": status}) for resource, spec, status in KINDS]


def condition(kind: str, status: str, reason: str) -> dict[str, str]:
    """A condition as a controller of the janitor writes it."""
    time = "2026-08-21T10:00:00Z"
    return {"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": time}


def _crd(resource: Resource, spec: dict[str, Any], status: dict[str, Any]) -> Object:
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    version = {
        "name": resource.version, "served": True, "storage": True, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }  # fmt: skip
    singular = resource.kind.lower()
    names = {"plural": resource.plural, "singular": singular, "kind": resource.kind, "listKind": f"{resource.kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.full_name},
        "spec": {"group": resource.group, "scope": "Cluster", "names": names, "versions": [version]},
    }
