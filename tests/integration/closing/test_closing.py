"""Closing a generation on real servers: services and agents go on, who is killed goes on, and the past stays whole."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from nats.js.api import StreamConfig
from nats.js.manager import JetStreamManager

from gpuledger.deciders.seals.decide import MESSAGES_PER_SEAL
from gpuledger.events.position import Position, is_after
from gpuledger.ledger import closing, partition_closing
from gpuledger.ledger.api import Outgoing
from gpuledger.ledger.connect import Connection, connected
from gpuledger.ledger.edge import connect_edge
from gpuledger.ledger.errors import ClosingError, GenerationError, LedgerUnavailableError, PublishError
from gpuledger.ledger.jetstream import JetStreamLedger, connect_ledger
from gpuledger.ledger.partitions import in_partition, partition_of
from gpuledger.ledger.permissions import (
    allocated_devices_subject,
    desired_devices_subject,
    shared_devices_subject,
)
from gpuledger.ledger.sequencer import Sequencer
from gpuledger.ledger.single import all_streams
from gpuledger.projection.replay import skipped_positions
from gpuledger.projection.verify import verify
from gpuledger.runtime.settings import Servers
from gpuledger.tools.archive.close import delete_stream
from gpuledger.tools.archive.store import open_archive
from gpuledger.tools.errors import RequestError
from gpuledger.tools.log_restore import skip_positions
from gpuledger.tools.queries.backend import all_projections
from gpuledger.tools.reporting import SILENT
from support.cli import Run
from support.closing import caught_up, close_at, closed_ledger, gone_on, kill_at, opened, services
from support.events import outgoing as as_outgoing
from support.ledgers import DEADLINE_S, everything, new_ledger
from support.paths import ROOT
from support.projections import publish
from support.runners import failures

EVENTS = 1_100
"""More than a seal covers."""

MORE = 40
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
CHANGES_MAX = 30  # more than a closing makes of streams of four partitions and their order
ALSO_4 = pytest.mark.parametrize("partitions", [1, pytest.param(4, marks=pytest.mark.long)])


@ALSO_4
async def test_services_go_on_without_loss_or_repeat(servers: Servers, location: str, cli: Run) -> None:
    async with services(servers) as supervision, new_ledger(servers.nats_url) as agent:
        ledger = supervision.ledger
        await publish(agent, failures(range(1, EVENTS)))
        await caught_up(supervision)
        is_closed = asyncio.Event()
        publishing = asyncio.create_task(publish_throughout(servers.nats_url, EVENTS, is_closed))
        closed = await close_at(servers, location)
        is_closed.set()
        last = await publishing
        await gone_on(ledger, 2)
        await caught_up(supervision)
        assert (closed.generation, closed.first) == (1, 1)
        recorded = await everything(ledger)
        assert [one.sequence for one in recorded] == list(range(1, len(recorded) + 1))
        ours = {one.data for one in recorded if one.subject.startswith("ledger.node.n1.")}
        assert len(ours) == last
        own = [one for one in recorded if one.subject.startswith("ledger.svc.seals.")]
        assert len({one.data for one in own}) >= EVENTS // MESSAGES_PER_SEAL
        for projection in all_projections():
            found = await verify(projection, ledger, servers.database_url)
            assert found.differences == 0, found
    proven = await cli("verify", "--log")
    assert proven.code == 0, proven.err + proven.out


async def publish_throughout(url: str, first: int, is_over: asyncio.Event) -> int:
    """Publish one event after the other, connecting and trying again as an agent does; returns the last number."""
    number = first
    while True:
        with suppress(PublishError, LedgerUnavailableError):
            async with connect_edge(url, name="agent", node="n1") as edge:
                while not is_over.is_set() or number < first + MORE:
                    await edge.publish(as_outgoing(failures(range(number, number + 1))[0]))
                    number += 1
                return number - 1


@pytest.mark.parametrize("partitions", [4])
async def test_what_comes_late_is_in_the_log(servers: Servers, location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No sequencer may be there any more, so the command itself puts the event there."""
    late, change, append = (
        as_outgoing(failures(range(EVENTS, EVENTS + 1))[0]),
        partition_closing.change,
        Sequencer._append,
    )

    async def appending(one: Sequencer, *given: Any) -> Any:
        return await (append(one, *given) if one._order.stream != "LEDGER_1" else asyncio.Event().wait())

    async def recording_late(connection: Connection, config: StreamConfig) -> None:
        await change(connection, config)
        if config.name == "LEDGER_1":  # it is marked as closed
            monkeypatch.setattr(partition_closing, "change", change)
            monkeypatch.setattr(Sequencer, "_append", appending)
            await connection.jetstream.publish(in_partition(late.subject, partition_of(late.subject, 4), 4), late.data)

    async with opened(servers) as ledger:
        await publish(ledger, failures(range(1, 11)))
        monkeypatch.setattr(partition_closing, "change", recording_late)
        await close_at(servers, location)
    async with opened(servers) as ledger:
        assert [one.data for one in await everything(ledger)].count(late.data) == 1


STEPS = ("archive_and_prove", "fence", "archive_rest", "begin_next", "publish", "open_next")


@ALSO_4
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("when", ["before", "behind"])
async def test_who_is_killed_goes_on(
    servers: Servers, location: str, step: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(servers) as ledger:
        await publish(ledger, failures(range(1, MORE)))
        before = await everything(ledger)
        with monkeypatch.context() as patched:
            kill_at(patched, step, when)
            with pytest.raises(asyncio.CancelledError):
                await close_at(servers, location)
        if (step, when) != ("open_next", "behind"):
            closed = await close_at(servers, location)
            assert (closed.generation, closed.last) == (1, MORE - 1)
        with pytest.raises(RequestError, match="nothing to close"):
            await close_at(servers, location)
        await ledger.publish(as_outgoing(failures(range(MORE, MORE + 1))[0]))
        recorded = await everything(ledger)
        assert recorded[: MORE - 1] == before
        events = [one.subject.rpartition(".")[2] for one in recorded[MORE - 1 :]]
        assert events == ["archived", "failed"]


@ALSO_4
async def test_who_is_killed_after_each_change_of_a_stream_goes_on(
    servers: Servers, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time one more stream is created or altered; meanwhile the log is whole, and takes no events of others."""
    async with opened(servers) as ledger:
        await publish(ledger, failures(range(1, MORE)))
        before = await everything(ledger)
        kills = 0
        while kills < CHANGES_MAX:
            with monkeypatch.context() as patched, suppress(asyncio.CancelledError):
                kill_after_a_change(patched)
                with pytest.raises(RequestError, match="nothing to close"):
                    await close_at(servers, location)
                break
            kills += 1
            assert (await everything(ledger))[: len(before)] == before
        (receipt,) = await ledger.publish_many([as_outgoing(failures(range(MORE, MORE + 1))[0])])
        recorded = await everything(ledger)
        assert recorded[: MORE - 1] == before
        assert [one.subject.rpartition(".")[2] for one in recorded[MORE - 1 :]] == ["archived", "failed"]
        assert [one.sequence for one in recorded] == list(range(1, MORE + 2))
        assert receipt.sequence == MORE + 1
        generation = ledger.identity
    assert 2 * ledger.partitions <= kills < CHANGES_MAX
    assert generation.continued is not None
    assert (generation.behind, generation.continued.carried) == (MORE - 1, MORE)


def kill_after_a_change(patched: pytest.MonkeyPatch) -> None:
    """End the command behind its first request that creates or alters a stream."""
    for name in ("add_stream", "update_stream"):
        really = getattr(JetStreamManager, name)

        async def killed(self: JetStreamManager, config: StreamConfig, really: Any = really) -> None:
            await really(self, config)
            raise asyncio.CancelledError

        patched.setattr(JetStreamManager, name, killed)


@ALSO_4
async def test_nobody_records_anything_while_a_generation_is_being_closed(servers: Servers, location: str) -> None:
    async with opened(servers) as ledger, connected(servers.nats_url, name="test") as connection:
        await publish(ledger, failures(range(1, MORE)))
        await closing.fence(connection, 1, location, NOON)
        with pytest.raises(ClosingError, match=f"gpuledger log archive close {location}"):
            await closed_ledger(servers)
        waiting = asyncio.create_task(ledger.publish(as_outgoing(failures(range(MORE, MORE + 1))[0])))
        with pytest.raises(RequestError, match=f"being closed with the archive at {location}"):
            await close_at(servers, f"{location}-of-another")
        assert not waiting.done()
        await close_at(servers, location)
        async with asyncio.timeout(DEADLINE_S):
            assert (await waiting).sequence == MORE + 1


@ALSO_4
async def test_a_stream_is_deleted_only_where_its_archive_is_what_it_holds(
    servers: Servers, location: str, tmp_path: Path
) -> None:
    async with opened(servers) as ledger:
        await publish(ledger, failures(range(1, MORE)))
        with pytest.raises(RequestError, match="was not closed"):
            await delete_stream(servers, open_archive(location), 1, SILENT, lambda _events: None)
        await close_at(servers, location)
        (file,) = (tmp_path / "archive").rglob("*.parquet")
        raw = bytearray(file.read_bytes())
        raw[len(raw) // 2] ^= 1
        kept = file.read_bytes()
        file.write_bytes(bytes(raw))
        with pytest.raises(Exception, match="is not what"):
            await delete_stream(servers, open_archive(location), 1, SILENT, lambda _events: None)
        file.write_bytes(kept)
        assert (
            await delete_stream(servers, open_archive(location), 1, SILENT, lambda _events: None)
        ).events == MORE - 1
    async with connect_ledger(servers.nats_url, name="without archives") as ledger:
        with pytest.raises(GenerationError, match="nothing here reads its archive"):
            await everything(ledger)


@pytest.mark.parametrize("partitions", [4])
async def test_a_deletion_that_was_interrupted_leaves_the_log_whole_and_goes_on(
    servers: Servers, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, asked = open_archive(location), list[int]()
    async with opened(servers) as ledger, connected(servers.nats_url, name="test") as connection:
        await publish(ledger, failures(range(1, MORE)))
        before = await everything(ledger)
        await close_at(servers, location)
        await ledger.go_on()
        with monkeypatch.context() as patched:
            patched.setattr(closing, "delete_left", killed_before)
            with pytest.raises(asyncio.CancelledError):
                await delete_stream(servers, archive, 1, SILENT, asked.append)
        assert (await everything(ledger))[: MORE - 1] == before
        assert (await delete_stream(servers, archive, 1, SILENT, asked.append)).events == MORE - 1
        assert asked == [MORE - 1]
        assert {name[:8] for name in await all_streams(connection)} == {"LEDGER_2"}
        assert (await everything(ledger))[: MORE - 1] == before


async def killed_before(*_: object) -> bool:
    raise asyncio.CancelledError


@ALSO_4
async def test_an_agent_finds_its_orders_and_publishes_in_the_next_generation(servers: Servers, location: str) -> None:
    node = "gpu-01.example.com"
    order = Outgoing(desired_devices_subject(node), "order", b"its orders")
    shares = Outgoing(shared_devices_subject(node), "shares", b"its shares")
    pods = Outgoing(allocated_devices_subject(node), "pods", b"its pods")
    skip = Position(1, 1)
    async with opened(servers) as ledger:
        await ledger.publish_many(
            [order, shares, pods, Outgoing(desired_devices_subject("other"), "other", b"of another")]
        )
        await skip_positions(ledger, [(skip, "a test")])
        async with connect_edge(servers.nats_url, name="agent", node=node) as edge:
            before = await edge.newest(order.subject)
            await close_at(servers, location)
            with pytest.raises(LedgerUnavailableError, match="LEDGER_2"):
                await edge.newest(order.subject)
        async with connect_edge(servers.nats_url, name="agent", node=node) as edge:
            newest = await edge.newest(order.subject)
            assert before is not None
            assert newest is not None
            assert (newest.data, edge.generation) == (order.data, 2)
            assert is_after(newest.sequence, before.sequence)
            carried = [await edge.newest(one.subject) for one in (shares, pods)]
            assert [one and one.data for one in carried] == [shares.data, pods.data]
        await close_again(servers, ledger, location)
        assert await skipped_positions(ledger) == [skip]
        repeats = [one for one in await everything(ledger) if one.subject == order.subject]
        assert [ledger.generations.of(one.sequence) for one in repeats] == [1, 2, 3]


async def close_again(servers: Servers, ledger: JetStreamLedger, location: str) -> None:
    """Close the generation, once it has an event of its own."""
    await ledger.publish(as_outgoing(failures(range(1, 2))[0]))
    await close_at(servers, location)
    await ledger.go_on()


@ALSO_4
async def test_rules_in_force_are_found_in_the_next_generation(
    servers: Servers, location: str, cli: Run, tmp_path: Path
) -> None:
    documents = {part: str(ROOT / "examples" / f"{part}-rules.yaml") for part in ("quarantine", "remediation")}
    async with opened(servers) as ledger:
        await publish(ledger, failures(range(1, MORE)))
        for part, file in documents.items():
            assert (await cli(part, "apply", "-f", file)).code == 0
        shown = [(await cli(part, "rules", "-o", "json")).json() for part in documents]
        closed = await close_at(servers, location)
        assert (await cli("log", "archive", "delete-stream", location, "1", "--yes")).code == 0
        recorded = await everything(ledger)
        repeats = [one for one in recorded if is_after(one.sequence, closed.last)]
        assert [one.subject.rpartition(".")[2] for one in repeats] == ["archived", "rules-applied", "rules-applied"]
        for part, file in documents.items():
            again = await cli(part, "apply", "-f", file)
            assert (again.code, "nothing was recorded" in again.err) == (0, True), again
        assert await ledger.head() == recorded[-1].sequence
        assert [(await cli(part, "rules", "-o", "json")).json() for part in documents] == shown
        other = tmp_path / "other.yaml"
        other.write_text("kind: QuarantineRules\nruleSets: []\n")
        replaced = await cli("quarantine", "apply", "-f", str(other))
        assert (replaced.code, "nothing was recorded" in replaced.err) == (0, False), replaced
