"""What stops a reader when the log is not the one that it read: lost, restored, replaced or cut, for real."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from nats.js.api import DiscardPolicy
from prometheus_client import REGISTRY

from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.ledger.api import Ledger
from gpuledger.ledger.connect import connected
from gpuledger.ledger.continuity import confirm_anchor, positions_in
from gpuledger.ledger.errors import (
    LogCutError,
    LogLostError,
    LogReplacedError,
    LogRestoredError,
    NoLedgerError,
)
from gpuledger.ledger.identity import Anchor
from gpuledger.ledger.jetstream import JetStreamLedger, connect_ledger
from gpuledger.ledger.restoring import begin_generation
from gpuledger.ledger.stream import create_ledger, stream_config
from gpuledger.local.servers.nats import NatsServer
from gpuledger.projection.errors import FewerEventsError
from gpuledger.projection.rebuild import rebuild
from gpuledger.projection.runner import Runner
from gpuledger.projection.supervision import ProjectionHealth, Supervision
from gpuledger.projection.verify import verify
from gpuledger.readmodels.projections import DevicesProjection
from gpuledger.runtime.tasks import run_until_one_ends
from gpuledger.runtime.telemetry import LOG_CHANGES
from gpuledger.tools.preparation import prepare_ledger
from support.events import outgoing
from support.ledgers import jetstream_ledger, new_ledger
from support.log_copies import keep_copy, put_back, stopped
from support.projections import QUICK, assert_true, checkpoint, execute, publish, reaches, running, table
from support.runners import failures
from support.servers import nats_server
from support.waiting import eventually

KEPT = 20
"""Events in the copy of the log that is put back."""

FOLDED = 50


def runner(ledger: Ledger, url: str) -> Runner:
    return Runner(DevicesProjection(), ledger, url, settings=QUICK)


@pytest.fixture
async def restored(fresh_nats: NatsServer, url: str, tmp_path: Path) -> AsyncIterator[JetStreamLedger]:
    """A log that rows were folded from, and then its copy of before."""
    async with new_ledger(fresh_nats.url) as ledger:
        await publish(ledger, failures(range(1, KEPT + 1)))
        keep_copy(fresh_nats, tmp_path / "copy")
        head = await publish(ledger, failures(range(KEPT + 1, FOLDED + 1)))
        await runner(ledger, url).catch_up(head)
    put_back(fresh_nats, tmp_path / "copy")
    async with jetstream_ledger(fresh_nats.url) as ledger:
        yield ledger


async def test_a_lost_log_is_not_made_anew_and_stops_who_reads_it(fresh_nats: NatsServer, url: str) -> None:
    async with new_ledger(fresh_nats.url, heartbeat_s=0.1) as ledger:
        head = await publish(ledger, failures(range(1, FOLDED + 1)))
        async with running(runner(ledger, url)) as tasks:
            await reaches(url, "devices", head)
            with stopped(fresh_nats) as store:
                shutil.rmtree(store)
            with pytest.raises(LogLostError, match=r"has no stream LEDGER_1\. Restore its stream from a backup"):
                await tasks[0]
    with pytest.raises(LogLostError, match=r"has no ledger, and the database holds rows .* up to 1/50; no other"):
        await prepare_ledger(fresh_nats.url, url)
    with pytest.raises(NoLedgerError, match="Make it once with `gpuledger migrate`"):
        async with connect_ledger(fresh_nats.url, name="test"):
            pass


@pytest.mark.one_stream("compares the stream, and what is said of it")
async def test_an_older_copy_of_the_log_is_noticed_where_it_ends(restored: JetStreamLedger, url: str) -> None:
    for work in (runner(restored, url).run(), verify(DevicesProjection(), restored, url)):
        with pytest.raises(LogRestoredError, match=r"ends at 1/20, but it was read up to 1/50 \(event "):
            await work
    with pytest.raises(LogRestoredError):
        await rebuild(DevicesProjection(), restored, url)
    assert len(table(url, "failure")) == FOLDED


@pytest.mark.one_stream("compares the stream, and what is said of it")
async def test_an_older_copy_that_is_put_back_while_the_log_is_confirmed_is_no_cut(restored: JetStreamLedger) -> None:
    """The head was found in the log of before, and the event is looked for in the copy."""
    anchor = Anchor(FOLDED, "the-last", "a-digest")
    with pytest.raises(LogRestoredError, match=rf"ends at 1/{KEPT}, but it was read up to 1/{FOLDED}"):
        await confirm_anchor(restored._connection, "LEDGER_1", FOLDED, anchor, positions_in(1))


@pytest.mark.one_stream("compares the stream, and what is said of it")
async def test_an_older_copy_that_went_on_is_noticed_by_the_event(restored: JetStreamLedger, url: str) -> None:
    await publish(restored, failures(range(100, 200)))
    with pytest.raises(LogRestoredError, match=r"at 1/50 of LEDGER_1 at .* stands another message"):
        await runner(restored, url).run()


async def test_rows_follow_a_restored_log_once_the_loss_is_accepted(restored: JetStreamLedger, url: str) -> None:
    await publish(restored, failures(range(100, 103)))
    result = await rebuild(DevicesProjection(), restored, url, accept_loss=True)
    assert result.events == KEPT + 3
    assert await runner(restored, url).catch_up(await publish(restored, failures(range(200, 205))))
    await assert_true(restored, url, [DevicesProjection()])
    assert len(table(url, "failure")) == KEPT + 8


async def test_a_decider_goes_on_after_an_accepted_loss(fresh_nats: NatsServer, url: str, tmp_path: Path) -> None:
    decider = SourcesProjection()
    async with new_ledger(fresh_nats.url) as ledger:
        await publish(ledger, failures(range(1, KEPT + 1)))
        keep_copy(fresh_nats, tmp_path / "copy")
        await publish(ledger, failures(range(40, 61, 20)))
        async with running(Runner(decider, ledger, url, settings=QUICK)):
            await reaches(url, "sources", await ledger.head())
    put_back(fresh_nats, tmp_path / "copy")
    async with jetstream_ledger(fresh_nats.url) as ledger:
        await rebuild(decider, ledger, url, accept_loss=True)
        await publish(ledger, failures(range(100, 101)))
        async with running(Runner(decider, ledger, url, settings=QUICK)):
            await reaches(url, "sources", await ledger.head())
        await assert_true(ledger, url, [decider])


async def test_another_ledger_is_refused(fresh_nats: NatsServer, url: str) -> None:
    async with new_ledger(fresh_nats.url) as ledger:
        await runner(ledger, url).catch_up(await publish(ledger, failures(range(1, 11))))
    with nats_server() as another:
        async with new_ledger(another.url) as ledger:
            await publish(ledger, failures(range(1, 11)))
            for work in (runner(ledger, url).run(), verify(DevicesProjection(), ledger, url)):
                with pytest.raises(LogReplacedError, match="the rows of projection devices follow the ledger"):
                    await work


async def test_nothing_is_published_into_another_log(fresh_nats: NatsServer) -> None:
    async with new_ledger(fresh_nats.url) as ledger:
        await ledger.publish_many([outgoing(one) for one in failures(range(1, 3))])
        with stopped(fresh_nats) as store:
            shutil.rmtree(store)
        async with new_ledger(fresh_nats.url) as another:
            for count in (1, 40):
                with pytest.raises(LogReplacedError, match=r"LEDGER_1 at .* belongs to the ledger"):
                    await ledger.publish_many([outgoing(one) for one in failures(range(count))])
            assert await another.head() == 0


@pytest.mark.one_stream("cuts the stream of the events")
@pytest.mark.parametrize("keep", [30, 1])
async def test_a_log_that_was_cut_stops_every_reader(fresh_nats: NatsServer, url: str, keep: int) -> None:
    async with new_ledger(fresh_nats.url) as ledger:
        await runner(ledger, url).catch_up(await publish(ledger, failures(range(1, FOLDED + 1))))
        async with connected(fresh_nats.url, name="operator") as connection:
            config = (await connection.jetstream.stream_info("LEDGER_1")).config
            await connection.jetstream.update_stream(config.evolve(max_msgs=keep, discard=DiscardPolicy.OLD))
            await connection.jetstream.update_stream(config)
        for work in (
            runner(ledger, url).run(),
            verify(DevicesProjection(), ledger, url),
            rebuild(DevicesProjection(), ledger, url),
            rebuild(DevicesProjection(), ledger, url, accept_loss=True),
            anext(ledger.history()),
        ):
            with pytest.raises(LogCutError):
                await work
    with pytest.raises(LogCutError, match=rf"has recorded 50 events and holds {keep}, from {FOLDED - keep + 1} on"):
        async with connect_ledger(fresh_nats.url, name="test"):
            pass
    assert len(table(url, "failure")) == FOLDED


async def test_a_ledger_of_before_there_were_ids_gets_one_and_its_rows_adopt_it(
    fresh_nats: NatsServer, url: str
) -> None:
    async with connected(fresh_nats.url, name="earlier build") as connection:
        await connection.jetstream.add_stream(stream_config(1).evolve(allow_atomic=None))
    made = await prepare_ledger(fresh_nats.url, url, may_create=False)
    async with connect_ledger(fresh_nats.url, name="test") as ledger:
        assert ledger.identity.ledger_id == made.ledger_id
        await runner(ledger, url).catch_up(await publish(ledger, failures(range(1, 11))))
        execute(url, "UPDATE gpuledger.projection SET ledger_id = NULL, last_position = NULL, last_digest = NULL")
        head = await publish(ledger, failures(range(11, 21)))
        await runner(ledger, url).catch_up(head)
        found = await checkpoint(url, "devices")
        assert found is not None
        assert found.ledger_id == made.ledger_id
        assert found.anchor == await ledger.anchor_at(head)
    assert await prepare_ledger(fresh_nats.url, url) == made._replace(is_new=False)


async def test_rows_that_an_earlier_build_wrote_since_are_anchored_anew(fresh_nats: NatsServer, url: str) -> None:
    async with new_ledger(fresh_nats.url) as ledger:
        await runner(ledger, url).catch_up(await publish(ledger, failures(range(1, 11))))
        await publish(ledger, failures(range(11, 21)))
        execute(url, "UPDATE gpuledger.projection SET position = 15")
        await runner(ledger, url).catch_up(20)
        found = await checkpoint(url, "devices")
        assert found is not None
        assert found.anchor == await ledger.anchor_at(20)


async def test_rows_are_not_given_to_a_ledger_that_is_too_short_for_them(fresh_nats: NatsServer, url: str) -> None:
    async with new_ledger(fresh_nats.url) as ledger:
        await runner(ledger, url).catch_up(await publish(ledger, failures(range(1, 11))))
    with nats_server() as another:
        async with connected(another.url, name="earlier build") as connection:
            await connection.jetstream.add_stream(stream_config(1))
        with pytest.raises(LogRestoredError, match="ends at 1/0"):
            await prepare_ledger(another.url, url)


async def test_a_rebuild_that_folds_fewer_events_than_were_counted_is_refused(fresh_nats: NatsServer, url: str) -> None:
    async with new_ledger(fresh_nats.url) as ledger:
        await runner(ledger, url).catch_up(await publish(ledger, failures(range(1, 11))))
        execute(url, "UPDATE gpuledger.projection SET events = 11")
        with pytest.raises(FewerEventsError, match=r"holds 10 events .* folded from 11; nothing was changed"):
            await rebuild(DevicesProjection(), ledger, url)
        assert (await rebuild(DevicesProjection(), ledger, url, accept_loss=True)).events == 10


async def test_a_new_generation_names_the_end_of_the_one_before(fresh_nats: NatsServer, url: str) -> None:
    async with new_ledger(fresh_nats.url) as old:
        await publish(old, failures(range(1, 11)))
        end = await old.anchor_at(10)
        async with connected(fresh_nats.url, name="restore") as connection:
            await begin_generation(connection)
    async with connect_ledger(fresh_nats.url, name="test") as new:
        assert end is not None
        assert new.identity.ledger_id == old.identity.ledger_id
        assert new.identity.predecessor == (10, end.digest)


async def test_health_says_why_and_a_projection_goes_on_once_the_log_is_back(
    fresh_nats: NatsServer, url: str, tmp_path: Path
) -> None:
    async with new_ledger(fresh_nats.url, heartbeat_s=0.1) as ledger:
        head = await publish(ledger, failures(range(1, KEPT + 1)))
        supervision = Supervision([DevicesProjection()], ledger, url, check_interval_s=0.02)

        def found() -> ProjectionHealth:
            return supervision.health()["devices"]

        def changes() -> dict[str, float | None]:
            labels = [{"projection": "devices", "change": change} for change in LOG_CHANGES]
            return {one["change"]: REGISTRY.get_sample_value("gpuledger_log_changed", one) for one in labels}

        async def practise() -> None:
            await reaches(url, "devices", head)
            with stopped(fresh_nats) as store:
                shutil.move(store, tmp_path / "whole")
            async with connected(fresh_nats.url, name="somebody") as connection:
                await create_ledger(connection, ledger.identity.ledger_id)
            await eventually(lambda: _is(found().state == "stopped"))
            await eventually(lambda: _is(found().lag_events is None))
            assert "restored from an older copy" in (found().reason or "")
            assert changes() == {"lost": 0, "restored": 1, "replaced": 0, "cut": 0}
            put_back(fresh_nats, tmp_path / "whole")
            await eventually(lambda: _is(found().state == "running"))
            assert changes() == {"lost": 0, "restored": 0, "replaced": 0, "cut": 0}
            await reaches(url, "devices", await publish(ledger, failures(range(100, 103))))

        await run_until_one_ends(practise(), *supervision.work())


async def _is(holds: bool) -> bool:
    return holds


async def test_health_goes_on_while_the_log_is_lost(fresh_nats: NatsServer, url: str, tmp_path: Path) -> None:
    """Somebody has to be there to report it, and to go on once the log is back."""
    async with new_ledger(fresh_nats.url, heartbeat_s=0.1) as ledger:
        head = await publish(ledger, failures(range(1, KEPT + 1)))
        supervision = Supervision([DevicesProjection()], ledger, url, check_interval_s=0.02)
        lost = {"projection": "devices", "change": "lost"}

        async def practise() -> None:
            await reaches(url, "devices", head)
            with stopped(fresh_nats) as store:
                shutil.move(store, tmp_path / "whole")
            await eventually(lambda: _is(REGISTRY.get_sample_value("gpuledger_log_changed", lost) == 1))
            with pytest.raises(LogLostError, match="has no stream LEDGER_1"):
                await ledger.head()
            put_back(fresh_nats, tmp_path / "whole")
            await eventually(lambda: _is(REGISTRY.get_sample_value("gpuledger_log_changed", lost) == 0))
            await reaches(url, "devices", await publish(ledger, failures(range(100, 103))))

        await run_until_one_ends(practise(), *supervision.work())
