"""Nodes that people set aside with the command line, as they do it beside `gpuledger up`."""

import asyncio
from typing import Final

import orjson
import pytest

from gpuledger.api.kinds import NODES, PODS, Resource
from gpuledger.edge.kube.client import KubeClient, Object
from support.up import Up, gpuledger
from support.waiting import eventually

pytestmark = pytest.mark.embedded_only("`gpuledger up` brings its own API server")

BUDGETS: Final = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", namespaced=True)
FLEET: Final = ("--fleet", "nodes=3,gpus=2", "--speed", "600")


async def run(up: Up, *args: str) -> str:
    """What a command prints, that succeeds."""
    done = await asyncio.to_thread(gpuledger, up.data_dir, *args)
    assert done.returncode == 0, done
    return done.stdout.decode()


async def rows(up: Up) -> list[Object]:
    found: list[Object] = orjson.loads(await run(up, "get", "maintenance", "-o", "json"))
    return found


@pytest.mark.long
async def test_two_people_set_a_node_aside_and_give_it_back(up: Up, client: KubeClient) -> None:
    await eventually(lambda: has_nodes(client))
    node = (await client.list(NODES)).items[0]["metadata"]["name"]

    async def is_cordoned() -> bool:
        return bool((await client.get(NODES, node))["spec"].get("unschedulable"))

    async def is_given_back() -> bool:
        return not await is_cordoned()

    async def is_applied() -> bool:
        return {one["state"] for one in await rows(up)} == {"Applied"}

    taint = ("--taint", "example.com/broken:NoSchedule")
    await run(up, "node", "cordon", node, "--reason", "fan", *taint, "--owner", "operators/ada")
    await run(up, "node", "cordon", f"node/{node}", "--reason", "disk", "--for", "4h", "--owner", "operators/ben")
    await eventually(is_cordoned)
    await eventually(is_applied)
    found = await rows(up)
    assert [(one["node"], one["owner"], one["reason"]) for one in found] == [
        (node, "operators/ada", "fan"), (node, "operators/ben", "disk"),
    ]  # fmt: skip
    await run(up, "node", "uncordon", node, "--owner", "operators/ada")
    assert await is_cordoned()
    await run(up, "node", "uncordon", node, "--owner", "operators/ben")
    await eventually(is_given_back)
    assert (await client.get(NODES, node))["spec"].get("taints") is None
    assert await rows(up) == []


@pytest.mark.long
async def test_a_drain_is_watched_until_the_last_pod_has_left(up: Up, client: KubeClient) -> None:
    await eventually(lambda: has_nodes(client))
    node = (await client.list(NODES)).items[1]["metadata"]["name"]
    await pod(client, "blocked", node, "team-a")
    await pod(client, "free", node, "team-b")
    await client.create(BUDGETS, {"metadata": {"name": "pdb", "namespace": "default"}, "spec": {
        "minAvailable": 1, "selector": {"matchLabels": {"team": "team-a"}}}})  # fmt: skip
    drain = ("node", "drain", node, "--reason", "fan", "--mode", "Immediate", "--owner", "operators/ada")

    async def is_blocked() -> bool:
        late = await asyncio.to_thread(gpuledger, up.data_dir, *drain, "--timeout", "1s")
        assert (late.returncode, b"pods are left on node" in late.stderr) == (1, True), late
        return b"pod default/blocked: Blocked: The disruption budget pdb needs 1 healthy pods" in late.stderr

    await eventually(is_blocked)
    await client.delete(BUDGETS, "pdb", "default")
    done = await asyncio.to_thread(gpuledger, up.data_dir, *drain)
    assert (done.returncode, f"Node {node} is drained." in done.stderr.decode()) == (0, True), done
    names = {one["metadata"]["name"] for one in (await client.list(PODS)).items}
    assert not names & {"blocked", "free"}
    assert {(one["drain"], one["pods_left"]) for one in await rows(up)} == {("Finished", 0)}
    await run(up, "node", "uncordon", node, "--owner", "operators/ada")


async def pod(client: KubeClient, name: str, node: str, team: str) -> None:
    """A pod that runs on a node, and ends as soon as it is to."""
    spec = {"nodeName": node, "containers": [{"name": "main", "image": "i"}], "terminationGracePeriodSeconds": 0}
    metadata = {"name": name, "namespace": "default", "labels": {"team": team}}
    await client.create(PODS, {"metadata": metadata, "spec": spec})
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await client.merge_patch(PODS, name, {"status": status}, "default", subresource="status")


async def has_nodes(client: KubeClient) -> bool:
    return len((await client.list(NODES)).items) == 3
