"""`gpuledger diff`: the differences between two moments."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated

import typer

from gpuledger.cli.backend import open_backend
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.get.noun import Noun
from gpuledger.cli.get.nouns import ALLOCATIONS, CONTRADICTIONS, DEVICES, NODES, NOUNS, SLOTS, WORKLOADS, noun_of
from gpuledger.cli.options import DataDir, NoHeaders, OutputFormat
from gpuledger.cli.render import Column, Output, View, render
from gpuledger.cli.run import run
from gpuledger.cli.times import parse_time
from gpuledger.db.engine import AsyncConnection
from gpuledger.runtime.clock import system_clock
from gpuledger.tools.queries.backend import bring_current, read
from gpuledger.tools.queries.found_rows import RowDict
from gpuledger.tools.queries.rows import rows_that_may_differ

COMPARED = (DEVICES, SLOTS, NODES, WORKLOADS, ALLOCATIONS, CONTRADICTIONS)
"""Failures are left out: they are events, and only become more."""

Changes = Mapping[str, tuple[object, object]]


def _changes(changes: object) -> str:
    assert isinstance(changes, Mapping)
    return ", ".join(f"{field}: {_shown(before)} → {_shown(after)}" for field, (before, after) in changes.items())


DIFFERENCES = View(
    "difference",
    (Column("change"), Column("kind"), Column("name"), Column("fields", "changes", format=_changes, wraps=True)),
    "name",
)


def diff(
    earlier: Annotated[
        str, typer.Argument(metavar="T1", help="The earlier time: RFC 3339, a date, or relative such as -2h.")
    ],
    later: Annotated[str, typer.Argument(metavar="T2", help="The later time; `now` for now.")],
    kind: Annotated[
        list[str] | None, typer.Option("--kind", "-k", help=f"Only these kinds, of {', '.join(NOUNS)}.")
    ] = None,
    output: OutputFormat = Output.TABLE,
    no_headers: NoHeaders = False,
    data_dir: DataDir = None,
) -> None:
    """Show what appeared, disappeared and changed between two moments, by everything recorded to date."""
    now = system_clock()
    nouns = [noun_of(name) for name in kind or []] or list(COMPARED)
    for noun in nouns:
        if noun not in COMPARED:
            raise CliError(f"{noun.view.kinds.capitalize()} cannot be compared", "Leave them out", ExitCode.USAGE)
    rows = run(_diff(nouns, parse_time(earlier, now), parse_time(later, now), data_dir))
    render(rows, DIFFERENCES, output, headers=not no_headers)


async def _diff(nouns: list[Noun], earlier: datetime, later: datetime, data_dir: DataDir) -> list[RowDict]:
    async def ask(connection: AsyncConnection) -> list[RowDict]:
        found: list[RowDict] = []
        for noun in nouns:
            found.extend(differences(noun, *await rows_that_may_differ(connection, noun.source, earlier, later)))
        return found

    async with open_backend(data_dir, "diff", asks=True) as backend:
        await bring_current(backend)
        return await read(backend, ask, application_name="gpuledger diff")


def differences(noun: Noun, before: Sequence[RowDict], after: Sequence[RowDict]) -> Iterator[RowDict]:
    """A row for each difference: what appeared, disappeared or changed."""
    old = {tuple(row[name] for name in noun.spec.key): row for row in before}
    new = {tuple(row[name] for name in noun.spec.key): row for row in after}
    for key in sorted(old.keys() | new.keys()):
        was, is_ = old.get(key, {}), new.get(key, {})
        if was != is_:
            change = "appeared" if not was else "disappeared" if not is_ else "changed"
            name = "/".join(_shown(part) for part in key if part != "")
            yield {"change": change, "kind": noun.view.kind, "name": name, "changes": _compared(noun, was, is_)}


def _compared(noun: Noun, was: RowDict, is_: RowDict) -> Changes:
    pairs = {name: (was.get(name), is_.get(name)) for name in noun.source.columns if name not in noun.spec.key}
    return {name: (before, after) for name, (before, after) in pairs.items() if before != after}


def _shown(value: object) -> str:
    if value is None:
        return "<none>"
    return value.strftime("%Y-%m-%dT%H:%M:%SZ") if isinstance(value, datetime) else str(value)
