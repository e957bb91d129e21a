"""Rows of `sql` at a moment are the fold of the facts that had happened, or were recorded, by then; or both."""

import asyncio
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuledger.cli.backend import open_backend
from gpuledger.cli.get.noun import Noun
from gpuledger.cli.get.nouns import ALLOCATIONS, CONTRADICTIONS, DEVICES, FAILURES, NODES, SLOTS, WORKLOADS
from gpuledger.events.envelope import Decoded
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.runtime.clock import system_clock
from gpuledger.tools.errors import RequestError
from gpuledger.tools.queries.backend import Backend, all_projections, bring_current, named_projections
from gpuledger.tools.queries.moments import PointInTime
from gpuledger.tools.queries.sql import ABOUT_RECORDING, result_now, result_then
from support.events import RecordedFact, facts, folded, hour, log_of, numbered
from support.fault_world import ON_THEIR_WAY
from support.projections import execute, publish
from support.up import eventually, running_up

ASKED = (DEVICES, SLOTS, CONTRADICTIONS, FAILURES, NODES, WORKLOADS, ALLOCATIONS)
EXAMPLES = 12
RESTARTS_MAX = 5


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


@pytest.mark.parametrize("name", sorted(ABOUT_RECORDING))
async def test_tables_about_recording_have_no_history_in_event_time(name: str, migrated_url: str) -> None:
    backend = Backend(MemoryLedger(), migrated_url, "", None)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match=f"{name} is about recording"):
        await result_then(backend, f"SELECT * FROM gpuledger_live.{name}", PointInTime(hour(1)))


def test_tables_of_messages_are_about_recording() -> None:
    """A fold in event time has facts alone, so tables that are made of messages would be empty there."""
    made_of_messages = {spec.name for one in all_projections() if one.reads for spec in one.specs}
    assert made_of_messages <= ABOUT_RECORDING


@pytest.mark.long
async def test_now_is_the_present_of_every_projection(tmp_path: Path) -> None:
    """A fleet that services decide about: what they decided are facts, and nothing is decided again."""
    folder = tmp_path / "lab"
    with running_up(folder, "--fleet", "nodes=2,gpus=2,profile=h200", "--speed", "60") as up:
        url = up.running.endpoints.database_url
        ready = "SELECT count(*) FROM gpuledger_live.gpu_device_state WHERE state = 'Ready'"
        eventually(lambda: execute(url, ready) == [(4,)])
    await _publish_decisions(folder)
    async with open_backend(folder, "sql") as backend:
        for projection in all_projections():
            for spec in projection.specs:
                statement = f"SELECT * FROM gpuledger_live.{spec.name} AS t ORDER BY t"
                present = await result_now(backend, statement)
                for moment in (PointInTime(recorded=system_clock()), PointInTime(system_clock())):
                    if moment.at is None or spec.name not in ABOUT_RECORDING:
                        assert await result_then(backend, statement, moment) == present, (spec.name, moment)


async def _publish_decisions(folder: Path) -> None:
    """Have what was decided recorded: an interrupt, and the fold of a command, leave decisions to the next `up`.

    Tables have them at once, and a fold in event time once they are in the log.
    """
    for _ in range(RESTARTS_MAX):
        async with open_backend(folder, "sql") as backend:
            await bring_current(backend)
            if _are_published(backend.database_url):
                return
        with running_up(folder) as up:
            eventually(partial(_are_published, up.running.endpoints.database_url))
    pytest.fail(f"decisions are left after {RESTARTS_MAX} restarts")


def _are_published(url: str) -> bool:
    return execute(url, f"SELECT count(*) {ON_THEIR_WAY}") == [(0,)]
