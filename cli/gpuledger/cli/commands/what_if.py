"""`gpuledger what-if`: what would be if something were otherwise. Nothing is recorded, written or changed by asking."""

from typing import TYPE_CHECKING, Annotated

import typer

from gpuledger.cli.backend import open_backend
from gpuledger.cli.commands.what_if_state import worlds
from gpuledger.cli.options import DataDir
from gpuledger.cli.render.answers import AnswerOutput, Output, show_answer
from gpuledger.cli.render.what_if_page import what_if_page
from gpuledger.cli.run import run
from gpuledger.cli.times import parse_as_recorded
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.runtime.clock import system_clock
from gpuledger.tools.explain.pools import uses_of
from gpuledger.tools.queries.moments import sequence_of
from gpuledger.tools.whatif.differences import pool_differences
from gpuledger.tools.whatif.document import Document, Used, notes, worlds_document

if TYPE_CHECKING:
    from gpuledger.cli.commands.what_if_manifest import Manifest

NOW = "now"

app = typer.Typer(no_args_is_help=True)

File = Annotated[
    str, typer.Option("--file", "-f", metavar="FILE", help="The pool's manifest; - for stdin.", show_default=False)
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="POSITION|TIME",
        help="Had it been so since the log had come this far: a position (0 is its beginning) or a time of recording.",
        show_default=NOW,
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option("--namespace", "-n", help="That of a GPUPool whose manifest names none.", show_default=False),
]


@app.callback()
def what_if() -> None:
    """Show what would be if something were otherwise, without touching anything."""


@app.command()
def pool(
    file: File,
    since: Since = None,
    namespace: Namespace = None,
    output: Output = AnswerOutput.TABLE,
    data_dir: DataDir = None,
) -> None:
    """Show which devices and capacities would differ if a GPUPool or ClusterGPUPool were defined as a file says.

    What the ledger has is decided upon anew, under that definition. Agents are assumed to do what they are asked.
    """
    from gpuledger.cli.commands.what_if_manifest import read_manifest  # noqa: PLC0415 - an API server's rules take time to import

    show_answer(run(_pool(read_manifest(file, namespace), since, data_dir)), output, what_if_page)


async def _pool(manifest: "Manifest", since: str | None, data_dir: DataDir) -> Document:
    from gpuledger.tools.whatif.refusals import remarks  # noqa: PLC0415 - likewise

    supposition = manifest.supposition
    when = None if since is None else parse_as_recorded(since, system_clock())
    async with open_backend(data_dir, "what-if") as backend:
        begun = None if when is None else await sequence_of(backend, when)
        found, generation = await worlds(backend, supposition, begun), backend.ledger.generation
    recorded, pool = found.recorded, supposition.pool
    differing = {one.pool for one in pool_differences(recorded, found.supposed)}
    used = _used(recorded, {*differing, pool})
    refused = remarks(manifest.resource, manifest.object, pool, supposition.said, recorded)
    return {
        "pool": pool,
        "kind": manifest.resource.kind,
        "file": manifest.file,
        "since": NOW if begun is None else f"{generation}/{begun}",
        "notes": [*refused, *notes(recorded, found.supposed, found.answered, pool, used)],
        **worlds_document(recorded, found.supposed, pool, used),
    }


def _used(recorded: PoolFacts, pools: set[str]) -> Used:
    """By pool how many of its units pods on nodes have asked for."""
    pods = recorded.pod.rows
    return {pool: sum(one.units for one in uses_of(pods, pool) if one.node is not None) for pool in pools}
