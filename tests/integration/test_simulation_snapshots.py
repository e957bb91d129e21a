"""A simulated fleet that goes on reads what its agents recorded since the last snapshot, and nothing before."""

import asyncio

import pytest

from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.snapshots import SnapshotSettings
from gpuledger.runtime.clock import system_clock
from gpuledger.runtime.tasks import end
from gpuledger.tools.simulation.agents import Agents, epoch_of
from gpuledger.tools.simulation.allocation import RunningPod, Share, SimulatedPod
from gpuledger.tools.simulation.fleet import Fleet, FleetSpec
from gpuledger.tools.simulation.fleet_journal import FleetJournal
from gpuledger.tools.simulation.hardware import GPU_RESOURCE
from gpuledger.tools.simulation.workload import SUCCEEDED
from support.counted_reads import CountedReads
from support.projections import execute
from support.waiting import eventually

FLEET = Fleet(FleetSpec(2, 2), 1)
EPOCH = epoch_of(FLEET.seed)
SETTINGS = SnapshotSettings(events_min=20)


@pytest.fixture
def counted(ledger: JetStreamLedger) -> CountedReads:
    return CountedReads(ledger)


async def record(agents: Agents, first: int, last: int) -> None:
    """Heartbeats, cards and pods, of which every third one still runs."""
    node = next(iter(FLEET.nodes))
    card = FLEET.card(FLEET.slot_ids()[0], 0)
    await agents.observed(node, [card])
    for number in range(first, last + 1):
        await agents.heart_beat(node)
        pod = SimulatedPod(f"train-{number:06d}", "team", GPU_RESOURCE, 1, 1000, 60, SUCCEEDED)
        await agents.scheduled(RunningPod(pod, node, (Share(str(card.uuid), 1000),)), system_clock())
        if number % 3:
            await agents.ended(pod.name, SUCCEEDED)
    await agents.failed(node, card, "XID 48", "Double-bit ECC error")
    await agents.flush()


async def test_a_fleet_goes_on_from_its_snapshot(counted: CountedReads, url: str) -> None:
    agents = Agents(counted, EPOCH, {}, clock=system_clock, sleep=asyncio.sleep)
    await record(agents, 1, 20)
    first = FleetJournal(counted, EPOCH, url, SETTINGS)
    writing = asyncio.create_task(first.run())
    await first.catch_up()

    async def is_written() -> bool:
        return bool(execute(url, "SELECT 1 FROM gpuledger.snapshot WHERE name = %s", f"simulation:{EPOCH}"))

    await eventually(is_written)
    await record(agents, 21, 22)
    followed = await first.catch_up()
    await end([writing])
    counted.restart()
    resumed = await FleetJournal(counted, EPOCH, url, SETTINGS).catch_up()
    assert counted.read_messages == 9
    whole = await FleetJournal(counted, EPOCH).catch_up()
    assert resumed == whole == followed
    assert sorted(resumed.open) == [f"train-{number:06d}" for number in range(3, 23, 3)]
