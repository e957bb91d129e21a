"""The past in temporary tables: copies of the tables, views and functions that a query reaches, in this session alone.

They are gone with the connection, however it ends, so nobody has to clean up. The live tables lend their columns and
indexes, and are not touched. A query finds its relations under their usual names; what it would find elsewhere, which
is the present, is refused.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import psycopg
from psycopg.sql import SQL, Identifier, Literal

from gpuledger.db.engine import AsyncConnection
from gpuledger.db.errors import QueryError
from gpuledger.db.reached import Reached, reached_by
from gpuledger.db.readonly import LOCK_TIMEOUT_S, become_reader, query
from gpuledger.db.sql_text import Kind, Relocation, quoted, relocated, tokens, without_end
from gpuledger.db.views import FUNCTIONS_AT, READER_ROLE, REPORTS, texts_of, view_of

LIVE, REPORT, TEMPORARY = "gpuledger_live", "report", "pg_temp"

BUFFERS: Final = "64MB"
"""How much of the temporary tables a session keeps in memory; the rest is on the server's disk."""

ASKED_AT = "asked_at"
OF_LIVE_ROWS = {"has_versions": "", "has_day_totals": "text"}
"""Depend on which build wrote the rows that serve, and since when; those here are of this one. Names, and what they
take."""

IS_KEPT = "is_kept"
"""Depends on which histories were shortened: here up to the moment that is asked for."""

_IS_KEPT_BODY: Final = """
DECLARE
    since timestamptz := ({since}::jsonb ->> history)::timestamptz;
BEGIN
    IF at < since THEN
        RAISE EXCEPTION '% is kept since %, because an operator had shortened it then', history, since
            USING HINT = 'Ask the log itself, with gpuledger sql --at, or as recorded before that.';
    END IF;
    RETURN true;
END
"""

_HELPERS: Final = (
    *("location_of", "allocation_changes", "container_changes"),
    *("repeated_min", "flapping_min", "bad_slot_devices_min", "lemon_incidents_min"),
)
"""Functions that views and functions over time call, and that are theirs alone."""

_VIEWS: Final = tuple(view_of(report).partition(".")[2] for report in REPORTS)
_SHADOWED: Final = frozenset(_VIEWS)
"""Names that a view has; a table of the same name gets its full one."""

_GRANT: Final = """
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = {role}) THEN
        EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA %s TO %I', pg_my_temp_schema()::regnamespace, {role});
    END IF;
END
$$
"""

_BYTES: Final = """
SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class
WHERE relnamespace = pg_my_temp_schema() AND relkind = 'r'
"""


def table_name(table: str) -> str:
    """What a live table is called here."""
    return f"{LIVE}.{table}" if table in _SHADOWED else table


def session_settings() -> dict[str, str]:
    """The settings of the session that has the temporary tables."""
    return {
        "temp_buffers": BUFFERS,
        "lock_timeout": f"{LOCK_TIMEOUT_S}s",
        "standard_conforming_strings": "on",
        "search_path": TEMPORARY,
    }


class Scratch:
    """The temporary tables of one session."""

    def __init__(self, connection: AsyncConnection, reached: Iterable[Reached], tables: Sequence[str]) -> None:
        self._connection = connection
        self._objects = {(one.schema, one.name) for one in reached} | {(REPORT, ASKED_AT)}
        self._tables = tables
        views = {(REPORT, name): f"{TEMPORARY}.{quoted(name)}" for name in _VIEWS}
        live = {(LIVE, name): f"{TEMPORARY}.{quoted(table_name(name))}" for name in tables}
        types = {(REPORT, "workload_then"): f'{TEMPORARY}."workload_then"'}
        functions = {
            name: f"{TEMPORARY}.{quoted(name)}" for name in (*FUNCTIONS_AT, *_HELPERS, ASKED_AT, IS_KEPT, *OF_LIVE_ROWS)
        }
        self._names = Relocation((LIVE, REPORT), {**views, **live, **types}, functions)

    async def create_tables(self) -> None:
        """Make the tables, empty."""
        async with self._connection.transaction():
            for name in self._tables:
                table, live = Identifier(table_name(name)), Identifier(LIVE, name)
                await self._connection.execute(
                    SQL("CREATE TEMPORARY TABLE {} (LIKE {} INCLUDING ALL)").format(table, live)
                )

    async def create_views(self, asked_at: datetime, histories: Mapping[str, datetime]) -> None:
        """Make the views and functions over them; what counts to now counts to `asked_at`.

        `histories` says since when the tables keep those that were shortened.
        """
        clock = self._names.functions[ASKED_AT]
        create = SQL("CREATE FUNCTION {}() RETURNS timestamptz LANGUAGE sql STABLE RETURN {}::timestamptz")
        names = self._names
        ours = Relocation(names.schemas, names.relations, names.functions, clock)
        files = {name for schema, name in self._objects if schema == REPORT} - {ASKED_AT, IS_KEPT, *OF_LIVE_ROWS}
        async with self._connection.transaction():
            await self._connection.execute(create.format(Identifier(TEMPORARY, ASKED_AT), Literal(asked_at)))
            for name, taken in OF_LIVE_ROWS.items():
                yes = SQL("CREATE FUNCTION {}({}) RETURNS boolean LANGUAGE sql IMMUTABLE RETURN true")
                await self._connection.execute(yes.format(Identifier(TEMPORARY, name), SQL(taken)))
            await self._create_is_kept(histories)
            for text in texts_of(files):
                await self._connection.execute(relocated(_without_comments(text), ours).encode())
            for name in self._tables:
                await self._connection.execute(SQL("ANALYZE {}").format(Identifier(table_name(name))))
            await self._connection.execute(SQL(_GRANT).format(role=Literal(READER_ROLE)))

    async def _create_is_kept(self, histories: Mapping[str, datetime]) -> None:
        since = json.dumps({history: begins.isoformat() for history, begins in histories.items()})
        body = SQL(_IS_KEPT_BODY).format(since=Literal(since)).as_string(self._connection)
        create = SQL("CREATE FUNCTION {}(history text, at timestamptz) RETURNS boolean LANGUAGE plpgsql STABLE AS {}")
        await self._connection.execute(create.format(Identifier(TEMPORARY, IS_KEPT), Literal(body)))

    async def bytes(self) -> int:
        """How much the tables and their indexes take on the server."""
        row = await (await self._connection.execute(_BYTES.encode())).fetchone()
        assert row is not None, "a sum is one row"
        return int(row[0])

    async def query(self, statement: str, timeout_s: int) -> psycopg.AsyncCursor[tuple[Any, ...]]:
        """Run a query on the tables as they are now, as a role that can only read; it is the last of this session.

        Raises:
            QueryError: PostgreSQL refuses it, it takes too long, or it would read the present.
        """
        here = relocated(without_end(statement), self._names)
        refuse_present(await reached_by(self._connection, here, TEMPORARY), self._names.schemas)
        await become_reader(self._connection)
        await self._connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        await self._connection.execute(SQL("SET LOCAL statement_timeout = {}").format(Literal(f"{timeout_s}s")))
        return await query(self._connection, here)


def refuse_present(reached: Iterable[Reached], schemas: Sequence[str] = (LIVE, REPORT)) -> None:
    """Refuse what is not in temporary tables.

    Raises:
        QueryError: the query reads something that has no past, or names it in a way that is not found there.
    """
    for one in reached:
        if one.schema in schemas:
            raise QueryError(
                f"The query names {one} in a way that reads the present. Write the name in the query itself, with an "
                "alias if need be."
            )
        if not one.schema.startswith("pg_temp") and one.schema != "pg_catalog":
            raise QueryError(
                f"{one} has no past: only the tables of {LIVE} and the views and functions of {REPORT} have one. "
                "Leave it out, or ask without --at and --as-recorded."
            )


def _without_comments(text: str) -> str:
    """The statements of a file without those that begin with COMMENT."""
    kept: list[str] = []
    begins, skips = True, False
    for token in tokens(text):
        if begins and token.kind is not Kind.SPACE:
            skips, begins = token.value == "comment", False
        if not skips:
            kept.append(token.source)
        begins = begins or token.source == ";"
    return "".join(kept)
