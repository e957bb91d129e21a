"""Rows of the ledger's kinds for `gpuledger get`: at a point in time, or with every change, as `--watch` shows them.

A watch follows the log and not the clock: an idle ledger costs nothing. It reads the rows again at most once in
`PAUSE_S`, however fast events come, and shows only those that differ.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from gpuledger.cli.backend import open_backend
from gpuledger.cli.errors import CliError
from gpuledger.cli.get.noun import Noun
from gpuledger.cli.render import Output, View, message, render
from gpuledger.cli.render.rows import filled, steady
from gpuledger.db.engine import AsyncConnection
from gpuledger.ledger.api import Message
from gpuledger.projection.definition import Projection
from gpuledger.runtime.garbage import seldom_collected
from gpuledger.tools.queries.backend import Backend, bring_current, named_projections, read
from gpuledger.tools.queries.found_rows import RowDict
from gpuledger.tools.queries.halves import all_rows_at
from gpuledger.tools.queries.moments import NOW, PointInTime, sequence_of
from gpuledger.tools.queries.rows import (
    ROWS_SETTINGS,
    Lasting,
    RowFilter,
    current_rows,
    rows_as_recorded,
)

PAUSE_S = 0.5
"""Between two readings of the rows, while events keep coming."""

AGGREGATE_TOKEN = 3
"""The token of a subject that names the aggregate."""

RowKey = tuple[object, ...]


class LedgerQuery(Protocol):
    """The rows of a kind to show, with their projection, key, name and layout."""

    @property
    def view(self) -> View:
        """The columns."""
        ...

    @property
    def projection(self) -> str:
        """The projection whose events change the rows."""
        ...

    @property
    def names(self) -> Sequence[str]:
        """The full names of the rows to show; all rows, if there are none."""
        ...

    async def read(self, backend: Backend, moment: PointInTime, columns: Sequence[str] = ()) -> Sequence[RowDict]:
        """Read the rows as of a moment; `columns` are those that are needed, all where none are given."""
        ...

    async def note(self, backend: Backend) -> str | None:
        """What the reader of the present rows should be aware of; None: nothing."""
        ...

    def key(self, row: RowDict) -> RowKey:
        """The key that identifies a row."""
        ...

    def name(self, row: RowDict) -> object:
        """The name of a row."""
        ...

    def laid_out(self, rows: Sequence[RowDict], output: Output) -> Sequence[RowDict]:
        """The rows as an output needs them."""
        ...


@dataclass(frozen=True, slots=True)
class TableQuery:
    """Rows of a projection's table."""

    noun: Noun
    names: Sequence[str]
    where: dict[str, str] = field(default_factory=dict)
    lasting: Lasting | None = None

    @property
    def view(self) -> View:
        """The columns."""
        return self.noun.view

    @property
    def projection(self) -> str:
        """The projection that keeps the table."""
        return self.noun.projection

    async def read(self, backend: Backend, moment: PointInTime, columns: Sequence[str] = ()) -> Sequence[RowDict]:
        """Read the rows as of a moment: from the table, the history function, or a fold of the log."""
        source, row_filter = self.noun.source, RowFilter(self.names, self.where, columns, self.lasting)
        if moment.recorded is not None:
            return await rows_as_recorded(backend, source, await sequence_of(backend, moment.recorded), row_filter)
        await bring_current(backend, named_projections([self.projection]))
        if moment.at is not None:
            return await all_rows_at(backend, source, moment.at, row_filter)

        async def ask(connection: AsyncConnection) -> Sequence[RowDict]:
            return await current_rows(connection, source, row_filter)

        return await read(backend, ask, application_name="gpuledger get", settings=ROWS_SETTINGS)

    async def note(self, backend: Backend) -> str | None:  # noqa: ARG002 - as the protocol has it
        """Nothing."""
        return None

    def key(self, row: RowDict) -> RowKey:
        """The key of the table."""
        return tuple(row[part] for part in self.noun.spec.key if part in row)

    def name(self, row: RowDict) -> object:
        """The name of a row."""
        return row[self.view.name_key]

    def laid_out(self, rows: Sequence[RowDict], output: Output) -> Sequence[RowDict]:  # noqa: ARG002 - as the protocol has it
        """The rows as they are."""
        return rows


async def show_rows(
    query: LedgerQuery, moment: PointInTime, output: Output, data_dir: Path | None, *, headers: bool
) -> None:
    """Show the rows as of a moment.

    Raises:
        CliError: there is no row of a requested name.
    """
    with seldom_collected():
        async with open_backend(data_dir, f"get {query.view.kinds}", asks=True) as backend:
            rows = await query.read(backend, moment, query.view.needed(output))
            note = await query.note(backend) if moment == NOW else None
        show_found(query, rows, output, headers=headers, note=note)


def show_found(
    query: LedgerQuery, rows: Sequence[RowDict], output: Output, *, headers: bool, note: str | None = None
) -> None:
    """Show rows that were read.

    Raises:
        CliError: there is no row of a requested name.
    """
    view = query.view
    if rows or not query.names:
        render(query.laid_out(rows, output), view, output, headers=headers)
    if note is not None:
        message(note)
    found = set(map(query.name, rows)) if query.names else set()
    for name in query.names:
        if name not in found:
            raise CliError(f"{view.kind} {name!r} was not found", f"List them with `gpuledger get {view.kinds}`")


async def watch_rows(query: LedgerQuery, output: Output, data_dir: Path | None, *, headers: bool) -> None:
    """Show the rows, then every one that changes, until the command is interrupted. Rows that go away are messages."""
    view, before = steady(query.view), dict[RowKey, RowDict]()
    (projection,) = named_projections([query.projection])
    async with (
        open_backend(data_dir, f"get {view.kinds} --watch", asks=True) as backend,
        backend.ledger.read(after=await backend.ledger.head()) as reader,
    ):
        if (note := await query.note(backend)) is not None:
            message(note)
        while True:
            rows = {query.key(row): row for row in await query.read(backend, NOW)}
            changed = query.laid_out([row for key, row in rows.items() if before.get(key) != row], output)
            if changed:
                render(filled(changed, query.view, output), view, output, headers=headers, live=True)
                headers = False
            for key in before.keys() - rows.keys():
                message(f"{view.kind} {query.name(before[key])!r} is gone.")
            before = rows
            while not may_change(projection, await reader.next_batch()):
                pass
            await asyncio.sleep(PAUSE_S)


def may_change(projection: Projection, messages: Iterable[Message]) -> bool:
    """Whether one of the messages may change the projection's rows; any may, if it observes all events."""
    if projection.observes:
        return any(True for _ in messages)
    aggregates = {kind.AGGREGATE for kind in projection.handlers}
    return any(one.subject.split(".")[AGGREGATE_TOKEN] in aggregates for one in messages)
