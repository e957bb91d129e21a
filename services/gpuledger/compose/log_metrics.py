"""What is measured of the log: its use of NATS' storage, and how much of it no seal covers yet. Decides nothing."""

import asyncio

import psycopg
import structlog
from prometheus_client import Gauge

from gpuledger.db.errors import DatabaseError
from gpuledger.db.lasting import LastingConnection
from gpuledger.events.position import lag
from gpuledger.ledger.errors import LedgerError
from gpuledger.ledger.jetstream import JetStreamLedger

log = structlog.get_logger("gpuledger.log")

INTERVAL_S = 15.0
"""How often it is measured; a scrape is seldom more frequent."""

_STORAGE = Gauge("gpuledger_nats_storage_bytes", "Bytes that count towards a limit of JetStream's storage.", ["scope"])
_LIMIT = Gauge("gpuledger_nats_storage_limit_bytes", "That limit; absent where there is none.", ["scope"])
_UNSEALED = Gauge("gpuledger_log_unsealed_events", "Events at the end of the log that no seal covers yet.")

_SEALED_TO = b"SELECT coalesce(max(sealed_to), 0) FROM gpuledger_live.seal_chain"


async def measure_log(ledger: JetStreamLedger, database_url: str, *, interval_s: float = INTERVAL_S) -> None:
    """Measure until cancelled. While a server is away, the last values stay."""
    connection = LastingConnection(database_url, application_name="gpuledger log metrics")
    try:
        while True:
            try:
                await _measure_storage(ledger)
                await _measure_seals(ledger, connection)
            except (LedgerError, DatabaseError, psycopg.Error) as error:
                log.warning("log.not-measured", reason=str(error).strip())
            await asyncio.sleep(interval_s)
    finally:
        await connection.close()


async def _measure_storage(ledger: JetStreamLedger) -> None:
    for use in await ledger.storage():
        _STORAGE.labels(use.scope).set(use.used_bytes)
        if use.limit_bytes is None:
            _LIMIT.remove(use.scope)
        else:
            _LIMIT.labels(use.scope).set(use.limit_bytes)


async def _measure_seals(ledger: JetStreamLedger, connection: LastingConnection) -> None:
    """The rows of `seals` may still be those of a longer log, while its service starts a new generation."""
    cursor = await (await connection.get()).execute(_SEALED_TO)
    row = await cursor.fetchone()
    assert row is not None, "a maximum is one row"
    _UNSEALED.set(lag(row[0], await ledger.head()))
