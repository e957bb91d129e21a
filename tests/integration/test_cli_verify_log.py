"""`gpuledger verify --log`: every generation that is here is proven, and what is not is named."""

from collections.abc import AsyncIterator

import pytest

from gpuledger.deciders.seals.decide import MESSAGES_PER_SEAL
from gpuledger.deciders.seals.projection import SealsProjection
from gpuledger.ledger.connect import connected
from gpuledger.ledger.jetstream import JetStreamLedger, connect_ledger
from gpuledger.ledger.restoring import begin_generation
from gpuledger.local.servers.nats import NatsServer
from gpuledger.projection.rebuild import rebuild
from support.cli import Cli, Result, aside
from support.ledgers import everything, new_ledger
from support.projections import publish
from support.runners import failures
from support.seals import copied, seal

EVENTS = MESSAGES_PER_SEAL + 3
MORE = 20


@pytest.fixture
async def sealed(fresh_nats: NatsServer, url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[JetStreamLedger]:
    """A log with a seal."""
    monkeypatch.setenv("NATS_URL", fresh_nats.url)
    monkeypatch.setenv("DATABASE_URL", url)
    async with new_ledger(fresh_nats.url) as ledger:
        await publish(ledger, failures(range(1, EVENTS + 1)))
        await seal(ledger, url, 1)
        yield ledger


async def altered(server: NatsServer, ledger: JetStreamLedger, by: bytes = b"SBE") -> None:
    """Somebody changes an event."""
    first, *others = await everything(ledger)
    await copied(server, ledger, [first._replace(data=first.data.replace(b"DBE", by)), *others])


async def next_generation(server: NatsServer, url: str) -> None:
    async with connected(server.url, name="restore") as connection:
        await begin_generation(connection)
    async with connect_ledger(server.url, name="test") as ledger:
        await publish(ledger, failures(range(1, MORE + 1)))
        await rebuild(SealsProjection(), ledger, url)


async def verified(capsys: pytest.CaptureFixture[str]) -> Result:
    return await aside(Cli(capsys))("verify", "seals", "--log", "-o", "json")


async def test_earlier_generations_are_proven(
    sealed: JetStreamLedger, fresh_nats: NatsServer, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await next_generation(fresh_nats, url)
    found = await verified(capsys)
    assert found.code == 0, found.err
    positions = [row["position"] for row in found.json() if row["projection"] == "log"]
    assert positions == [f"1/{MESSAGES_PER_SEAL}", "2/0"]
    assert f"1 seals cover the log up to 1/{MESSAGES_PER_SEAL}; 4 events are not sealed." in found.err
    assert f"Generation 2 of the log has no seal yet; {MORE} events are not sealed." in found.err


async def test_an_earlier_generation_that_was_altered_is_named(
    sealed: JetStreamLedger, fresh_nats: NatsServer, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await altered(fresh_nats, sealed)
    await next_generation(fresh_nats, url)
    found = await verified(capsys)
    assert found.code == 1
    assert "The log is not what it was in generation 1: the messages 1 to 1000 are not those" in found.err


async def test_a_generation_that_is_not_here_is_not_passed_over(
    sealed: JetStreamLedger, fresh_nats: NatsServer, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await next_generation(fresh_nats, url)
    async with connected(fresh_nats.url, name="somebody") as connection:
        await connection.jetstream.delete_stream("LEDGER_1")
    found = await verified(capsys)
    assert found.code == 0, found.err
    assert "Generation 1 of the log was not proven: There is no stream LEDGER_1." in found.err


@pytest.mark.one_stream("takes the metadata of the stream away, which name the partitions")
async def test_an_archived_generation_without_an_id_is_not_to_be_migrated(
    sealed: JetStreamLedger, fresh_nats: NatsServer, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing alters one."""
    await next_generation(fresh_nats, url)
    async with connected(fresh_nats.url, name="earlier build") as connection:
        config = (await connection.jetstream.stream_info("LEDGER_1")).config
        await connection.jetstream.update_stream(config.evolve(metadata={}))
    found = await verified(capsys)
    assert found.code == 0, found.err
    words = "Generation 1 of the log was not proven: It is of before ledgers had ids and seals"
    assert words in found.err
    assert "migrate" not in found.err


@pytest.mark.parametrize("by", [b"SBE", b"\xff"], ids=["other data", "what is no event"])
async def test_nothing_is_to_be_rebuilt_from_a_log_that_was_altered(
    by: bytes, sealed: JetStreamLedger, fresh_nats: NatsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rows differ from it as well."""
    await altered(fresh_nats, sealed, by)
    found = await verified(capsys)
    assert found.code == 1
    assert "The log is not what it was in generation 1: the messages 1 to 1000 are not those" in found.err
    assert "replay" not in found.err


async def test_a_log_that_was_altered_at_its_end_is_no_restored_copy(
    sealed: JetStreamLedger, fresh_nats: NatsServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rows cannot even be compared with it."""
    messages = await everything(sealed)
    await copied(fresh_nats, sealed, [*messages[1:], messages[0]])
    found = await verified(capsys)
    assert found.code == 1
    assert "The log is not what it was in generation 1: the messages 1 to 1000 are not those" in found.err
    assert "replay" not in found.err
