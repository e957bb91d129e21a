"""What remains of gpuledger in a cluster: what it keeps is removed, and what people made can be deleted."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest

from gpuledger.api.kinds import CRDS, DAEMON_SETS, GPU_POOLS, NAMESPACES, NODES, SECRETS, Resource
from gpuledger.api.labels import POOL_FINALIZER
from gpuledger.api.machine_config import ANNOTATION_STATE
from gpuledger.edge.kube import crds
from gpuledger.edge.kube.client import KubeClient, Object
from gpuledger.edge.kube.errors import KubeError
from gpuledger.edge.kube.kubeconfig import load_configuration
from gpuledger.edge.webhooks.configuration import MUTATING, VALIDATING
from gpuledger.tools.uninstall import RELEASE_TRIES_MAX, uninstall
from support.cli import Run
from support.kube_fleet import create
from support.kube_server import KubeServer
from support.uninstalling import (
    CONFIGURED,
    LEFT_OF_POOLS,
    THEIR_FINALIZER,
    THEIRS,
    finalizers,
    leave_behind,
    names,
)

HOME = "gpu-system"


@pytest.fixture
async def left(client: KubeClient) -> KubeClient:
    await create(client, NAMESPACES, {"metadata": {"name": HOME}})
    await leave_behind(client, HOME)
    return client


async def test_nothing_waits_for_gpuledger_any_more_and_what_people_made_stays(left: KubeClient, run: Run) -> None:
    result = await run("uninstall", "--namespace", HOME)
    assert result.code == 0, result.err
    text = result.out + result.err
    assert "Released, so that they can be deleted: gpu-system/held, gpu-system/shared, wide." in text
    assert "Remaining in Kubernetes: 4 pools" in text
    assert "Removed from 1 Nodes: the label gpu.deckhouse.io/detected." in text
    labels = {one["metadata"]["name"]: one["metadata"]["labels"] for one in (await left.list(NODES)).items}
    assert labels == {"gpus": {"example.com/theirs": "true"}, "cpu": {"a": "b"}}
    annotations = {one["metadata"]["name"]: one["metadata"]["annotations"] for one in (await left.list(NODES)).items}
    assert annotations == {"gpus": {"example.com/theirs": "yes"}, "cpu": CONFIGURED}
    assert "Removed from 1 Nodes: the annotations of their configuration" in text
    assert await finalizers(left) == LEFT_OF_POOLS
    assert await names(left, DAEMON_SETS) == await names(left, SECRETS) == {THEIRS}
    assert {crd["metadata"]["name"] for crd in crds.shipped()} <= await names(left, CRDS)
    await left.delete(GPU_POOLS, "held", HOME)
    assert "held" not in await finalizers(left)


async def test_it_can_be_repeated(left: KubeClient) -> None:
    first, second = await uninstall(left, HOME), await uninstall(left, HOME)
    assert len(first.removed) == 3
    assert (first.nodes, second.nodes) == (first.configured, second.configured) == (1, 0)
    assert (second.removed, second.released, second.pools) == ((), (), 4)


async def test_what_an_agent_reported_goes_from_a_node_that_no_pool_has_any_more(left: KubeClient) -> None:
    await left.apply(NODES, {"metadata": {"name": "was", "annotations": {ANNOTATION_STATE: "idle"}}})
    assert (await uninstall(left, HOME)).configured == 2
    assert not (await left.get(NODES, "was"))["metadata"].get("annotations")


async def test_a_pool_that_waits_for_its_deletion_goes(left: KubeClient) -> None:
    await left.delete(GPU_POOLS, "held", HOME)
    assert (await left.get(GPU_POOLS, "held", HOME))["metadata"]["deletionTimestamp"]
    await uninstall(left, HOME)
    assert "held" not in await finalizers(left)


async def test_where_the_kinds_are_gone_there_are_no_pools_to_release(kube: KubeServer) -> None:
    bare = KubeClient(await load_configuration(kube.kubeconfig))
    try:
        assert (await uninstall(bare, "default")).pools == 0
        assert await names(bare, MUTATING) == await names(bare, VALIDATING) == set()
    finally:
        await bare.close()


class Meddling(KubeClient):
    """Somebody else changes a pool's finalizers each time before gpuledger does."""

    times = 0

    async def json_patch(
        self,
        resource: Resource,
        name: str,
        operations: Sequence[Mapping[str, Any]],
        namespace: str | None = None,
        *,
        subresource: str | None = None,
    ) -> Object:
        if name == "shared" and self.times:
            self.times -= 1
            before = (await self.get(resource, name, namespace))["metadata"]["finalizers"]
            changed = [f"example.com/{self.times}", *before]
            await self.merge_patch(resource, name, {"metadata": {"finalizers": changed}}, namespace)
        return await super().json_patch(resource, name, operations, namespace, subresource=subresource)


@pytest.fixture
async def meddling(kube: KubeServer, left: KubeClient) -> AsyncIterator[Meddling]:
    client = Meddling(await load_configuration(kube.kubeconfig))
    yield client
    await client.close()


async def test_a_change_meanwhile_is_kept(left: KubeClient, meddling: Meddling) -> None:
    meddling.times = RELEASE_TRIES_MAX - 1
    await uninstall(meddling, HOME)
    expected = [*(f"example.com/{number}" for number in range(RELEASE_TRIES_MAX - 1)), THEIR_FINALIZER]
    assert (await finalizers(left))["shared"] == expected


async def test_somebody_who_changes_a_pool_without_end_is_named(left: KubeClient, meddling: Meddling) -> None:
    meddling.times = RELEASE_TRIES_MAX
    with pytest.raises(KubeError, match=f"pool {HOME}/shared {RELEASE_TRIES_MAX} times meanwhile"):
        await uninstall(meddling, HOME)
    assert POOL_FINALIZER in (await finalizers(left))["shared"]
