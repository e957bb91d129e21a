"""A log that was exported and restored: its old seals seal another log, and what was restored is sealed anew."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpuledger.deciders.seals import decide
from gpuledger.deciders.seals.projection import SealsProjection
from gpuledger.ledger.jetstream import JetStreamLedger, connect_ledger
from gpuledger.local.servers.nats import NatsServer
from gpuledger.projection import writer
from gpuledger.projection.errors import DecisionLostError
from gpuledger.projection.rebuild import rebuild
from gpuledger.projection.runner import Runner
from gpuledger.runtime.settings import Servers
from gpuledger.tools import log_restore
from gpuledger.tools.log_archive import opened, read_header, write_log
from gpuledger.tools.log_proof import prove_log
from gpuledger.tools.log_restore import restore_log
from gpuledger.tools.preparation import prepare_ledger
from gpuledger.tools.queries.backend import Backend
from gpuledger.tools.reporting import SILENT
from support.ledgers import everything, new_ledger
from support.projections import QUICK, assert_true, execute, publish, running
from support.runners import failures
from support.seals import LENGTH, seal
from support.seals import SEALS as SUBJECTS
from support.servers import fresh_database
from support.waiting import eventually

EVENTS = 2 * LENGTH + 5
SEALS = 2


@pytest.fixture(autouse=True)
def short_seals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short ones, and no rows but theirs; tests of the command line restore the rows of all."""
    monkeypatch.setattr(decide, "MESSAGES_PER_SEAL", LENGTH)
    monkeypatch.setattr(log_restore, "all_projections", lambda: (SealsProjection(),))


@pytest.fixture
async def archive(clean_nats_url: str, url: str, tmp_path: Path) -> Path:
    """An export of a log with seals."""
    path = tmp_path / "log.jsonl"
    async with new_ledger(clean_nats_url) as ledger:
        await publish(ledger, failures(range(1, EVENTS + 1)))
        await seal(ledger, url, SEALS)
        await export(ledger, path)
    return path


async def export(ledger: JetStreamLedger, path: Path) -> None:
    with opened(path, "wb") as file:
        await write_log(ledger, file, "2026-01-01T00:00:00Z", SILENT)


async def restored_and_proven(servers: Servers, archive: Path, generation: int, seals: int = SEALS) -> None:
    """Restore it, go on with it, and prove all of it."""
    header = read_header(archive)
    restored = await restore_log(servers, SILENT, archive, header, lambda _question: None)
    assert restored == (generation, header.events, 0)
    more = LENGTH
    anew = (header.events + more) // LENGTH
    async with connect_ledger(servers.nats_url, name="test") as ledger:
        backend = Backend(ledger, servers.database_url, servers.nats_url, None)
        assert (await prove_log(backend)).broken is None, "also before anything is sealed anew"
        await publish(ledger, failures(range(header.events, header.events + more)))
        await seal(ledger, servers.database_url, seals + anew)
        found = (await prove_log(backend)).current
        assert (found.seals, found.sealed_to.sequence, found.first_break) == (anew, anew * LENGTH, None)
        await assert_true(ledger, servers.database_url, [SealsProjection()])


async def test_as_a_new_generation(clean_nats_url: str, url: str, archive: Path) -> None:
    await restored_and_proven(Servers(clean_nats_url, url), archive, 2)


@pytest.fixture
async def empty(fresh_nats: NatsServer, postgres_server_url: str, migrated_template: str) -> AsyncIterator[Servers]:
    """A server and a database with nothing but an empty ledger."""
    with fresh_database(postgres_server_url, migrated_template) as another:
        servers = Servers(fresh_nats.url, another)
        await prepare_ledger(servers.nats_url, servers.database_url)
        yield servers


async def test_into_an_empty_ledger(empty: Servers, archive: Path) -> None:
    """There its generation has the same number, and seals would have the same ids."""
    await restored_and_proven(empty, archive, 1)


async def test_a_later_generation_into_an_empty_ledger(
    clean_nats_url: str, url: str, empty: Servers, archive: Path
) -> None:
    """There its leaders found heads of a later generation than any leader to come."""
    await restored_and_proven(Servers(clean_nats_url, url), archive, 2)
    async with connect_ledger(clean_nats_url, name="test") as ledger:
        seals = len(await everything(ledger, subject_filter=SUBJECTS))
        await export(ledger, archive)
    await restored_and_proven(empty, archive, 1, seals)


async def test_a_service_that_stopped_there_goes_on_once_its_rows_are_rebuilt(
    clean_nats_url: str, url: str, empty: Servers, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier build's leaders began epochs that were closed."""
    await restored_and_proven(Servers(clean_nats_url, url), archive, 2)
    async with connect_ledger(clean_nats_url, name="test") as ledger:
        await export(ledger, archive)
    with monkeypatch.context() as earlier:
        earlier.setattr(writer, "head_after", lambda _last, head: head)
        with pytest.raises(DecisionLostError):
            await led(empty, archive)
    async with connect_ledger(empty.nats_url, name="test") as ledger:
        await rebuild(SealsProjection(), ledger, empty.database_url)
        async with running(Runner(SealsProjection(), ledger, empty.database_url, settings=QUICK)):
            await eventually(lambda: settled(empty.database_url))
        await assert_true(ledger, empty.database_url, [SealsProjection()])


async def led(servers: Servers, archive: Path) -> None:
    """Restore it and go on with it."""
    header = read_header(archive)
    await restore_log(servers, SILENT, archive, header, lambda _question: None)
    async with connect_ledger(servers.nats_url, name="test") as ledger:
        await publish(ledger, failures(range(header.events, header.events + LENGTH)))
        await Runner(SealsProjection(), ledger, servers.database_url, settings=QUICK).run()


async def settled(database_url: str) -> bool:
    return not execute(database_url, "SELECT 1 FROM gpuledger.outbox WHERE projection = 'seals'")
