"""Assigns a GPUDevice to a pool, or takes it back, by its assignment annotation, as people do with kubectl.

The annotation is a request; the `pools` service decides what comes of it.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from gpuledger.api.kinds import CLUSTER_GPU_POOLS, GPU_POOLS
from gpuledger.api.labels import ANNOTATION_ASSIGNMENT, ANNOTATION_CLUSTER_ASSIGNMENT, LABEL_IGNORE, LABEL_TRUE
from gpuledger.api.pool_ref import PoolRef
from gpuledger.edge.kube.client import KubeClient, Object, Selection
from gpuledger.tools.device_annotations import annotate, read_device
from gpuledger.tools.errors import ToolError
from gpuledger.tools.queries.pool_name import PoolName

KINDS: Final = {ANNOTATION_ASSIGNMENT: GPU_POOLS.kind, ANNOTATION_CLUSTER_ASSIGNMENT: CLUSTER_GPU_POOLS.kind}


class DeviceAssignment(NamedTuple):
    """A GPUDevice's assignment annotations, and the pool of its status, which may have attached it automatically."""

    annotations: Mapping[str, str]
    pool: PoolRef | None
    is_automatic: bool


async def assign(client: KubeClient, device: str, name: PoolName, *, overwrite: bool) -> tuple[PoolRef, bool]:
    """Assign a device to a pool; returns the pool, and False if the device was assigned to it already.

    Raises:
        ToolError: there is no such device or pool, or the device is assigned to another pool.
    """
    await read_device(client, device)
    pool = await _find_pool(client, name)

    def change(obj: Object) -> dict[str, str | None] | None:
        current = _assignment_of(obj)
        if dict(current.annotations) == pool.assignment:
            return None
        if (other := _other_pool(current, pool)) and not overwrite:
            first = f"Take it back (`gpuledger pool unassign {device}`), and assign it when it is Ready"
            hint = "Use --overwrite to have it moved" if current.is_automatic else first
            raise ToolError(f"GPUDevice {device!r} is assigned to {other}", hint)
        return {**dict.fromkeys(KINDS), **pool.assignment}

    return pool, await annotate(client, device, change)


async def unassign(client: KubeClient, device: str) -> bool:
    """Take a device back from the pool that it is assigned to; returns False if there is none.

    Raises:
        ToolError: there is no such device, or its pool attached it automatically.
    """

    def change(obj: Object) -> dict[str, str | None] | None:
        current = _assignment_of(obj)
        if current.is_automatic and current.pool is not None:
            hint = f"To keep it out of every pool, label it {LABEL_IGNORE}={LABEL_TRUE}"
            raise ToolError(
                f"{current.pool.id} attached GPUDevice {device!r} automatically, and would do so again", hint
            )
        return dict.fromkeys(current.annotations) if current.annotations else None

    return await annotate(client, device, change)


def _assignment_of(obj: Object) -> DeviceAssignment:
    metadata, status = obj["metadata"], obj.get("status") or {}
    annotations, pool = metadata.get("annotations") or {}, status.get("poolRef") or {}
    return DeviceAssignment(
        {key: annotations[key] for key in KINDS if key in annotations},
        PoolRef(pool["name"], pool.get("namespace") or "") if pool.get("name") else None,
        bool(status.get("autoAttach")),
    )


def _other_pool(current: DeviceAssignment, pool: PoolRef) -> str | None:
    """The pool that the device is assigned to, if it is another one."""
    for key, name in current.annotations.items():
        if pool.assignment != {key: name}:
            return f"{KINDS[key]} {name!r}"
    if current.pool in (None, pool) or not current.is_automatic:
        return None
    assert current.pool is not None
    return f"{current.pool.kind} {current.pool.id!r}"


async def _find_pool(client: KubeClient, name: PoolName) -> PoolRef:
    """The one pool that a name stands for."""
    found: list[Object] = []
    for resource in (GPU_POOLS, CLUSTER_GPU_POOLS):
        if name.namespace is None or resource.namespaced:
            selection = Selection(name.namespace, fields=f"metadata.name={name.name}")
            found += (await client.list(resource, selection)).items
    pools = sorted(PoolRef(name.name, one["metadata"].get("namespace") or "").id for one in found)
    if not pools:
        kinds = GPU_POOLS.kind if name.namespace else f"{GPU_POOLS.kind} or {CLUSTER_GPU_POOLS.kind}"
        raise ToolError(f"{kinds} {name.id!r} was not found", "List them with `gpuledger get pools`")
    if len(pools) > 1:
        raise ToolError(
            f"Several pools are called {name.name!r}: {', '.join(pools)}",
            "Devices are assigned by name alone, so give all but one another name",
        )
    return PoolRef.parse(pools[0])
