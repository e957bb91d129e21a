"""A node's agent while the bus is away, and its outbox for an hour: it works on, and publishes everything later."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from gpuledger.agent.hardware.simulated_faults import DRIVER_MISSING
from gpuledger.agent.outbox.bounds import DEFAULT_SIZES, Sizes
from gpuledger.agent.outbox.entry import QueueBounds
from gpuledger.agent.outbox.outbox import open_outbox
from gpuledger.events.allocation import AllocationObserved
from gpuledger.events.device import DevicePoolApplied, DevicePoolRefused
from gpuledger.events.node import NodeAgentStarted, NodeClockJumped
from gpuledger.local.servers.nats import NatsServer
from support.agent_fast import FAULT
from support.agent_process import NODE, Place, a_place, desired_devices
from support.outbox import Log, Recorded, Time, fact, numbers_in, recorded
from support.servers import short_directory

FACTS = 3_600
"""A fact a second, for an hour."""


@pytest.fixture
async def place(fresh_nats: NatsServer) -> AsyncIterator[Place]:
    async with a_place(fresh_nats) as place:
        yield place


@pytest.fixture
def root() -> Iterator[Path]:
    with short_directory() as root:
        yield root


async def test_an_agent_that_restarts_without_the_bus_offers_what_it_offered_and_reports_nothing_twice(
    place: Place,
) -> None:
    await place.use(2)
    await place.kubelet.allocate("gpu.deckhouse.io/training", 1, "trainer")
    await place.recorded_at_least(1, AllocationObserved)
    first, second = place.agent.cards()
    await place.agent.inject(f"xid:119@{second}")
    await place.lists(2, healthy=1)
    await place.verdicts(second, False)
    await place.drained()
    place.nats.kill()
    await place.agent.kill()
    await place.lists(2, healthy=0)

    await place.agent.start()
    await place.lists(2, healthy=1)
    assert place.kubelet.health("gpu.deckhouse.io/training") == {first: "Healthy", second: "Unhealthy"}
    _, document = await place.agent.health()
    assert document["waiting"] > 0
    await asyncio.to_thread(place.nats.start)
    await place.nothing_is_lost()
    assert [one.clean for one in await place.recorded(NodeAgentStarted)] == [False, False]
    assert len(await place.recorded(DevicePoolApplied)) == 2
    await place.verdicts(second, False)
    await place.verdicts(first)
    observed = await place.recorded(AllocationObserved)
    assert observed == observed[:1] * len(observed), (
        "a report of an earlier process is repeated as it was, or not at all"
    )
    assert not await place.recorded(DevicePoolRefused)


async def test_what_pools_desire_is_done_without_the_bus(place: Place) -> None:
    place.agent.environ[FAULT] = DRIVER_MISSING
    await place.agent.start()
    await place.set_desired(*desired_devices(place.agent, 0))
    await place.recorded_at_least(1, DevicePoolRefused)
    await place.drained()
    place.nats.kill()
    await place.agent.kill()
    del place.agent.environ[FAULT]
    await place.agent.start()
    await place.lists(1)
    await asyncio.to_thread(place.nats.start)
    await place.recorded_at_least(1, DevicePoolApplied)
    await place.nothing_is_lost()


async def test_an_hour_without_the_bus_and_a_clock_that_jumps_lose_nothing(root: Path) -> None:
    account = await _hour_away(root, DEFAULT_SIZES)
    jumps = [round(event.data.seconds) for event in account.events if isinstance(event.data, NodeClockJumped)]
    assert jumps == [3_600, -3_600]
    assert numbers_in(account.events) == list(range(FACTS))
    assert not any(account.missing.values())
    assert not account.dropped


async def test_an_hour_without_the_bus_beyond_the_bounds_is_a_recorded_gap(root: Path) -> None:
    sizes = Sizes(QueueBounds(1_000, 128 << 20), DEFAULT_SIZES.memory, DEFAULT_SIZES.batch)
    account = await _hour_away(root, sizes)
    recorded = numbers_in(account.events)
    assert recorded == sorted(recorded)
    missing = {epoch: numbers for epoch, numbers in account.missing.items() if numbers}
    counts = {epoch: sum(one.count for one in drops) for epoch, drops in account.dropped.items()}
    assert counts == {epoch: len(numbers) for epoch, numbers in missing.items()}
    spans = {epoch: (min(numbers), max(numbers)) for epoch, numbers in missing.items()}
    assert spans == {
        epoch: (min(one.first for one in drops), max(one.last for one in drops))
        for epoch, drops in account.dropped.items()
    }
    assert len(recorded) + sum(counts.values()) >= FACTS


async def _hour_away(folder: Path, sizes: Sizes) -> Recorded:
    """Tell a fact a second while the bus is away; the clock is set forward, and back, by an hour meanwhile."""
    time, log = Time(), Log()
    log.away = True

    async def sleep(_seconds: float) -> None:
        await asyncio.sleep(0.01)

    async with open_outbox(
        folder, NODE, version="1", hardware="none", clock=time.clock, monotonic=time.monotonic, sleep=sleep, sizes=sizes
    ) as outbox:
        sending = asyncio.create_task(outbox.run(log.connect))
        for number in range(FACTS):
            time.go(1.0)
            time.now += timedelta(hours={1_000: 1, 2_000: -1}.get(number, 0))
            await outbox.record([fact(number, at=time.now)])
        log.away = False
        await asyncio.wait_for(outbox.drained(), 60.0)
        sending.cancel()
    account = recorded(log.messages)
    times = [event.time for event in account.events]
    assert times == sorted(times)
    return account
