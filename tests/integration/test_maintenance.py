"""The decider of maintenance on real servers: what it decided once is decided once, whatever it loses."""

from datetime import timedelta

from gpuledger.db.migrate import migrate
from gpuledger.deciders.maintenance.projection import MaintenanceProjection
from gpuledger.events.envelope import Decoded, decode
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.runner import Runner
from gpuledger.runtime.clock import system_clock
from support import servers
from support.events import event
from support.ledgers import everything
from support.maintenance import OPERATOR, WATCHERS, observed, released, requested
from support.projections import QUICK, assert_true, publish, reaches, running, table
from support.waiting import eventually

ADA, BEN = "operators/ada", "operators/ben"


async def decided(ledger: JetStreamLedger) -> list[Decoded]:
    """What the service recorded, as the ledger has it."""
    return [decode(one.data) for one in await everything(ledger) if one.subject.startswith("ledger.svc.maintenance.")]


async def has_decided(ledger: JetStreamLedger, number: int) -> bool:
    """Whether it recorded so much."""
    return len(await decided(ledger)) >= number


async def test_who_loses_all_tables_decides_nothing_a_second_time(
    ledger: JetStreamLedger, migrated_url: str, postgres_server_url: str
) -> None:
    now, taint = system_clock(), {"key": "x", "effect": "NoSchedule"}
    facts = [
        event(observed(), "n1", source=WATCHERS),
        event(requested(ADA), "n1", number=1, source=OPERATOR),
        event(requested(BEN, taints=[taint]), "n1", number=2, source=OPERATOR),
        event(requested(ADA), "n0", number=3, source=OPERATOR),
        event(released(ADA), "n1", number=4, source=OPERATOR),
    ]
    facts = [one._replace(time=now + timedelta(seconds=number)) for number, one in enumerate(facts)]
    async with running(Runner(MaintenanceProjection(), ledger, migrated_url, settings=QUICK)):
        await publish(ledger, facts)
        await eventually(lambda: has_decided(ledger, 2))
        await reaches(migrated_url, "maintenance", await ledger.head())
    before = await decided(ledger)
    assert [one.subject for one in before] == ["n1", "n1"]
    assert table(migrated_url, "maintenance_request", "node, owner") == [("n0", ADA), ("n1", ADA), ("n1", BEN)]
    await assert_true(ledger, migrated_url, [MaintenanceProjection()])
    with servers.fresh_database(postgres_server_url) as another:
        migrate(another)
        async with running(Runner(MaintenanceProjection(), ledger, another, settings=QUICK)):
            await reaches(another, "maintenance", await ledger.head())
            again = event(released(BEN), "n1", number=5, source=OPERATOR)
            await publish(ledger, [again._replace(time=now + timedelta(seconds=5))])
            await eventually(lambda: has_decided(ledger, 3))
            await reaches(another, "maintenance", await ledger.head())
    after = await decided(ledger)
    assert after[:2] == before
    assert len(after) == 3
