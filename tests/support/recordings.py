"""Ledgers and databases that earlier builds wrote, put back on servers of a test: the same positions, times and rows.

A recording stands for what lies in people's data directories, so nothing here may change one.
"""

import gzip
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from gpuledger.cli.log.archive import messages, verified
from gpuledger.ledger.api import Message
from gpuledger.local.servers.nats import NatsServer
from gpuledger.local.servers.postgres import find_binaries
from support.servers import short_directory

FOLDER: Final = Path(__file__).parents[1] / "migration" / "recorded"
STORE: Final = "jetstream.tar.gz"
ARCHIVE: Final = "ledger.jsonl.gz"
DATABASE: Final = "database.sql.gz"
_JETSTREAM: Final = "jetstream"


class Recording(NamedTuple):
    """What one build wrote: the folder is named after the revision of its database's schema."""

    folder: Path

    def messages(self) -> list[Message]:
        """The log, as that build exported it."""
        verified(self.folder / ARCHIVE)
        return list(messages(self.folder / ARCHIVE))

    @contextmanager
    def nats_server(self) -> Iterator[NatsServer]:
        """A NATS server with the ledger as that build's server had it on disk."""
        with short_directory() as directory:
            with tarfile.open(self.folder / STORE) as store:
                store.extractall(directory / "nats", filter="data")
            with NatsServer(directory / "nats") as server:
                yield server

    def load_database(self, url: str) -> None:
        """Put schema, rows and views into an empty database."""
        command = (find_binaries() / "psql", "-Xq", "-v", "ON_ERROR_STOP=1", "--single-transaction", "-d", url)
        dump = gzip.decompress((self.folder / DATABASE).read_bytes())
        subprocess.run(command, input=dump, stdout=subprocess.DEVNULL, check=True)


def recordings() -> list[Recording]:
    """Every recording, the oldest first."""
    found = [Recording(path.parent) for path in sorted(FOLDER.glob(f"*/{ARCHIVE}"))]
    assert found, f"{FOLDER} has no recordings"
    return found


def dump_database(url: str) -> bytes:
    """A database as SQL, without owners and rights: these belong to the server."""
    command = (find_binaries() / "pg_dump", "--no-owner", "--no-acl", "-d", url)
    return subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout


def pack_store(nats: Path, target: Path) -> None:
    """Keep what a stopped NATS server has on disk, without its password and without who owned the files."""
    with tarfile.open(target, "w:gz") as store:
        store.add(nats / _JETSTREAM, _JETSTREAM, filter=_without_owner)


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    return entry.replace(uid=0, gid=0, uname="", gname="", mtime=0, deep=False)
