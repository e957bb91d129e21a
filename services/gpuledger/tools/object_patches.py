"""Patches objects of Kubernetes as a person requests it by command; the services decide what comes of it.

Each change is computed from the object as it is and written only where nobody has changed the object meanwhile.
"""

from collections.abc import Callable
from typing import Final

from gpuledger.api.kinds import Resource
from gpuledger.edge.kube.client import MERGE_PATCH, KubeClient, KubeRequest, Object
from gpuledger.edge.kube.errors import ConflictError
from gpuledger.tools.cluster import object_or_none
from gpuledger.tools.errors import ToolError

CLI_FIELD_MANAGER: Final = "gpuledger-cli"
"""Owns the fields that a person writes by command; those that the product writes have other owners."""

TRIES_MAX: Final = 5
"""How often a change is computed and written again because somebody else changed the object meanwhile."""

Change = Callable[[Object], Object | None]
"""The merge patch by the current object; None where nothing has to change."""


async def patch_object(client: KubeClient, resource: Resource, name: str, change: Change) -> bool:
    """Change an object of a cluster-scoped kind; returns False if nothing has to change.

    Raises:
        ToolError: there is no such object, or the change is not possible.
    """
    for _ in range(TRIES_MAX - 1):
        try:
            return await _patch_once(client, resource, name, change)
        except ConflictError:
            continue
    return await _patch_once(client, resource, name, change)


async def read_object(client: KubeClient, resource: Resource, name: str) -> Object:
    """The object of a name.

    Raises:
        ToolError: there is none.
    """
    obj = await object_or_none(client, resource, name)
    if obj is None:
        raise ToolError(f"{resource.kind} {name!r} was not found", f"List them with `gpuledger get {resource.plural}`")
    return obj


async def _patch_once(client: KubeClient, resource: Resource, name: str, change: Change) -> bool:
    current = await read_object(client, resource, name)
    patch = change(current)
    if patch is None:
        return False
    metadata = {**patch.get("metadata", {}), "resourceVersion": str(current["metadata"]["resourceVersion"])}
    what, path = f'patch {resource.full_name} "{name}"', f"{resource.path()}/{name}"
    body = {**patch, "metadata": metadata}
    await client.send(KubeRequest(what, "PATCH", path, {"fieldManager": CLI_FIELD_MANAGER}, body, MERGE_PATCH))
    return True
