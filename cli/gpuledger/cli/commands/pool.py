"""`gpuledger pool`: give a GPUDevice to a pool, or take it back, as people do it: by its assignment annotation.

The annotation is a wish. What comes of it the `pools` service decides, and `gpuledger describe device` tells.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Final, NamedTuple

import typer

from gpuledger.api.kinds import CLUSTER_GPU_POOLS, GPU_DEVICES, GPU_POOLS
from gpuledger.api.labels import (
    ANNOTATION_ASSIGNMENT,
    ANNOTATION_CLUSTER_ASSIGNMENT,
    LABEL_IGNORE,
    LABEL_TRUE,
)
from gpuledger.api.pool_ref import PoolRef
from gpuledger.cli.errors import CliError
from gpuledger.cli.get.nouns import KUBE_NOUNS, pool_name
from gpuledger.cli.options import Context, DataDir, Kubeconfig
from gpuledger.cli.render import message
from gpuledger.cli.run import run
from gpuledger.edge.kube.client import MERGE_PATCH, KubeClient, KubeRequest, Object, Selection
from gpuledger.edge.kube.errors import ConflictError, NotFoundError
from gpuledger.tools.cluster import KubeAccess, open_kube
from gpuledger.tools.queries.pools import PoolName

CLI_FIELD_MANAGER: Final = "gpuledger-cli"
"""Owns what a person writes by this command; what the product itself keeps has other owners."""

TRIES_MAX: Final = 5
"""How often the annotation is written anew because somebody else changed the device meanwhile."""

ASSIGNMENTS: Final = (ANNOTATION_ASSIGNMENT, ANNOTATION_CLUSTER_ASSIGNMENT)
KINDS: Final = {ANNOTATION_ASSIGNMENT: GPU_POOLS.kind, ANNOTATION_CLUSTER_ASSIGNMENT: CLUSTER_GPU_POOLS.kind}

app = typer.Typer(help="Give GPUDevices to pools, and take them back.", no_args_is_help=True)

Device = Annotated[
    str, typer.Argument(metavar="DEVICE", help="The GPUDevice; as `-o name` writes it, too.", show_default=False)
]
PoolArgument = Annotated[
    str, typer.Argument(metavar="POOL", help="A pool's name, or NAMESPACE/NAME of a GPUPool.", show_default=False)
]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="That of the GPUPool.", show_default="any that has the name")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Also where the device is given to another pool.")]


class Given(NamedTuple):
    """A GPUDevice's assignment annotations, and the pool of its status, which may have taken it by itself."""

    annotations: Mapping[str, str]
    pool: str | None
    is_automatic: bool
    version: str


Change = Callable[[Given], dict[str, str | None] | None]
"""The annotations to write, by what the device has; None where it is as it should be."""


@app.command()
def assign(
    device: Device,
    pool: PoolArgument,
    namespace: Namespace = None,
    overwrite: Overwrite = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    data_dir: DataDir = None,
) -> None:
    """Give a GPUDevice to a GPUPool or ClusterGPUPool."""
    wanted = pool_name("pools", pool, namespace)
    assert wanted is not None, "`pools` is a kind of pool"
    name = KUBE_NOUNS["gpudevices"].bare(device)
    run(_assign(KubeAccess(kubeconfig, context, data_dir), name, wanted, overwrite=overwrite))


@app.command()
def unassign(device: Device, kubeconfig: Kubeconfig = None, context: Context = None, data_dir: DataDir = None) -> None:
    """Take a GPUDevice back from the pool that it was given to."""
    run(_unassign(KubeAccess(kubeconfig, context, data_dir), KUBE_NOUNS["gpudevices"].bare(device)))


async def _assign(access: KubeAccess, device: str, wanted: PoolName, *, overwrite: bool) -> None:
    async with open_kube(access, KubeClient) as client:
        await _given(client, device)
        pool = await _pool(client, wanted)
        annotation = PoolRef.parse(pool).assignment

        def change(given: Given) -> dict[str, str | None] | None:
            if dict(given.annotations) == annotation:
                return None
            if (elsewhere := _elsewhere(given, pool)) and not overwrite:
                first = f"Take it back (`gpuledger pool unassign {device}`), and assign it when it is Ready"
                hint = "Use --overwrite to have it moved" if given.is_automatic else first
                raise CliError(f"GPUDevice {device!r} is given to {elsewhere}", hint)
            return {**dict.fromkeys(ASSIGNMENTS), **annotation}

        is_new = await write(client, device, change)
    told = f"is given to {PoolRef.parse(pool)}" if is_new else f"was given to {PoolRef.parse(pool)} already"
    message(f"GPUDevice {device} {told}. What comes of it: `gpuledger describe device {device}`.")


async def _unassign(access: KubeAccess, device: str) -> None:
    def change(given: Given) -> dict[str, str | None] | None:
        if given.is_automatic:
            hint = f"To keep it out of every pool, label it {LABEL_IGNORE}={LABEL_TRUE}"
            raise CliError(f"{given.pool} took GPUDevice {device!r} by itself, and would take it again", hint)
        return dict.fromkeys(given.annotations) if given.annotations else None

    async with open_kube(access, KubeClient) as client:
        is_new = await write(client, device, change)
    message(f"GPUDevice {device} {'is not given to a pool any more' if is_new else 'was given to no pool'}.")


async def write(client: KubeClient, device: str, change: Change) -> bool:
    """Change the device's annotations as they are now; False where nothing is to be changed."""
    for _ in range(TRIES_MAX - 1):
        try:
            return await _write_once(client, device, change)
        except ConflictError:
            continue
    return await _write_once(client, device, change)


async def _write_once(client: KubeClient, device: str, change: Change) -> bool:
    given = await _given(client, device)
    annotations = change(given)
    if annotations is None:
        return False
    patch = {"metadata": {"annotations": annotations, "resourceVersion": given.version}}
    what, path = f'patch {GPU_DEVICES.full_name} "{device}"', f"{GPU_DEVICES.path()}/{device}"
    await client.send(KubeRequest(what, "PATCH", path, {"fieldManager": CLI_FIELD_MANAGER}, patch, MERGE_PATCH))
    return True


async def _given(client: KubeClient, device: str) -> Given:
    try:
        return _read(await client.get(GPU_DEVICES, device))
    except NotFoundError as error:
        hint = f"List them with `gpuledger get {GPU_DEVICES.plural}`"
        raise CliError(f"GPUDevice {device!r} was not found", hint) from error


def _read(obj: Object) -> Given:
    metadata, status = obj["metadata"], obj.get("status") or {}
    annotations = metadata.get("annotations") or {}
    pool = status.get("poolRef") or {}
    return Given(
        {key: annotations[key] for key in ASSIGNMENTS if key in annotations},
        "/".join(filter(None, (pool.get("namespace"), pool.get("name")))) or None,
        bool(status.get("autoAttach")),
        str(metadata["resourceVersion"]),
    )


def _elsewhere(given: Given, pool: str) -> str | None:
    """The pool that has the device, other than this one; None where there is none."""
    for key, name in given.annotations.items():
        if PoolRef.parse(pool).assignment != {key: name}:
            return f"{KINDS[key]} {name!r}"
    if given.pool is None or given.pool == pool or not given.is_automatic:
        return None
    return f"{PoolRef.parse(given.pool).kind} {given.pool!r}"


async def _pool(client: KubeClient, wanted: PoolName) -> str:
    """The id of the one pool that is meant."""
    by_name = f"metadata.name={wanted.name}"
    found = []
    for resource in (GPU_POOLS, CLUSTER_GPU_POOLS):
        if wanted.namespace is None or resource.namespaced:
            found += (await client.list(resource, Selection(wanted.namespace, fields=by_name))).items
    pools = sorted("/".join(filter(None, (one["metadata"].get("namespace"), wanted.name))) for one in found)
    if not pools:
        kinds = GPU_POOLS.kind if wanted.namespace else f"{GPU_POOLS.kind} or {CLUSTER_GPU_POOLS.kind}"
        raise CliError(f"{kinds} {wanted.id!r} was not found", "List them with `gpuledger get pools`")
    if len(pools) > 1:
        raise CliError(
            f"Several pools are called {wanted.name!r}: {', '.join(pools)}",
            "Devices are given by name alone, so give all but one another name",
        )
    return pools[0]
