"""Detects a pooler that lets several connections share one session, and refuses it.

In transaction mode (PgBouncer's `pool_mode = transaction`) each transaction may run in another session of the server.
An advisory lock, a setting or a temporary table of one connection then belongs to whoever comes next: two processes
would lead at once. PostgreSQL names its process to a client as it connects, and so does a pooler, which invents one.
"""

from collections.abc import Mapping
from typing import Any

import psycopg

from gpuledger.db.errors import PoolerError

ROUNDS = 5
"""How often two connections are compared before a pooler counts as one that keeps sessions apart."""

_NO_TRANSACTIONS = "statement pooling mode"
"""Words of PgBouncer's refusal to begin a transaction where each statement may run in another session."""

_BACKEND = "SELECT pg_backend_pid()"


def is_pooled(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], backend: object) -> bool:
    """Whether somebody stands between this connection and the process of the server that answers it."""
    return connection.info.backend_pid != backend


def refuse_shared_sessions(parameters: Mapping[str, Any], place: str) -> None:
    """Compare two connections; a pooler may have each wait as long as its own bound for that allows.

    Raises:
        PoolerError: they share sessions, or one of them changes its session.
    """
    with (
        psycopg.connect(**parameters, autocommit=True) as one,
        psycopg.connect(**parameters, autocommit=True) as other,
    ):
        if any(_share_sessions(one, other) for _ in range(ROUNDS)):
            raise PoolerError(
                f"A pooler at {place} lets several connections share one session of PostgreSQL (PgBouncer: pool_mode = "
                "transaction or statement), so that no lock would hold. Let DATABASE_URL name PostgreSQL itself, or a "
                "pool with pool_mode = session."
            )


def _share_sessions(one: psycopg.Connection[Any], other: psycopg.Connection[Any]) -> bool:
    """`one` must keep its session from transaction to transaction, and while `other` keeps one busy.

    The first finds a pooler that gives free sessions in turn, the second one that gives what was freed last.
    """
    before = _backend(one)
    if _backend(one) != before:
        return True
    try:
        with other.transaction():
            return _backend(other) == before or _backend(one) != before
    except psycopg.errors.ProtocolViolation as error:
        if _NO_TRANSACTIONS in str(error):
            return True
        raise


def _backend(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute(_BACKEND).fetchone()
    assert row is not None, "the query always gives a row"
    return int(row[0])
