"""How large the log of a server and a database are, as these count."""

import psycopg

from bench.raw import client
from gpuledger.ledger.stream import stream_name
from gpuledger.local.servers.nats import NatsServer


async def stream_bytes(server: NatsServer) -> int:
    """What the log takes."""
    async with client(server.url) as connection:
        info = await connection.jetstream().stream_info(stream_name(1))
    return int(info.state.bytes)


def database_bytes(database_url: str) -> int:
    """What a database takes."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
    assert row is not None, "it answers"
    return int(row[0])
