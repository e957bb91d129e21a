"""The ways to the past agree: SQL on the history tables equals folding what had happened in the order of its time.

Whatever the order in which it was recorded, through the real runner and the real database.
"""

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuledger.cli.get.nouns import ALLOCATIONS, CONTRADICTIONS, DEVICES, FAILURES, NODES, SLOTS, WORKLOADS, Noun
from gpuledger.db.engine import connect
from gpuledger.events.envelope import Decoded
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.projection.runner import Runner
from gpuledger.readmodels.projections import (
    AllocationsProjection,
    DevicesProjection,
    NodesProjection,
    WorkloadsProjection,
)
from gpuledger.tools.queries.rows import rows_at
from support.events import RecordedFact, facts, folded, hour, log_of, numbered
from support.projections import QUICK, execute, publish

PROJECTIONS = (DevicesProjection, NodesProjection, WorkloadsProjection, AllocationsProjection)
ASKED = (DEVICES, SLOTS, CONTRADICTIONS, FAILURES, NODES, WORKLOADS, ALLOCATIONS)
EXAMPLES = 25


def test_sql_on_the_history_is_the_fold_of_what_had_happened(migrated_url: str) -> None:
    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(recorded=facts, until=st.integers(-1, 10), data=st.data())
    def agree(recorded: list[RecordedFact], until: int, data: st.DataObject) -> None:
        events = numbered(recorded)
        asyncio.run(_agree(migrated_url, events, data.draw(st.permutations(events)), until))

    agree()


async def _agree(url: str, events: list[Decoded], recorded: list[Decoded], until: int) -> None:
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


def _shown(noun: Noun, row: Any) -> dict[str, object]:
    return {name: getattr(row, name) for name in noun.source.columns}


def _forget(url: str) -> None:
    live = [f"gpuledger_live.{spec.name}" for projection in PROJECTIONS for spec in projection.specs]
    execute(url, f"TRUNCATE {', '.join(live)}, gpuledger.projection, gpuledger.seen")
