"""`gpuledger device`: retires a GPUDevice whose card is gone for good."""

from typing import Annotated

import typer

from gpuledger.cli.get.nouns import KUBE_NOUNS
from gpuledger.cli.options import Context, DataDir, Kubeconfig
from gpuledger.cli.render import message
from gpuledger.cli.run import run
from gpuledger.edge.kube.client import KubeClient
from gpuledger.tools import retirement
from gpuledger.tools.cluster import KubeAccess, open_kube

app = typer.Typer(help="Retire GPUDevices whose cards are gone for good.", no_args_is_help=True)

Device = Annotated[
    str, typer.Argument(metavar="DEVICE", help="The GPUDevice, also as `-o name` prints it.", show_default=False)
]


@app.callback()
def device() -> None:
    """Retire GPUDevices whose cards are gone for good."""


@app.command()
def retire(device: Device, kubeconfig: Kubeconfig = None, context: Context = None, data_dir: DataDir = None) -> None:
    """Withdraw a GPUDevice whose card is missing; the ledger keeps the card's history."""
    run(_retire(KubeAccess(kubeconfig, context, data_dir), KUBE_NOUNS["gpudevices"].bare(device)))


async def _retire(access: KubeAccess, device: str) -> None:
    async with open_kube(access, KubeClient) as client:
        is_new = await retirement.retire(client, device)
    outcome = "is retired" if is_new else "was retired already"
    message(f"GPUDevice {device} {outcome}, and is withdrawn. `gpuledger timeline device {device}` keeps its history.")
