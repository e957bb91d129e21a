"""`gpuledger log archive`: the log as Parquet files in a folder or an S3 bucket, and the proof that they are the log.

What reads and writes Parquet is imported by the command that needs it.
"""

import re
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuledger.cli.backend import open_backend, open_servers
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.log.skip import Yes, confirm
from gpuledger.cli.options import DataDir, NoHeaders, OutputFormat
from gpuledger.cli.render import Column, Output, TerminalReporter, View, message, render
from gpuledger.cli.run import run
from gpuledger.cli.times import format_time
from gpuledger.events.position import Position
from gpuledger.runtime.clock import system_clock
from gpuledger.tools.archive.due import ClosingPolicy, parse_policy
from gpuledger.tools.log_archive import PART, opened
from gpuledger.tools.operators import operator

if TYPE_CHECKING:
    from gpuledger.tools.archive.close import ClosedLog, DeletedStream
    from gpuledger.tools.archive.retention import Deletion
    from gpuledger.tools.archive.verify import ArchiveProof
    from gpuledger.tools.archive.write import Written

app = typer.Typer(help="Keep the log as Parquet files in a folder or an S3 bucket.", no_args_is_help=True)

Location = Annotated[
    str,
    typer.Argument(
        metavar="LOCATION",
        help="A folder, or s3://BUCKET/PREFIX with the server and login in the AWS_* variables.",
        show_default=False,
    ),
]
CompleteMonths = Annotated[
    bool, typer.Option("--complete-months", help="Leave out what was recorded in the current month (UTC).")
]
Tables = Annotated[bool, typer.Option("--tables/--no-tables", help="Whether to copy tables and reports as well.")]
Offline = Annotated[bool, typer.Option("--offline", help="Verify the archive by itself, without the log.")]

When = Annotated[
    str | None,
    typer.Option(
        "--when",
        metavar="WHEN",
        help="Close only what began in an earlier month (`month`), has some size (`50GiB`), or either (`month,50GiB`).",
    ),
]
ClosedGeneration = Annotated[
    int, typer.Argument(metavar="GENERATION", min=1, help="The closed generation.", show_default=False)
]

Target = Annotated[Path, typer.Argument(metavar="FILE", help="The file to write; gzipped if it ends in .gz.")]
Month = Annotated[str | None, typer.Option("--month", metavar="MONTH", help="Only this month of recording: 2026-11.")]
GenerationNumber = Annotated[int | None, typer.Option("--generation", min=1, help="The generation of the log.")]
Before = Annotated[str, typer.Option("--before", metavar="MONTH", help="The first month to keep, such as 2026-11.")]
Reason = Annotated[str, typer.Option("--reason", help="The reason, which the tombstone keeps with your name.")]
REASON_LENGTH_MAX = 256

FILES = View(
    "file",
    (
        Column("month"),
        Column("generation", right=True),
        Column("first", right=True),
        Column("last", right=True),
        Column("events", right=True),
        Column("bytes", right=True),
        Column("state"),
        Column("path", wide=True),
        Column("sha256", wide=True),
        Column("reason", wide=True),
    ),
    name_key="path",
)


@app.command()
def write(
    location: Location, complete_months: CompleteMonths = False, tables: Tables = True, data_dir: DataDir = None
) -> None:
    """Copy what the archive lacks of the log, by month of recording. The log stays as it is.

    Tables and reports are copied as they are now, for `gpuledger sql --archive` and `gpuledger report --archive`. If it
    is interrupted, run it again: it goes on behind the last complete file.
    """
    now = system_clock()
    before = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0) if complete_months else None
    written = run(_write(data_dir, location, before, now if tables else None))
    until = ", ".join(map(str, written.until))
    message(f"Archived {written.events:,} events in {written.files} files; {location} holds the log up to {until}.")


@app.command()
def close(location: Location, when: When = None, yes: Yes = False, data_dir: DataDir = None) -> None:
    """Close the log's generation: archive its events, prove the archive, and go on in a new, empty stream.

    Positions go on, and everything that asks the past reads across. Whoever records events waits for as long as it
    takes to archive the last of them. If it is interrupted, run it again: nobody can record events until it is done.
    The old stream stays until `gpuledger log archive delete-stream`.
    """
    policy = None if when is None else parse_policy(when)
    confirm(f"Close the log's generation, with its archive at {location}?", confirmed=yes)
    closed = run(_close(data_dir, location, policy))
    if closed is None:
        message(f"The log's generation is not to be closed yet: neither the month nor the size says so ({when}).")
        return
    message(
        f"Closed generation {closed.generation} with {closed.events:,} events, up to "
        f"{Position(closed.generation, closed.last)}; they are archived at {closed.location}. "
        f"Generation {closed.generation + 1} goes on behind them."
    )


@app.command("delete-stream")
def delete_stream(location: Location, closed: ClosedGeneration, yes: Yes = False, data_dir: DataDir = None) -> None:
    """Delete the stream of a closed generation for good, once its archive is proven to be what the stream holds.

    From then on the generation is read from the archive, which has to stay where it is.
    """
    deleted = run(_delete_stream(data_dir, location, closed, yes=yes))
    message(f"Deleted the stream of generation {deleted.generation} with {deleted.events:,} events.")


@app.command()
def verify(location: Location, offline: Offline = False, data_dir: DataDir = None) -> None:
    """Prove that an archive is what the log was: every byte, the chain of digests, the seals, and the log's own events.

    Exits with 1 if it is not.
    """
    proofs = run(_verify(data_dir, location, offline=offline))
    for proof in proofs:
        if proof.first_break is not None:
            raise CliError(
                f"The archive of generation {proof.until.generation} is not what was archived: {proof.first_break}",
                "Keep it, and archive to another location while the log has these events",
            )
    for proof in proofs:
        message(_words(proof))


@app.command("list")
def list_files(location: Location, output: OutputFormat = Output.TABLE, no_headers: NoHeaders = False) -> None:
    """List the files of an archive."""
    render(run(_files(location)), FILES, output, headers=not no_headers)


@app.command()
def export(location: Location, target: Target, month: Month = None, generation: GenerationNumber = None) -> None:
    """Write archived events to a file that `gpuledger log import` restores, as `gpuledger log export` does.

    Without --generation it is the newest one; with --month only what was recorded in that month.
    """
    if target.exists():
        raise CliError(f"{target} exists", "Choose another name, or remove it first", ExitCode.USAGE)
    count = run(_export(location, target, None if month is None else _month(month), generation))
    message(f"Exported {count:,} events to {target}.")


@app.command()
def delete(location: Location, before: Before, reason: Reason, yes: Yes = False, data_dir: DataDir = None) -> None:
    """Delete the oldest months of an archive for good. A tombstone keeps their positions and digests.

    `gpuledger log archive verify` accepts the tombstones, and proves what is behind them.
    """
    if not 0 < len(reason.strip()) <= REASON_LENGTH_MAX:
        raise CliError(f"A reason has 1 to {REASON_LENGTH_MAX} characters", "Give another --reason", ExitCode.USAGE)
    deletion = run(_delete(data_dir, location, _month(before), reason.strip(), yes=yes))
    message(f"Deleted {deletion.events:,} events in {deletion.files} files from {location}.")


async def _close(data_dir: Path | None, location: str, policy: ClosingPolicy | None) -> "ClosedLog | None":
    from gpuledger.tools.archive.close import close_generation  # noqa: PLC0415
    from gpuledger.tools.archive.store import open_archive  # noqa: PLC0415

    async with open_servers(data_dir, "log archive close", restores=True) as servers:
        return await close_generation(servers, open_archive(location), TerminalReporter(), system_clock(), policy)


async def _delete_stream(data_dir: Path | None, location: str, generation: int, *, yes: bool) -> "DeletedStream":
    from gpuledger.tools.archive.close import delete_stream as delete_proven  # noqa: PLC0415
    from gpuledger.tools.archive.store import open_archive  # noqa: PLC0415

    def consent(events: int) -> None:
        confirm(f"Delete the stream of generation {generation} with {events:,} events for good?", confirmed=yes)

    async with open_servers(data_dir, "log archive delete-stream") as servers:
        return await delete_proven(servers, open_archive(location), generation, TerminalReporter(), consent)


async def _export(location: str, target: Path, month: str | None, generation: int | None) -> int:
    from gpuledger.tools.archive.export import export_archive  # noqa: PLC0415
    from gpuledger.tools.archive.store import open_archive  # noqa: PLC0415

    archive = open_archive(location)
    manifests = await archive.manifests()
    number = max(manifests, default=0) if generation is None else generation
    if number not in manifests:
        raise CliError(f"{location} has no generation {number}", "See `gpuledger log archive list`", ExitCode.USAGE)
    part = target.with_name(f"{target.name}{PART}")
    try:
        with opened(part, "wb") as file:
            exported_at = format_time(system_clock())
            count = await export_archive(archive, manifests[number], month, file, exported_at, TerminalReporter())
        part.rename(target)
    finally:
        part.unlink(missing_ok=True)
    return count


async def _delete(data_dir: Path | None, location: str, before: str, reason: str, *, yes: bool) -> "Deletion":
    from gpuledger.tools.archive.manifest import Tombstone  # noqa: PLC0415
    from gpuledger.tools.archive.retention import delete_months, planned  # noqa: PLC0415
    from gpuledger.tools.archive.store import open_archive  # noqa: PLC0415

    archive = open_archive(location)
    found = planned(list((await archive.manifests()).values()), before)
    confirm(f"Delete {found.events:,} events of before {before} from {location} for good?", confirmed=yes)
    async with open_backend(data_dir, "log archive delete") as backend:
        tombstone = Tombstone(at=system_clock(), by=operator(), reason=reason)
        return await delete_months(backend, archive, before, tombstone)


def _month(text: str) -> str:
    if not re.fullmatch(r"[0-9]{4}-(0[1-9]|1[0-2])", text):
        raise CliError(f"{text!r} is no month", "Write it as 2026-11", ExitCode.USAGE)
    return text


async def _write(
    data_dir: Path | None, location: str, before: datetime | None, tables_at: datetime | None
) -> "Written":
    from gpuledger.tools.archive.store import open_archive  # noqa: PLC0415 - Parquet takes a while to import
    from gpuledger.tools.archive.write import write_archive  # noqa: PLC0415

    archive = open_archive(location)
    async with open_backend(data_dir, "log archive write", asks=tables_at is not None) as backend:
        return await write_archive(backend, archive, before, tables_at)


async def _verify(data_dir: Path | None, location: str, *, offline: bool) -> "list[ArchiveProof]":
    from gpuledger.tools.archive.store import open_archive  # noqa: PLC0415
    from gpuledger.tools.archive.verify import verify_archive  # noqa: PLC0415

    archive = open_archive(location)
    if offline:
        return await verify_archive(archive, None, TerminalReporter())
    async with open_backend(data_dir, "log archive verify") as backend:
        return await verify_archive(archive, backend, backend.reporter)


async def _files(location: str) -> list[dict[str, object]]:
    from gpuledger.tools.archive.store import open_archive  # noqa: PLC0415

    manifests = await open_archive(location).manifests()
    return [
        {
            **one.model_dump(include={"month", "first", "last", "events", "bytes", "path", "sha256"}),
            "generation": manifest.generation,
            "events": one.events,
            "path": one.path,
            "state": "kept" if one.deleted is None else "deleted",
            "reason": None if one.deleted is None else one.deleted.reason,
        }
        for manifest in manifests.values()
        for one in manifest.files
    ]


def _words(proof: "ArchiveProof") -> str:
    seals = f"{proof.seals} seals cover it up to {proof.sealed_to}" if proof.seals else "no seal covers it yet"
    deleted = f", {proof.deleted:,} more were deleted by retention" if proof.deleted else ""
    compared = "it is what the log holds" if proof.is_compared else "it was not compared with the log"
    return f"The archive holds {proof.events:,} events up to {proof.until}{deleted}; {seals}; {compared}."
