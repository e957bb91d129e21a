"""Copies of a server's streams, to be put back in place of newer ones."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuledger.local.servers.nats import NatsServer


@contextmanager
def stopped(server: NatsServer) -> Iterator[Path]:
    """The folder of the server's streams, while it does not run."""
    server.kill()
    yield server.directory / "jetstream"
    server.start()


def keep_copy(server: NatsServer, copy: Path) -> None:
    """Keep a copy of a server's streams."""
    with stopped(server) as store:
        shutil.copytree(store, copy)


def put_back(server: NatsServer, copy: Path) -> None:
    """Put a copy of a server's streams in the place of what it has."""
    with stopped(server) as store:
        shutil.rmtree(store)
        shutil.copytree(copy, store)
