"""What the extender records for the agent of a node: all pods that hold something of it, before one is bound."""

from gpuledger.events.envelope import decode
from gpuledger.events.shares import NodeDevicesAllocated
from gpuledger.events.sharing import ContainerShare, PodDevicesBound, PodDevicesReserved
from gpuledger.ledger.permissions import allocated_devices_subject
from support.extending import RESTARTED, Scheduler, SharingCluster, scheduling
from support.ledgers import everything
from support.statuswriting import CountingClient

HALF = {"gpu_core": 50, "gpu_memory_ratio": 50}


async def lists(sharing: SharingCluster, node: str) -> list[NodeDevicesAllocated]:
    """The lists of a node, in the order of the log."""
    subject = allocated_devices_subject(node)
    found = [decode(one.data).data for one in await everything(sharing.ledger) if one.subject == subject]
    return [one for one in found if isinstance(one, NodeDevicesAllocated)]


async def bound(scheduler: Scheduler, sharing: SharingCluster, name: str, node: str) -> None:
    pod = await sharing.create(name, **HALF)
    assert await scheduler.fits(pod, node) == [node]
    assert await scheduler.bind(pod, node) == ""


async def test_each_binding_brings_the_list_of_its_node(
    sharing: SharingCluster, migrated_url: str, writing: CountingClient
) -> None:
    await sharing.share("n1", 2)
    await sharing.share("n2")
    async with scheduling(sharing.ledger, migrated_url, writing) as scheduler:
        await bound(scheduler, sharing, "a", "n1")
        await bound(scheduler, sharing, "b", "n1")
        await bound(scheduler, sharing, "c", "n2")
    assert [[pod.pod for pod in one.pods] for one in await lists(sharing, "n1")] == [["a"], ["a", "b"]]
    (only,) = await lists(sharing, "n2")
    (pod,) = only.pods
    amounts = {"gpu-core": 50, "gpu-memory-ratio": 50}
    assert (pod.namespace, pod.requests) == ("default", amounts)
    assert pod.containers == (ContainerShare(name="main", requests=amounts),)
    (reserved,) = [one for one in await sharing.outcomes() if isinstance(one, PodDevicesReserved) and one.node == "n2"]
    assert (pod.uid, pod.allocation) == (reserved.uid, reserved.allocation)


async def test_the_list_stands_before_the_binding(
    sharing: SharingCluster, migrated_url: str, writing: CountingClient
) -> None:
    await sharing.share("n1")
    async with scheduling(sharing.ledger, migrated_url, writing) as scheduler:
        await bound(scheduler, sharing, "a", "n1")
    order = [type(one) for one in await sharing.outcomes()]
    assert order == [PodDevicesReserved, NodeDevicesAllocated, PodDevicesBound]


async def test_a_list_after_a_restart_has_what_watchers_saw_and_no_pod_that_is_gone(
    sharing: SharingCluster, migrated_url: str, writing: CountingClient
) -> None:
    await sharing.share("n1", 2)
    async with scheduling(sharing.ledger, migrated_url, writing) as scheduler:
        gone = await sharing.create("gone", **HALF)
        assert await scheduler.fits(gone, "n1") == ["n1"]
        assert await scheduler.bind(gone, "n1") == ""
        seen = await sharing.create("seen", **HALF)
        assert await scheduler.bind(seen, "n1") == ""
    await sharing.observe(seen)
    await sharing.delete(gone)
    async with scheduling(sharing.ledger, migrated_url, writing, RESTARTED) as scheduler:
        await bound(scheduler, sharing, "new", "n1")
    last = (await lists(sharing, "n1"))[-1]
    asked = {"gpu-core": 50, "gpu-memory-ratio": 50}
    assert {pod.pod: pod.requests for pod in last.pods} == {"seen": asked, "new": asked}
