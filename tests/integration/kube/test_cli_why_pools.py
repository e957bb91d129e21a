"""`gpuledger why pod` about units of pools, on real servers and an embedded API server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gpuledger.api.kinds import NAMESPACES, NODES, PODS
from gpuledger.edge.kube.client import KubeClient, open_client
from gpuledger.events.claim import ClaimRequested
from gpuledger.events.node import NodeInventoryChanged, NodeLabelled, NodeObserved
from gpuledger.events.pod import PodGone, PodObserved
from gpuledger.tools.cluster import QUOTAS
from gpuledger.tools.explain.pod_units import NO_SCHEDULER
from gpuledger.tools.explain.pools import NODES_READ_MAX
from support.cli import Run
from support.dra_explanations import requesting, wish
from support.events import hour
from support.kube import kube_api
from support.kube_accounts import AccountServer, config_file, let_get
from support.kube_fleet import create, create_account
from support.pools import PoolsLog, detected, pool, publish, state
from support.projections import execute

POOL, UNITS, CLUSTER_UNITS = "team-a/a", "gpu.deckhouse.io/a", "cluster.gpu.deckhouse.io/c"


def equipped(**cards: int) -> PoolsLog:
    """Nodes with so many devices each, as the inventory tells of them."""
    pools = PoolsLog().begin(*cards, devices=0)
    for node, number in cards.items():
        for name in (f"{node}-{one}" for one in range(number)):
            pools.record(name, detected(node).model_copy(update={"card": f"GPU-{name}"}))
            pools.record(name, state("Ready"))
    for node in cards:
        pools.record(node, NodeObserved(uid="n"))
        pools.record(node, NodeInventoryChanged(present=True), source="/services/inventory")
    return pools


def history() -> PoolsLog:
    """A GPUPool with 4 units on w1 and 2 on w2, a ClusterGPUPool with 2 on w3, and pods that use them."""
    pools = equipped(w1=2, w2=1, w3=2)
    pools.record(POOL, pool(slices_per_unit=2))
    pools.record("c", pool())
    for device in ("w1-0", "w1-1", "w2-0"):
        pools.assign(device, POOL)
    for device in ("w3-0", "w3-1"):
        pools.assign(device, "c")
    for node, zone in (("w1", "1"), ("w2", "2")):
        pools.record(node, NodeLabelled(uid="n", labels={"zone": zone}))
    pools.record("team-a/waits", PodObserved(uid="u", requests={UNITS: 2}))
    pools.record("team-a/train", PodObserved(uid="u", node="w1", requests={UNITS: 3}))
    pools.record("team-b/theirs", PodObserved(uid="u", node="w3", requests={CLUSTER_UNITS: 1}))
    pools.record("team-a/mine", PodObserved(uid="u", node="w3", requests={CLUSTER_UNITS: 1}))
    pools.record("team-a/asks", PodObserved(uid="u", requests={CLUSTER_UNITS: 1}))
    pools.record("team-b/asks", PodObserved(uid="u", requests={CLUSTER_UNITS: 1}))
    return pools


async def document(run: Run, *arguments: str) -> dict[str, Any]:
    result = await run("why", "pod", *arguments, "-o", "json")
    assert result.code == 0, result.err
    found: dict[str, Any] = result.json()
    return found


async def create_pod(client: KubeClient, name: str, units: int = 0, resource: str = UNITS, **spec: Any) -> None:
    container: dict[str, Any] = {"name": "c", "image": "none"}
    if units:
        container["resources"] = {"limits": {resource: str(units)}}
    made = {"containers": [container], "serviceAccountName": "default", **spec}
    await create(client, PODS, {"metadata": {"name": name, "namespace": "team-a"}, "spec": made})


@pytest.fixture
async def cluster(client: KubeClient) -> KubeClient:
    """A namespace whose pods can be made, and the nodes."""
    await create(client, NAMESPACES, {"metadata": {"name": "team-a"}})
    await create_account(client, "team-a")
    for name, zone in (("w1", "1"), ("w2", "2")):
        await create(client, NODES, {"metadata": {"name": name, "labels": {"zone": zone}}, "spec": {}})
        await client.merge_patch(NODES, name, {"spec": {"taints": None}})  # those of a node that is not ready yet
    return client


async def test_from_the_ledger_alone(run: Run) -> None:
    await publish(history())
    waits = await document(run, "team-a/waits", "--no-kube")
    assert waits["answer"] == f"2 units of {UNITS} requested, and 2 are free on node w2: no unit is missing"
    assert any("Kubernetes was not asked about the pod" in note for note in waits["notes"])
    (found,) = waits["pools"]
    assert (found["total"], found["used"], found["free"]) == (6, 3, 3)
    assert [(one["node"], one["free"]) for one in found["nodes"]] == [("w1", 1), ("w2", 2)]
    train = await document(run, "train", "-n", "team-a", "--no-kube")
    assert train["answer"].startswith(f"it has its 3 units of {UNITS} on node w1 since 2026-01-0")
    unknown = await run("why", "pod", "team-a/nobody", "--no-kube")
    assert (unknown.code, "a quota or admission may have refused it" in unknown.err) == (1, True)
    seen = await document(run, "team-a/waits", "--no-kube", "--node", "w1")
    assert seen["answer"] == f"2 units of {UNITS} requested, and 1 of 4 is free: 1 pod has the others"
    elsewhere = await document(run, "pod/waits", "-n", "team-a", "--no-kube", "--node", "nowhere")
    assert "There is no node nowhere." in elsewhere["notes"]
    other = await run("why", "pod", "team-a/waits", "-n", "team-b", "--no-kube")
    assert (other.code, "is in namespace team-a, not in team-b" in other.err) == (2, True)


async def test_current_pods_come_from_rows_and_past_ones_from_the_log(run: Run, migrated_url: str) -> None:
    pools = history()
    await publish(pools)
    assert (await document(run, "team-a/waits", "--no-kube"))["pools"][0]["used"] == 3
    execute(migrated_url, "DELETE FROM gpuledger_live.pool_pod WHERE pod = 'team-a/train'")
    assert (await document(run, "team-a/waits", "--no-kube"))["pools"][0]["used"] == 0
    assert (await run("why", "pod", "team-a/train", "--no-kube")).code == 1
    then = await document(run, "team-a/waits", "--at", hour(pools.clock).isoformat())
    assert then["pools"][0]["used"] == 3


async def test_at_a_time_in_the_past(run: Run) -> None:
    pools = history()
    alone = pools.clock - 5  # when the pod asked, and nobody else had
    pools.record("team-a/waits", PodGone(uid="u"))
    pools.record(POOL, pool(slices_per_unit=2, maintenance="enabled"))
    await publish(pools)
    then = await document(run, "team-a/waits", "--at", hour(alone).isoformat())
    assert then["moment"] == hour(alone).isoformat().replace("+00:00", "Z")
    assert then["answer"] == (
        f"2 units of {UNITS} requested, and 4 are free on node w1, and 1 more node has room: no unit is missing"
    )
    before = await run("why", "pod", "team-a/waits", "--at", hour(alone - 1).isoformat())
    now = await run("why", "pod", "team-a/waits", "--no-kube")
    assert [(one.code, "was not found" in one.err) for one in (before, now)] == [(1, True), (1, True)]


async def test_kubernetes_adds_what_keeps_the_pod_off_nodes(run: Run, cluster: KubeClient) -> None:
    await publish(history())
    await create_pod(cluster, "waits", 2)
    await create_pod(cluster, "far", 2, nodeSelector={"zone": "1"})
    await create_pod(cluster, "large", 7)
    await create_pod(cluster, "gated", 1, schedulingGates=[{"name": "queue"}])
    waits = await document(run, "team-a/waits")
    assert (waits["pools"][0]["reason"], NO_SCHEDULER in waits["notes"]) == ("Fits", True)
    far = await document(run, "team-a/far")
    assert far["answer"] == (
        f"2 units of {UNITS} requested, and free where the pod cannot run: "
        "w2 is not what the pod selects (nodeSelector zone=1)"
    )
    assert (await document(run, "team-a/large"))["pools"][0]["reason"] == "CapacityExceeded"
    gated = await document(run, "team-a/gated")
    assert gated["answer"].startswith("its scheduling gates keep it waiting: queue; 1 unit of")
    await cluster.merge_patch(NODES, "w2", {"spec": {"unschedulable": True}})
    closed = await document(run, "team-a/waits")
    (found,) = closed["pools"]
    assert found["reason"] == "NodesClosed"
    assert found["nodes"][1]["inTheWay"] == [{"reason": "Cordoned", "detail": ""}]
    page = await run("why", "pod", "team-a/waits")
    assert page.out.splitlines()[-1] == f"Answer:  {closed['answer']}"
    assert "Pods named:" in page.out
    await cluster.delete(NODES, "w2")
    (found,) = (await document(run, "team-a/waits"))["pools"]
    assert found["nodes"][1]["inTheWay"] == [{"reason": "NodeGone", "detail": ""}]


async def test_what_keeps_a_pod_off_a_full_node_is_shown_as_well(run: Run, cluster: KubeClient) -> None:
    pools = history()
    pools.record("team-a/more", PodObserved(uid="u", node="w2", requests={UNITS: 2}))
    await publish(pools)
    await create_pod(cluster, "far", 3, nodeSelector={"zone": "2"})
    far = await document(run, "team-a/far")
    in_the_way = [{"reason": "NotSelected", "detail": "nodeSelector zone=2"}]
    assert far["answer"] == (
        f"3 units of {UNITS} requested, and 1 of 6 is free: 2 pods have the others; the pod cannot run on the only "
        "node that offers so many either: w1 is not what the pod selects (nodeSelector zone=2)"
    )
    (found,) = far["pools"]
    assert (found["reason"], [one["inTheWay"] for one in found["nodes"]]) == ("UnitsInUse", [in_the_way, []])
    page = await run("why", "pod", "team-a/far")
    (row,) = (line for line in page.out.splitlines() if line.split()[:1] == ["w1"])
    assert row.endswith("is not what the pod selects (nodeSelector zone=2); has too few free")


async def test_nodes_beyond_the_limit_are_judged_by_the_ledgers_labels(run: Run, cluster: KubeClient) -> None:
    nodes = [f"n{number:03}" for number in range(NODES_READ_MAX + 1)]
    pools = equipped(**dict.fromkeys(nodes, 1))
    pools.record(POOL, pool())
    for node in nodes:
        pools.assign(f"{node}-0", POOL)
    pools.record(nodes[-1], NodeLabelled(uid="n", labels={"zone": "2"}))
    await publish(pools)
    await create_pod(cluster, "far", 1, nodeSelector={"zone": "1"})
    far = await document(run, "team-a/far")
    *of_kubernetes, by_labels = far["pools"][0]["nodes"]
    assert [one["inTheWay"] for one in of_kubernetes] == [[{"reason": "NodeGone", "detail": ""}]] * NODES_READ_MAX
    assert by_labels["inTheWay"] == [{"reason": "NotSelected", "detail": "nodeSelector zone=1"}]
    assert any(note.startswith("Only 100 of 101 nodes that offer units were checked") for note in far["notes"])


async def test_quotas_of_the_namespace_are_shown(run: Run, cluster: KubeClient) -> None:
    await publish(history())
    await create_pod(cluster, "waits", 2)
    key = f"requests.{UNITS}"
    await create(cluster, QUOTAS, {"metadata": {"name": "q", "namespace": "team-a"}, "spec": {"hard": {key: "3"}}})
    used = {"status": {"hard": {key: "3"}, "used": {key: "2"}}}
    await cluster.merge_patch(QUOTAS, "q", used, "team-a", subresource="status")
    found = await document(run, "team-a/waits")
    assert found["pools"][0]["quotas"] == [{"name": "q", "hard": "3", "used": "2", "left": 1, "reached": True}]
    assert any(note.startswith(f"ResourceQuota q leaves 1 of 3 of {UNITS}") for note in found["notes"])


async def test_claims_and_units_are_answered_together(run: Run, cluster: KubeClient) -> None:
    pools = history()
    pools.record("team-a/wants", _claim(), source="/services/watchers")
    await publish(pools)
    claims = [{"name": "gpu", "resourceClaimName": "wants"}]
    await create_pod(cluster, "both", 5, resourceClaims=claims)
    await create_pod(cluster, "neither")
    both = await document(run, "team-a/both")
    of_pool, _, of_claim = both["answer"].partition("; ")
    assert of_pool == f"5 units of {UNITS} requested, which have to be on one node, and no node offers more than 4 of 6"
    assert of_claim == "request gpu: 1 device requested, and DeviceClass gpu does not exist"
    assert [one["claim"] for one in both["claims"]] == ["team-a/wants"]
    neither = await document(run, "team-a/neither")
    assert neither["answer"] == "it requests no units of a pool and has no claims"
    page = await run("why", "pod", "team-a/both")
    assert page.out.splitlines()[-1] == f"Answer:  {both['answer']}"


def _claim() -> ClaimRequested:
    return requesting(wish()).model_copy(update={"owner": "both"})


@asynccontextmanager
async def accounts(directory: Path, *resources: tuple[str, str]) -> AsyncIterator[str]:
    """A server that holds accounts against RBAC, in which `team-a:dev` may get these resources of its namespace."""
    async with kube_api(directory, AccountServer()) as api, open_client(api.kubeconfig) as admin:
        await create(admin, NAMESPACES, {"metadata": {"name": "team-a"}})
        await create(admin, NAMESPACES, {"metadata": {"name": "team-b"}})
        await create_account(admin, "team-a")
        await let_get(admin, "team-a:dev", *resources)
        await create_pod(admin, "asks", 1, CLUSTER_UNITS)
        yield api.url


async def test_pods_are_named_only_where_one_may_read_them(run: Run, tmp_path: Path) -> None:
    await publish(history())
    async with accounts(tmp_path, ("", "pods")) as url:
        config = ("--kubeconfig", str(config_file(tmp_path, url, "team-a:dev")))
        for at in ((), ("--at", hour(999).isoformat())):
            found = await document(run, "team-a/asks", *config, *at)
            (of_pool,) = found["pools"]
            assert of_pool["pods"] == [{"pod": "team-a/mine", "node": "w3", "units": 1}]
            assert of_pool["unnamedPods"] == {"pods": 1, "units": 1}
            assert (of_pool["reason"], of_pool["othersWaiting"]) == ("UnitsInUse", 1)
            page = await run("why", "pod", "team-a/asks", *config, *at)
            assert "team-b" not in page.out + str(found)
        refused = await run("why", "pod", "team-b/asks", *config)
        assert (refused.code, refused.out) == (1, "")
        assert "You may not read Pods in namespace 'team-b'" in refused.err


async def test_users_without_the_right_to_read_pods_or_nodes_are_refused(run: Run, tmp_path: Path) -> None:
    await publish(history())
    async with accounts(tmp_path) as url:
        config = ("--kubeconfig", str(config_file(tmp_path, url, "team-a:dev")))
        refused = await run("why", "pod", "team-a/waits", *config)
        assert (refused.code, "You may not read Pods in namespace 'team-a'" in refused.err) == (1, True)
    directory = tmp_path / "more"
    directory.mkdir()
    async with accounts(directory, ("", "pods")) as url:
        config = ("--kubeconfig", str(config_file(directory, url, "team-a:dev")))
        async with open_client(directory / "kubeconfig") as admin:
            await create_pod(admin, "one", 1, nodeSelector={"zone": "1"})
            await create_pod(admin, "both", 7, resourceClaims=[{"name": "gpu", "resourceClaimName": "wants"}])
        found = await document(run, "team-a/one", *config)
        in_the_way = {one["node"]: one["inTheWay"] for one in found["pools"][0]["nodes"]}
        not_selected = [{"reason": "NotSelected", "detail": "nodeSelector zone=1"}]
        assert (found["pools"][0]["reason"], in_the_way) == ("Fits", {"w1": [], "w2": not_selected})
        assert any("Not every node was checked for taints" in note for note in found["notes"])
        assert any("Quotas were not checked" in note for note in found["notes"])
        both = await document(run, "team-a/both", *config)
        assert (both["pools"][0]["reason"], both["claims"]) == ("CapacityExceeded", [])
        assert any("You may not read ResourceClaims in namespace 'team-a'" in note for note in both["notes"])
