"""`gpuledger why pod` about preflight checks, on real servers and an embedded API server."""

import os
from datetime import timedelta
from typing import Any

import pytest

from gpuledger.api.kinds import CONFIG_MAPS, NAMESPACES, PODS
from gpuledger.api.preflight import gang_config_map
from gpuledger.edge.kube.client import KubeClient
from gpuledger.events.envelope import Decoded
from gpuledger.events.preflight import GangConfigured, GangPeer, PodPreflightObserved, PreflightCheck
from gpuledger.tools.explain.preflight_wording import FROM_KUBERNETES
from gpuledger.tools.explain.why import NOTHING_REQUESTED
from support.cli import Run
from support.events import hour
from support.kube_fleet import create, create_account
from support.ledgers import new_ledger
from support.preflight_pods import STARTED, create_checked
from support.preflight_results import crash_loop, ended, in_order
from support.projections import publish

FAILING = PodPreflightObserved(uid="u3", node="n2", gang="g", checks=(ended("nccl-loopback", at=4, exit_code=1),))
FORMING = GangConfigured(
    config_map="preflight-g", source="label", expected=2, peers=(GangPeer(pod="w-0", uid="u", ip="10.0.0.1"),)
)


async def record(*facts: Decoded) -> None:
    async with new_ledger(os.environ["NATS_URL"]) as ledger:
        await publish(ledger, [*facts])


async def document(run: Run, *arguments: str) -> dict[str, Any]:
    result = await run("why", "pod", *arguments, "-o", "json")
    assert result.code == 0, result.err
    found: dict[str, Any] = result.json()
    return found


@pytest.fixture
async def cluster(client: KubeClient) -> KubeClient:
    """A namespace in which pods with checks can be made."""
    await create(client, NAMESPACES, {"metadata": {"name": "ml"}})
    await create_account(client, "ml")
    return client


async def test_from_the_ledger_alone(run: Run) -> None:
    await record(*crash_loop(2), *in_order([("ml/w-1", 4, FAILING)], first=100))
    failing = await document(run, "ml/w-1", "--no-kube")
    assert failing["answer"].startswith("its preflight check nccl-loopback failed on node n2 (exit code 1)")
    assert (failing["preflight"]["reason"], failing["pod"]["node"]) == ("CheckFailed", "n2")
    page = (await run("why", "pod", "ml/w-1", "--no-kube")).out
    assert "Preflight checks:" in page
    passed = await document(run, "ml/w-0", "--no-kube")
    assert passed["answer"] == "its preflight checks have passed"
    then = await document(run, "ml/w-0", "--at", (hour(1) + timedelta(minutes=30)).isoformat())
    assert then["answer"].startswith("its preflight check bandwidth failed on node n1 (exit code 1, NVLINK_FAIL)")
    assert (await run("why", "pod", "ml/nobody", "--no-kube")).code == 1


async def test_a_check_that_waits_for_its_gang_and_until_when(run: Run, cluster: KubeClient) -> None:
    uid = await create_checked(cluster, "w-0", state={"running": {"startedAt": STARTED}})
    check = PreflightCheck(name="nccl-allreduce", state="running", started_at=hour(1))
    seen = PodPreflightObserved(uid=uid, node="n1", gang="g", checks=(check,))
    await record(*in_order([("ml/w-0", 1, seen), ("ml/g", 1, FORMING)]))
    found = await document(run, "ml/w-0")
    assert found["answer"] == (
        f"its preflight check nccl-allreduce waits for its gang ml/g on node n1 since {hour(1).isoformat()} "
        f"and gives up at {(hour(1) + timedelta(minutes=10)).isoformat()}: 1 of 2 pods are there"
    )
    assert FROM_KUBERNETES not in found["notes"]
    page = (await run("why", "pod", "ml/w-0")).out
    assert "Check gives up:" in page


async def test_what_the_ledger_does_not_have_yet_the_pod_itself_says(run: Run, cluster: KubeClient) -> None:
    before = PodPreflightObserved(uid="before", checks=(ended("bandwidth"),), done=True)
    await record(*in_order([("ml/w-0", 1, before)]))
    await create_checked(cluster, "w-0", state={"running": {"startedAt": STARTED}})
    waiting = {"waiting": {"reason": "PodInitializing"}}
    await create_checked(cluster, "w-1", state=waiting)
    config_map = {"metadata": {"name": gang_config_map("g"), "namespace": "ml"}}
    await create(cluster, CONFIG_MAPS, config_map | {"data": {"expected_count": "2", "peers": "w-0:10.0.0.1\n"}})
    found = await document(run, "ml/w-0")
    assert found["answer"].endswith("1 of 2 pods are there; ml/w-1 has not started nccl-allreduce")
    assert FROM_KUBERNETES in found["notes"]
    assert found["preflight"]["gangTimeoutAt"] == "2026-03-01T03:10:00Z"


async def test_a_pod_without_checks_has_no_such_part(run: Run, cluster: KubeClient) -> None:
    await record(*crash_loop(1))
    spec = {"containers": [{"name": "c", "image": "none"}], "serviceAccountName": "default"}
    await create(cluster, PODS, {"metadata": {"name": "plain", "namespace": "ml"}, "spec": spec})
    found = await document(run, "ml/plain")
    assert (found["preflight"], found["answer"]) == (None, NOTHING_REQUESTED)
