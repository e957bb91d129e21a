"""`gpuledger get`: the rows of one kind, now, at a past time, or as they were known."""

from datetime import datetime
from typing import Annotated

import typer

from gpuledger.cli.backend import Backend, backend, bring_current, named_projections
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.nouns import NOUNS, Noun, noun_of
from gpuledger.cli.options import AsRecorded, At, DataDir, NoHeaders, OutputFormat
from gpuledger.cli.render import Output, render
from gpuledger.cli.rows import RowDict, current_rows, missing_names, recorded_ns_of, rows_as_recorded, rows_at
from gpuledger.cli.run import run
from gpuledger.cli.times import parse_as_recorded, parse_time
from gpuledger.clock import system_clock
from gpuledger.db.readonly import read_only
from gpuledger.projection.asof import sequence_at

Kind = Annotated[
    str, typer.Argument(help=f"One of {', '.join(NOUNS)}.", autocompletion=lambda: list(NOUNS), show_default=False)
]
Names = Annotated[
    list[str] | None, typer.Argument(help="Only these; as `-o name` writes them, too.", show_default=False)
]


def get(
    kind: Kind,
    names: Names = None,
    at: At = None,
    as_recorded: AsRecorded = None,
    output: OutputFormat = Output.TABLE,
    no_headers: NoHeaders = False,
    data_dir: DataDir = None,
) -> None:
    """Show devices, nodes, slots, workloads, failures, sources or contradictions.

    --at answers what was true at a time, with all we know today. --as-recorded answers what we knew then.
    """
    noun, now = noun_of(kind), system_clock()
    names = [name.removeprefix(f"{noun.view.kind}/") for name in names or []]
    if at is not None and as_recorded is not None:
        raise CliError("--at and --as-recorded exclude each other", "Choose one", ExitCode.USAGE)
    time = None if at is None else parse_time(at, now)
    when = None if as_recorded is None else parse_as_recorded(as_recorded, now)
    rows = run(_rows(noun, names, time, when, data_dir))
    if rows or not names:
        render(rows, noun.view, output, headers=not no_headers)
    for name in missing_names(rows, noun, names):
        raise CliError(f"{noun.view.kind} {name!r} was not found", f"List them with `gpuledger get {kind}`")


async def _rows(
    noun: Noun, names: list[str], at: datetime | None, when: datetime | tuple[int | None, int] | None, data_dir: DataDir
) -> list[RowDict]:
    async with backend(data_dir, f"get {noun.view.kinds}") as place:
        if when is not None:
            return await rows_as_recorded(place, noun, await sequence_of(place, when), names)
        await bring_current(place, named_projections([noun.projection]))
        async with read_only(place.database_url, application_name="gpuledger get") as connection:
            if at is not None:
                return await rows_at(connection, noun, at, names)
            return await current_rows(connection, noun, names)


async def sequence_of(place: Backend, when: datetime | tuple[int | None, int]) -> int:
    """The sequence that a position, or a time of recording, stands for.

    Raises:
        CliError: the position is of another generation, or lies beyond the end of the log.
    """
    if isinstance(when, datetime):
        return await sequence_at(place.ledger, int(when.timestamp() * 1_000_000_000), recorded_ns_of)
    generation, sequence = when
    head = await place.ledger.head()
    if generation not in (None, place.ledger.generation):
        raise CliError(
            f"The log is at generation {place.ledger.generation}, not {generation}",
            "Positions of an archived generation belong to that archive",
            ExitCode.USAGE,
        )
    if sequence > head:
        raise CliError(f"The log ends at position {place.ledger.generation}/{head}", code=ExitCode.USAGE)
    return sequence
