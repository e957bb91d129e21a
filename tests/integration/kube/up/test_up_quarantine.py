"""A node that rules set aside beside `gpuledger up`, from a monitor's report to the node that is given back."""

import asyncio
from typing import Final

import orjson
import pytest

from gpuledger.api.kinds import NODES
from gpuledger.edge.kube.client import KubeClient
from gpuledger.events.envelope import Event
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.runtime.clock import system_clock
from support.projections import publish
from support.quarantine import GPU_FATAL, reported
from support.up import Up, gpuledger
from support.waiting import eventually

pytestmark = pytest.mark.embedded_only("`gpuledger up` brings its own API server")

FLEET: Final = ("--fleet", "nodes=3,gpus=2", "--speed", "600")
RULES: Final = "examples/quarantine-rules.yaml"


async def run(up: Up, *args: str) -> str:
    """What a command prints, that succeeds."""
    done = await asyncio.to_thread(gpuledger, up.data_dir, *args)
    assert done.returncode == 0, done
    return done.stdout.decode()


async def report(up: Up, node: str, number: int, *, healthy: bool) -> None:
    """Record what a monitor reports, as the node's agent does."""
    source, data = f"/nodes/{node}/agent", reported("0", healthy=healthy)
    event = Event(f"report-{number}", source, data.TYPE, node, system_clock(), data, "monitor", number)
    async with connect_ledger(up.running.endpoints.nats_url, name="test") as ledger:
        await publish(ledger, [event])


@pytest.mark.long
async def test_rules_set_a_node_aside_until_it_is_healthy(up: Up, client: KubeClient) -> None:
    await eventually(lambda: has_nodes(client))
    node = (await client.list(NODES)).items[0]["metadata"]["name"]

    async def is_cordoned() -> bool:
        return bool((await client.get(NODES, node))["spec"].get("unschedulable"))

    async def is_given_back() -> bool:
        return not await is_cordoned()

    async def sees_all_nodes() -> bool:
        (status,) = orjson.loads(await run(up, "quarantine", "status", "-o", "json"))
        return bool(status["nodes"] == 3)

    found = orjson.loads(await run(up, "quarantine", "rules", "-o", "json"))
    assert {one["file"] for one in found} == {RULES}, "the first start of a fleet puts the example into force"
    assert f"rules    {RULES}, in force from 1/1 on" in up.printed
    await eventually(sees_all_nodes)
    await report(up, node, 1, healthy=False)
    await eventually(is_cordoned)
    (request,) = orjson.loads(await run(up, "get", "maintenance", "-o", "json"))
    assert (request["node"], request["owner"], request["reason"]) == (node, f"health/{GPU_FATAL}", "Unhealthy")
    assert "gpuledger_quarantine_breaker_open 0.0" in up.get("/metrics")[1].decode()
    await report(up, node, 2, healthy=True)
    await eventually(is_given_back)
    assert orjson.loads(await run(up, "quarantine", "faults", "-o", "json")) == []


async def has_nodes(client: KubeClient) -> bool:
    return len((await client.list(NODES)).items) == 3
