"""A status writer that starts again reads what came since its last snapshot; nothing is lost, nothing done twice."""

from dataclasses import replace

import pytest

from gpuledger.edge.kube.client import KubeClient
from gpuledger.events.device import DeviceWithdrawn
from gpuledger.events.node import NodeInventoryChanged
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.snapshots import SnapshotSettings
from support.counted_reads import CountedReads
from support.gpu_states import COMPLETE, INCOMPLETE
from support.inventory_decisions import MANAGED, Decided, events, names, own_events, settled
from support.kube_proxy import KubeProxy, only
from support.projections import execute
from support.scripted_api import refuse
from support.statuswriting import QUICK, CountingClient, counting, status_writer
from support.waiting import eventually

SETTINGS = replace(QUICK, snapshots=SnapshotSettings(events_min=4))


@pytest.fixture
def counted(ledger: JetStreamLedger) -> CountedReads:
    return CountedReads(ledger)


async def written(url: str, position: int) -> None:
    """Return once there is a snapshot behind a position."""

    async def is_there() -> bool:
        found = "SELECT 1 FROM gpuledger.snapshot WHERE name = 'statuswriter' AND position >= %s"
        return execute(url, found, position) == [(1,)]

    await eventually(is_there)


async def test_a_restart_reads_what_came_since_and_writes_what_differs(
    counted: CountedReads, decided: Decided, migrated_url: str, client: KubeClient, ours: CountingClient
) -> None:
    await decided.node("w1", 3)
    await decided.record(("w1", NodeInventoryChanged(present=False, conditions=(INCOMPLETE, MANAGED))))
    async with status_writer(counted, migrated_url, ours, SETTINGS) as writer:
        await settled(writer, decided)
        await written(migrated_url, 5)
        await decided.node("w2", 3)
        await settled(writer, decided)
        await eventually(lambda: _has_events(client, 7))
        await written(migrated_url, 8)
    announced = {one["metadata"]["uid"] for one in await own_events(client)}
    await decided.record(("w1-0", DeviceWithdrawn(reason="Retired")))
    await decided.node("w3", 1)
    counted.restart()
    ours.written.clear()
    async with status_writer(counted, migrated_url, ours, SETTINGS) as writer:
        await settled(writer, decided)
        await eventually(lambda: _has_events(client, 9))
    assert counted.read_messages <= 4
    assert await names(client) == ["w1-1", "w1-2", "w2-0", "w2-1", "w2-2", "w3-0"]
    assert {one.rpartition("/")[2] for one in ours.objects_written() if "/gpudevices/" in one} == {
        "w1-0", "w3-0", "status",
    }  # fmt: skip
    found = await own_events(client)
    assert announced < {one["metadata"]["uid"] for one in found}
    assert not [one for one in found if "series" in one]


async def _has_events(client: KubeClient, number: int) -> bool:
    return len(await own_events(client)) >= number


async def test_news_that_nobody_recorded_before_the_snapshot_is_recorded_behind_it(
    counted: CountedReads, decided: Decided, migrated_url: str, client: KubeClient, proxy: KubeProxy
) -> None:
    incomplete = NodeInventoryChanged(present=False, conditions=(INCOMPLETE, MANAGED))
    complete = NodeInventoryChanged(present=True, conditions=(COMPLETE, MANAGED))
    proxy.fault = only("/events", refuse(403, "Trouble"))
    await decided.node("w1", 1)
    await decided.record(("w1", incomplete), ("w1", complete), ("w1", incomplete))
    async with counting(proxy.kubeconfig) as ours:
        async with status_writer(counted, migrated_url, ours, SETTINGS) as writer:
            await settled(writer, decided)
            await decided.node("w2", 4)
            await settled(writer, decided)
            await written(migrated_url, 5)
        assert await own_events(client) == []
        proxy.fault = None
        async with status_writer(counted, migrated_url, ours, SETTINGS):

            async def counted_twice() -> bool:
                found = await events(client, "GPUInventoryConditionChanged")
                return sorted(one.get("series", {}).get("count", 1) for one in found) == [1, 2]

            await eventually(counted_twice)


async def test_what_was_withdrawn_before_the_snapshot_is_deleted_behind_it(
    counted: CountedReads, decided: Decided, migrated_url: str, client: KubeClient, proxy: KubeProxy
) -> None:
    await decided.node("w1", 2)
    async with counting(proxy.kubeconfig) as ours:
        async with status_writer(counted, migrated_url, ours, SETTINGS) as writer:
            await settled(writer, decided)
            proxy.fault = only("/gpudevices/w1-0", refuse(500, "Trouble"))
            await decided.record(("w1-0", DeviceWithdrawn(reason="Retired")))
            await decided.node("w2", 4)
            await written(migrated_url, 4)
        proxy.fault = None
        assert "w1-0" in await names(client)
        counted.restart()
        async with status_writer(counted, migrated_url, ours, SETTINGS) as writer:
            await settled(writer, decided)
    assert await names(client) == ["w1-1", "w2-0", "w2-1", "w2-2", "w2-3"]
    assert counted.read_messages < 9
