"""NIC discovery: what it records, and when."""

import asyncio
from contextlib import suppress

from gpuledger.agent.hardware.api import NicFacts
from gpuledger.agent.nic_discovery import POLL_PERIOD_S, NicDiscovery
from gpuledger.agent.survey_event import nics_event
from gpuledger.events.node_sharing import NICS_PER_NODE_MAX, NodeNicsObserved
from support.agent_parts import NODE, Disk, Time, settle

NIC = NicFacts("mlx5_0", "0000:0a:00.0", active=True, numa_node=0, functions=("0000:0a:00.1",))


async def recorded_of(*polls: tuple[NicFacts, ...]) -> list[NodeNicsObserved]:
    """What is recorded where each poll finds this."""
    time, disk, found = Time(), Disk(), list(polls)

    async def read() -> tuple[NicFacts, ...]:
        return found.pop(0) if len(found) > 1 else found[0]

    part = NicDiscovery(NODE, read, clock=time.clock, monotonic=time.monotonic, sleep=time.sleep)
    task = asyncio.create_task(part.run(disk.record))
    await settle()
    for _ in polls:
        await time.advance(POLL_PERIOD_S)
    assert not task.done()
    assert part.alive_at is not None
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return [fact.data for fact in disk.recorded if isinstance(fact.data, NodeNicsObserved)]


async def test_what_changes_is_recorded_once() -> None:
    down = NIC._replace(active=False)
    found = await recorded_of((NIC,), (NIC,), (down,), (down,), ())
    assert [[nic.active for nic in each.nics] for each in found] == [[True], [False], []]


async def test_a_node_without_nics_records_nothing() -> None:
    assert await recorded_of((), ()) == []


def test_odd_values_are_left_out_with_a_warning() -> None:
    warnings: list[str] = []
    odd = NIC._replace(functions=("nowhere",), numa_node=-5)
    (nic,) = nics_event((odd, NIC._replace(address="?")), warnings.append).nics
    assert (nic.functions, nic.numa_node) == ((), None)
    assert len(warnings) == 3


def test_more_than_an_event_holds_are_cut() -> None:
    many = tuple(NIC._replace(address=f"0000:{bus:02x}:00.0") for bus in range(NICS_PER_NODE_MAX + 1))
    warnings: list[str] = []
    assert len(nics_event(many, warnings.append).nics) == NICS_PER_NODE_MAX
    assert warnings
