"""`gpuledger up --fleet`: a fleet that Kubernetes clients can look at, all the way through the ledger."""

import asyncio
import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gpuledger.api.kinds import GPU_DEVICES, NAMESPACE, NODES, PODS
from gpuledger.api.labels import COMPONENT_BY_APP
from gpuledger.edge.kube.client import KubeClient, Selection, open_client
from gpuledger.events.envelope import decode
from gpuledger.events.node import NodeMonitoringObserved
from gpuledger.events.settings import HEARTBEATS_MAX
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.local.kubeapi.running import embedded_kube
from gpuledger.tools.simulation.fleet import Fleet, FleetSpec
from support.cli import Cli
from support.servers import short_directory
from support.up import DEADLINE_S, Up, gpuledger, running_up, start
from support.waiting import eventually

pytestmark = pytest.mark.embedded_only("`gpuledger up --fleet` brings its own API server and refuses another")

NODE_COUNT, GPUS = 3, 2
FLEET = ("--fleet", f"nodes={NODE_COUNT},gpus={GPUS},profile=mixed", "--speed", "600", "--seed", "7")


async def statuses(client: KubeClient) -> list[dict[str, Any]]:
    return [device.get("status", {}) for device in (await client.list(GPU_DEVICES)).items]


async def test_every_card_becomes_a_gpudevice_with_a_status(client: KubeClient) -> None:
    async def shown() -> bool:
        return sum("hardware" in status for status in await statuses(client)) == NODE_COUNT * GPUS

    await eventually(shown)
    result = await statuses(client)
    assert len({status["hardware"]["uuid"] for status in result}) == NODE_COUNT * GPUS


async def test_every_node_has_its_components(client: KubeClient) -> None:
    async def ready() -> bool:
        pods = (await client.list(PODS, Selection(namespace=NAMESPACE))).items
        found = {(pod["spec"]["nodeName"], pod["metadata"]["labels"]["app"]) for pod in pods if is_ready(pod)}
        nodes = {node["metadata"]["name"] for node in (await client.list(NODES)).items}
        return found == {(node, app) for node in nodes for app in COMPONENT_BY_APP} and len(nodes) == NODE_COUNT

    await eventually(ready)


def is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


async def test_the_ledger_has_the_first_heartbeats_of_every_node(up: Up, client: KubeClient) -> None:
    beats: Counter[str] = Counter()
    nodes = {node["metadata"]["name"] for node in (await client.list(NODES)).items}
    subjects = "ledger.node.*.node.*.monitoring-observed"
    url = up.running.endpoints.nats_url
    connected = connect_ledger(url, name="test")
    async with asyncio.timeout(DEADLINE_S), connected as ledger, ledger.read(subject_filter=subjects) as reader:
        while any(beats[node] < HEARTBEATS_MAX for node in nodes):
            for event in (decode(message.data) for message in await reader.next_batch()):
                assert isinstance(event.data, NodeMonitoringObserved)
                assert event.data.fresh
                assert event.source == f"/nodes/{event.subject}/agent"
                beats[event.subject] += 1


async def test_a_nodes_label_is_seen_in_the_status_of_its_devices(client: KubeClient) -> None:
    node = (await statuses(client))[0]["nodeName"]
    await client.merge_patch(NODES, node, {"metadata": {"labels": {"gpu.deckhouse.io/enabled": "false"}}})

    async def unmanaged() -> bool:
        return {one["managed"] for one in await statuses(client) if one["nodeName"] == node} == {False}

    await eventually(unmanaged)


async def test_the_ledger_answers_for_the_fleet(up: Up, client: KubeClient) -> None:
    async def is_complete() -> bool:
        result = await asyncio.to_thread(gpuledger, up.data_dir, "get", "devices", "-o", "json")
        return len(json.loads(result.stdout)) >= NODE_COUNT * GPUS

    await eventually(is_complete)
    assert gpuledger(up.data_dir, "verify").returncode == 0


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Commands in this process, which is enough for one that is refused."""
    monkeypatch.setenv("GPULEDGER_DATA_DIR", str(tmp_path))
    return Cli(capsys)


def test_no_fleet_is_made_up_in_a_real_cluster(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/somewhere/config")
    result = cli("up", "--fleet", "nodes=1,gpus=1,profile=t4")
    assert result.code == 2
    assert result.err == (
        "Error: --fleet would make up Nodes in the cluster that KUBECONFIG names. "
        "Unset KUBECONFIG to use the embedded API server.\n"
    )


def test_a_fleet_that_is_none_is_one_sentence(cli: Cli) -> None:
    result = cli("up", "--fleet", "nodes=many")
    assert (result.code, result.out) == (2, "")
    assert "--fleet" in result.err
    assert "Traceback" not in result.err


def start_and_stop(data_dir: Path, *options: str) -> str:
    """What `gpuledger up` said on stderr until it was up and stopped again."""
    with start(data_dir, "up", *options) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "/healthz" in line:
                process.send_signal(signal.SIGINT)
        _, printed = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, printed
    return printed


@pytest.mark.long
async def test_another_fleet_on_the_same_data_is_reported_at_the_start() -> None:
    nodes, spec = set(Fleet(FleetSpec(3, 1), seed=7).nodes), "nodes=1,gpus=1,profile=h200"

    async def there(client: KubeClient) -> bool:
        return {one["metadata"]["name"] for one in (await client.list(NODES)).items} == nodes

    with short_directory() as directory:
        first_run = running_up(directory, "--fleet", "nodes=3,gpus=1,profile=h200", "--seed", "7")
        with first_run as up:
            async with open_client(up.data_dir / "kubeconfig") as client:
                await eventually(lambda: there(client))
        printed = await asyncio.to_thread(start_and_stop, directory, "--fleet", spec, "--seed", "7")
        (warning,) = (line for line in printed.splitlines() if line.startswith("Warning: "))
        _, second, third = sorted(nodes)
        assert f"{directory} has already, 2 of 3 ({second} to {third}) are not in --fleet {spec} --seed 7." in warning
        assert "another --data-dir" in warning
        async with embedded_kube(directory) as embedded, open_client(embedded.kubeconfig) as client:
            assert await there(client), "nothing is deleted"
