"""Commands on a ledger of several partitions: it is made once, what works does, and what does not yet is refused."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpuledger.deciders.seals.decide import MESSAGES_PER_SEAL
from gpuledger.events.position import number_of
from gpuledger.ledger.jetstream import JetStreamLedger, connect_ledger
from gpuledger.local.servers.nats import NatsServer
from support.cli import Cli, Run, aside
from support.ledgers import jetstream_ledger, outgoing
from support.projections import publish
from support.runners import failures
from support.seals import seal
from support.servers import nats_answer

EVENTS = MESSAGES_PER_SEAL + 3
REFUSED = "works with a ledger of one partition alone, and this one has 4"


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, fresh_nats: NatsServer, url: str) -> Run:
    monkeypatch.setenv("NATS_URL", fresh_nats.url)
    monkeypatch.setenv("DATABASE_URL", url)
    return aside(Cli(capsys))


@pytest.fixture
async def ledger(fresh_nats: NatsServer, url: str) -> AsyncIterator[JetStreamLedger]:
    """A log with a seal."""
    async with jetstream_ledger(fresh_nats.url, partitions=4) as ledger:
        await publish(ledger, failures(range(1, EVENTS + 1)))
        await seal(ledger, url, 1)
        yield ledger


async def test_migrate_makes_the_partitions_once(cli: Run, fresh_nats: NatsServer) -> None:
    assert (await cli("migrate", "--partitions", "4")).code == 0
    async with connect_ledger(fresh_nats.url, name="test") as ledger:
        assert ledger.partitions == 4
    names = sorted(nats_answer(fresh_nats.url, "$JS.API.STREAM.NAMES")["streams"])
    assert names == ["LEDGER_1", *(f"LEDGER_1_P{partition}OF4" for partition in range(4))]
    for again in (("migrate",), ("migrate", "--partitions", "4")):
        assert (await cli(*again)).code == 0
    other = await cli("migrate", "--partitions", "2")
    assert other.code != 0
    assert "made with 4 partitions and keeps them: it cannot have 2" in other.err
    assert sorted(nats_answer(fresh_nats.url, "$JS.API.STREAM.NAMES")["streams"]) == names


@pytest.mark.one_stream("makes a ledger of one partition")
async def test_one_partition_is_the_default_and_cannot_become_several(cli: Run, fresh_nats: NatsServer) -> None:
    assert (await cli("migrate")).code == 0
    assert nats_answer(fresh_nats.url, "$JS.API.STREAM.NAMES")["streams"] == ["LEDGER_1"]
    other = await cli("migrate", "--partitions", "4")
    assert other.code != 0
    assert "made with 1 partition and keeps them: it cannot have 4" in other.err


async def test_what_was_interrupted_is_made_by_the_next(
    cli: Run, fresh_nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two partitions of a first attempt are there, and no order."""
    monkeypatch.setenv("GPULEDGER_PARTITIONS", "4")
    assert (await cli("migrate")).code == 0
    for stream in ("LEDGER_1", "LEDGER_1_P3OF4", "LEDGER_1_P2OF4"):
        assert nats_answer(fresh_nats.url, f"$JS.API.STREAM.DELETE.{stream}")["success"]
    assert (await cli("migrate")).code == 0
    async with jetstream_ledger(fresh_nats.url) as ledger:
        assert (await ledger.publish_many([outgoing(1), outgoing(2)]))[-1].sequence == 2
    assert nats_answer(fresh_nats.url, "$JS.API.STREAM.DELETE.LEDGER_1")["success"]
    lost = await cli("migrate")
    assert lost.code != 0
    assert "no stream with their order" in lost.err


async def test_the_log_is_proven_archived_and_shown(ledger: JetStreamLedger, cli: Run, tmp_path: Path) -> None:
    head = number_of(await ledger.head())
    proven = await cli("verify", "--log")
    assert proven.code == 0, proven.err
    assert "1 seals cover the log up to 1/1000; 4 events are not sealed." in proven.err
    written = await cli("log", "archive", "write", str(tmp_path), "--no-tables")
    assert written.code == 0, written.err
    archived = await cli("log", "archive", "verify", str(tmp_path))
    assert archived.code == 0, archived.err
    assert "it is what the log holds." in archived.err
    rows = (await cli("log", "tail", "-n", "3", "-o", "json")).json()
    assert [row["position"] for row in rows] == [f"1/{head - back}" for back in (2, 1, 0)]
    doctor = await cli("doctor")
    assert f"LEDGER_1 in 4 partitions: {head:,} events" in doctor.out


@pytest.mark.parametrize(
    ("command", "what"),
    [
        (("log", "import", "PATH", "--yes"), "Restoring"),
    ],
)
async def test_what_does_not_work_with_partitions_is_refused(
    ledger: JetStreamLedger, cli: Run, tmp_path: Path, command: tuple[str, ...], what: str
) -> None:
    path = tmp_path / "there"
    if command[1] == "import":
        path = tmp_path / "log.jsonl.gz"
        assert (await cli("log", "export", str(path))).code == 0
    found = await cli(*(str(path) if word == "PATH" else word for word in command))
    assert found.code != 0
    assert f"{what} {REFUSED}" in found.err.replace("\n", " ")
    assert path.exists() == (command[1] == "import")
    assert await ledger.head() == EVENTS + 1
