"""Pods with shared devices on an API server: what is recorded of them from their creation to their end."""

from dataclasses import replace

from gpuledger.api.kinds import PODS
from gpuledger.api.sharing import SharingNames
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.watchers.resources import pods, sharing_pods
from gpuledger.events.envelope import decode
from gpuledger.events.sharing import PodSharingObserved
from gpuledger.ledger.jetstream import JetStreamLedger
from support.kube_fleet import create
from support.ledgers import everything
from support.watching import HASTY, comes_of, listed_again, lists, watching

NAMES = SharingNames("gpus.example", "sharing-scheduler")
KIND = sharing_pods.kind(NAMES)
SETTINGS = replace(HASTY, sharing=NAMES)
OBSERVED, GONE = "pod default/p sharing-observed", "pod default/p sharing-gone"
ALLOCATION = '{"gpu":[{"minor":1,"resources":{"gpus.example/gpu-core":"50"}}]}'


async def put_pod(client: KubeClient, resource: str = "gpus.example/gpu-memory-ratio", **spec: str) -> None:
    """A pod that asks for half a GPU, and goes at once when it is deleted."""
    container = {"name": "c", "image": "i", "resources": {"limits": {resource: "50"}}}
    whole = {"containers": [container], "terminationGracePeriodSeconds": 0, **spec}
    await create(client, PODS, {"metadata": {"name": "p", "namespace": "default"}, "spec": whole})


async def observed(ledger: JetStreamLedger) -> list[PodSharingObserved]:
    found = [decode(message.data).data for message in await everything(ledger)]
    return [one for one in found if isinstance(one, PodSharingObserved)]


async def test_a_pod_is_recorded_from_its_request_to_its_end(
    client: KubeClient, ledger: JetStreamLedger, database_url: str
) -> None:
    await put_pod(client)
    async with watching(client, ledger, database_url, settings=SETTINGS):
        await comes_of((KIND,), ledger, OBSERVED)
        await client.merge_patch(PODS, "p", {"metadata": {"annotations": {NAMES.allocated: ALLOCATION}}}, "default")
        await comes_of((KIND,), ledger, *[OBSERVED] * 2)
        await client.merge_patch(PODS, "p", {"status": {"phase": "Succeeded"}}, "default", subresource="status")
        await comes_of((KIND,), ledger, *[OBSERVED] * 2, GONE)
    before, after = await observed(ledger)
    assert (before.requests, before.allocation) == ({"gpu-memory-ratio": 50}, None)
    assert after.allocation is not None
    assert after.allocation["gpu"][0].resources == {"gpu-core": 50}
    assert before.uid == after.uid != "-"


async def test_a_restart_records_nothing_again_and_then_what_was_missed(
    client: KubeClient, ledger: JetStreamLedger, database_url: str
) -> None:
    await put_pod(client)
    for _ in range(2):
        before = [lists(KIND)]
        async with watching(client, ledger, database_url, settings=SETTINGS):
            await listed_again((KIND,), before)
            await comes_of((KIND,), ledger, OBSERVED)
    await client.delete(PODS, "p", "default")
    await put_pod(client)
    async with watching(client, ledger, database_url, settings=SETTINGS):
        await comes_of((KIND,), ledger, OBSERVED, GONE, OBSERVED)
    assert len({one.uid for one in await observed(ledger)}) == 2


async def test_whole_gpus_are_recorded_for_the_sharing_scheduler_alone(
    client: KubeClient, ledger: JetStreamLedger, database_url: str
) -> None:
    await put_pod(client, "nvidia.com/gpu")
    before = [lists(KIND)]
    async with watching(client, ledger, database_url, settings=SETTINGS):
        await listed_again((KIND,), before)
        await comes_of((KIND,), ledger)
        await client.delete(PODS, "p", "default")
        await put_pod(client, "nvidia.com/gpu", schedulerName="sharing-scheduler")
        await comes_of((KIND,), ledger, OBSERVED)
    assert [one.scheduler for one in await observed(ledger)] == ["sharing-scheduler"]


def test_it_has_a_source_of_its_own() -> None:
    assert KIND.source != pods.KIND.source
    assert KIND.payload.AGGREGATE == pods.KIND.payload.AGGREGATE
