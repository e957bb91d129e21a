"""Objects of dynamic resource allocation as an API server shows them, and the payloads that a watcher records."""

from typing import Any

from gpuledger.edge.watchers.decide import AnyKind
from gpuledger.events.reach import NodeRequirement

Json = dict[str, Any]


def published(devices: object = (), **spec: Any) -> Json:
    """A ResourceSlice of the pool `p`; `spec` adds or replaces fields."""
    pool = {"name": "p", "generation": 2, "resourceSliceCount": 1}
    whole = {"driver": "gpu.example.com", "pool": pool, "devices": devices} | spec
    return {"metadata": {"name": "s", "uid": "u", "generation": 3}, "spec": whole}


def payload_of(kind: AnyKind, obj: Json) -> Any:
    """The payload of an object; None where it cannot be recorded."""
    part = kind.read(obj)
    return None if part.subject is None else kind.combine([part.content])


def terms(*requirements: Json, where: str = "matchExpressions") -> Json:
    """A node selector of one term."""
    return {"nodeSelectorTerms": [{where: list(requirements)}]}


NAMED = {"key": "metadata.name", "operator": "In", "values": ["w1"]}
IS_NAMED = NodeRequirement(key="metadata.name", operator="In", values=("w1",), is_field=True)
