"""Rows of `sql` at a moment are the fold of the facts that had happened, or were recorded, by then; or both."""

import asyncio

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuledger.cli.get.nouns import ALLOCATIONS, CONTRADICTIONS, DEVICES, FAILURES, NODES, SLOTS, WORKLOADS, Noun
from gpuledger.events.envelope import Decoded
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.tools.queries.backend import Backend, named_projections
from gpuledger.tools.queries.moments import PointInTime
from gpuledger.tools.queries.sql import result_then
from support.events import RecordedFact, facts, folded, hour, log_of, numbered
from support.projections import publish

ASKED = (DEVICES, SLOTS, CONTRADICTIONS, FAILURES, NODES, WORKLOADS, ALLOCATIONS)
EXAMPLES = 12


def test_a_moment_is_the_fold_of_what_had_happened_and_was_recorded(migrated_url: str) -> None:
    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(recorded=facts, until=st.integers(-1, 10), noun=st.sampled_from(ASKED), data=st.data())
    def agree(recorded: list[RecordedFact], until: int, noun: Noun, data: st.DataObject) -> None:
        events = data.draw(st.permutations(numbered(recorded)))
        length = data.draw(st.integers(0, len(events)))
        asyncio.run(_agree(migrated_url, noun, events, length, until))

    agree()


async def _agree(url: str, noun: Noun, recorded: list[Decoded], length: int, until: int) -> None:
    ledger = MemoryLedger()
    if recorded:
        await publish(ledger, recorded)
    backend, at = Backend(ledger, url, "", None), hour(until)  # type: ignore[arg-type]
    for moment, counted in (
        (PointInTime(at), _happened(recorded, until)),
        (PointInTime(recorded=(None, length)), recorded[:length]),
        (PointInTime(at, (None, length)), _happened(recorded[:length], until)),
    ):
        (projection,) = named_projections([noun.projection])
        table = folded(projection, log_of(counted)).state.tables()[noun.spec.name]
        expected = [{name: getattr(row, name) for name in noun.source.columns} for row in table.rows.values()]
        columns = ", ".join(noun.source.columns)
        found = await result_then(backend, f"SELECT {columns} FROM gpuledger_live.{noun.spec.name}", moment)
        assert sorted(map(repr, found.rows)) == sorted(map(repr, expected)), (noun.view.kind, moment)


def _happened(events: list[Decoded], until: int) -> list[Decoded]:
    return sorted((event for event in events if event.time <= hour(until)), key=lambda event: event.time)
