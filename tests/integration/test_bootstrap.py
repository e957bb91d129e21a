"""The preparation on real servers: decided once, whatever ends in between, and the same in every fold of the log."""

from datetime import datetime

import pytest

from gpuledger.db.engine import connect
from gpuledger.deciders.bootstrap.projection import BootstrapProjection
from gpuledger.events.device import DeviceHealthChanged
from gpuledger.events.envelope import Decoded, decode
from gpuledger.events.module import ModulePrerequisiteChanged
from gpuledger.events.node import NodeBootstrapWaited
from gpuledger.events.payload import Payload
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.rebuild import rebuild
from gpuledger.projection.runner import Runner
from support.bootstrap import MODULE, NODE, Prepared, all_ready, detected, heartbeat, inventory, second, steps
from support.ledgers import everything
from support.projections import QUICK, assert_true, execute, publish, running, table
from support.waiting import eventually

SOURCE = "/services/bootstrap"
DEVICES = ("d1", "d2")


class Clock:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.now = second(0)

    def __call__(self) -> datetime:
        return self.now


class Place:
    """A ledger with facts about one node, and the runner of the preparation, which may begin again."""

    def __init__(self, ledger: JetStreamLedger, url: str) -> None:
        self.ledger, self.url, self.clock = ledger, url, Clock()
        self._publishers = Prepared()

    def runner(self) -> Runner:
        return Runner(BootstrapProjection(), self.ledger, self.url, settings=QUICK, clock=self.clock)

    async def record(self, at: float, *facts: tuple[str, Payload]) -> None:
        await publish(self.ledger, [self._publishers.event(at, subject, data) for subject, data in facts])

    async def decided(self) -> list[Decoded]:
        """What the log has of the preparation's decisions, in order."""
        events = [decode(message.data) for message in await everything(self.ledger)]
        return [event for event in events if event.source == SOURCE]

    async def come(self, phase: str) -> None:
        """Return when the log has the node in a phase, and nothing waits to be recorded."""

        async def has_come() -> bool:
            phases = [name for subject, name in steps(await self.decided()) if subject == NODE]
            outbox = "SELECT 1 FROM gpuledger.outbox WHERE projection = 'bootstrap' AND status <> 'sent'"
            return phases[-1:] == [phase] and not execute(self.url, outbox)

        await eventually(has_come)

    async def true(self) -> None:
        """The rows are those of the log, when it has been read to its head."""
        await self.runner().catch_up(await self.ledger.head())
        await assert_true(self.ledger, self.url, [BootstrapProjection()])


@pytest.fixture
async def place(ledger: JetStreamLedger, migrated_url: str) -> Place:
    place = Place(ledger, migrated_url)
    await place.record(0, (MODULE, ModulePrerequisiteChanged(met=True, reason="Told")))
    await place.record(1, *((name, detected(f"GPU-{name}")) for name in DEVICES), (NODE, inventory()))
    return place


async def make_ready(place: Place) -> None:
    await place.record(2, (NODE, all_ready()))
    for at in (3, 4, 5):
        await place.record(at, (NODE, heartbeat()))


async def test_facts_become_decisions_once_and_the_rows_agree_with_the_log(place: Place) -> None:
    async with running(place.runner()):
        await place.come("Validating")
        await make_ready(place)
        await place.come("Ready")
    await place.true()
    decided = await place.decided()
    assert steps(decided)[-3:] == [(NODE, "Ready"), ("d1", "Ready"), ("d2", "Ready")]
    assert table(place.url, "gpu_node_phase", "node, phase") == [(NODE, "Ready")]
    assert table(place.url, "gpu_device_state", "name, state") == [(name, "Ready") for name in DEVICES]
    async with running(place.runner()):
        await place.record(10, ("GPU-d1", DeviceHealthChanged(healthy=False, kind="XID 79")))
        await eventually(lambda: _is_longer(place, decided))
    await place.true()
    again = await place.decided()
    assert again[: len(decided)] == decided
    assert {name: state for name, state in steps(again[len(decided) :]) if name != NODE} == {"d1": "Faulted"}
    assert len({event.id for event in again}) == len(again)


async def _is_longer(place: Place, decided: list[Decoded]) -> bool:
    return len(await place.decided()) >= len(decided) + 1


async def test_a_wait_is_recorded_once_and_outlives_a_restart_and_a_replay(place: Place) -> None:
    await place.record(2, (NODE, all_ready(validator="waiting:toolkit-validation")))
    async with running(place.runner()):
        await place.come("Validating")
    place.clock.now = second(1000)
    async with running(place.runner()):
        await place.come("ValidatingFailed")
    await place.true()
    decided = await place.decided()
    assert sum(isinstance(event.data, NodeBootstrapWaited) for event in decided) == 1
    rows = {name: table(place.url, name) for name in ("gpu_node_phase", "gpu_device_state", "gpu_node_preparation")}
    await rebuild(BootstrapProjection(), place.ledger, place.url)
    await place.true()
    assert {name: table(place.url, name) for name in rows} == rows
    place.clock.now = second(2000)
    async with running(place.runner()):
        await make_ready(place)
        await place.record(2001, (NODE, all_ready()))
        await place.come("Ready")
    await place.true()
    assert (await place.decided())[: len(decided)] == decided


async def test_a_decider_without_rows_decides_nothing_again(place: Place) -> None:
    await make_ready(place)
    async with running(place.runner()):
        await place.come("Ready")
    decided = await place.decided()
    async with connect(place.url, application_name="test") as connection, connection.transaction():
        for spec in BootstrapProjection.specs:
            await connection.execute(f"TRUNCATE gpuledger_live.{spec.name}".encode())
        for name in ("projection", "seen", "outbox", "decider"):
            column = "name" if name == "projection" else "projection"
            await connection.execute(f"DELETE FROM gpuledger.{name} WHERE {column} = 'bootstrap'".encode())
    async with running(place.runner()):
        await place.record(20, (NODE, heartbeat(fresh=False)))
        await place.come("ValidatingFailed")
    await place.true()
    again = await place.decided()
    assert again[: len(decided)] == decided
    assert steps(again[len(decided) :])[0] == (NODE, "ValidatingFailed")
