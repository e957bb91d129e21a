"""The scheduler of a laptop asks the extender over HTTP, says why a pod waits, and is the kubelet of its pods."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gpuledger.api.kinds import EVENTS, NODES, PODS
from gpuledger.api.sharing import SCHEDULER
from gpuledger.edge.kube.client import KubeClient, Object, Selection
from gpuledger.edge.kube.errors import NotFoundError
from gpuledger.events.sharing import PodSharingGone
from gpuledger.runtime.clock import system_clock
from gpuledger.tools.simulation.scheduling.scheduler import SharingScheduler
from support.extending import WATCHERS, SharingCluster, extender, pod_of
from support.kept_running import kept_running
from support.statuswriting import CountingClient
from support.waiting import eventually

HALF = {"gpu_core": 50, "gpu_memory_ratio": 50}


@asynccontextmanager
async def laptop(sharing: SharingCluster, database_url: str, client: CountingClient) -> AsyncIterator[None]:
    """An extender, and the scheduler that asks it."""
    async with extender(sharing.ledger, database_url, client) as found:
        scheduler = SharingScheduler(sharing.client, found.url, SCHEDULER, system_clock, look_interval_s=0.05)
        async with kept_running(scheduler):
            yield


async def create(client: KubeClient, name: str, **fields: object) -> Object:
    pod = pod_of(name, **HALF)
    pod["spec"] |= {"schedulerName": SCHEDULER, **fields}
    return await client.create(PODS, pod)


async def runs(client: KubeClient, name: str, node: str) -> bool:
    pod = await client.get(PODS, name, "default")
    return (pod["spec"].get("nodeName"), pod["status"].get("phase")) == (node, "Running")


async def reason_of(client: KubeClient, name: str) -> str:
    """Why the pod has no node, as its condition says."""
    pod = await client.get(PODS, name, "default")
    conditions = pod["status"].get("conditions") or ()
    return next(
        (one["message"] for one in conditions if one["type"] == "PodScheduled" and one["status"] == "False"), ""
    )


async def test_a_pod_without_room_says_why_and_runs_once_another_is_gone(
    sharing: SharingCluster, migrated_url: str, writing: CountingClient
) -> None:
    client = sharing.client
    for node, spec in (("n1", {}), ("plain", {}), ("cordoned", {"unschedulable": True})):
        await client.create(NODES, {"metadata": {"name": node}, "spec": spec})
        live = await client.get(NODES, node)
        if live["spec"].get("taints"):
            await client.merge_patch(NODES, node, {"spec": {"taints": None}})
    await client.merge_patch(NODES, "cordoned", {"spec": {"unschedulable": True}})
    await sharing.share("n1")
    async with laptop(sharing, migrated_url, writing):
        first = await create(client, "a", terminationGracePeriodSeconds=30)
        await create(client, "b")
        for name in ("a", "b"):
            await eventually(lambda name=name: runs(client, name, "n1"))  # type: ignore[misc]
        await create(client, "c")

        async def says_why() -> bool:
            return "Insufficient" in await reason_of(client, "c")

        await eventually(says_why)
        why = await reason_of(client, "c")
        assert why.startswith("0/3 nodes are available: 1 Insufficient")
        assert "1 node(s) were unschedulable" in why
        assert "1 the node shares no devices" in why
        events = (await client.list(EVENTS, Selection("default"))).items
        (event,) = [one for one in events if one["reason"] == "FailedScheduling" and one["regarding"]["name"] == "c"]
        assert event["note"] == why
        await client.delete(PODS, "a", "default")

        async def is_gone() -> bool:
            try:
                await client.get(PODS, "a", "default")
            except NotFoundError:
                return True
            return False

        await eventually(is_gone)
        await sharing.record(WATCHERS, "default/a", PodSharingGone(uid=first["metadata"]["uid"]))
        await eventually(lambda: runs(client, "c", "n1"))


async def test_a_pod_of_another_scheduler_is_left_alone(
    sharing: SharingCluster, migrated_url: str, writing: CountingClient
) -> None:
    client = sharing.client
    await client.create(NODES, {"metadata": {"name": "n1"}})
    await client.merge_patch(NODES, "n1", {"spec": {"taints": None}})
    await sharing.share("n1")
    async with laptop(sharing, migrated_url, writing):
        other = await client.create(PODS, pod_of("other", **HALF))
        await create(client, "ours")
        await eventually(lambda: runs(client, "ours", "n1"))
    assert not (await sharing.live(other))["spec"].get("nodeName")
