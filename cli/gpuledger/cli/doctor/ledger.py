"""What can be seen of the ledger: its server, its stream, and whether that keeps what it acknowledges.

Nothing here changes anything, nor makes a stream where there is none.
"""

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

from nats.js.api import StreamInfo
from nats.js.errors import NotFoundError

from gpuledger.cli.doctor.check import Check, failed, ok, warning
from gpuledger.ledger.api import Position
from gpuledger.ledger.connect import Connection, connected
from gpuledger.ledger.errors import LedgerError
from gpuledger.ledger.stream import check_config, stream_name

MAJORITY_MIN = 3
ALWAYS = "always"


class LedgerChecks:
    """Looks at a NATS server; `head` is the log's last position afterwards, None where there is no log to see."""

    def __init__(self, nats_url: str, data_dir: Path | None) -> None:
        self.head: Position | None = None
        self._url = nats_url
        self._data_dir = data_dir

    async def run(self) -> AsyncIterator[Check]:
        """The checks, as they are made."""
        try:
            async with connected(self._url, name="gpuledger doctor") as connection:
                version = connection.client.connected_server_version
                yield ok("nats", f"Version {version.major}.{version.minor}.{version.patch} at {connection.address}")
                async for check in self._stream(connection):
                    yield check
        except LedgerError as error:
            yield failed("nats", str(error))

    async def _stream(self, connection: Connection) -> AsyncIterator[Check]:
        generation, info = await _newest(connection)
        if info is None:
            yield warning("stream", "There is no ledger yet. `gpuledger up` makes it.")
            return
        self.head = Position(generation, info.state.last_seq)
        try:
            check_config(info.config, generation)
            size = f"{info.state.messages:,} events, {info.state.bytes / 1024**2:,.1f} MiB"
            yield ok("stream", f"{stream_name(generation)}: {size}, last position {self.head}")
        except LedgerError as error:
            yield failed("stream", str(error))
        yield durability_check(info.config.num_replicas or 1, self._sync_interval())

    def _sync_interval(self) -> str | None:
        """What an embedded server was told; of another server nobody tells."""
        if self._data_dir is None:
            return None
        with suppress(OSError, ValueError, KeyError):
            configuration = json.loads((self._data_dir / "nats" / "nats.conf").read_text(encoding="utf-8"))
            return str(configuration["jetstream"]["sync_interval"])
        return None


def durability_check(replicas: int, sync_interval: str | None) -> Check:
    """Whether what is acknowledged outlives a power failure: synced to disk, or kept by a majority of servers."""
    if sync_interval == ALWAYS:
        return ok("durability", "Every event is on disk before it is acknowledged (sync_interval: always)")
    if replicas >= MAJORITY_MIN:
        return ok("durability", f"Every event is on a majority of {replicas} servers before it is acknowledged")
    found = "cannot be seen from here" if sync_interval is None else f"is {sync_interval}"
    return warning("durability", f"There is one replica, and sync_interval {found}. Set it to `always` in nats.conf.")


async def _newest(connection: Connection) -> tuple[int, StreamInfo | None]:
    """The newest generation; none is ever deleted, so they are numbered without holes."""
    number, newest = 0, None
    with suppress(NotFoundError):
        while True:
            name = stream_name(number + 1)
            newest = await connection.ask(lambda name=name: connection.jetstream.stream_info(name))  # type: ignore[misc]
            number += 1
    return number, newest
