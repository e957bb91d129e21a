"""Connections against a real server."""

import asyncio
import gc
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from gpuledger.db.engine import (
    KEEPALIVE_COUNT,
    KEEPALIVE_IDLE_S,
    KEEPALIVE_INTERVAL_S,
    UNACKNOWLEDGED_MAX_S,
    AsyncConnection,
    connect,
    connect_blocking,
)
from gpuledger.db.errors import DatabaseUnavailableError, PoolerError
from gpuledger.db.lasting import LastingConnection
from gpuledger.db.migrate import migrate
from gpuledger.db.readonly import query, read_only
from gpuledger.runtime.backoff import Backoff
from support.pgbouncer import PgBouncer, skip_without_pgbouncer
from support.postgres_proxies import Pooler
from support.servers import short_directory

TURNS_MAX = 100_000


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder for a pooler; skips the test where there is none."""
    skip_without_pgbouncer()
    with short_directory() as folder:
        yield folder / "pooler"


async def test_cancelled_connecting_leaves_no_connection_open(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[AsyncConnection] = []
    plain = psycopg.AsyncConnection.execute

    async def noted(connection: AsyncConnection, query: bytes) -> object:
        opened.append(connection)
        return await plain(connection, query)

    monkeypatch.setattr(psycopg.AsyncConnection, "execute", noted)
    for turns in range(3):
        trying = asyncio.create_task(_connect(database_url))
        for _ in range(TURNS_MAX):
            if len(opened) > turns:
                break
            await asyncio.sleep(0)
        for _ in range(turns):
            await asyncio.sleep(0)
        trying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await trying
    gc.collect()
    assert [connection.closed for connection in opened] == [True] * 3


async def _connect(database_url: str) -> None:
    async with connect(database_url, application_name="stopped"):
        await asyncio.Event().wait()


async def test_both_ends_give_up_a_peer_that_vanished(database_url: str) -> None:
    async with connect(database_url, application_name="lasting") as connection:
        shown = {
            name: await (await connection.execute(f"SHOW {name}".encode())).fetchone()
            for name in ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout")
        }
        assert shown == {
            "tcp_keepalives_idle": (str(KEEPALIVE_IDLE_S),),
            "tcp_keepalives_interval": (str(KEEPALIVE_INTERVAL_S),),
            "tcp_keepalives_count": (str(KEEPALIVE_COUNT),),
            "tcp_user_timeout": (str(UNACKNOWLEDGED_MAX_S * 1000),),
        }
        with socket.socket(fileno=os.dup(connection.fileno())) as ours:
            of_tcp = [
                ours.getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
            ]
        assert of_tcp == [KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S, KEEPALIVE_COUNT, UNACKNOWLEDGED_MAX_S * 1000]


@pytest.mark.parametrize("in_turn", [False, True])
@pytest.mark.parametrize("sessions", [1, 2, 3])
async def test_a_pooler_whose_clients_share_sessions_is_refused(
    sessions: int, in_turn: bool, database_url: str
) -> None:
    with Pooler(database_url, sessions=sessions, by_transaction=True, in_turn=in_turn) as pooler:
        with pytest.raises(PoolerError, match="PgBouncer: pool_mode"):
            async with connect(pooler.url, application_name="pooled"):
                pass
        with (
            pytest.raises(PoolerError, match="PgBouncer: pool_mode"),
            connect_blocking(pooler.url, application_name="p"),
        ):
            pass


@pytest.mark.parametrize("sessions", [1, 20])
@pytest.mark.parametrize("mode", ["transaction", "statement"])
async def test_pgbouncer_is_refused_where_its_clients_share_sessions(
    mode: str, sessions: int, database_url: str, short: Path
) -> None:
    with (
        PgBouncer(short, database_url, mode=mode, sessions=sessions) as pooler,
        pytest.raises(PoolerError, match="PgBouncer: pool_mode"),
    ):
        async with connect(pooler.url, application_name="pooled"):
            pass


async def test_pgbouncer_that_keeps_sessions_apart_is_taken_for_everything(database_url: str, short: Path) -> None:
    with PgBouncer(short, database_url, mode="session", sessions=5) as pooler:
        migrate(pooler.url)
        async with read_only(pooler.url) as connection:
            shown = await query(connection, "SELECT current_setting('statement_timeout') FROM fleet")
            assert await shown.fetchall() == [("1min",)]


async def test_a_pool_that_is_full_is_called_that(database_url: str, short: Path) -> None:
    with (
        PgBouncer(short, database_url, mode="session", sessions=1) as pooler,
        pytest.raises(DatabaseUnavailableError, match="no session left"),
    ):
        async with connect(pooler.url, application_name="pooled"):
            pass


async def test_a_pooler_that_keeps_sessions_apart_is_taken(database_url: str) -> None:
    with Pooler(database_url, by_transaction=False) as pooler:
        async with connect(pooler.url, application_name="pooled") as connection:
            assert await (await connection.execute("SELECT 1")).fetchone() == (1,)


async def test_a_lasting_connection_is_opened_once_and_replaced_when_it_is_lost(database_url: str) -> None:
    lasting = LastingConnection(database_url, application_name="lasting")
    first = await lasting.get()
    assert await lasting.get() is first
    backend = first.info.backend_pid
    async with connect(database_url, application_name="cut") as other:
        await other.execute("SELECT pg_terminate_backend(%s)", [backend])
    with pytest.raises(psycopg.OperationalError):
        await first.execute("SELECT 1")
    second = await lasting.get()
    assert second.info.backend_pid != backend
    await lasting.close()
    assert second.closed


async def test_a_lasting_connection_is_not_tried_again_at_once(database_url: str) -> None:
    tries: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        nobody = f"postgresql://127.0.0.1:{listener.getsockname()[1]}/none"

        def refuse() -> None:
            with suppress(OSError):
                while True:
                    client = listener.accept()[0]
                    tries.append(1)
                    client.close()

        thread = threading.Thread(target=refuse, daemon=True)
        thread.start()
        lasting = LastingConnection(nobody, application_name="lasting", backoff=Backoff(first_s=3600, max_s=3600))
        after: list[int] = []
        for _ in range(3):
            with pytest.raises(DatabaseUnavailableError, match="Cannot reach PostgreSQL"):
                await lasting.get()
            after.append(len(tries))
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()
    assert after[0] > 0
    assert after == [len(tries)] * 3
