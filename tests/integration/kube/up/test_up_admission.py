"""`gpuledger up` with its admission webhooks: pools and pods as users write them, refused and accepted."""

import asyncio
from typing import Any, Final

import pytest
from yarl import URL

from gpuledger.api.kinds import CLUSTER_GPU_POOLS, GPU_DEVICES, NAMESPACES, PODS
from gpuledger.api.labels import ANNOTATION_CLUSTER_ASSIGNMENT, LABEL_ENABLED, LABEL_TRUE
from gpuledger.edge.admission.rules.scheduling_hints import POOL_LABEL
from gpuledger.edge.admission.webhook_configuration import NAME
from gpuledger.edge.kube.client import KubeClient, open_client
from gpuledger.edge.kube.errors import KubeError
from gpuledger.edge.webhooks.configuration import MUTATING, VALIDATING
from support.examples import manifests
from support.refusals import is_refused, refusal
from support.servers import short_directory
from support.up import Up, running_up
from support.waiting import eventually

pytestmark = pytest.mark.embedded_only("`gpuledger up` brings its own API server")

GPUS: Final = 2
FLEET: Final = ("--fleet", f"nodes=1,gpus={GPUS},profile=h200", "--speed", "600", "--seed", "7")
TEAM: Final = "gpu-team-a"
CLUSTER_A: Final = "cluster.gpu.deckhouse.io/cluster-a"

Json = dict[str, Any]


def pod(name: str, resource: str = CLUSTER_A, units: int = 1, namespace: str = TEAM) -> Json:
    resources = {"limits": {resource: str(units)}} if units else {}
    spec = {"containers": [{"name": "c", "image": "i", "resources": resources}]}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


async def test_the_webhooks_answer(up: Up, client: KubeClient) -> None:
    def is_answering() -> bool:
        document = up.health().document["admission"]
        assert isinstance(document, dict)
        return bool(document["state"] == "answering" and document["url"].startswith("https://127.0.0.1:"))

    async def answers() -> bool:
        return await asyncio.to_thread(is_answering)

    await eventually(answers)
    await eventually(lambda: is_refused(client, pod("early", namespace="default"), "PoolNotFound"))


async def test_a_pool_serves_pods_once_it_offers_something(client: KubeClient) -> None:
    labels = {LABEL_ENABLED: LABEL_TRUE}
    await client.create(NAMESPACES, {"metadata": {"name": TEAM, "labels": labels}})
    await eventually(lambda: is_refused(client, pod("demo-a"), "PoolNotFound"))
    await client.create(CLUSTER_GPU_POOLS, manifests("cluster-pools")[0])
    await eventually(lambda: is_made(client, pod("early")))

    async def are_ready() -> bool:
        found = (await client.list(GPU_DEVICES)).items
        return [one.get("status", {}).get("state") for one in found] == ["Ready"] * GPUS

    async def offers() -> bool:
        status = (await client.get(CLUSTER_GPU_POOLS, "cluster-a")).get("status") or {}
        return (status.get("capacity") or {}).get("total") == GPUS

    await eventually(are_ready)
    for device in (await client.list(GPU_DEVICES)).items:
        await assign(client, device["metadata"]["name"], "cluster-a")
    await eventually(offers)
    await eventually(lambda: is_refused(client, pod("greedy", units=GPUS + 1), "CapacityExceeded"))
    await eventually(lambda: is_made(client, pod("demo-a")))
    made = await client.get(PODS, "demo-a", TEAM)
    assert made["metadata"]["labels"][POOL_LABEL] == "cluster-a"
    (constraint,) = made["spec"]["topologySpreadConstraints"]
    assert constraint["topologyKey"] == "topology.kubernetes.io/zone"


async def assign(client: KubeClient, device: str, pool: str) -> None:
    """Somebody gives a device to a pool."""
    metadata = {"name": device, "annotations": {ANNOTATION_CLUSTER_ASSIGNMENT: pool}}
    await client.apply(GPU_DEVICES, {"metadata": metadata}, field_manager="somebody")


async def is_made(client: KubeClient, given: Json) -> bool:
    return not await refusal(client, given)


async def test_pools_and_devices_are_validated(client: KubeClient) -> None:
    changed = {"spec": {"resource": {"slicesPerUnit": 2}}}
    with pytest.raises(KubeError, match=r"PoolImmutable|immutable"):
        await client.merge_patch(CLUSTER_GPU_POOLS, "cluster-a", changed)
    device = (await client.list(GPU_DEVICES)).items[0]["metadata"]["name"]
    with pytest.raises(KubeError, match="PoolNotFound"):
        await assign(client, device, "nowhere")


async def places(client: KubeClient) -> set[str]:
    """Where the API server is told to ask."""
    found = [await client.get(kind, NAME) for kind in (MUTATING, VALIDATING)]
    return {str(URL(hook["clientConfig"]["url"]).origin()) for one in found for hook in one["webhooks"]}


@pytest.mark.long
async def test_a_new_start_is_in_force_again() -> None:
    with short_directory() as directory:
        with running_up(directory):
            async with open_client(directory / "kubeconfig") as client:
                await eventually(lambda: is_refused(client, pod("p", namespace="default"), "PoolNotFound"))
                before = await places(client)
        with running_up(directory) as up:
            async with open_client(directory / "kubeconfig") as client:
                await eventually(lambda: is_refused(client, pod("p", namespace="default"), "PoolNotFound"))
                after = await places(client)
                assert after == {up.health().document["admission"]["url"]}  # type: ignore[index]
                assert not after & before
