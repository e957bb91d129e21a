"""A node that gets a remedy beside `gpuledger up`, from a monitor's report to the node that is given back."""

import asyncio
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from gpuledger.api.kinds import NODES
from gpuledger.edge.kube.client import KubeClient
from gpuledger.events.envelope import Event
from gpuledger.events.health import NodeHealthReported
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.runtime.clock import system_clock
from support.paths import ROOT
from support.projections import publish
from support.quarantine import reported
from support.remediating import REBOOTS, install_remedies, show
from support.remediation import fault
from support.up import Up, gpuledger
from support.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.embedded_only("`gpuledger up` brings its own API server")]

RULES: Final = str(ROOT / "examples" / "quarantine-rules.yaml")
REMEDIES: Final = """
kind: RemediationRules
remedies:
  - name: reboot
    actions: [RESTART_BM]
    resource: reboots
    template: {apiVersion: example.com/v1, kind: Reboot, spec: {node: "${node}"}}
    outcome: {succeeded: {condition: Done}, failed: {condition: Broken}}
"""
FLEET: Final = ("--fleet", "nodes=3,gpus=2", "--speed", "600")


async def run(up: Up, *args: str) -> str:
    """What a command prints, that succeeds."""
    done = await asyncio.to_thread(gpuledger, up.data_dir, *args)
    assert done.returncode == 0, done
    return done.stdout.decode()


async def listed(up: Up) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = orjson.loads(await run(up, "remediation", "list", "-o", "json"))
    return found


async def report(up: Up, node: str, number: int, data: NodeHealthReported) -> None:
    """Record what a monitor reports, as the node's agent does."""
    source = f"/nodes/{node}/agent"
    event = Event(f"report-{number}", source, data.TYPE, node, system_clock(), data, "monitor", number)
    async with connect_ledger(up.running.endpoints.nats_url, name="test") as ledger:
        await publish(ledger, [event])


async def test_a_node_is_rebooted_and_given_back(up: Up, client: KubeClient, tmp_path: Path) -> None:
    async def has_nodes() -> bool:
        return len((await client.list(NODES)).items) == 3

    await eventually(has_nodes)
    await install_remedies(client)
    node = (await client.list(NODES)).items[0]["metadata"]["name"]
    (tmp_path / "remedies.yaml").write_text(REMEDIES)

    async def sees_all_nodes() -> bool:
        (status,) = orjson.loads(await run(up, "quarantine", "status", "-o", "json"))
        return bool(status["nodes"] == 3)

    async def has_reboot() -> bool:
        return bool((await client.list(REBOOTS)).items)

    async def has_succeeded() -> bool:
        return [one["state"] for one in await listed(up)] == ["Succeeded"]

    async def is_given_back() -> bool:
        return not (await client.get(NODES, node))["spec"].get("unschedulable")

    await run(up, "quarantine", "apply", "-f", RULES)
    await run(up, "remediation", "apply", "-f", str(tmp_path / "remedies.yaml"))
    await eventually(sees_all_nodes)
    await report(up, node, 1, fault("0"))
    await eventually(has_reboot)
    (obj,) = (await client.list(REBOOTS)).items
    assert (obj["spec"], await is_given_back()) == ({"node": node}, False)
    (found,) = await listed(up)
    assert (found["node"], found["remedy"], found["object"]) == (node, "reboot", f"Reboot/{obj['metadata']['name']}")
    await show(client, obj, "Done")
    await eventually(has_succeeded)
    assert "detail: 'Tested: by a test'" in await run(up, "remediation", "show", found["id"][:8])
    assert up.health().document["remediator"]["state"] == "writing"  # type: ignore[index]
    await report(up, node, 2, reported("0", healthy=True))
    await eventually(is_given_back)
    print(await run(up, "remediation", "list"))
