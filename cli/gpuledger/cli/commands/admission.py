"""`gpuledger admission`: for the Helm chart, whose job takes the webhooks away with the release."""

import typer

from gpuledger.cli.commands.crds import Kubeconfig
from gpuledger.cli.render import message
from gpuledger.cli.run import run
from gpuledger.edge.admission.removal import remove as remove_webhooks
from gpuledger.edge.kube.client import open_client

app = typer.Typer(help="Take the admission webhooks out of a cluster.", no_args_is_help=True)


@app.callback()
def admission() -> None:
    """Take the admission webhooks out of a cluster."""


@app.command("remove")
def remove(kubeconfig: Kubeconfig = None) -> None:
    """Delete the two webhook configurations. A `gpuledger up` that still runs in the cluster applies them again."""

    async def removed() -> list[str]:
        async with open_client(kubeconfig) as client:
            return await remove_webhooks(client)

    kinds = run(removed())
    message(f"Removed: {', '.join(kinds)}." if kinds else "There was nothing to remove.")
