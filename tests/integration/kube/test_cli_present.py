"""The command line with a kubeconfig and no ledger: nodes, pools and settings, read from Kubernetes alone."""

from pathlib import Path

import orjson
import pytest

from gpuledger.api.kinds import GPU_NODE_STATES, GPU_POOLS, MODULE_CONFIG, MODULE_CONFIGS, NODES
from gpuledger.edge.kube.client import KubeClient
from support.cli import Run
from support.kube_fleet import create, create_device
from support.kube_server import KubeServer
from support.present import create_pod, equip, laptop, present, rows

UNITS = "gpu.deckhouse.io/a"


@pytest.fixture
async def run(
    kube: KubeServer,
    client: KubeClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """The command line with a cluster: two cards on w1, one of them held."""
    run = laptop(str(tmp_path / "home"), monkeypatch, capsys)
    monkeypatch.setenv("KUBECONFIG", str(kube.kubeconfig))
    await equip(client)
    return run


async def test_kinds_of_kubernetes_say_that_the_past_was_not_asked(run: Run, client: KubeClient) -> None:
    await create_device(client, "w1-0")
    assert (await present(run, "get", "gpudevices", "-o", "name")).out.split() == ["gpudevice.gpu.deckhouse.io/w1-0"]
    assert (await present(run, "get", "pools", "-o", "name")).out == ""


async def test_a_node_is_described(run: Run, client: KubeClient) -> None:
    condition = {"type": "Configured", "status": "False", "reason": "NodeNotReady"}
    condition |= {"lastTransitionTime": "2026-01-01T01:00:00Z"}
    reference = {"name": "a", "namespace": "team-a"}
    await create_device(client, "w1-0", state="PendingAssignment", poolRef=reference, conditions=[condition])
    await create(client, GPU_NODE_STATES, {"metadata": {"name": "w1"}, "spec": {"nodeName": "w1"}})
    page = await present(run, "describe", "node", "w1")
    assert ["w1-0", "PendingAssignment", "<none>", "true", "team-a/a", "Pending", "NodeNotReady"] in rows(page)
    assert ["Allocated", "To:", "team-b/train"] in rows(page)
    assert "Status from:  Kubernetes" in page.out
    assert "Slots" not in page.out  # only a ledger has them
    missing = await run("describe", "node", "none")
    assert (missing.code, "node 'none' was not found" in missing.err) == (1, True)


async def test_why_a_pod_waits_for_units(run: Run, client: KubeClient) -> None:
    spec = {"provider": "Nvidia", "backend": "DevicePlugin", "resource": {"unit": "Card"}}
    await create(client, GPU_POOLS, {"metadata": {"name": "a", "namespace": "team-a"}, "spec": spec})
    status = {"capacity": {"total": 2, "used": 0, "available": 2}}
    await client.merge_patch(GPU_POOLS, "a", {"status": status}, "team-a", subresource="status")
    offered = {"capacity": {UNITS: "2"}, "allocatable": {UNITS: "2"}}
    await client.merge_patch(NODES, "w1", {"status": offered}, subresource="status")
    await create_pod(client, "waits", **{UNITS: "2"})
    found = (await present(run, "why", "pod", "team-a/waits", "-o", "json")).json()
    assert found["answer"] == f"2 units of {UNITS} requested, and 2 are free on node w1: no unit is missing"
    await create_pod(client, "has", **{UNITS: "1"})
    await client.merge_patch(NODES, "w1", {"spec": {"unschedulable": True}})
    found = (await present(run, "why", "pod", "team-a/waits", "-o", "json")).json()
    assert found["pools"][0]["reason"] == "NodesClosed"
    assert found["pools"][0]["othersWaiting"] == 1
    missing = await run("why", "pod", "team-a/none")
    assert (missing.code, "pod 'team-a/none' was not found" in missing.err) == (1, True)


async def test_the_setting_redacted_is_about_statuses_and_not_about_who_may_read_claims(
    run: Run, client: KubeClient
) -> None:
    settings = {"dra": {"claimReferences": "Redacted"}}
    spec = {"version": 1, "enabled": True, "settings": settings}
    await create(client, MODULE_CONFIGS, {"metadata": {"name": MODULE_CONFIG}, "spec": spec})
    page = await present(run, "describe", "slice", "w1-slice")
    assert ["Claim", "Name:", "train"] in [line.split() for line in page.out.splitlines()]


async def test_documents_are_whole_while_messages_go_to_stderr(run: Run) -> None:
    result = await present(run, "get", "slices", "-o", "jsonl")
    assert [orjson.loads(line)["name"] for line in result.out.splitlines()] == ["w1-slice"]
