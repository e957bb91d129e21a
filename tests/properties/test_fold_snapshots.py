"""A fold from any snapshot is the fold from the first event, whatever ended a writer in between."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuledger.events.position import number_of
from gpuledger.projection.definition import Projection
from gpuledger.projection.fold_snapshots import buckets, writer
from gpuledger.projection.fold_snapshots.check import check_snapshots
from gpuledger.projection.fold_snapshots.reader import FoldSnapshots
from gpuledger.projection.fold_snapshots.writer import SnapshotWriter
from gpuledger.projection.replay import skipped_positions
from gpuledger.readmodels.projections import (
    AllocationsProjection,
    DevicesProjection,
    IncidentsProjection,
    NodesProjection,
    PreflightProjection,
    SharesProjection,
    WorkloadsProjection,
)
from gpuledger.tools.queries.backend import all_projections
from support.events import RecordedFact, log_of, numbered, workload_facts
from support.events import facts as recorded_facts
from support.fold_snapshots import (
    CountingLedger,
    KilledError,
    MemoryObjects,
    from_snapshot,
    from_start,
    recorded_messages,
)
from support.preflight_results import preflights
from support.sharing import sharings

every_projection = pytest.mark.parametrize("projection", all_projections(), ids=lambda one: one.name)
MESSAGES = len(recorded_messages())
RETIRING = [
    WorkloadsProjection(),
    AllocationsProjection(),
    DevicesProjection(),
    NodesProjection(),
    IncidentsProjection(),
    PreflightProjection(),
    SharesProjection(),
]
places = st.lists(st.integers(1, MESSAGES), min_size=1, max_size=4, unique=True).map(sorted)


async def take_at(
    projection: Projection,
    ledger: CountingLedger,
    snapshots: FoldSnapshots,
    at: Sequence[int],
    *,
    restart: bool = False,
) -> None:
    """Take a snapshot at each of these positions; with `restart` each in a process of its own."""
    going = await writer_of(projection, ledger, snapshots)
    for place in at:
        if restart:
            going = await writer_of(projection, ledger, snapshots)
        async for messages in ledger.history(going.fold.sequence, place):
            await going.take(going.fold.check_all(messages))
        await going.write()


async def writer_of(projection: Projection, ledger: CountingLedger, snapshots: FoldSnapshots) -> SnapshotWriter:
    skipped, pieces = await skipped_positions(ledger), snapshots.pieces(projection)
    loaded = await snapshots.load(projection, await ledger.head(), skipped, is_written=True)
    if loaded is None:
        loaded = snapshots.begin(projection, skipped, is_written=True)
    return SnapshotWriter(pieces, loaded, skipped, "test")


@pytest.fixture(autouse=True, scope="module")
def small_pieces() -> Iterator[None]:
    """Tables have many buckets, and some pieces of retired rows are merged."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buckets, "ROWS_PER_BUCKET", 4)
        patch.setattr(writer, "PART_ROWS_MAX", 6)
        yield


def refuse(reason: str) -> None:
    raise AssertionError(reason)


@every_projection
@settings(max_examples=3, deadline=None)
@given(at=places, until=st.integers(1, MESSAGES), restart=st.booleans())
async def test_a_fold_from_a_snapshot_is_the_fold_from_the_start(
    projection: Projection, at: list[int], until: int, restart: bool
) -> None:
    ledger, objects = CountingLedger(recorded_messages()), MemoryObjects()
    snapshots = FoldSnapshots(objects, ledger, refuse)
    await take_at(projection, ledger, snapshots, at, restart=restart)
    found = await from_snapshot(projection, ledger, snapshots, until)
    assert (found is None) == (until < at[0])
    if found is not None:
        assert found == await from_start(projection, ledger, until)


@pytest.mark.parametrize("projection", RETIRING, ids=lambda one: one.name)
@settings(max_examples=20, deadline=None)
@given(
    recorded=st.one_of(recorded_facts, preflights, sharings, st.lists(workload_facts, min_size=1, max_size=20)),
    data=st.data(),
)
async def test_late_facts_find_what_retired_before_the_snapshot(
    projection: Projection, recorded: list[RecordedFact], data: st.DataObject
) -> None:
    log = log_of(data.draw(st.permutations(numbered(recorded))))
    if not log:
        return
    ledger = CountingLedger(log)
    snapshots = FoldSnapshots(MemoryObjects(), ledger, refuse)
    at = sorted(data.draw(st.sets(st.integers(1, len(log)), min_size=1, max_size=5)))
    await take_at(projection, ledger, snapshots, at, restart=data.draw(st.booleans()))
    found = await from_snapshot(projection, ledger, snapshots, len(log))
    assert found == await from_start(projection, ledger, len(log))


@every_projection
@settings(max_examples=3, deadline=None)
@given(at=places, puts=st.integers(0, 60), until=st.integers(1, MESSAGES))
async def test_a_writer_may_be_killed_at_any_put(projection: Projection, at: list[int], puts: int, until: int) -> None:
    ledger, objects = CountingLedger(recorded_messages()), MemoryObjects()
    snapshots = FoldSnapshots(objects, ledger, refuse)
    objects.puts_left = puts
    try:
        await take_at(projection, ledger, snapshots, at)
    except KilledError:
        objects.puts_left = None
        found = await from_snapshot(projection, ledger, snapshots, until)
        assert found is None or found == await from_start(projection, ledger, until)
        done = number_of((await writer_of(projection, ledger, snapshots)).fold.sequence)
        await take_at(projection, ledger, snapshots, [one for one in at if one > done])
    found = await from_snapshot(projection, ledger, snapshots, MESSAGES)
    assert found == await from_start(projection, ledger, MESSAGES)


@every_projection
async def test_each_snapshot_is_what_a_fold_from_the_one_before_gives(projection: Projection) -> None:
    ledger, objects = CountingLedger(recorded_messages()), MemoryObjects()
    snapshots = FoldSnapshots(objects, ledger, refuse)
    await take_at(projection, ledger, snapshots, [100, 250, MESSAGES])
    found = [one async for one in check_snapshots(projection, ledger, snapshots)]
    assert [(number_of(one.since.sequence), number_of(one.at.sequence)) for one in found] == [
        (0, 100),
        (100, 250),
        (250, MESSAGES),
    ]
    assert all(one.is_right and one.rows for one in found), found
