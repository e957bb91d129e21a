"""Restores ledgers and databases that earlier builds recorded, with the same positions, times and rows.

A recording stands for a data directory that somebody already has, so nothing here may change a recording.
"""

import gzip
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from gpuledger.ledger.api import Message
from gpuledger.local.servers.nats import NatsServer
from gpuledger.local.servers.postgres_binaries import find_binaries
from gpuledger.tools.log_archive import messages, read_header
from support.servers import short_directory

FOLDER: Final = Path(__file__).parents[1] / "migration" / "recorded"
STORE: Final = "jetstream.tar.gz"
ARCHIVE: Final = "ledger.jsonl.gz"
DATABASE: Final = "database.sql.gz"
_JETSTREAM: Final = "jetstream"


class Recording(NamedTuple):
    """A ledger and a database of one build; the folder's name is the revision of the database's schema."""

    folder: Path

    def messages(self) -> list[Message]:
        """The log, from the archive that the build exported."""
        read_header(self.folder / ARCHIVE)
        return list(messages(self.folder / ARCHIVE))

    @contextmanager
    def nats_server(self) -> Iterator[NatsServer]:
        """A NATS server that runs on a copy of the recorded store."""
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
    """Pack the store of a stopped NATS server, without passwords and owners."""
    with tarfile.open(target, "w:gz") as store:
        store.add(nats / _JETSTREAM, _JETSTREAM, filter=_without_owner)


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    return entry.replace(uid=0, gid=0, uname="", gname="", mtime=0, deep=False)
