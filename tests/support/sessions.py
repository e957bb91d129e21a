"""The session in which a test's own statements run, kept until the next database: to connect takes longer than most."""

import select
from threading import local
from typing import Any

import psycopg

_KEPT = local()


def session(database_url: str) -> psycopg.Connection[tuple[Any, ...]]:
    """This thread's session with a database, which commits by itself; another one where the server ended it."""
    if getattr(_KEPT, "url", None) != database_url or _has_ended(_KEPT.connection):
        end_session()
        # Tests exchange tables, for which no statement may stay prepared.
        _KEPT.connection = psycopg.connect(database_url, autocommit=True, prepare_threshold=None)
        _KEPT.url = database_url
    connection: psycopg.Connection[tuple[Any, ...]] = _KEPT.connection
    return connection


def end_session() -> None:
    """End this thread's session."""
    if hasattr(_KEPT, "url"):
        del _KEPT.url
        _KEPT.connection.close()


def _has_ended(connection: psycopg.Connection[Any]) -> bool:
    """Whether a session is over: between two statements a server says nothing else."""
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
