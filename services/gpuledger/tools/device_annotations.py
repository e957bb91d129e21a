"""Annotates GPUDevices with what people request, as they would with kubectl; the services decide what comes of it."""

from collections.abc import Callable
from typing import Final

from gpuledger.api.kinds import GPU_DEVICES
from gpuledger.edge.kube.client import MERGE_PATCH, KubeClient, KubeRequest, Object
from gpuledger.edge.kube.errors import ConflictError
from gpuledger.tools.cluster import object_or_none
from gpuledger.tools.errors import ToolError

CLI_FIELD_MANAGER: Final = "gpuledger-cli"
"""Owns the annotations that a person writes by command; the fields that the product writes have other owners."""

TRIES_MAX: Final = 5
"""How often the annotations are written again because somebody else changed the device meanwhile."""

Change = Callable[[Object], dict[str, str | None] | None]
"""The annotations to write (None: to remove), by the current GPUDevice; None where nothing has to change."""


async def annotate(client: KubeClient, device: str, change: Change) -> bool:
    """Change annotations of a device; returns False if nothing has to change.

    Raises:
        ToolError: there is no such device, or the change is not possible.
    """
    for _ in range(TRIES_MAX - 1):
        try:
            return await _annotate_once(client, device, change)
        except ConflictError:
            continue
    return await _annotate_once(client, device, change)


async def read_device(client: KubeClient, device: str) -> Object:
    """The GPUDevice of a name.

    Raises:
        ToolError: there is none.
    """
    obj = await object_or_none(client, GPU_DEVICES, device)
    if obj is None:
        raise ToolError(f"GPUDevice {device!r} was not found", f"List them with `gpuledger get {GPU_DEVICES.plural}`")
    return obj


async def _annotate_once(client: KubeClient, device: str, change: Change) -> bool:
    current = await read_device(client, device)
    annotations = change(current)
    if annotations is None:
        return False
    version = str(current["metadata"]["resourceVersion"])
    patch = {"metadata": {"annotations": annotations, "resourceVersion": version}}
    what, path = f'patch {GPU_DEVICES.full_name} "{device}"', f"{GPU_DEVICES.path()}/{device}"
    await client.send(KubeRequest(what, "PATCH", path, {"fieldManager": CLI_FIELD_MANAGER}, patch, MERGE_PATCH))
    return True
