"""The ways to the past agree: SQL on the history tables equals folding what had happened in the order of its time.

Whatever the order in which it was recorded, through the real runner and the real database.
"""

import asyncio
from datetime import datetime
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuledger.cli.commands.diff import COMPARED, differences
from gpuledger.cli.get.noun import Noun
from gpuledger.cli.get.nouns import ALLOCATIONS, CONTRADICTIONS, DEVICES, FAILURES, NODES, SLOTS, WORKLOADS
from gpuledger.cli.render import Output
from gpuledger.db.engine import AsyncConnection, connect
from gpuledger.domain.devices.fold import DEVICE_HISTORY, OCCUPANCY_HISTORY
from gpuledger.events.device import DeviceFailed, DeviceInserted, DeviceRemoved
from gpuledger.events.envelope import Decoded
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.projection.runner import Runner
from gpuledger.readmodels.projections import (
    AllocationsProjection,
    DevicesProjection,
    NodesProjection,
    WorkloadsProjection,
)
from gpuledger.tools.queries.rows import RowFilter, rows_at, rows_that_may_differ
from support.events import IMPORT, RecordedFact, facts, folded, hour, log_of, numbered
from support.projections import QUICK, execute, publish

PROJECTIONS = (DevicesProjection, NodesProjection, WorkloadsProjection, AllocationsProjection)
ASKED = (DEVICES, SLOTS, CONTRADICTIONS, FAILURES, NODES, WORKLOADS, ALLOCATIONS)
EXAMPLES = 25


def test_sql_on_the_history_is_the_fold_of_what_had_happened(migrated_url: str) -> None:
    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(recorded=facts, until=st.integers(-1, 10), then=st.integers(-1, 10), data=st.data())
    def agree(recorded: list[RecordedFact], until: int, then: int, data: st.DataObject) -> None:
        events = numbered(recorded)
        asyncio.run(_agree(migrated_url, events, data.draw(st.permutations(events)), until, then))

    agree()


async def _agree(url: str, events: list[Decoded], recorded: list[Decoded], until: int, then: int) -> None:
    _forget(url)
    ledger = MemoryLedger()
    if recorded:
        head = await publish(ledger, recorded)
        for projection in PROJECTIONS:
            await Runner(projection(), ledger, url, settings=QUICK).catch_up(head)
    happened = sorted((event for event in events if event.time <= hour(until)), key=lambda event: event.time)
    folds = {projection.name: folded(projection(), log_of(happened)) for projection in PROJECTIONS}
    async with connect(url, application_name="test") as connection:
        for noun in ASKED:
            table = folds[noun.projection].state.tables()[noun.spec.name]
            expected = [_shown(noun, row) for row in table.rows.values()]
            found = await rows_at(connection, noun.source, hour(until))
            assert sorted(map(repr, found)) == sorted(map(repr, expected)), noun.view.kind
            needed = noun.view.needed(Output.TABLE)
            narrow = await rows_at(connection, noun.source, hour(until), RowFilter(columns=needed))
            assert set(narrow.names) == set(needed)
            assert narrow == [{name: row[name] for name in narrow.names} for row in found]
        await _rows_without_versions_agree(connection, hour(until))
        for noun in COMPARED:
            await _differences_agree(connection, noun, hour(until), hour(then))


async def _rows_without_versions_agree(connection: AsyncConnection, at: datetime) -> None:
    """Until a build rebuilds the rows of the one before, the same rows come from the installations."""
    for noun in (DEVICES, SLOTS):
        found = await rows_at(connection, noun.source, at)
        async with connection.transaction(force_rollback=True):
            await connection.execute("UPDATE gpuledger.projection SET version = 3 WHERE name = 'devices'")
            for table in (DEVICE_HISTORY, OCCUPANCY_HISTORY):
                await connection.execute(f"TRUNCATE gpuledger_live.{table.name}".encode())
            # Without a row nobody has folded anything, and there are no rows of before either.
            assert await rows_at(connection, noun.source, at) == found


async def test_devices_that_have_not_changed_since_need_neither_versions_nor_failures(url: str) -> None:
    ledger = MemoryLedger()
    happened = [
        RecordedFact(IMPORT, "d1", 1, DeviceInserted(slot="s1", serial="a")),
        RecordedFact(IMPORT, "d1", 2, DeviceFailed(kind="DBE")),
        RecordedFact(IMPORT, "d2", 3, DeviceInserted(slot="s2")),
        RecordedFact(IMPORT, "d2", 4, DeviceRemoved(slot="s2")),
    ]
    head = await publish(ledger, numbered(happened))
    await Runner(DevicesProjection(), ledger, url, settings=QUICK).catch_up(head)
    async with connect(url, application_name="test") as connection:
        before, found = [await rows_at(connection, DEVICES.source, hour(at)) for at in (3, 4)]
        await connection.execute("TRUNCATE gpuledger_live.device_history, gpuledger_live.failure")
        assert await rows_at(connection, DEVICES.source, hour(4)) == found
        assert await rows_at(connection, DEVICES.source, hour(3)) != before, "one has changed since, and is looked up"


async def _differences_agree(connection: AsyncConnection, noun: Noun, earlier: datetime, later: datetime) -> None:
    """What may differ includes everything that does."""
    everything = [await rows_at(connection, noun.source, at) for at in (earlier, later)]
    candidates = await rows_that_may_differ(connection, noun.source, earlier, later)
    assert list(differences(noun, *candidates)) == list(differences(noun, *everything)), noun.view.kind


def _shown(noun: Noun, row: Any) -> dict[str, object]:
    return {name: getattr(row, name) for name in noun.source.columns}


def _forget(url: str) -> None:
    live = [f"gpuledger_live.{spec.name}" for projection in PROJECTIONS for spec in projection.specs]
    execute(url, f"TRUNCATE {', '.join(live)}, gpuledger.projection, gpuledger.seen")
