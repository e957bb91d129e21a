"""`gpuledger pool`: assigns a GPUDevice to a pool, or takes it back."""

from typing import Annotated

import typer

from gpuledger.cli.get.nouns import KUBE_NOUNS, pool_name
from gpuledger.cli.options import Context, DataDir, Kubeconfig
from gpuledger.cli.render import message
from gpuledger.cli.run import run
from gpuledger.edge.kube.client import KubeClient
from gpuledger.tools import assignments
from gpuledger.tools.cluster import KubeAccess, open_kube
from gpuledger.tools.queries.pool_name import PoolName

app = typer.Typer(help="Assign GPUDevices to pools, and take them back.", no_args_is_help=True)

Device = Annotated[
    str, typer.Argument(metavar="DEVICE", help="The GPUDevice, also as `-o name` prints it.", show_default=False)
]
PoolArgument = Annotated[
    str, typer.Argument(metavar="POOL", help="A pool's name, or NAMESPACE/NAME of a GPUPool.", show_default=False)
]
Namespace = Annotated[
    str | None,
    typer.Option("--namespace", "-n", help="The namespace of a GPUPool.", show_default="any that has the name"),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Move a device that is assigned to another pool.")]


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
    """Assign a GPUDevice to a GPUPool or ClusterGPUPool."""
    name = pool_name("pools", pool, namespace)
    assert name is not None, "`pools` is a kind of pool"
    run(_assign(KubeAccess(kubeconfig, context, data_dir), _bare(device), name, overwrite=overwrite))


@app.command()
def unassign(device: Device, kubeconfig: Kubeconfig = None, context: Context = None, data_dir: DataDir = None) -> None:
    """Take a GPUDevice back from the pool that it is assigned to."""
    run(_unassign(KubeAccess(kubeconfig, context, data_dir), _bare(device)))


def _bare(device: str) -> str:
    return KUBE_NOUNS["gpudevices"].bare(device)


async def _assign(access: KubeAccess, device: str, name: PoolName, *, overwrite: bool) -> None:
    async with open_kube(access, KubeClient) as client:
        pool, is_new = await assignments.assign(client, device, name, overwrite=overwrite)
    outcome = f"is assigned to {pool}" if is_new else f"was assigned to {pool} already"
    message(f"GPUDevice {device} {outcome}. `gpuledger describe device {device}` shows what comes of it.")


async def _unassign(access: KubeAccess, device: str) -> None:
    async with open_kube(access, KubeClient) as client:
        is_new = await assignments.unassign(client, device)
    message(f"GPUDevice {device} {'is no longer assigned to a pool' if is_new else 'was assigned to no pool'}.")
