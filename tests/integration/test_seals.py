"""The seals of the log: made as it grows, and what `verify --log` finds where somebody changed it."""

from collections.abc import AsyncIterator, Sequence

import pytest

from gpuledger.deciders.seals import decide
from gpuledger.deciders.seals.projection import SealsProjection
from gpuledger.events.envelope import decode
from gpuledger.events.ledger import LedgerSealed
from gpuledger.events.position import Position
from gpuledger.ledger.api import Message, Outgoing
from gpuledger.ledger.connect import connected
from gpuledger.ledger.jetstream import JetStreamLedger, connect_ledger
from gpuledger.ledger.restoring import begin_generation
from gpuledger.local.servers.nats import NatsServer
from gpuledger.projection.rebuild import rebuild
from gpuledger.tools.log_proof import GenerationProof, prove_log
from gpuledger.tools.queries.backend import Backend
from support.ledgers import everything, new_ledger
from support.projections import assert_true, publish, table
from support.runners import failures
from support.seals import LENGTH, SEALS, copied, seal

EVENTS = 2 * LENGTH + 5


@pytest.fixture(autouse=True)
def short_seals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "MESSAGES_PER_SEAL", LENGTH)


@pytest.fixture
async def sealed(fresh_nats: NatsServer, url: str) -> AsyncIterator[JetStreamLedger]:
    """A log with two seals and a few events behind them."""
    async with new_ledger(fresh_nats.url) as ledger:
        await publish(ledger, failures(range(1, EVENTS + 1)))
        await seal(ledger, url, 2)
        yield ledger


async def proof(ledger: JetStreamLedger, server: NatsServer) -> GenerationProof:
    return (await prove_log(Backend(ledger, "", server.url, None))).current


def payloads(messages: Sequence[Message]) -> list[LedgerSealed]:
    found = [decode(message.data).data for message in messages]
    return [data for data in found if isinstance(data, LedgerSealed)]


async def test_seals_follow_each_other_and_cover_everything(
    sealed: JetStreamLedger, fresh_nats: NatsServer, url: str
) -> None:
    first, second = payloads(await everything(sealed, subject_filter=SEALS))
    assert (first.first, first.last, first.previous) == (1, LENGTH, None)
    assert (second.first, second.last, second.previous) == (LENGTH + 1, 2 * LENGTH, first.digest)
    found = await proof(sealed, fresh_nats)
    assert found._replace(link="") == GenerationProof(Position(1, 2 * LENGTH), 2, second.digest, 7, None)
    await assert_true(sealed, url, [SealsProjection()])


async def test_what_cannot_be_read_is_sealed_too(fresh_nats: NatsServer, url: str) -> None:
    async with new_ledger(fresh_nats.url) as ledger:
        await publish(ledger, failures(range(1, LENGTH)))
        for number in range(2):
            await ledger.publish(Outgoing("ledger.node.n1.device.d.failed", f"no event {number}", b"\xff"))
        await publish(ledger, failures(range(LENGTH, LENGTH + 1)))
        await seal(ledger, url, 1)
        (only,) = payloads(await everything(ledger, subject_filter=SEALS))
        assert only.last == LENGTH + 2, "a message without an id leaves the seal to the next one"
        assert (await proof(ledger, fresh_nats)).first_break is None


async def test_a_restart_and_a_rebuild_go_on_with_the_chain(
    sealed: JetStreamLedger, fresh_nats: NatsServer, url: str
) -> None:
    before = table(url, "seal_chain")
    await rebuild(SealsProjection(), sealed, url)
    assert table(url, "seal_chain") == before
    await publish(sealed, failures(range(EVENTS + 1, EVENTS + LENGTH)))
    await seal(sealed, url, 3)
    found = await proof(sealed, fresh_nats)
    assert (found.seals, found.first_break) == (3, None)


@pytest.mark.parametrize("at", [1, LENGTH, LENGTH + 7])
@pytest.mark.parametrize("change", ["altered", "left out", "exchanged"])
async def test_the_first_seal_over_a_change_is_named(
    sealed: JetStreamLedger, fresh_nats: NatsServer, at: int, change: str
) -> None:
    messages = await everything(sealed)
    one = messages[at - 1]
    if change == "altered":
        messages[at - 1] = one._replace(data=one.data.replace(b"DBE", b"SBE"))
    elif change == "left out":
        del messages[at - 1]
    else:
        messages[at - 1 : at + 1] = reversed(messages[at - 1 : at + 1])
    await copied(fresh_nats, sealed, messages)
    first = 1 if at <= LENGTH else LENGTH + 1
    async with connect_ledger(fresh_nats.url, name="test") as ledger:
        found = await proof(ledger, fresh_nats)
    assert found.first_break is not None
    assert f"the messages {first} to {first + LENGTH - 1} are not those" in found.first_break


async def test_a_seal_that_is_left_out_is_missed_by_the_next_one(
    sealed: JetStreamLedger, fresh_nats: NatsServer
) -> None:
    messages = await everything(sealed)
    seals = [index for index, one in enumerate(messages) if ".svc.seals." in one.subject]
    messages[seals[0]] = messages[0]
    await copied(fresh_nats, sealed, messages)
    async with connect_ledger(fresh_nats.url, name="test") as ledger:
        found = await proof(ledger, fresh_nats)
    assert found.first_break is not None
    assert "follows another seal than the one before it" in found.first_break


async def test_seals_that_were_published_again_are_no_break(sealed: JetStreamLedger, fresh_nats: NatsServer) -> None:
    """A leader died with two in flight, and the next one published both."""
    messages = await everything(sealed)
    seals = [one for one in messages if ".svc.seals." in one.subject]
    await copied(fresh_nats, sealed, [*messages, *seals])
    async with connect_ledger(fresh_nats.url, name="test") as ledger:
        found = await proof(ledger, fresh_nats)
    assert (found.seals, found.first_break) == (2, None)


async def test_the_newest_seal_cannot_name_another_seal_before_it(
    sealed: JetStreamLedger, fresh_nats: NatsServer
) -> None:
    first, second = payloads(await everything(sealed, subject_filter=SEALS))
    before, other = (f'"previous":"{digest}"'.encode() for digest in (first.digest, second.digest))
    messages = [one._replace(data=one.data.replace(before, other)) for one in await everything(sealed)]
    await copied(fresh_nats, sealed, messages)
    async with connect_ledger(fresh_nats.url, name="test") as ledger:
        assert "follows another seal" in ((await proof(ledger, fresh_nats)).first_break or "")


async def test_a_new_generation_goes_on_from_the_end_of_the_one_before(
    sealed: JetStreamLedger, fresh_nats: NatsServer, url: str
) -> None:
    async with connected(fresh_nats.url, name="restore") as connection:
        await begin_generation(connection)
    async with connect_ledger(fresh_nats.url, name="test") as ledger:
        await publish(ledger, failures(range(1, LENGTH + 1)))
        await rebuild(SealsProjection(), ledger, url)
        await seal(ledger, url, 1)
        assert (await proof(ledger, fresh_nats)).first_break is None
        async with connected(fresh_nats.url, name="intruder") as connection:
            config = (await connection.jetstream.stream_info("LEDGER_2")).config
            await connection.jetstream.update_stream(
                config.evolve(metadata={**(config.metadata or {}), "gpuledger.io/predecessor-digest": "0" * 64})
            )
    async with connect_ledger(fresh_nats.url, name="test") as ledger:
        assert "does not end with the event" in ((await proof(ledger, fresh_nats)).first_break or "")
