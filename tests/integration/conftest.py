"""Servers for integration tests: databases with every table, as the migrations make them, and an empty ledger."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gpuledger.ledger.jetstream import JetStreamLedger
from support import projections, servers
from support.cli import Cli
from support.kubelet_parts import short_folder
from support.ledgers import jetstream_ledger


@pytest.fixture(scope="session")
def migrated_template(postgres_server_url: str) -> Iterator[str]:
    """The name of a database with every table, which nobody is connected to."""
    with servers.fresh_database(postgres_server_url) as url:
        yield servers.database_name(projections.prepare(url))


@pytest.fixture
def migrated_url(postgres_server_url: str, migrated_template: str) -> Iterator[str]:
    """A new database with every table and no row; copied, which is faster than to migrate it."""
    with servers.fresh_database(postgres_server_url, migrated_template) as url:
        yield url


@pytest.fixture
def url(migrated_url: str) -> str:
    """The same, where a test needs only one database."""
    return migrated_url


@pytest.fixture
async def ledger(clean_nats_url: str) -> AsyncIterator[JetStreamLedger]:
    """An empty ledger, whose partitions come into the log as with `up`."""
    async with jetstream_ledger(clean_nats_url, puts_in_order=True) as ledger:
        yield ledger


@pytest.fixture
def cli(urls: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """The command line on the servers of the tests' own fixture `urls`, which says where each is."""
    for name, url in urls.items():
        monkeypatch.setenv(name, url)
    monkeypatch.setenv("NO_COLOR", "1")
    return Cli(capsys)


@pytest.fixture
def root() -> Iterator[Path]:
    """A folder whose path leaves room for the name of a socket."""
    with short_folder() as folder:
        yield folder
