"""From a user's manifest to its end: admission, scheduler and extender, and watchers, all on one API server."""

from dataclasses import replace

from gpuledger.api.kinds import NODES, PODS
from gpuledger.api.sharing import SCHEDULER, SharingNames
from gpuledger.domain.sharing.annotation import read_allocation
from gpuledger.edge.kube.client import Object
from gpuledger.edge.kube.errors import NotFoundError
from gpuledger.edge.watchers.resources import sharing_pods
from gpuledger.events.sharing import PodDevicesBound
from gpuledger.runtime.clock import system_clock
from gpuledger.tools.simulation.scheduling.scheduler import SharingScheduler
from support.admission_serving import webhooks
from support.extending import SharingCluster, extender
from support.kept_running import kept_running
from support.statuswriting import CountingClient
from support.waiting import eventually
from support.watching import HASTY, recorded_of, watching

NAMES = SharingNames(scheduler=SCHEDULER)
KIND = sharing_pods.kind(NAMES)


def manifest(name: str) -> Object:
    """As the seed has it: requests alone, and no scheduler."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"kooperator/gpu": "60", "cpu": "4"}}}
    metadata = {"name": name, "namespace": "default"}
    return {"metadata": metadata, "spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}


async def test_a_pod_gets_its_share_and_gives_it_to_the_next_one(
    sharing: SharingCluster, migrated_url: str, writing: CountingClient
) -> None:
    client, ledger = sharing.client, sharing.ledger
    await client.create(NODES, {"metadata": {"name": "n1"}})
    await client.merge_patch(NODES, "n1", {"spec": {"taints": None}})
    await sharing.share("n1")

    async def runs(name: str) -> bool:
        try:
            pod = await client.get(PODS, name, "default")
        except NotFoundError:
            return False
        return (pod["spec"].get("nodeName"), pod["status"].get("phase")) == ("n1", "Running")

    async with (
        webhooks(client, ledger, NAMES),
        watching(client, ledger, migrated_url, settings=replace(HASTY, sharing=NAMES)),
        extender(ledger, migrated_url, writing) as found,
        kept_running(SharingScheduler(client, found.url, SCHEDULER, system_clock, look_interval_s=0.05)),
    ):
        first = await client.create(PODS, manifest("a"))
        expected = {"kooperator/gpu-core": "60", "kooperator/gpu-memory-ratio": "60", "kooperator/gpu.shared": "1"}
        assert first["spec"]["containers"][0]["resources"]["limits"] == expected
        assert first["spec"]["schedulerName"] == SCHEDULER
        await eventually(lambda: runs("a"))
        second = await client.create(PODS, manifest("b"))
        pod = await client.get(PODS, "a", "default")
        allocation = read_allocation(pod["metadata"]["annotations"][NAMES.allocated], NAMES)
        assert [(one.minor, one.resources["gpu-core"]) for one in allocation["gpu"]] == [(0, 60)]

        async def waits() -> bool:
            return bool((await client.get(PODS, "b", "default"))["status"].get("conditions"))

        await eventually(waits)
        assert not (await client.get(PODS, "b", "default"))["spec"].get("nodeName")
        await client.delete(PODS, "a", "default")
        await eventually(lambda: runs("b"))
    bound = [one.uid for one in await sharing.outcomes() if isinstance(one, PodDevicesBound)]
    assert bound == [first["metadata"]["uid"], second["metadata"]["uid"]]
    lines = await recorded_of((KIND,), ledger)
    assert lines.count("pod default/a sharing-gone") == 1
