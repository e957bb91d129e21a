"""Nodes that people set aside with the command line, as they do it beside `gpuledger up`."""

import asyncio
from typing import Final

import orjson
import pytest

from gpuledger.api.kinds import NODES
from gpuledger.edge.kube.client import KubeClient, Object
from support.up import Up, gpuledger
from support.waiting import eventually

pytestmark = pytest.mark.embedded_only("`gpuledger up` brings its own API server")

FLEET: Final = ("--fleet", "nodes=3,gpus=2", "--speed", "600")


async def run(up: Up, *args: str) -> str:
    """What a command prints, that succeeds."""
    done = await asyncio.to_thread(gpuledger, up.data_dir, *args)
    assert done.returncode == 0, done
    return done.stdout.decode()


async def rows(up: Up) -> list[Object]:
    found: list[Object] = orjson.loads(await run(up, "get", "maintenance", "-o", "json"))
    return found


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


async def has_nodes(client: KubeClient) -> bool:
    return len((await client.list(NODES)).items) == 3
