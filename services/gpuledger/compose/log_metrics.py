"""What is measured of the log: its use of NATS' storage, what no seal covers yet, and a closing that is under way.

Decides nothing.
"""

from prometheus_client import Gauge

from gpuledger.compose.measuring import INTERVAL_S, UNMEASURED, keep_measuring
from gpuledger.db.lasting import LastingConnection
from gpuledger.events.position import lag
from gpuledger.ledger.closing import ClosingStep
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.runtime.tasks import run_until_one_fails

_STORAGE = Gauge("gpuledger_nats_storage_bytes", "Bytes that count towards a limit of JetStream's storage.", ["scope"])
_LIMIT = Gauge("gpuledger_nats_storage_limit_bytes", "That limit; absent where there is none.", ["scope"])
_UNSEALED = Gauge("gpuledger_log_unsealed_events", "Events at the end of the log that no seal covers yet.")
_CLOSING = Gauge(
    "gpuledger_log_closing", "1 while closing a generation keeps everybody from recording, by its step.", ["step"]
)
_CLOSING_SINCE = Gauge("gpuledger_log_closing_since_timestamp_seconds", "Since when it does.")
_CLOSING_SINCE.set(UNMEASURED)

_EVENT = "log.not-measured"
_SEALED_TO = b"SELECT coalesce(max(sealed_to), 0) FROM gpuledger_live.seal_chain"


async def measure_log(ledger: JetStreamLedger, database_url: str, *, interval_s: float = INTERVAL_S) -> None:
    """Measure until cancelled; what a server that is away would have to answer is not served."""
    connection = LastingConnection(database_url, application_name="gpuledger log metrics")
    works = [
        keep_measuring(_EVENT, lambda: _measure_storage(ledger), _give_up_storage, interval_s=interval_s),
        keep_measuring(_EVENT, lambda: _measure_closing(ledger), _give_up_closing, interval_s=interval_s),
        keep_measuring(_EVENT, lambda: _measure_seals(ledger, connection), _give_up_seals, interval_s=interval_s),
    ]
    try:
        await run_until_one_fails(works)
    finally:
        await connection.close()


async def _measure_storage(ledger: JetStreamLedger) -> None:
    for use in await ledger.storage():
        _STORAGE.labels(use.scope).set(use.used_bytes)
        if use.limit_bytes is None:
            _LIMIT.remove(use.scope)
        else:
            _LIMIT.labels(use.scope).set(use.limit_bytes)


def _give_up_storage() -> None:
    _STORAGE.clear()
    _LIMIT.clear()


async def _measure_closing(ledger: JetStreamLedger) -> None:
    closing = await ledger.closing()
    for step in ClosingStep:
        _CLOSING.labels(step).set(step == closing.step)
    since = None if closing.step is None else closing.since
    _CLOSING_SINCE.set(UNMEASURED if since is None else since.timestamp())


def _give_up_closing() -> None:
    _CLOSING.clear()
    _CLOSING_SINCE.set(UNMEASURED)


async def _measure_seals(ledger: JetStreamLedger, connection: LastingConnection) -> None:
    """The rows of `seals` may still be those of a longer log, while its service starts a new generation."""
    cursor = await (await connection.get()).execute(_SEALED_TO)
    row = await cursor.fetchone()
    assert row is not None, "a maximum is one row"
    _UNSEALED.set(lag(row[0], await ledger.head()))


def _give_up_seals() -> None:
    _UNSEALED.set(UNMEASURED)
