"""Real servers for tests: in short temporary folders, gone with the test, bound to no event loop."""

import asyncio
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg

from gpuledger.ledger.connect import connected
from gpuledger.local.servers.nats import NatsServer
from gpuledger.local.servers.postgres import PostgresServer
from support.sessions import end_session

MEMORY = Path("/dev/shm")
"""Where Linux has files in memory: a server that is killed keeps them there as on a disk, and need not wait for one."""

MEMORY_FREE_MIN_BYTES = 4 << 30
"""With less than this the folders are on the disk."""

ANSWER_MAX_S = 60.0
"""How long a server may take to answer a test."""

REFUSAL_S = 5.0
"""How long a test asks to be let in; one that is to be refused waits as long."""

_numbers = itertools.count(1)


@contextmanager
def short_directory() -> Iterator[Path]:
    """A temporary directory whose path is short; pytest's own ones grow long."""
    with tempfile.TemporaryDirectory(prefix="gl-", dir=_memory(), ignore_cleanup_errors=True) as name:
        yield Path(name)


def _memory() -> Path | None:
    has_room = (
        MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_FREE_MIN_BYTES
    )
    return MEMORY if has_room else None


@contextmanager
def nats_server() -> Iterator[NatsServer]:
    """A NATS server with JetStream and nothing in it."""
    with short_directory() as directory, NatsServer(directory / "nats") as server:
        yield server


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server with an empty database `gpuledger`."""
    with short_directory() as directory, PostgresServer(directory / "postgres") as server:
        yield server


@contextmanager
def fresh_database(server_url: str, template: str = "template1") -> Iterator[str]:
    """The URL of a new database on the server, empty or like another; dropped at the end whoever is connected.

    The template's files are copied, which costs half of what its pages would in the write-ahead log.
    """
    name = f"t_{next(_numbers)}"
    end_session()  # a database that somebody uses cannot be copied
    _execute(server_url, f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
    try:
        yield urlunsplit(urlsplit(server_url)._replace(path=f"/{name}"))
    finally:
        _execute(server_url, f"DROP DATABASE {name} WITH (FORCE)")


def database_name(url: str) -> str:
    """The name of a database with this URL."""
    return urlsplit(url).path.removeprefix("/")


def forgo_durability(server_url: str) -> None:
    """Have the server write less and wait for no disk; for one that no test kills."""
    for setting in ("fsync", "full_page_writes", "synchronous_commit"):
        _execute(server_url, f"ALTER SYSTEM SET {setting} = off")
    _execute(server_url, "SELECT pg_reload_conf()")


def delete_streams(nats_url: str) -> None:
    """Delete every stream, which even a stream that denies purging allows."""
    while names := nats_answer(nats_url, "$JS.API.STREAM.NAMES").get("streams"):
        for name in names:
            nats_answer(nats_url, f"$JS.API.STREAM.DELETE.{name}")


def nats_answer(url: str, subject: str, payload: bytes = b"", *, timeout_s: float = ANSWER_MAX_S) -> dict[str, Any]:
    """The JSON object that the server answers to a request; blocks, also within an event loop.

    Raises:
        LedgerUnavailableError: it refuses us.
        AssertionError: it answers with an error.
    """
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(asyncio.run, _nats_answer(url, subject, payload, timeout_s)).result()
    assert "error" not in answer, answer
    return answer


async def _nats_answer(url: str, subject: str, payload: bytes, timeout_s: float) -> dict[str, Any]:
    async with connected(url, name="test", timeout_s=REFUSAL_S) as connection:
        answer: dict[str, Any] = json.loads((await connection.client.request(subject, payload, timeout=timeout_s)).data)
    return answer


def _execute(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())
