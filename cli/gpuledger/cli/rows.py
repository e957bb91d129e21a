"""Where the rows of a noun come from: the tables, the history functions, or a fold of the log."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection
from psycopg.sql import SQL, Composable, Identifier, Literal

from gpuledger.cli.backend import Backend, named_projections
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.get.nouns import Noun
from gpuledger.cli.render import progress
from gpuledger.events.envelope import parse
from gpuledger.events.errors import EventError
from gpuledger.ledger.api import Message
from gpuledger.projection.asof import fold_until

RowDict = Mapping[str, object]

ROWS_PER_FETCH = 5_000


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which rows of a noun: those of these names, where some are given, whose columns have these values."""

    names: Sequence[str] = ()
    where: Mapping[str, str] = field(default_factory=dict)

    def has(self, noun: Noun, row: RowDict) -> bool:
        """Whether the row is among them."""
        if self.names and row[noun.view.name_key] not in self.names:
            return False
        return all(row[name] == value for name, value in self.where.items())


ALL = Chosen()


async def current_rows(connection: AsyncConnection[Any], noun: Noun, chosen: Chosen = ALL) -> list[RowDict]:
    """The rows of now."""
    return await _select(connection, noun, Identifier("gpuledger_live", noun.spec.name), chosen)


async def rows_at(connection: AsyncConnection[Any], noun: Noun, at: datetime, chosen: Chosen = ALL) -> list[RowDict]:
    """The rows as they were at a time.

    Raises:
        CliError: this kind has no past of its own.
    """
    if noun.at is None:
        raise CliError(
            f"{noun.view.kinds.capitalize()} are about recording and have no history in event time",
            "Use --as-recorded",
            ExitCode.USAGE,
        )
    source = SQL("{}({})").format(Identifier("report", noun.at), Literal(at))
    return await _select(connection, noun, source, chosen)


async def rows_as_recorded(place: Backend, noun: Noun, sequence: int, chosen: Chosen = ALL) -> list[RowDict]:
    """The rows that the log up to a sequence amounts to, folded in memory."""
    (projection,) = named_projections([noun.projection])
    with progress("Folding the log", total=sequence) as advance:
        fold = await fold_until(projection, place.ledger, sequence, lambda done, _total: advance.to(done))
    table = fold.state.tables()[noun.spec.name]
    rows = [dict(zip(noun.spec.columns, row, strict=True)) for row in table.rows.values()]
    wanted = [row for row in rows if chosen.has(noun, row)]
    wanted.sort(key=lambda row: tuple(row[column] for column in noun.order))
    return [{name: row[name] for name in noun.columns} for row in wanted]


def recorded_ns_of(message: Message) -> int:
    """When we first learnt of a message: the log's word, or its own of an earlier time where it was restored."""
    try:
        recorded_at = parse(message.data).recorded_at
    except EventError:
        recorded_at = None
    if recorded_at is None:
        return message.recorded_ns
    return min(message.recorded_ns, int(recorded_at.timestamp() * 1_000_000_000))


def missing_names(rows: Sequence[RowDict], noun: Noun, names: Sequence[str]) -> Iterator[str]:
    """The names that no row has."""
    found = {row[noun.view.name_key] for row in rows}
    return (name for name in names if name not in found)


async def _select(connection: AsyncConnection[Any], noun: Noun, source: Composable, chosen: Chosen) -> list[RowDict]:
    columns, order = _identifiers(noun.columns), _identifiers(noun.order)
    values = {name: [value] for name, value in chosen.where.items()}
    if chosen.names:
        values[noun.view.name_key] = list(chosen.names)
    query = SQL("SELECT {} FROM {}").format(columns, source)
    if values:
        conditions = (SQL("{} = ANY({})").format(Identifier(name), Literal(given)) for name, given in values.items())
        query = SQL("{} WHERE {}").format(query, SQL(" AND ").join(conditions))
    cursor = await connection.execute(SQL("{} ORDER BY {}").format(query, order))
    rows = await cursor.fetchall()
    return [dict(zip(noun.columns, row, strict=True)) for row in rows]


def _identifiers(names: Sequence[str]) -> Composable:
    return SQL(", ").join(Identifier(name) for name in names)
