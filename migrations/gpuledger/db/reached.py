"""What a query reaches: the tables, views and functions that PostgreSQL finds it to depend on, however deep they lie.

PostgreSQL parses the query as a view, which is rolled back; nothing of the query runs. What it builds into a text and
has executed by a function, such as `query_to_xml`, is a text to PostgreSQL, and nobody finds it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import psycopg

from gpuledger.db.engine import AsyncConnection
from gpuledger.db.errors import QueryError
from gpuledger.db.readonly import refused
from gpuledger.db.sql_text import first_word, without_end

QUERY_WORDS: Final = ("select", "with", "values", "table", "(")
"""How a statement begins that can be parsed as a view."""

_VIEW: Final = "CREATE TEMPORARY VIEW gpuledger_query AS SELECT 1 AS one FROM (\n{}\n) AS query"

_REACHED: Final = """
WITH RECURSIVE reached (classid, objid, depth) AS (
    SELECT 'pg_rewrite'::regclass::oid, oid, 0 FROM pg_rewrite WHERE ev_class = 'pg_temp.gpuledger_query'::regclass
    UNION
    SELECT following.classid, following.objid, least(reached.depth + 1, 2)
    FROM reached
    JOIN pg_depend AS depends ON depends.classid = reached.classid AND depends.objid = reached.objid
    CROSS JOIN LATERAL (
        SELECT depends.refclassid AS classid, depends.refobjid AS objid
        UNION ALL
        SELECT 'pg_rewrite'::regclass::oid, oid FROM pg_rewrite
        WHERE depends.refclassid = 'pg_class'::regclass AND ev_class = depends.refobjid
        UNION ALL
        SELECT 'pg_class'::regclass::oid, typrelid FROM pg_type
        WHERE depends.refclassid = 'pg_type'::regclass AND pg_type.oid = depends.refobjid AND typrelid <> 0
    ) AS following
    WHERE reached.classid IN ('pg_rewrite'::regclass, 'pg_proc'::regclass)
)
SELECT nspname, relname, relkind = 'v', false, min(depth) <= 1
FROM reached
JOIN pg_class ON reached.classid = 'pg_class'::regclass AND pg_class.oid = reached.objid
JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE relkind <> 'c' AND pg_class.oid <> 'pg_temp.gpuledger_query'::regclass
GROUP BY 1, 2, 3
UNION ALL
SELECT nspname, proname, false, true, min(depth) <= 1
FROM reached
JOIN pg_proc ON reached.classid = 'pg_proc'::regclass AND pg_proc.oid = reached.objid
JOIN pg_namespace ON pg_namespace.oid = pronamespace
GROUP BY 1, 2
"""


class Reached(NamedTuple):
    """A table, view or function; `is_named`: by the query itself, and not only by a view or function in it."""

    schema: str
    name: str
    is_view: bool
    is_function: bool
    is_named: bool

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}{'()' if self.is_function else ''}"


async def reached_by(connection: AsyncConnection, statement: str, search_path: str) -> list[Reached]:
    """What a query reaches, with its names looked up in these schemas.

    Raises:
        QueryError: it is no query, or PostgreSQL cannot parse it.
    """
    if first_word(statement) not in QUERY_WORDS:
        raise QueryError("Only a query has a past: write a SELECT, WITH, VALUES or TABLE statement.")
    async with connection.transaction(force_rollback=True):
        await connection.execute("SELECT set_config('search_path', %s, true)", [search_path])
        # The columns of a view have different names, and those of a query need not.
        view = _VIEW.format(without_end(statement))
        with refused(), _temporary_views():
            await connection.execute(view.encode(), prepare=True)  # prepared, it is one statement or none
        cursor = await connection.execute(_REACHED.encode())
        return [Reached(*row) for row in await cursor.fetchall()]


@contextmanager
def _temporary_views() -> Iterator[None]:
    """Word what a server says that makes no temporary views for this user, or for anybody."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        if "temporary" not in str(error):
            raise
        raise QueryError(
            "The past is folded into temporary tables, which the user in DATABASE_URL may not create. "
            "Run GRANT TEMPORARY ON DATABASE for that user."
        ) from error
    except psycopg.errors.ReadOnlySqlTransaction as error:
        raise QueryError(
            "The past is folded into temporary tables, which a standby does not take. "
            "Let DATABASE_URL name the primary."
        ) from error
