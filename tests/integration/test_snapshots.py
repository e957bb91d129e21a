"""Services that fold into memory begin at their last snapshot, and at the start of the log where that does not fit."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from gpuledger.edge.admission.cache import CacheProjection
from gpuledger.edge.admission.service import AdmissionService
from gpuledger.edge.admission.settings import AdmissionSettings
from gpuledger.events.position import is_origin, number_of
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.fold import Fold
from gpuledger.projection.kept_fold import KeptFold
from gpuledger.projection.snapshots import SnapshotSettings
from gpuledger.runtime.backoff import Backoff
from gpuledger.runtime.tasks import end
from support.admission import namespace, pod_with, review
from support.admission_serving import NobodyThere
from support.counted_reads import CountedReads
from support.events import event, outgoing, rows_of
from support.ledgers import jetstream_ledger
from support.projections import execute
from support.servers import delete_streams
from support.waiting import eventually

QUESTION = review("pods", pod_with("gpu.deckhouse.io/local-x"))
SETTINGS = SnapshotSettings(events_min=100, load_timeout_s=5.0, backoff=Backoff(first_s=0.01, max_s=0.01))


@pytest.fixture
def counted(ledger: JetStreamLedger) -> CountedReads:
    return CountedReads(ledger)


async def record(ledger: JetStreamLedger, first: int, last: int) -> None:
    events = [
        event(namespace(f"n{number % 7}")[1], f"n{number % 7}", number=number, at=number, source="/watchers/all")
        for number in range(first, last + 1)
    ]
    await ledger.publish_many([outgoing(one) for one in events])


async def started(ledger: JetStreamLedger, url: str) -> tuple[KeptFold, Fold]:
    """A service that has read all that there is."""
    kept = KeptFold(CacheProjection(), ledger, url, SETTINGS)
    fold = await kept.load()
    async for messages in ledger.history(after=fold.sequence):
        fold.apply_all(messages)
    kept.folded(fold)
    return kept, fold


@asynccontextmanager
async def serving(ledger: JetStreamLedger, url: str) -> AsyncIterator[AdmissionService]:
    """The webhooks, once they answer."""
    bounds = AdmissionSettings(listen="127.0.0.1:0", snapshots=SETTINGS)
    admission = AdmissionService(ledger, NobodyThere(), bounds, database_url=url, jitter=lambda: 0.0)
    running = asyncio.create_task(admission.run())
    try:

        async def answers() -> bool:
            return admission.decide(QUESTION) is not None

        await eventually(answers)
        yield admission
    finally:
        await end([running])


@asynccontextmanager
async def writing(kept: KeptFold) -> AsyncIterator[None]:
    running = asyncio.create_task(kept.run())
    try:
        yield
    finally:
        await end([running])


async def written(kept: KeptFold, url: str, position: int) -> None:
    """Return once the snapshot at a position is written."""

    async def is_there() -> bool:
        return execute(url, "SELECT 1 FROM gpuledger.snapshot WHERE position = %s", position) == [(1,)]

    async with writing(kept):
        await eventually(is_there)


async def test_a_restart_reads_what_came_since_and_not_the_log(counted: CountedReads, url: str) -> None:
    await record(counted, 1, 500)
    kept, _ = await started(counted, url)
    await written(kept, url, 500)
    await record(counted, 501, 520)
    counted.restart()
    _, fold = await started(counted, url)
    assert counted.read_messages == 20
    whole = await _from_zero(counted)
    assert rows_of(fold) == rows_of(whole)
    assert fold.seen.numbers == whole.seen.numbers


async def _from_zero(ledger: JetStreamLedger) -> Fold:
    fold = await KeptFold(CacheProjection(), ledger, None).load()
    async for messages in ledger.history(after=fold.sequence):
        fold.apply_all(messages)
    return fold


async def test_webhooks_that_start_again_read_what_came_since_the_last_snapshot(
    counted: CountedReads, url: str
) -> None:
    await record(counted, 1, 500)

    async def is_written() -> bool:
        return bool(execute(url, "SELECT 1 FROM gpuledger.snapshot WHERE position > 100"))

    async with serving(counted, url):
        await eventually(is_written)
    counted.restart()
    async with serving(counted, url) as admission:
        assert counted.read_messages < 400
        await record(counted, 501, 503)

        async def has_read() -> bool:
            return number_of(admission.health().position) == 503

        await eventually(has_read)


async def test_an_event_that_a_snapshot_has_is_a_repeat_behind_it(counted: CountedReads, url: str) -> None:
    await record(counted, 1, 200)
    kept, _ = await started(counted, url)
    await written(kept, url, 200)
    again = event(namespace("n1", enabled=False)[1], "n1", number=1, at=999, source="/watchers/all", event_id="again")
    await counted.publish(outgoing(again))
    _, fold = await started(counted, url)
    assert fold.state.allows_gpus("n1")  # type: ignore[attr-defined]


async def test_another_ledger_is_read_from_its_start(clean_nats_url: str, url: str) -> None:
    async with jetstream_ledger(clean_nats_url) as ledger:
        await record(ledger, 1, 300)
        kept, _ = await started(ledger, url)
        await written(kept, url, 300)
    delete_streams(clean_nats_url)
    async with jetstream_ledger(clean_nats_url) as other:
        await record(other, 1, 150)
        with capture_logs() as logged:
            kept, fold = await started(other, url)
        assert "snapshot.refused" in {one["event"] for one in logged}
        assert rows_of(fold) == rows_of(await _from_zero(other))
        await written(kept, url, 150)


async def test_a_log_that_was_cut_is_read_from_its_start(counted: CountedReads, url: str) -> None:
    await record(counted, 1, 300)
    kept, _ = await started(counted, url)
    await written(kept, url, 300)
    execute(url, "UPDATE gpuledger.snapshot SET event_digest = 'of another event'")
    counted.restart()
    with capture_logs() as logged:
        kept, fold = await started(counted, url)
    assert "snapshot.refused" in {one["event"] for one in logged}
    assert counted.read_messages == 300
    assert rows_of(fold) == rows_of(await _from_zero(counted))
    async with writing(kept):

        async def is_replaced() -> bool:
            found = execute(url, "SELECT event_digest FROM gpuledger.snapshot")
            return found != [("of another event",)]

        await eventually(is_replaced)


async def test_rows_that_were_changed_are_not_used(counted: CountedReads, url: str) -> None:
    await record(counted, 1, 300)
    kept, _ = await started(counted, url)
    await written(kept, url, 300)
    execute(url, "DELETE FROM gpuledger.snapshot_piece WHERE part = 'namespace_gate'")
    with capture_logs() as logged:
        _, fold = await started(counted, url)
    assert "snapshot.damaged" in {one["event"] for one in logged}
    assert rows_of(fold) == rows_of(await _from_zero(counted))


async def test_a_later_snapshot_stays_when_a_slower_replica_writes(counted: CountedReads, url: str) -> None:
    await record(counted, 1, 200)
    slow, _ = await started(counted, url)
    await record(counted, 201, 400)
    fast, _ = await started(counted, url)
    await written(fast, url, 400)
    with capture_logs() as logged:
        async with writing(slow):

            async def is_done() -> bool:
                return slow.is_idle

            await eventually(is_done)
    assert "snapshot.written" not in {one["event"] for one in logged}
    assert execute(url, "SELECT position FROM gpuledger.snapshot") == [(400,)]


async def test_a_database_that_is_away_only_makes_the_start_longer(counted: CountedReads) -> None:
    await record(counted, 1, 200)
    patience = SnapshotSettings(load_timeout_s=0.05, backoff=Backoff(first_s=0.01, max_s=0.01))
    fold = await KeptFold(CacheProjection(), counted, "postgresql://nobody@127.0.0.1:1/none", patience).load()
    assert is_origin(fold.sequence)


async def test_a_start_does_without_a_snapshot_that_takes_too_long(counted: CountedReads, url: str) -> None:
    await record(counted, 1, 200)
    kept, _ = await started(counted, url)
    await written(kept, url, 200)
    with capture_logs() as logged:
        fold = await KeptFold(CacheProjection(), counted, url, replace(SETTINGS, load_max_s=0.0)).load()
    assert is_origin(fold.sequence)
    assert "snapshot.unavailable" in {one["event"] for one in logged}
