"""Queries of the role that reads: nothing is written, and they end in time, or with a sentence."""

import psycopg
import pytest

from gpuledger.db.errors import DatabaseUnavailableError, QueryError
from gpuledger.db.readonly import query, read_only


async def test_a_read_only_transaction_remains_where_the_role_is_left(migrated_url: str) -> None:
    async with read_only(migrated_url) as connection:
        await connection.execute("RESET ROLE")
        with pytest.raises(QueryError, match="would change the database"):
            await query(connection, "DELETE FROM gpuledger_live.device")


async def test_questions_that_take_too_long_are_stopped(migrated_url: str) -> None:
    async with read_only(migrated_url, statement_timeout_s=1) as connection:
        with pytest.raises(QueryError, match="too long"):
            await query(connection, "SELECT pg_sleep(60)")


async def test_a_lost_connection_is_reported(migrated_url: str) -> None:
    with pytest.raises(DatabaseUnavailableError, match="Cannot reach PostgreSQL at"):
        await _query_after_the_end(migrated_url)


async def _query_after_the_end(database_url: str) -> None:
    async with read_only(database_url) as connection:
        with psycopg.connect(database_url, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s)", [connection.info.backend_pid])
        await query(connection, "SELECT 1")


async def test_a_session_has_the_settings_it_is_given_and_still_only_reads(migrated_url: str) -> None:
    given = {"work_mem": "7MB", "default_transaction_read_only": "off"}
    async with read_only(migrated_url, settings=given) as connection:
        shown = [
            await (await connection.execute(f"SHOW {name}".encode())).fetchone()
            for name in ("work_mem", "transaction_read_only")
        ]
        assert shown == [("7MB",), ("on",)]
