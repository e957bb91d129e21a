"""Rows out of the projections' tables: as they are now, as they were at a time, or as they had been recorded.

A table of now is read from PostgreSQL, one at a time from a history function, one as recorded from a fold of the log.
Nothing here writes.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import itemgetter
from typing import Any, NamedTuple

from psycopg import AsyncConnection
from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from gpuledger.db.json_columns import read_json_as_text
from gpuledger.domain.devices.fold import SLOT
from gpuledger.domain.histories import CONTAINER_ALLOCATIONS, PREFLIGHT_CHECKS, SHARED_ALLOCATIONS, History
from gpuledger.domain.inventory.device_names import place_of
from gpuledger.domain.table import R, TableSpec
from gpuledger.events.position import Offset
from gpuledger.projection.enforced_store import kept_since
from gpuledger.tools.errors import RequestError
from gpuledger.tools.queries.backend import Backend, folded_past, named_projections
from gpuledger.tools.queries.found_rows import FoundRows, RowDict

LIVE = "gpuledger_live"
ROWS_SETTINGS: Mapping[str, str] = {"jit": "off", "work_mem": "32MB"}
"""Of a session that reads all rows of a kind: 100,000 are sorted in memory, and a query of many look-ups is not
compiled first, which takes longer than it saves."""

ROWS_MAX = 10_000
"""Rows that a page is made of at most."""

CHANGED_KEYS_MAX = 10_000
"""Up to so many changed keys two moments are compared by looking these up; beyond, all rows of both are read."""


class ChangedIn(NamedTuple):
    """Where to find what changed between two moments: the key, and the tables with the times of changes to it."""

    key: str
    times: Mapping[str, tuple[str, ...]]


_LIVES = {"installation": ("valid_from", "valid_to")}
CHANGED_IN: Mapping[str, ChangedIn] = {
    "devices_at": ChangedIn("device", {"device": ("first_seen_at",), "failure": ("failed_at",), **_LIVES}),
    "slots_at": ChangedIn("slot", {"slot": ("first_seen_at",), "slot_history": ("valid_from",), **_LIVES}),
    "nodes_at": ChangedIn(
        "node", {"node": ("first_seen_at",), "node_history": ("valid_from",), "node_slot": ("declared_at",)}
    ),
    "workloads_at": ChangedIn("workload", {"workload_fact": ("happened_at",)}),
    "container_allocations_at": ChangedIn("allocation", {"container_allocation_history": ("valid_from", "valid_to")}),
    "contradictions_at": ChangedIn("subject", {"contradiction": ("valid_from", "valid_to")}),
}
"""By the function that gives the rows at a time: a row differs between two moments only where one lies between."""


HISTORY_OF: Mapping[str, History] = {
    "container_allocations_at": CONTAINER_ALLOCATIONS,
    "preflight_checks_at": PREFLIGHT_CHECKS,
    "shared_allocations_at": SHARED_ALLOCATIONS,
    "shared_devices_at": SHARED_ALLOCATIONS,
}
"""By the function that gives the rows at a time: the history that it looks into, if operators may shorten that."""


class RowSource(NamedTuple):
    """One kind of row: its projection, table, order and name; `at` is the function that gives its rows at a time.

    `hidden` columns are bookkeeping that no user sees.
    """

    kinds: str
    projection: str
    spec: TableSpec[Any]
    order: tuple[str, ...]
    name_key: str
    at: str | None
    hidden: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a user sees, in their order."""
        return tuple(name for name in self.spec.columns if name not in self.hidden)


class Lasting(NamedTuple):
    """Which rows by a column that says when they ended: those that have not, and those that have not ended before."""

    column: str
    since: datetime | None = None

    def has(self, ended_at: datetime | None) -> bool:
        """Whether a row that ended then, or not yet, is one of them."""
        return ended_at is None or (self.since is not None and ended_at >= self.since)


class KeyRange(NamedTuple):
    """The rows whose first column of the order is less than a value, or is not."""

    split: str
    is_below: bool


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Which rows of a source: those with these names, where some are given, and with these values in columns.

    `columns` are those that the caller needs; all that a user sees, where none are given. `keys` asks the database for
    a range alone.
    """

    names: Sequence[str] = ()
    where: Mapping[str, str] = field(default_factory=dict)
    columns: Sequence[str] = ()
    lasting: Lasting | None = None
    keys: KeyRange | None = None

    def columns_of(self, source: RowSource) -> tuple[str, ...]:
        """The columns to read, in the order of the source."""
        return tuple(name for name in source.columns if not self.columns or name in self.columns)


ALL = RowFilter()


async def current_rows(connection: AsyncConnection[Any], source: RowSource, row_filter: RowFilter = ALL) -> FoundRows:
    """The rows of now."""
    return await _select(connection, source, Identifier(LIVE, source.spec.name), row_filter)


async def rows_at(
    connection: AsyncConnection[Any], source: RowSource, at: datetime, row_filter: RowFilter = ALL
) -> FoundRows:
    """The rows as they were at a time.

    Raises:
        RequestError: this kind has no history in event time, or it is not kept since then.
    """
    await _check_kept(connection, source, at)
    return await _select(connection, source, _relation_at(source, at), row_filter)


async def rows_that_may_differ(
    connection: AsyncConnection[Any], source: RowSource, earlier: datetime, later: datetime
) -> tuple[FoundRows, FoundRows]:
    """The rows of two moments, without most of those that are the same at both; raises as `rows_at`."""
    await _check_kept(connection, source, min(earlier, later))
    changed = CHANGED_IN[source.at or ""]
    keys = await _changed_keys(connection, changed, min(earlier, later), max(earlier, later))
    values = {changed.key: keys} if len(keys) <= CHANGED_KEYS_MAX else {}
    before, after = [
        await _select_where(connection, source, _relation_at(source, at), values, source.columns)
        for at in (earlier, later)
    ]
    return before, after


async def rows_as_recorded(
    backend: Backend, source: RowSource, sequence: Offset, row_filter: RowFilter = ALL
) -> FoundRows:
    """The rows that the log up to a sequence amounts to, folded in memory from the nearest snapshot on."""
    (projection,) = named_projections([source.projection])
    fold = await folded_past(backend, projection, sequence, whole=[source.spec.name])
    table = fold.state.tables()[source.spec.name]
    places = {name: place for place, name in enumerate(source.spec.columns)}
    rows = sorted(_chosen(table.rows.values(), row_filter, source, places), key=_values(source.order, places))
    columns = row_filter.columns_of(source)
    return FoundRows(columns, list(map(_values(columns, places), rows)))


def _chosen(
    rows: Collection[Any], row_filter: RowFilter, source: RowSource, places: Mapping[str, int]
) -> Collection[Any]:
    """The rows of a table that a filter selects."""
    names, name_at = set(row_filter.names), places[source.name_key]
    where = [(places[column], value) for column, value in row_filter.where.items()]
    lasting = row_filter.lasting
    if not names and not where and lasting is None:
        return rows
    return [
        row
        for row in rows
        if (not names or row[name_at] in names)
        and all(row[place] == value for place, value in where)
        and (lasting is None or lasting.has(row[places[lasting.column]]))
    ]


def _values(columns: Sequence[str], places: Mapping[str, int]) -> Callable[[Any], tuple[Any, ...]]:
    """Takes the values of these columns out of a row."""
    at = [places[column] for column in columns]
    return itemgetter(*at) if len(at) > 1 else lambda row: (row[at[0]],)


async def rows_where(
    connection: AsyncConnection[Any],
    spec: TableSpec[Any],
    where: Mapping[str, object],
    *,
    newest: Sequence[str] = (),
    limit: int = ROWS_MAX,
) -> list[RowDict]:
    """The rows whose columns have these values (a list: one of them); `newest` orders by columns, last first."""
    columns, table = _identifiers(spec.columns), Identifier(LIVE, spec.name)
    last_first = [SQL("{} DESC NULLS LAST").format(Identifier(name)) for name in newest]
    order = SQL(", ").join(last_first or map(Identifier, spec.key))
    query = SQL("SELECT {} FROM {} WHERE {} ORDER BY {} LIMIT {}").format(
        columns, table, _condition(where), order, Literal(limit)
    )
    return list(await _found(connection, query, spec.columns))


async def slots_of(connection: AsyncConnection[Any], node: str) -> list[RowDict]:
    """The slots that were declared to be in a node, and those whose name begins with the node's and a slash."""
    query = SQL(
        "SELECT {} FROM {} WHERE node = {} OR (node IS NULL AND starts_with(slot, {})) ORDER BY slot LIMIT {}"
    ).format(
        _identifiers(SLOT.columns),
        Identifier(LIVE, SLOT.name),
        Literal(node),
        Literal(place_of(node, "")),
        Literal(ROWS_MAX),
    )
    return list(await _found(connection, query, SLOT.columns))


async def has_table(connection: AsyncConnection[Any], spec: TableSpec[Any]) -> bool:
    """Whether the projection that keeps this table has ever started here."""
    cursor = await connection.execute("SELECT to_regclass(%s) IS NOT NULL", [f"{LIVE}.{spec.name}"])
    row = await cursor.fetchone()
    return bool(row and row[0])


def row_of(spec: TableSpec[R], found: RowDict) -> R:
    """A row from the database as the table's own row type."""
    values: list[Any] = [found[name] for name in spec.columns]
    return spec.row(*values)


async def _select(
    connection: AsyncConnection[Any], source: RowSource, relation: Composable, row_filter: RowFilter
) -> FoundRows:
    values: dict[str, object] = dict(row_filter.where)
    if row_filter.names:
        values[source.name_key] = list(row_filter.names)
    columns, conditions = row_filter.columns_of(source), list[Composable]()
    if row_filter.lasting is not None:
        conditions.append(_lasts(row_filter.lasting))
    if row_filter.keys is not None:
        conditions.append(_within(source, row_filter.keys))
    return await _select_where(connection, source, relation, values, columns, conditions)


async def _check_kept(connection: AsyncConnection[Any], source: RowSource, at: datetime) -> None:
    history = HISTORY_OF.get(source.at or "")
    if history is not None:
        await check_kept(connection, source.projection, history, at)


async def check_kept(connection: AsyncConnection[Any], projection: str, history: History, at: datetime) -> None:
    """Return if a projection keeps a history of a time.

    Raises:
        RequestError: an operator has shortened it.
    """
    since = await kept_since(connection, projection, history.name)
    if since is not None and at < since:
        what = f"An operator has shortened {history.name}: it is kept since {since.isoformat()}"
        raise RequestError(what, "Ask the log itself, with `gpuledger sql --at`")


def _relation_at(source: RowSource, at: datetime) -> Composable:
    if source.at is None:
        kinds = source.kinds.capitalize()
        raise RequestError(f"{kinds} are about recording and have no history in event time", "Use --as-recorded")
    return SQL("{}({})").format(Identifier("report", source.at), Literal(at))


async def _changed_keys(
    connection: AsyncConnection[Any], changed: ChangedIn, after: datetime, until: datetime
) -> list[object]:
    """The keys of what changed after a moment and up to another; of too many, one more than are looked up."""
    parts = [
        SQL("SELECT {0} AS key FROM {1} WHERE {2} > {3} AND {2} <= {4}").format(
            Identifier(changed.key), Identifier(LIVE, table), Identifier(column), Literal(after), Literal(until)
        )
        for table, columns in changed.times.items()
        for column in columns
    ]
    query = SQL("SELECT DISTINCT key FROM ({}) AS changed LIMIT {}").format(
        SQL(" UNION ALL ").join(parts), Literal(CHANGED_KEYS_MAX + 1)
    )
    return list((await _found(connection, query, ("key",))).column("key"))


async def _select_where(
    connection: AsyncConnection[Any],
    source: RowSource,
    relation: Composable,
    values: Mapping[str, object],
    columns: Sequence[str],
    further: Sequence[Composable] = (),
) -> FoundRows:
    conditions = [*([_condition(values)] if values else []), *further]
    where = SQL(" WHERE {}").format(SQL(" AND ").join(conditions)) if conditions else SQL("")
    query = SQL("SELECT {} FROM {}{} ORDER BY {}").format(
        _identifiers(columns), relation, where, _identifiers(source.order)
    )
    return await _found(connection, query, columns)


async def _found(connection: AsyncConnection[Any], query: Composed, columns: Sequence[str]) -> FoundRows:
    cursor = connection.cursor()
    read_json_as_text(cursor)
    await cursor.execute(query)
    return FoundRows(columns, await cursor.fetchall())


def _condition(where: Mapping[str, object]) -> Composable:
    return SQL(" AND ").join(
        SQL("{} = ANY({})").format(Identifier(name), Literal(value if isinstance(value, list) else [value]))
        for name, value in where.items()
    )


def _within(source: RowSource, keys: KeyRange) -> Composable:
    comparison = SQL("{} < {}" if keys.is_below else "{} >= {}")
    return comparison.format(Identifier(source.order[0]), Literal(keys.split))


def _lasts(lasting: Lasting) -> Composable:
    has_not_ended = SQL("{} IS NULL").format(Identifier(lasting.column))
    if lasting.since is None:
        return has_not_ended
    return SQL("({} OR {} >= {})").format(has_not_ended, Identifier(lasting.column), Literal(lasting.since))


def _identifiers(names: Sequence[str]) -> Composable:
    return SQL(", ").join(Identifier(name) for name in names)
