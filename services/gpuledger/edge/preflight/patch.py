"""The JSON patch (RFC 6902) that makes of a pod what it is to be, in as few words as it takes. Pure.

Only four places of a pod ever change: its init containers, volumes, labels and annotations. What of them stays is not
in the patch, so other people's entries cannot get lost in it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuledger.edge.kube.objects import items, mapping
from gpuledger.edge.webhooks.serving.review import Object

Operation = dict[str, Any]


def pod_patch(before: Object, after: Object) -> tuple[Operation, ...]:
    """The operations, in order; none where nothing changes."""
    return (
        *_added_metadata(before, after),
        *_entries(mapping(before, "metadata"), mapping(after, "metadata"), "labels"),
        *_entries(mapping(before, "metadata"), mapping(after, "metadata"), "annotations"),
        *_listed(mapping(before, "spec"), items(after, "spec", "initContainers"), "initContainers"),
        *_listed(mapping(before, "spec"), items(after, "spec", "volumes"), "volumes"),
    )


def _added_metadata(before: Object, after: Object) -> Iterator[Operation]:
    if not isinstance(before.get("metadata"), Mapping) and mapping(after, "metadata"):
        yield {"op": "add", "path": "/metadata", "value": {}}


def _entries(before: Object, after: Object, name: str) -> Iterator[Operation]:
    """Turn one map of texts into another."""
    old, new = mapping(before, name), mapping(after, name)
    if new == old:
        return
    if not isinstance(before.get(name), Mapping):
        yield {"op": "add", "path": f"/metadata/{name}", "value": dict(new)}
        return
    for key in sorted(old.keys() - new.keys()):
        yield {"op": "remove", "path": f"/metadata/{name}/{_escaped(key)}"}
    for key in new:
        if old.get(key) != new[key]:
            yield {"op": "add", "path": f"/metadata/{name}/{_escaped(key)}", "value": new[key]}


def _listed(before: Object, after: Sequence[Any], name: str) -> Iterator[Operation]:
    """Turn one list into another that keeps the order of what stays."""
    old = before.get(name)
    if not isinstance(old, list):
        if after:
            yield {"op": "add", "path": f"/spec/{name}", "value": list(after)}
        return
    now = list(old)
    for index in reversed(range(len(now))):
        if now[index] not in after:
            yield {"op": "remove", "path": f"/spec/{name}/{index}"}
            del now[index]
    for index, value in enumerate(after):
        if index < len(now) and now[index] == value:
            continue
        yield {"op": "add", "path": f"/spec/{name}/{index}", "value": value}
        now.insert(index, value)
    for index in reversed(range(len(after), len(now))):
        yield {"op": "remove", "path": f"/spec/{name}/{index}"}


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
