"""The statements that read and write a table's rows, which follow from its spec; each is composed once."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from types import UnionType
from typing import Any, Final, NamedTuple, get_args, get_type_hints

from psycopg.sql import SQL, Composed, Identifier

from gpuledger.domain.table import Sum, TableSpec
from gpuledger.events.position import Offset

COMPOSED_MAX: Final = 1_024
"""For how many tables in how many schemas statements are kept, several times as many as there are."""

_REPLACED, _ADDED = SQL("{0} = excluded.{0}"), SQL("{0} = kept.{0} + excluded.{0}")

_SQL_TYPES: dict[type, str] = {
    Offset: "bigint",
    str: "text",
    int: "bigint",
    bool: "boolean",
    datetime: "timestamptz",
    Sum: "numeric",
}


class Statements(NamedTuple):
    """What a table is read and written with but for its inserts; `page` has a statement for each column to page by."""

    select: Composed
    page: Mapping[str, bytes]
    copy: bytes
    copy_csv: bytes
    truncate: bytes
    delete: bytes
    delete_nothing: bytes
    stage: bytes
    copy_staged: bytes
    merge: bytes
    delete_nothing_staged: bytes
    unstage: bytes


class Inserts(NamedTuple):
    """Both take one array a column."""

    insert: bytes
    upsert: bytes


@lru_cache(maxsize=COMPOSED_MAX)
def statements_of(spec: TableSpec[Any], schema: str) -> Statements:
    """What the table of this schema is read and written with.

    Rows to merge are staged in a temporary table, of the name `changed_` and the table's.
    """
    table, columns, keys = Identifier(schema, spec.name), _identifiers(spec.columns), _identifiers(spec.key)
    staged = Identifier("pg_temp", f"changed_{spec.name}")
    types = _types_of(spec)
    same_key = SQL(" AND ").join(SQL("kept.{0} = gone.{0}").format(Identifier(name)) for name in spec.key)
    is_nothing = SQL("").join(SQL(" AND kept.{} = 0").format(Identifier(name)) for name in spec.adds)
    select = SQL("SELECT {} FROM {}").format(columns, table)
    page = SQL("{} WHERE {} = ANY(%s::{}[])")
    delete = SQL("DELETE FROM {} AS kept USING unnest({}) AS gone ({}) WHERE {}").format(
        table, _arrays(spec.key, types), keys, same_key
    )
    # No partition takes FREEZE.
    options = SQL("FORMAT csv" if spec.by_month is not None else "FORMAT csv, FREEZE")
    return Statements(
        select=select,
        page={name: page.format(select, Identifier(name), SQL(types[name])).as_bytes() for name in spec.page_by},
        copy=SQL("COPY {} ({}) FROM STDIN").format(table, columns).as_bytes(),
        copy_csv=SQL("COPY {} ({}) FROM STDIN ({})").format(table, columns, options).as_bytes(),
        truncate=SQL("TRUNCATE {}").format(table).as_bytes(),
        delete=delete.as_bytes(),
        delete_nothing=(delete + is_nothing).as_bytes(),
        stage=SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA")
        .format(Identifier(f"changed_{spec.name}"), columns, table)
        .as_bytes(),
        copy_staged=SQL("COPY {} ({}) FROM STDIN").format(staged, columns).as_bytes(),
        merge=SQL("INSERT INTO {} AS kept ({}) SELECT * FROM {} {}")
        .format(table, columns, staged, _on_conflict(spec))
        .as_bytes(),
        delete_nothing_staged=SQL("DELETE FROM {} AS kept USING {} AS gone WHERE {}{}")
        .format(table, staged, same_key, is_nothing)
        .as_bytes(),
        unstage=SQL("DROP TABLE {}").format(staged).as_bytes(),
    )


@lru_cache(maxsize=COMPOSED_MAX)
def inserts_of(spec: TableSpec[Any], schema: str, jsonb: frozenset[str]) -> Inserts:
    """What adds rows to the table, and what adds or replaces them; these columns of it are `jsonb`."""
    types = _types_of(spec) | dict.fromkeys(jsonb, "jsonb")
    insert = SQL("INSERT INTO {} AS kept ({}) SELECT * FROM unnest({})").format(
        Identifier(schema, spec.name), _identifiers(spec.columns), _arrays(spec.columns, types)
    )
    return Inserts(insert.as_bytes(), SQL("{} {}").format(insert, _on_conflict(spec)).as_bytes())


def _on_conflict(spec: TableSpec[Any]) -> Composed:
    values = [name for name in spec.columns if name not in spec.key]
    if not values:
        return SQL("ON CONFLICT ({}) DO NOTHING").format(_identifiers(spec.key))
    updates = SQL(", ").join((_ADDED if name in spec.adds else _REPLACED).format(Identifier(name)) for name in values)
    return SQL("ON CONFLICT ({}) DO UPDATE SET {}").format(_identifiers(spec.key), updates)


def _types_of(spec: TableSpec[Any]) -> dict[str, str]:
    return dict(zip(spec.columns, column_types(spec.row), strict=True))


def column_types(row: type[tuple[Any, ...]]) -> list[str]:
    """The SQL types of a row's columns, in their order."""
    return [_SQL_TYPES[_bare(hint)] for hint in get_type_hints(row).values()]


def _bare(hint: Any) -> type:  # noqa: ANN401 - a type hint may be anything
    if isinstance(hint, UnionType):
        hint = next(part for part in get_args(hint) if part is not type(None))
    assert isinstance(hint, type)
    return hint


def _identifiers(names: Sequence[str]) -> Composed:
    return SQL(", ").join(Identifier(name) for name in names)


def _arrays(names: Sequence[str], types: Mapping[str, str]) -> Composed:
    return SQL(", ").join(SQL("%s::{}[]").format(SQL(types[name])) for name in names)
