"""`gpuledger get -w` for the ledger's kinds: follows the log, and shows the rows that its events changed.

It waits for the log, never for the clock: an idle ledger costs nothing. Rows are read again at most once in
`PAUSE_S`, however fast events come, and only those that differ are shown.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from gpuledger.cli.backend import open_backend
from gpuledger.cli.get.nouns import Noun
from gpuledger.cli.log.tail import steady
from gpuledger.cli.render import Output, View, message, render
from gpuledger.cli.render.values import NONE
from gpuledger.db.readonly import read_only
from gpuledger.ledger.api import Message
from gpuledger.projection.definition import Projection
from gpuledger.tools.queries.backend import Backend, bring_current, named_projections
from gpuledger.tools.queries.rows import RowDict, RowFilter, current_rows

PAUSE_S = 0.5
"""Between two readings of the rows, while events keep coming."""

AGGREGATE_TOKEN = 3
"""Which token of a subject names the aggregate."""

Rows = dict[tuple[object, ...], RowDict]


class Watched(NamedTuple):
    """What is followed: how its rows look, what each is called, and what an output shows of them."""

    view: View
    name_of: Callable[[RowDict], object]
    shown: Callable[[Sequence[RowDict]], Sequence[RowDict]] = list


async def watch_rows(noun: Noun, chosen: RowFilter, data_dir: Path | None, output: Output, *, headers: bool) -> None:
    """Show the rows, then every one that changes, for ever. What is no more is told on stderr."""
    (projection,) = named_projections([noun.projection])
    watched = Watched(noun.view, lambda row: row[noun.view.name_key])
    async with open_backend(data_dir, f"get {noun.view.kinds} --watch") as backend:

        async def read() -> Rows:
            return await _current(backend, noun, projection, chosen)

        await follow(backend, projection, read, watched, output, headers=headers)


async def follow(
    backend: Backend,
    projection: Projection,
    read: Callable[[], Awaitable[Rows]],
    watched: Watched,
    output: Output,
    *,
    headers: bool,
) -> None:
    """Read rows whenever the log has something for a projection, and show those that differ, for ever."""
    view = steady(watched.view)
    known: Rows = {}
    async with backend.ledger.read(after=await backend.ledger.head()) as reader:
        while True:
            rows = await read()
            fresh = watched.shown(differing(known, rows))
            if fresh:
                render(filled(fresh, watched.view, output), view, output, headers=headers, live=True)
                headers = False
            for key in known.keys() - rows.keys():
                message(f"{watched.view.kind} {watched.name_of(known[key])!r} is gone.")
            known = rows
            while not concerns(projection, await reader.next_batch()):
                pass
            await asyncio.sleep(PAUSE_S)


async def _current(backend: Backend, noun: Noun, projection: Projection, chosen: RowFilter) -> Rows:
    await bring_current(backend, [projection])
    async with read_only(backend.database_url, application_name="gpuledger get --watch") as connection:
        rows = await current_rows(connection, noun.source, chosen)
    return {tuple(row[part] for part in noun.spec.key if part in row): row for row in rows}


def differing(before: Rows, after: Rows) -> list[RowDict]:
    """The rows of after that are new or other than before, in their order."""
    return [row for key, row in after.items() if before.get(key) != row]


def concerns(projection: Projection, messages: Iterable[Message]) -> bool:
    """Whether one of the messages may change the projection's rows. Who observes all events is concerned by all."""
    if projection.observes:
        return any(True for _ in messages)
    aggregates = {kind.AGGREGATE for kind in projection.handlers}
    return any(one.subject.split(".")[AGGREGATE_TOKEN] in aggregates for one in messages)


def filled(rows: Iterable[RowDict], view: View, output: Output) -> list[RowDict]:
    """The rows with `<none>` written out for tables, so that empty cells align with those of later rows."""
    if output not in (Output.TABLE, Output.WIDE):
        return list(rows)
    plain = {column.field for column in view.columns if column.format is None}
    return [{key: NONE if value is None and key in plain else value for key, value in row.items()} for row in rows]
