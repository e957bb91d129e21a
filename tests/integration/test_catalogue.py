"""Events of a type that a later build brings: they count alike in every build, live, verified and rebuilt."""

from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.events.catalogue import registry
from gpuledger.events.position import number_of
from gpuledger.events.publishing import Rule
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.definition import Projection
from gpuledger.projection.rebuild import rebuild
from gpuledger.projection.runner import Runner
from gpuledger.readmodels.projections import DevicesProjection
from support.later_build import DeviceMelted, LaterDevices, later_build, melted
from support.projections import QUICK_SERVICE, assert_true, publish, reaches, running, table
from support.runners import decided, failures

ENFORCED = len([*Rule, *registry.introduced])
"""How much this build brings into force: all rules, and the types of events that came later."""


async def run_build(ledger: JetStreamLedger, url: str, devices: Projection, *numbers: int, enforced: int) -> None:
    """Start a build, wait until it has recorded so many rules, and have an agent record these numbers."""
    head = number_of(await ledger.head())
    runners = [Runner(one, ledger, url, settings=QUICK_SERVICE) for one in (SourcesProjection(), devices)]
    async with running(*runners):
        await reaches(url, "sources", head + enforced)
        head = await publish(ledger, [melted(number) for number in numbers])
        await reaches(url, "sources", head)
        await reaches(url, "devices", head)


async def assert_same_in_every_fold(ledger: JetStreamLedger, url: str, devices: Projection) -> None:
    for projection in (SourcesProjection(), devices):
        await assert_true(ledger, url, [projection])
        await rebuild(projection, ledger, url)
        await assert_true(ledger, url, [projection])


def unknown(url: str) -> list[int]:
    return [number for (number,) in table(url, "source", "unknown") if number]


async def changes_of_type(ledger: JetStreamLedger) -> list[int]:
    """What was recorded about the type: odd, it is in force; even, no longer."""
    rules = [one for one in await decided(ledger) if one.subject == DeviceMelted.TYPE]
    return [one.data.version for one in rules]  # type: ignore[attr-defined]


async def test_a_type_counts_from_where_a_build_brought_it_into_force(ledger: JetStreamLedger, url: str) -> None:
    await run_build(ledger, url, DevicesProjection(), 1, enforced=ENFORCED)
    assert (unknown(url), await changes_of_type(ledger)) == ([1], [])
    with later_build():
        await run_build(ledger, url, LaterDevices(), 2, enforced=1)
        assert await changes_of_type(ledger) == [1]
        assert table(url, "failure", "device") == [("d2",)]
        await assert_same_in_every_fold(ledger, url, LaterDevices())
        assert (unknown(url), table(url, "failure", "device")) == ([1], [("d2",)])


async def test_a_build_that_goes_back_and_forth_counts_what_was_in_force(ledger: JetStreamLedger, url: str) -> None:
    with later_build():
        await run_build(ledger, url, LaterDevices(), 1, enforced=ENFORCED + 1)
    await run_build(ledger, url, DevicesProjection(), 2, enforced=1)
    await assert_true(ledger, url, [SourcesProjection()])
    with later_build():
        await run_build(ledger, url, LaterDevices(), 3, enforced=1)
        assert await changes_of_type(ledger) == [1, 2, 3]
        assert (unknown(url), table(url, "failure", "device")) == ([1], [("d1",), ("d3",)])
        await assert_same_in_every_fold(ledger, url, LaterDevices())


async def test_a_build_that_stays_records_nothing(ledger: JetStreamLedger, url: str) -> None:
    for number in (1, 2):
        head = number_of(await ledger.head())
        async with running(Runner(SourcesProjection(), ledger, url, settings=QUICK_SERVICE)):
            await reaches(url, "sources", await publish(ledger, failures(range(number, number + 1))))
            await reaches(url, "sources", head + 1 + (ENFORCED if number == 1 else 0))
    assert await changes_of_type(ledger) == []
    assert await ledger.head() == 2 + ENFORCED
