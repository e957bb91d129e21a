"""An export that reads generations that were closed: from the beginning, and from a cursor in the middle."""

import pytest

from gpuledger.runtime.settings import Servers
from support.closing import close_at, opened
from support.exporting import exporter_of, exporting, ids_of, is_caught_up, reports
from support.projections import execute, publish
from support.receiver import receiving


@pytest.mark.one_stream("it names positions of one stream")
async def test_an_export_goes_on_through_a_closed_generation(servers: Servers, url: str, location: str) -> None:
    early, late = reports(range(1, 6)), reports(range(6, 9))
    async with opened(servers) as ledger:
        await publish(ledger, early)
    await close_at(servers, location)
    async with receiving() as receiver, opened(servers) as ledger:
        await publish(ledger, late)
        async with exporting(exporter := exporter_of(ledger, url, receiver)):
            await is_caught_up(exporter)
        assert [one for one in receiver.ids if one in ids_of([*early, *late])] == ids_of([*early, *late])
        places = [one["ledgerposition"] for one in receiver.accepted]
        assert places[:5] == [f"1/{number}" for number in range(1, 6)]
        assert places[-1].startswith("2/")

        execute(url, "DELETE FROM gpuledger.export_cursor")
        receiver.accepted.clear()
        async with exporting(exporter := exporter_of(ledger, url, receiver, begin="1/4")):
            await is_caught_up(exporter)
        assert [one for one in receiver.ids if one in ids_of([*early, *late])] == ids_of([*early[3:], *late])


@pytest.mark.one_stream("it names positions of one stream")
async def test_a_cursor_in_a_generation_that_is_closed_meanwhile_counts(
    servers: Servers, url: str, location: str
) -> None:
    early, late = reports(range(1, 4)), reports(range(4, 6))
    async with receiving() as receiver:
        async with opened(servers) as ledger:
            await publish(ledger, early)
            async with exporting(exporter := exporter_of(ledger, url, receiver)):
                await is_caught_up(exporter)
        await close_at(servers, location)
        async with opened(servers) as ledger:
            await publish(ledger, late)
            async with exporting(exporter := exporter_of(ledger, url, receiver)):
                await is_caught_up(exporter)
        assert [one for one in receiver.ids if one in ids_of([*early, *late])] == ids_of([*early, *late])
