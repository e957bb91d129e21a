"""Annotates GPUDevices with what people request, as they would with kubectl; the services decide what comes of it."""

from collections.abc import Callable

from gpuledger.api.kinds import GPU_DEVICES
from gpuledger.edge.kube.client import KubeClient, Object
from gpuledger.tools.object_patches import patch_object, read_object

Change = Callable[[Object], dict[str, str | None] | None]
"""The annotations to write (None: to remove), by the current GPUDevice; None where nothing has to change."""


async def annotate(client: KubeClient, device: str, change: Change) -> bool:
    """Change annotations of a device; returns False if nothing has to change.

    Raises:
        ToolError: there is no such device, or the change is not possible.
    """

    def patch(current: Object) -> Object | None:
        annotations = change(current)
        return None if annotations is None else {"metadata": {"annotations": annotations}}

    return await patch_object(client, GPU_DEVICES, device, patch)


async def read_device(client: KubeClient, device: str) -> Object:
    """The GPUDevice of a name.

    Raises:
        ToolError: there is none.
    """
    return await read_object(client, GPU_DEVICES, device)
