"""The rows of a large table at a time come over two sessions, which show one moment, or over one where that is all."""

from datetime import datetime

import pytest

from gpuledger.cli.get.nouns import DEVICES, SLOTS
from gpuledger.db.engine import connect
from gpuledger.db.readonly import read_only
from gpuledger.events.device import DeviceFailed, DeviceInserted, DeviceRemoved
from gpuledger.events.envelope import Decoded
from gpuledger.events.payload import Payload
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.projection.runner import Runner
from gpuledger.readmodels.projections import DevicesProjection
from gpuledger.tools.queries.backend import Backend
from gpuledger.tools.queries.found_rows import FoundRows
from gpuledger.tools.queries.halves import all_rows_at, moment_of, over_another
from gpuledger.tools.queries.rows import KeyRange, RowFilter, rows_at
from support.events import event, hour
from support.projections import QUICK, execute, publish

COUNT = 7
SPLIT = "d3"
ALL = RowFilter()
ABOVE = RowFilter(keys=KeyRange(SPLIT, is_below=False))


def lives() -> list[Decoded]:
    facts: list[tuple[str, float, Payload]] = [(f"d{one}", one, DeviceInserted(slot=f"s{one}")) for one in range(COUNT)]
    facts += [
        ("d1", 8, DeviceRemoved(slot="s1")),
        ("d4", 9, DeviceRemoved(slot="s4")),
        ("d4", 9.5, DeviceFailed(kind="E")),
    ]
    return [event(data, device, number=number, at=at) for number, (device, at, data) in enumerate(facts, 1)]


@pytest.fixture
async def backend(url: str) -> Backend:
    ledger = MemoryLedger()
    await Runner(DevicesProjection(), ledger, url, settings=QUICK).catch_up(await publish(ledger, lives()))
    execute(url, "ANALYZE gpuledger_live.device, gpuledger_live.slot")
    return Backend(ledger, url, "", None)  # type: ignore[arg-type] # nobody reads the log


async def whole(url: str, at: datetime, row_filter: RowFilter = ALL) -> FoundRows:
    async with read_only(url) as connection:
        return await rows_at(connection, DEVICES.source, at, row_filter)


@pytest.mark.parametrize("at", [-1, 3, 8.5, 10])
@pytest.mark.parametrize("halved_min", [1, COUNT, COUNT + 1])
async def test_both_halves_are_the_whole(backend: Backend, at: float, halved_min: int) -> None:
    for noun in (DEVICES, SLOTS):
        async with read_only(backend.database_url) as connection:
            expected = await rows_at(connection, noun.source, hour(at))
        assert list(await all_rows_at(backend, noun.source, hour(at), ALL, halved_min=halved_min)) == list(expected)


async def test_some_names_come_over_one_session(backend: Backend) -> None:
    named = RowFilter(["d5", "d1"], columns=("device", "slot"))
    found = await all_rows_at(backend, DEVICES.source, hour(10), named, halved_min=1)
    assert list(found) == [{"device": "d1", "slot": None}, {"device": "d5", "slot": "s5"}]


async def test_another_session_shows_the_moment_of_the_first(backend: Backend) -> None:
    url = backend.database_url
    async with read_only(url) as first:
        moment = await moment_of(first)
        expected = await rows_at(first, DEVICES.source, hour(10), ABOVE)
        execute(url, "DELETE FROM gpuledger_live.device WHERE device = 'd5'")
        found = await over_another(url, moment, DEVICES.source, hour(10), ABOVE)
    assert found == expected
    assert [row["device"] for row in expected] == ["d3", "d4", "d5", "d6"]
    assert "d5" not in [row["device"] for row in await whole(url, hour(10), ABOVE)]


@pytest.mark.parametrize("moment", ["00000003-0000001B-1", "no moment"])
async def test_another_session_gives_up_where_its_server_has_no_such_moment(backend: Backend, moment: str) -> None:
    assert await over_another(backend.database_url, moment, DEVICES.source, hour(10), ABOVE) is None


async def test_another_session_gives_up_a_table_that_a_rebuild_holds(backend: Backend) -> None:
    url = backend.database_url
    async with read_only(url) as first, connect(url, application_name="swap") as swap:
        moment = await moment_of(first)
        async with swap.transaction():
            await swap.execute("LOCK TABLE gpuledger_live.device IN ACCESS EXCLUSIVE MODE")
            assert await over_another(url, moment, DEVICES.source, hour(10), ABOVE) is None


async def test_another_session_that_cannot_be_had_leaves_all_to_the_first(backend: Backend) -> None:
    nowhere = "postgresql://nobody@127.0.0.1:1/gpuledger"
    assert await over_another(nowhere, "00000000-1", DEVICES.source, hour(10), ABOVE) is None
