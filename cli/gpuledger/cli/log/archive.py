"""`gpuledger log export` and `log import`: the whole log as one file that proves that it is complete, and back."""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from gpuledger.cli.backend import open_backend, open_servers
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.log.skip import Yes, confirm
from gpuledger.cli.options import DataDir
from gpuledger.cli.render import TerminalReporter, message, quiet_pipe
from gpuledger.cli.run import run
from gpuledger.cli.times import format_time
from gpuledger.runtime.clock import system_clock
from gpuledger.tools.log_archive import PART, Header, opened, read_header, write_log
from gpuledger.tools.log_restore import Restored, restore_log
from gpuledger.tools.queries.backend import Backend

STDOUT = "-"

Target = Annotated[
    str, typer.Argument(metavar="FILE", help="The file to write; gzipped if it ends in .gz, `-` is stdout.")
]
Archive = Annotated[Path, typer.Argument(metavar="FILE", help="A file that `gpuledger log export` wrote.")]


def export(target: Target, data_dir: DataDir = None) -> None:
    """Write all events to a file, as a backup or to restore them elsewhere."""
    if target != STDOUT and Path(target).exists():
        raise CliError(f"{target} exists", "Choose another name, or remove it first", ExitCode.USAGE)
    count = run(_export(data_dir, target))
    message(f"Exported {count:,} events{'' if target == STDOUT else f' to {target}'}.")


def restore(archive: Archive, yes: Yes = False, data_dir: DataDir = None) -> None:
    """Restore an exported log: into an empty ledger, or as a new generation of one that is not.

    Nobody else records anything until it is complete. If it is interrupted, run it again with the same file.
    """
    restored = run(_restore(data_dir, archive, read_header(archive), yes=yes))
    skips = f" {restored.skips} skipped positions hold again." if restored.skips else ""
    message(f"Restored {restored.events:,} events as generation {restored.generation}.{skips}")


async def _export(data_dir: Path | None, target: str) -> int:
    exported_at = format_time(system_clock())
    async with open_backend(data_dir, "log export") as backend:
        if target == STDOUT:
            with quiet_pipe(sys.stdout):
                return await write_log(backend.ledger, sys.stdout.buffer, exported_at, backend.reporter)
        return await _write_file(backend, Path(target), exported_at)


async def _write_file(backend: Backend, path: Path, exported_at: str) -> int:
    """Write under another name until the file is complete, so that no file of that name is ever a part."""
    part = path.with_name(f"{path.name}{PART}")
    try:
        with opened(part, "wb") as file:
            count = await write_log(backend.ledger, file, exported_at, backend.reporter)
        part.rename(path)
    finally:
        part.unlink(missing_ok=True)
    return count


async def _restore(data_dir: Path | None, archive: Path, header: Header, *, yes: bool) -> Restored:
    async with open_servers(data_dir, "log import", begins=True, restores=True) as servers:
        return await restore_log(servers, TerminalReporter(), archive, header, partial(confirm, confirmed=yes))
