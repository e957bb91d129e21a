"""`gpuledger config render` and `config diff`: what a pool would get, on which nodes, before anything does."""

from pathlib import Path
from typing import Annotated, Final

import typer

from gpuledger.cli.backend import open_backend
from gpuledger.cli.commands.config import Pool, app, bare
from gpuledger.cli.commands.config_status import status
from gpuledger.cli.commands.manifest_files import objects_in
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.options import DataDir
from gpuledger.cli.render import Console, message, quiet_pipe
from gpuledger.cli.render.config_diff_page import nodes_page, show_diff
from gpuledger.cli.render.page import AnswerOutput, Output, show_answer
from gpuledger.cli.render.values import json_text, yaml_text
from gpuledger.cli.run import run
from gpuledger.domain.machineconfig.rendered_document import rendered_document
from gpuledger.tools.machineconfig.holders import held_devices
from gpuledger.tools.machineconfig.manifests import Manifests, manifests_of
from gpuledger.tools.machineconfig.preview import Preview, preview, put_manifests
from gpuledger.tools.machineconfig.preview_document import Document, preview_document
from gpuledger.tools.machineconfig.reading import current_state

Files = Annotated[
    list[str] | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        help="A manifest, or a folder of them, of MachineConfigs and MachineConfigPools that take the place of those "
        "of the same name; - for stdin. May be given several times.",
        show_default=False,
    ),
]
DIFFERS: Final = 1
"""The exit code where something would change, as that of `kubectl diff`; errors have others."""

app.command()(status)


@app.command()
def render(pool: Pool, file: Files = None, output: Output = AnswerOutput.YAML, data_dir: DataDir = None) -> None:
    """Print the RenderedMachineConfig that a pool would get now, with the manifests of files."""
    found = run(_preview(bare(pool), read_manifests(file), data_dir))
    document = rendered_document(found.pool, found.after, found.definition)
    console = Console.standard()
    with quiet_pipe(console.out):
        is_json = output is AnswerOutput.JSON
        console.out.write(f"{json_text(document, indent=True)}\n" if is_json else yaml_text(document))
    for note in found.notes():
        message(note)


async def _preview(pool: str, manifests: Manifests, data_dir: Path | None) -> Preview:
    async with open_backend(data_dir, "config render", asks=True) as backend:
        state = await current_state(backend)
    put_manifests(state, manifests)
    return preview(state, pool)


@app.command()
def diff(pool: Pool, file: Files = None, output: Output = AnswerOutput.TABLE, data_dir: DataDir = None) -> None:
    """Show what would change on which nodes, and in which order, with the manifests of files.

    The exit code is 1 where something would change, 0 where nothing would, and 2 or more where it cannot be said.
    """
    try:
        document = run(_diff(bare(pool), read_manifests(file), data_dir))
    except CliError as error:
        if error.code == DIFFERS:
            error.code = (
                ExitCode.UNAVAILABLE
            )  # A script that goes by the code must not take a failure for a difference.
        raise
    if output is AnswerOutput.TABLE:
        show_diff(document)
    else:
        show_answer(document, output, nodes_page)
    if document["differs"]:
        raise typer.Exit(DIFFERS)


async def _diff(pool: str, manifests: Manifests, data_dir: Path | None) -> Document:
    async with open_backend(data_dir, "config diff", asks=True) as backend:
        state = await current_state(backend)
        put_manifests(state, manifests)
        found = preview(state, pool)
        return preview_document(found, await held_devices(backend, [one.node for one in found.turns]))


def read_manifests(files: list[str] | None) -> Manifests:
    """The manifests in files.

    Raises:
        CliError: one cannot be read.
        RequestError: one is refused.
    """
    return manifests_of(objects_in(files or []))
