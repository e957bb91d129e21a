"""What every test of closing a generation stands on: servers with a ledger, a place for its archive, and commands."""

from pathlib import Path

import pytest

from gpuledger.local.servers.nats import NatsServer
from gpuledger.runtime.settings import Servers
from support.cli import Cli, Run, aside
from support.ledgers import make_ledger, run_partitions


@pytest.fixture
def partitions() -> int:
    """How many partitions the ledger has; a test's parameter of this name takes its place."""
    return run_partitions()


@pytest.fixture
async def servers(fresh_nats: NatsServer, url: str, partitions: int, monkeypatch: pytest.MonkeyPatch) -> Servers:
    monkeypatch.setenv("NATS_URL", fresh_nats.url)
    monkeypatch.setenv("DATABASE_URL", url)
    await make_ledger(fresh_nats.url, partitions=partitions)
    return Servers(fresh_nats.url, url)


@pytest.fixture
def location(tmp_path: Path) -> str:
    return (tmp_path / "archive").as_uri()


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Run:
    return aside(Cli(capsys))
