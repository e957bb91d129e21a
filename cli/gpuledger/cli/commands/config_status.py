"""`gpuledger config status`: how far a pool's rollout is, once or as it goes on."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from gpuledger.cli.backend import open_backend
from gpuledger.cli.commands.config import Pool, bare
from gpuledger.cli.errors import CliError, ExitCode, visible
from gpuledger.cli.get.ledger import PAUSE_S, may_change
from gpuledger.cli.options import DataDir
from gpuledger.cli.render import Console, quiet_pipe
from gpuledger.cli.render.config_status_page import config_status_page, counts_text
from gpuledger.cli.render.page import AnswerOutput, Output, show_answer
from gpuledger.cli.run import run
from gpuledger.tools.machineconfig.progress import RolloutProgress, changes, progress_document, progress_of
from gpuledger.tools.machineconfig.reading import PROJECTION, current_tables
from gpuledger.tools.queries.backend import Backend, named_projections

Watch = Annotated[
    bool, typer.Option("--watch", "-w", help="Follow it, a line for each change, until all nodes are up to date.")
]


def status(pool: Pool, watch: Watch = False, output: Output = AnswerOutput.TABLE, data_dir: DataDir = None) -> None:
    """Show how far a pool's rollout is: a bar, the nodes in flight, those that failed, and why it does not go on."""
    if watch and output is not AnswerOutput.TABLE:
        raise CliError("--watch shows lines, and no document", "Leave out -o", ExitCode.USAGE)
    if watch:
        run(_follow(bare(pool), data_dir))
    else:
        show_answer(run(_status(bare(pool), data_dir)), output, config_status_page)


async def _status(pool: str, data_dir: Path | None) -> dict[str, object]:
    async with open_backend(data_dir, "config status", asks=True) as backend:
        return progress_document(await _look(backend, pool))


async def _look(backend: Backend, pool: str) -> RolloutProgress:
    return progress_of(await current_tables(backend), pool)


async def _follow(pool: str, data_dir: Path | None) -> None:
    """Show the page, then what changes, until the rollout is done."""
    (projection,) = named_projections([PROJECTION])
    async with (
        open_backend(data_dir, "config status --watch", asks=True) as backend,
        backend.ledger.read(after=await backend.ledger.head()) as reader,
    ):
        look = await _look(backend, pool)
        config_status_page(progress_document(look)).show()
        while not look.is_done:
            while not may_change(projection, await reader.next_batch()):
                pass
            await asyncio.sleep(PAUSE_S)
            before, look = look, await _look(backend, pool)
            _show([*changes(before, look), *_progressed(before, look)])


def _progressed(before: RolloutProgress, after: RolloutProgress) -> list[str]:
    """The bar, where it is another one now."""
    texts = [counts_text(progress_document(one)) for one in (before, after)]
    return texts[1:] if texts[0] != texts[1] else []


def _show(lines: list[str]) -> None:
    console = Console.standard()
    with quiet_pipe(console.out):
        console.out.writelines(f"{visible(line)}\n" for line in lines)
