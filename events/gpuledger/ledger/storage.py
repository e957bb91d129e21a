"""How much of its limits of storage a stream takes, as the NATS server answers. It must never change one.

A server's own limit (`max_file_store`) and its disk are in no answer; only what it refuses shows that they
are exhausted.
"""

from typing import NamedTuple

from gpuledger.ledger.connect import Connection
from gpuledger.ledger.continuity import kept_stream

NO_STORAGE_CODES = frozenset({10002, 10023, 10047, 10077})
"""The account's limit, the server's limit, its disk, and the stream's limit."""


class StorageUse(NamedTuple):
    """How many bytes count towards the limit of an `account` or a `stream`; None: it has no limit."""

    scope: str
    used_bytes: int
    limit_bytes: int | None


async def storage_use(connection: Connection, stream: str) -> tuple[StorageUse, ...]:
    """The use of what limits a stream.

    Raises:
        LogLostError: there is no such stream.
        LedgerUnavailableError: the server does not answer, or refuses permission.
    """
    info = await kept_stream(connection, stream)
    account = await connection.request(connection.jetstream.account_info)
    tier = (account.tiers or {}).get(f"R{info.config.num_replicas or 1}", account)
    return (
        StorageUse("account", tier.storage, _limit(tier.limits.max_storage)),
        StorageUse("stream", info.state.bytes, _limit(info.config.max_bytes)),
    )


def _limit(number: int | None) -> int | None:
    """The server's 0 and -1 mean that there is none."""
    return number if number and number > 0 else None
