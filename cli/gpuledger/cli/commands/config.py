"""`gpuledger config`: machine configurations: what a pool has had, has and would get, and how far its nodes are.

Pausing, resuming and rolling back are requests to the pool's object, as kubectl makes them; all else reads the ledger.
"""

from pathlib import Path
from typing import Annotated

import typer

from gpuledger.cli.backend import open_backend
from gpuledger.cli.get.config_nouns import MACHINE_CONFIG_POOLS, RENDERED_CONFIGS, listed
from gpuledger.cli.options import Context, DataDir, Kubeconfig, NoHeaders, OutputFormat
from gpuledger.cli.render import Column, Output, View, message, render
from gpuledger.cli.run import run
from gpuledger.edge.kube.client import KubeClient
from gpuledger.tools.cluster import KubeAccess, open_kube
from gpuledger.tools.machineconfig import pool_changes
from gpuledger.tools.machineconfig.listing import history_rows
from gpuledger.tools.machineconfig.reading import current_tables
from gpuledger.tools.queries.found_rows import RowDict

app = typer.Typer(help="Show, preview, pause and roll back machine configurations of nodes.", no_args_is_help=True)

Pool = Annotated[
    str, typer.Argument(metavar="POOL", help="The MachineConfigPool, also as `-o name` prints it.", show_default=False)
]
To = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="NAME",
        help="The RenderedMachineConfig to go back to, or its revision.",
        show_default="the last that all nodes took, else the one before",
    ),
]

_HISTORY = View(
    RENDERED_CONFIGS.view.kind,
    (
        Column("name"),
        Column("role"),
        Column("rendered", "rendered_at"),
        Column("nodes", right=True),
        Column("desired", right=True),
        Column("files", right=True),
        Column("units", right=True),
        Column("reboot", "reboot_required"),
        Column("sources", format=listed, wraps=True),
        Column("on", "has", wide=True, format=listed, wraps=True),
        Column("hash", "config_hash", wide=True),
    ),
    "name",
)


@app.callback()
def config() -> None:
    """Show, preview, pause and roll back machine configurations of nodes."""


def bare(pool: str) -> str:
    """A pool's name as people give it: alone, or behind its kind."""
    kind, slash, name = pool.partition("/")
    words = (MACHINE_CONFIG_POOLS.view.kind, MACHINE_CONFIG_POOLS.view.kinds, *MACHINE_CONFIG_POOLS.aliases)
    return name if slash and kind.lower() in words else pool


@app.command()
def history(
    pool: Pool, output: OutputFormat = Output.TABLE, no_headers: NoHeaders = False, data_dir: DataDir = None
) -> None:
    """List the rendered configurations of a pool, the newest first: made of what, when, and which nodes have them."""
    rows = run(_history(bare(pool), data_dir))
    render(rows, _HISTORY, output, headers=not no_headers)


async def _history(pool: str, data_dir: Path | None) -> list[RowDict]:
    async with open_backend(data_dir, "config history", asks=True) as backend:
        tables = await current_tables(backend)
    tables.pool(pool)
    return list(history_rows(tables, pool))


@app.command()
def rollback(
    pool: Pool, to: To = None, kubeconfig: Kubeconfig = None, context: Context = None, data_dir: DataDir = None
) -> None:
    """Roll out an earlier rendered configuration, and stay with it until `config unpin`."""
    run(_rollback(KubeAccess(kubeconfig, context, data_dir), bare(pool), to))


async def _rollback(access: KubeAccess, pool: str, to: str | None) -> None:
    async with open_backend(access.data_dir, "config rollback", asks=True) as backend:
        tables = await current_tables(backend)
    revision = pool_changes.rollback_target(tables, pool, to.rpartition("/")[2] if to else None)
    async with open_kube(access, KubeClient) as client:
        is_new = await pool_changes.set_pinned(client, pool, revision.name)
    outcome = "is pinned" if is_new else "was pinned already"
    message(f"MachineConfigPool {pool} {outcome} to {revision.name}.")
    if tables.pool(pool).paused:
        message(f"The pool is paused: nothing begins before `gpuledger config resume {pool}`.")
    message(f"`gpuledger config status {pool} -w` follows it, `gpuledger config unpin {pool}` goes back to the newest.")


@app.command()
def unpin(pool: Pool, kubeconfig: Kubeconfig = None, context: Context = None, data_dir: DataDir = None) -> None:
    """End a rollback: the pool rolls out its newest rendered configuration again."""
    run(_unpin(KubeAccess(kubeconfig, context, data_dir), bare(pool)))


async def _unpin(access: KubeAccess, pool: str) -> None:
    async with open_kube(access, KubeClient) as client:
        is_new = await pool_changes.set_pinned(client, pool, None)
    outcome = "is no longer pinned, and goes to the newest" if is_new else "was not pinned to any"
    message(f"MachineConfigPool {pool} {outcome} rendered configuration.")


@app.command()
def pause(pool: Pool, kubeconfig: Kubeconfig = None, context: Context = None, data_dir: DataDir = None) -> None:
    """Begin no further node: those that drain are given back, those that apply finish."""
    run(_set_paused(KubeAccess(kubeconfig, context, data_dir), bare(pool), paused=True))


@app.command()
def resume(pool: Pool, kubeconfig: Kubeconfig = None, context: Context = None, data_dir: DataDir = None) -> None:
    """Go on with a pool that is paused."""
    run(_set_paused(KubeAccess(kubeconfig, context, data_dir), bare(pool), paused=False))


async def _set_paused(access: KubeAccess, pool: str, *, paused: bool) -> None:
    async with open_kube(access, KubeClient) as client:
        is_new = await pool_changes.set_paused(client, pool, paused=paused)
    state = "paused" if paused else "not paused"
    outcome = f"is {state} {'from now on' if paused else 'any more'}" if is_new else f"was {state} already"
    message(f"MachineConfigPool {pool} {outcome}. `gpuledger config status {pool}` shows its nodes.")
