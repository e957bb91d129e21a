"""`gpuledger log export`: the whole log as one file that proves that it is whole."""

import sys
from pathlib import Path
from typing import IO, Annotated

import typer

from gpuledger.cli.backend import open_backend
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.log.archive import PART, ArchiveWriter, Header, opened
from gpuledger.cli.options import DataDir
from gpuledger.cli.render import message, progress, quiet_pipe
from gpuledger.cli.run import run
from gpuledger.cli.times import format_time
from gpuledger.ledger.api import Ledger
from gpuledger.runtime.clock import system_clock

STDOUT = "-"

Target = Annotated[str, typer.Argument(metavar="FILE", help="Where to; gzipped if it ends in .gz, `-` is stdout.")]


def export(target: Target, data_dir: DataDir = None) -> None:
    """Write all events to a file, for a back-up or to restore them elsewhere."""
    if target != STDOUT and Path(target).exists():
        raise CliError(f"{target} exists", "Choose another name, or remove it first", ExitCode.USAGE)
    count = run(_export(data_dir, target))
    message(f"Exported {count:,} events{'' if target == STDOUT else f' to {target}'}.")


async def _export(data_dir: Path | None, target: str) -> int:
    async with open_backend(data_dir, "log export") as backend:
        if target == STDOUT:
            with quiet_pipe(sys.stdout):
                return await _write(backend.ledger, sys.stdout.buffer)
        return await _write_file(backend.ledger, Path(target))


async def _write_file(ledger: Ledger, path: Path) -> int:
    """Under another name until it is whole, so that no file of that name is ever a part."""
    part = path.with_name(f"{path.name}{PART}")
    try:
        with opened(part, "wb") as file:
            count = await _write(ledger, file)
        part.rename(path)
    finally:
        part.unlink(missing_ok=True)
    return count


async def _write(ledger: Ledger, file: IO[bytes]) -> int:
    head = await ledger.head()
    archive = ArchiveWriter(file, Header(ledger.generation, head), format_time(system_clock()))
    with progress("Exporting", total=head, unit="events") as advance:
        async for batch in ledger.history(until=head):
            for one in batch:
                archive.add(one)
            advance(len(batch))
    archive.finish()
    return head
