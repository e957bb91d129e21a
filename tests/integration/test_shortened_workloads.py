"""What workloads held, shortened by an operator, on real servers: rows go, and hours of GPUs stay."""

import asyncio
from typing import Any

import psycopg
import pytest

from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.domain.histories import WORKLOAD_ALLOCATIONS
from gpuledger.events.envelope import Decoded
from gpuledger.events.history import HistoryShortened
from gpuledger.events.payload import Payload
from gpuledger.events.workload import DeviceShare, WorkloadEnded, WorkloadScheduled, WorkloadSubmitted
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.rebuild import rebuild
from gpuledger.projection.runner import Runner
from gpuledger.readmodels.projections import WorkloadsProjection
from integration.test_shortened_histories import LONG_AGO, swept, until
from support.events import event, hour
from support.projections import QUICK, assert_true, execute, publish, running, table

BOTH = [WorkloadsProjection(), SourcesProjection()]
HISTORY = WORKLOAD_ALLOCATIONS.name
WORKLOADS = 300
SHARE = (DeviceShare(device="d1", gpu_milli=500),)


def at(number: int, data: Payload, workload: str, hours: float) -> Decoded:
    return event(data, workload, number=number, at=LONG_AGO + hours)


def facts() -> list[Decoded]:
    """Workloads that hold half a card for an hour, one after the other, and one that holds it throughout."""
    found = [at(1, WorkloadScheduled(gpu_milli=500, node="n1", devices=SHARE), "always", 0)]
    for number in range(WORKLOADS):
        name, first = f"w{number}", 3 * number + 2
        found += [
            at(first, WorkloadSubmitted(gpu_milli=500, owner="eva"), name, number),
            at(first + 1, WorkloadScheduled(gpu_milli=500, node="n1", devices=SHARE), name, number),
            at(first + 2, WorkloadEnded(), name, number + 1),
        ]
    return found


NEXT = 3 * WORKLOADS + 2
"""The number of the importer's next event."""


def shortened(hours: float, number: int = 1) -> Decoded:
    data = HistoryShortened(before=hour(LONG_AGO + hours))
    return event(data, HISTORY, number=number, source="/operators/eva")


async def catch_up(ledger: JetStreamLedger, url: str) -> None:
    for projection in BOTH:
        await Runner(projection, ledger, url, settings=QUICK).catch_up(await ledger.head())


def hours_of_eva(url: str) -> list[tuple[Any, ...]]:
    """The reports of hours, but for the workload that goes on."""
    days = execute(url, "SELECT * FROM report.gpu_hours_by_day WHERE owner = 'eva' ORDER BY day")
    return days + execute(url, "SELECT * FROM report.gpu_hours WHERE owner = 'eva'")


def held(url: str) -> set[str]:
    return {workload for (workload,) in table(url, HISTORY, "workload")}


async def test_what_ended_before_goes_and_hours_stay(ledger: JetStreamLedger, url: str) -> None:
    await publish(ledger, facts())
    await catch_up(ledger, url)
    hours, workloads = hours_of_eva(url), table(url, "workload")
    assert len(held(url)) == WORKLOADS + 1
    await publish(ledger, [shortened(200)])
    await catch_up(ledger, url)
    async with running(Runner(WorkloadsProjection(), ledger, url, settings=QUICK)):
        await until(lambda: swept(url, HISTORY))
    expected = {"always", *(f"w{number}" for number in range(199, WORKLOADS))}
    assert held(url) == expected, "w199 ended at the bound itself"
    assert (hours_of_eva(url), table(url, "workload")) == (hours, workloads)
    await assert_true(ledger, url, BOTH)
    await rebuild(WorkloadsProjection(), ledger, url)
    await assert_true(ledger, url, BOTH)
    async with running(Runner(WorkloadsProjection(), ledger, url, settings=QUICK)):
        await until(lambda: swept(url, HISTORY))
    assert (held(url), hours_of_eva(url)) == (expected, hours)


async def test_a_time_that_is_not_kept_is_refused(ledger: JetStreamLedger, url: str) -> None:
    await publish(ledger, [*facts(), shortened(200)])
    await catch_up(ledger, url)
    query = "SELECT count(*) FROM report.allocations_at(%s)"
    assert execute(url, query, hour(LONG_AGO + 200)) == [(3,)]
    with pytest.raises(psycopg.errors.RaiseException, match="allocation is kept since"):
        await asyncio.to_thread(execute, url, query, hour(LONG_AGO + 199))


async def test_a_late_fact_of_before_is_refused_and_a_later_one_finds_what_it_needs(
    ledger: JetStreamLedger, url: str
) -> None:
    await publish(ledger, [*facts(), shortened(200)])
    await catch_up(ledger, url)
    hours = hours_of_eva(url)
    again = WorkloadScheduled(gpu_milli=500, node="n1", devices=SHARE)
    late = [
        at(NEXT, WorkloadEnded(), "always", 199),
        at(NEXT + 1, again, "w0", 250),
        at(NEXT + 2, WorkloadSubmitted(gpu_milli=1, owner="ivan"), "w1", 250),
        at(NEXT + 3, WorkloadEnded(), "w0", 251),
    ]
    last = await publish(ledger, late)
    await catch_up(ledger, url)
    ((position, reason),) = table(url, "rejection", "position, reason")
    assert position == last - 3
    assert "an operator has shortened the history" in reason
    assert execute(
        url, "SELECT workload, valid_to IS NULL FROM gpuledger_live.allocation WHERE workload = 'always'"
    ) == [("always", True)]
    assert execute(url, "SELECT valid_from, valid_to FROM gpuledger_live.allocation WHERE workload = 'w0'") == [
        (hour(LONG_AGO + 250), hour(LONG_AGO + 251))
    ]
    (*_, (owner, _class, total)) = hours_of_eva(url)
    assert (owner, total - hours[-1][-1]) == ("eva", 0.5), "w1's hour stays under the owner of then"
    await assert_true(ledger, url, BOTH)
