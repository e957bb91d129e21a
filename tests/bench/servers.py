"""The servers that are measured: those of the embedded mode, with its settings.

`UnsyncedNats` is the one exception: it acknowledges before the disk has the message. It is for filling logs that are
then only read, and for the row that shows publishing with the disk out of the way.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from gpuledger.local.servers.nats import NatsServer
from support.ledgers import make_ledger_blocking
from support.servers import short_directory


class UnsyncedNats(NatsServer):
    """nats-server with its own default for syncing."""

    def _configuration(self, port: int) -> dict[str, object]:
        configuration = super()._configuration(port)
        jetstream = configuration["jetstream"]
        assert isinstance(jetstream, dict)
        return {**configuration, "jetstream": {"store_dir": jetstream["store_dir"]}}


@contextmanager
def unsynced_nats() -> Iterator[NatsServer]:
    """A server of that kind with an empty ledger."""
    with short_directory() as directory, UnsyncedNats(directory / "nats") as server:
        make_ledger_blocking(server.url)
        yield server
