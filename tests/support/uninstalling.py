"""What gpuledger leaves in a cluster that it is taken from, and what others have beside it."""

from typing import Any

from gpuledger.api.kinds import (
    CA_SECRET,
    CLUSTER_GPU_POOLS,
    CONTROLLER_TLS_SECRET,
    DAEMON_SETS,
    GPU_POOLS,
    NODES,
    SECRETS,
    Resource,
)
from gpuledger.api.labels import LABEL_DETECTED, POOL_FINALIZER
from gpuledger.api.machine_config import ANNOTATION_CURRENT, ANNOTATION_DESIRED, ANNOTATION_POOL
from gpuledger.edge.kube.client import KubeClient
from support.kube_fleet import create

THEIR_FINALIZER = "example.com/theirs"
THEIRS = "theirs"
"""The name of what others have."""

CONFIGURED = {ANNOTATION_POOL: "worker", ANNOTATION_DESIRED: "rendered-worker-1"}
"""What a Node has that is configured; without gpuledger's ownership by another controller."""

REPORTED = {ANNOTATION_CURRENT: "rendered-worker-1", "example.com/theirs": "yes"}

CARD = {"resource": {"unit": "Card"}}
POD = {
    "metadata": {"labels": {"app": "a"}},
    "spec": {"containers": [{"name": "c", "image": "none"}]},
}


async def leave_behind(client: KubeClient, namespace: str) -> None:
    """Everything that gpuledger keeps but the webhooks, and something of others of each kind."""
    pools = {"held": [POOL_FINALIZER], "shared": [THEIR_FINALIZER, POOL_FINALIZER], THEIRS: [THEIR_FINALIZER]}
    for name, finalizers in pools.items():
        metadata: dict[str, Any] = {"name": name, "namespace": namespace, "finalizers": finalizers}
        await create(client, GPU_POOLS, {"metadata": metadata, "spec": CARD})
    metadata = {"name": "wide", "finalizers": [POOL_FINALIZER]}
    await create(client, CLUSTER_GPU_POOLS, {"metadata": metadata, "spec": CARD})
    for name, manager in (("nvidia-dcgm", "gpuledger"), (THEIRS, "Helm")):
        labels = {"app.kubernetes.io/managed-by": manager}
        spec: dict[str, Any] = {"selector": {"matchLabels": {"app": "a"}}, "template": POD}
        daemon_set = {"name": name, "namespace": namespace, "labels": labels}
        await create(client, DAEMON_SETS, {"metadata": daemon_set, "spec": spec})
    for name, labels in (("gpus", {LABEL_DETECTED: "true", "example.com/theirs": "true"}), ("cpu", {"a": "b"})):
        await create(client, NODES, {"metadata": {"name": name, "labels": labels}})
    await client.apply(NODES, {"metadata": {"name": "gpus", "annotations": CONFIGURED}})
    await client.apply(NODES, {"metadata": {"name": "gpus", "annotations": REPORTED}}, field_manager="agent")
    await client.apply(NODES, {"metadata": {"name": "cpu", "annotations": CONFIGURED}}, field_manager=THEIRS)
    for name in (CA_SECRET, CONTROLLER_TLS_SECRET, THEIRS):
        await create(client, SECRETS, {"metadata": {"name": name, "namespace": namespace}})


async def names(client: KubeClient, resource: Resource) -> set[str]:
    """The names of all objects of a kind."""
    return {one["metadata"]["name"] for one in (await client.list(resource)).items}


async def finalizers(client: KubeClient) -> dict[str, list[str]]:
    """The finalizers of every pool."""
    found = [one for kind in (GPU_POOLS, CLUSTER_GPU_POOLS) for one in (await client.list(kind)).items]
    return {one["metadata"]["name"]: one["metadata"].get("finalizers") or [] for one in found}


LEFT_OF_POOLS = {"held": [], "shared": [THEIR_FINALIZER], THEIRS: [THEIR_FINALIZER], "wide": []}
"""The finalizers of the same pools afterwards."""
