"""Commands about pools, on real servers and an embedded API server."""

import asyncio
import os
import sys
from asyncio.subprocess import Process
from typing import Any

import pytest

from gpuledger.api.kinds import CLUSTER_GPU_POOLS, GPU_DEVICES, GPU_POOLS, NAMESPACES, PODS, Resource
from gpuledger.api.labels import ANNOTATION_ASSIGNMENT, ANNOTATION_CLUSTER_ASSIGNMENT
from gpuledger.cli.describe.pool import read_pool_objects
from gpuledger.edge.kube.client import MERGE_PATCH, KubeClient, KubeRequest, Object
from gpuledger.edge.kube.errors import ConflictError, ForbiddenError
from gpuledger.events.node import NodeInventoryChanged, NodeObserved
from gpuledger.events.pod import PodObserved
from gpuledger.tools.cluster import QUOTAS, KubeAccess, open_kube
from gpuledger.tools.device_annotations import annotate
from gpuledger.tools.object_patches import TRIES_MAX
from support.admission import pod_with
from support.cli import Run, next_line, watching
from support.kube_fleet import create, create_device
from support.kube_server import KubeServer
from support.pools import PoolsLog, described, detected, marked, pool, publish, state
from support.projections import execute

DEADLINE_S = 60.0
CARD = {"resource": {"unit": "Card", "slicesPerUnit": 2}}
MIG = {"resource": {"unit": "MIG", "migProfile": "1g.10gb"}}


async def create_pool(client: KubeClient, resource: Resource, name: str, namespace: str | None = None) -> None:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    await create(client, resource, {"metadata": metadata, "spec": CARD if namespace else MIG})


async def some_pools(client: KubeClient) -> None:
    """Two GPUPools of two namespaces, and a ClusterGPUPool."""
    for namespace in ("team-a", "team-b"):
        await create(client, NAMESPACES, {"metadata": {"name": namespace}})
    await create_pool(client, GPU_POOLS, "a", "team-a")
    await create_pool(client, GPU_POOLS, "b", "team-b")
    await create_pool(client, CLUSTER_GPU_POOLS, "c")
    status: dict[str, Any] = {"capacity": {"total": 8, "used": 3, "available": 5}}
    status["conditions"] = [{"type": "Configured", "status": "True", "reason": "Configured"}]
    await client.merge_patch(GPU_POOLS, "a", {"status": status}, "team-a", subresource="status")


async def test_pools_of_both_kinds_are_shown_together(run: Run, client: KubeClient) -> None:
    await some_pools(client)
    shown = await run("get", "pools", "-o", "wide")
    heading, *rows = (line.split() for line in shown.out.splitlines())
    columns = ["NAMESPACE", "NAME", "UNIT", "PROFILE", "SLICES", "TOTAL", "USED", "READY", "REASON", "MAINTENANCE"]
    assert heading == [*columns, "AGE"]
    nothing = "<none>"
    assert [row[:10] for row in rows] == [
        ["team-a", "a", "Card", nothing, "2", "8", "3", "True", "Configured", nothing],
        ["team-b", "b", "Card", nothing, "2", *[nothing] * 5],
        [nothing, "c", "MIG", "1g.10gb", "1", *[nothing] * 5],
    ]
    names = await run("get", "pool", "-A", "-o", "name")
    kinds = ["gpupool", "gpupool", "clustergpupool"]
    expected = [f"{kind}.gpu.deckhouse.io/{name}" for kind, name in zip(kinds, "abc", strict=True)]
    assert names.out.split() == expected
    objects = (await run("get", "pools", *expected[1:], "-o", "json")).json()
    assert [(one["kind"], one["metadata"]["name"]) for one in objects] == [("GPUPool", "b"), ("ClusterGPUPool", "c")]
    csv = (await run("get", "pools", "c", "-o", "csv")).out.splitlines()
    assert (csv[0].split(",")[:2], csv[1].split(",")[:2]) == (["Namespace", "Name"], ["", "c"])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("pools", "-n", "team-a"), ["a"]),
        (("gpupools",), ["a", "b"]),
        (("gpool", "-n", "team-b"), ["b"]),
        (("clustergpupools",), ["c"]),
        (("cgpool",), ["c"]),
        (("gpupools.gpu.deckhouse.io", "b"), ["b"]),
    ],
)
async def test_pools_of_one_kind_or_namespace(
    run: Run, client: KubeClient, arguments: tuple[str, ...], expected: list[str]
) -> None:
    await some_pools(client)
    shown = (await run("get", *arguments, "-o", "jsonl")).out.splitlines()
    assert [f'"name":"{name}"' in line for name, line in zip(expected, shown, strict=True)] == [True] * len(expected)


async def test_a_pool_that_is_not_there(run: Run, client: KubeClient) -> None:
    await some_pools(client)
    missing = await run("get", "pools", "c", "nope", "-o", "name")
    assert (missing.code, missing.out) == (1, "clustergpupool.gpu.deckhouse.io/c\n")
    kinds = "gpupool.gpu.deckhouse.io or clustergpupool.gpu.deckhouse.io"
    assert f"{kinds} 'nope' was not found. List them with `gpuledger get gpupools` or" in missing.err
    past = await run("get", "pools", "--at", "-2h")
    assert (past.code, "which has no past" in past.err) == (2, True)


def environment() -> dict[str, str]:
    """What the command needs to find its modules, and the cluster."""
    return {**os.environ, "PYTHONPATH": ":".join(sys.path)}


async def words(process: Process) -> list[str]:
    """Those of the next line of stdout."""
    return (await next_line(process)).split()


@pytest.mark.usefixtures("run")
async def test_a_watch_follows_both_kinds(client: KubeClient) -> None:
    await create(client, NAMESPACES, {"metadata": {"name": "team-a"}})
    await create_pool(client, GPU_POOLS, "a", "team-a")
    async with watching(environment(), "get", "pools", "-w") as process:
        assert (await words(process))[:2] == ["NAMESPACE", "NAME"]
        assert (await words(process))[:2] == ["team-a", "a"]
        await create_pool(client, CLUSTER_GPU_POOLS, "c")
        assert (await words(process))[:2] == ["<none>", "c"]
        await client.delete(CLUSTER_GPU_POOLS, "c")
        assert process.stderr is not None
        async with asyncio.timeout(DEADLINE_S):
            assert b"'c' is gone" in await process.stderr.readline()


@pytest.mark.usefixtures("run")
async def test_a_watched_table_of_both_kinds_aligns(client: KubeClient) -> None:
    await create(client, NAMESPACES, {"metadata": {"name": "team-a"}})
    await create_pool(client, GPU_POOLS, "a", "team-a")
    await create_pool(client, CLUSTER_GPU_POOLS, "a-name-that-is-longer")
    async with watching(environment(), "get", "pools", "-w") as process:
        heading, namespaced, cluster = [await next_line(process) for _ in range(3)]
    assert (namespaced.split()[0], cluster.split()[0]) == ("team-a", "<none>")
    assert heading.index("UNIT") == namespaced.index("Card") == cluster.index("MIG")


@pytest.mark.usefixtures("run")
async def test_a_watch_has_the_columns_of_the_requested_kind(client: KubeClient) -> None:
    await create_pool(client, CLUSTER_GPU_POOLS, "c")
    async with watching(environment(), "get", "pools", "-w") as process:
        assert (await words(process))[:2] == ["NAMESPACE", "NAME"]
        assert (await words(process))[:2] == ["<none>", "c"]


ASKED, ASKED_CLUSTER = ANNOTATION_ASSIGNMENT, ANNOTATION_CLUSTER_ASSIGNMENT
POOL = "team-a/a"
UNITS = "gpu.deckhouse.io/a"


def history() -> PoolsLog:
    """A pool with a device that is set up and one that is not; one that is ignored, one at fault, and a free one."""
    pools = PoolsLog().begin("w1", devices=0)
    for number in range(5):
        pools.record(f"w1-{number}", detected("w1").model_copy(update={"card": f"GPU-{number}"}))
        pools.record(f"w1-{number}", state("Ready"))
    pools.record("w1", NodeObserved(uid="u"))
    pools.record("w1", NodeInventoryChanged(present=True), source="/services/inventory")
    pools.record(POOL, pool(slices_per_unit=2))
    pools.assign("w1-0", POOL)
    pools.record("w1-1", marked("a"))
    pools.record("w1-2", described(ignored=True))
    pools.record("w1-2", marked("a"))
    pools.record("w1-3", state("Faulted"))
    pools.record("team-a/train", PodObserved(uid="u", node="w1", requests={UNITS: 1}))
    pools.record("team-a/waits", PodObserved(uid="u", requests={UNITS: 2}))
    pools.record("team-b/other", PodObserved(uid="u", node="w1", requests={UNITS: 1}))
    return pools


def section(page: str, title: str) -> list[list[str]]:
    """The words of a section's lines."""
    lines = iter(page.splitlines())
    assert any(line.startswith(f"{title}:") for line in lines), page
    found = []
    for line in lines:
        if not line.startswith(" "):
            break
        found.append(line.split())
    return found


async def test_users_of_a_pool_come_from_rows_and_not_from_the_log(run: Run, migrated_url: str) -> None:
    await publish(history())
    assert len(section((await run("describe", "pool", POOL, "--no-kube")).out, "Pods that request its units")) == 4
    execute(migrated_url, "DELETE FROM gpuledger_live.pool_pod WHERE pod = 'team-a/waits'")
    page = await run("describe", "pool", POOL, "--no-kube")
    assert section(page.out, "Pods that request its units")[2:] == [["team-a/train", "w1", "1"]]


async def test_a_pool_is_described(run: Run) -> None:
    await publish(history())
    page = await run("describe", "pool", "a", "-n", "team-a", "--no-kube")
    assert page.code == 0, page.err
    assert section(page.out, "Capacity") == [["Total:", "2"], ["Used:", "1"], ["Available:", "1"]]
    assert ["Slices", "Per", "Unit:", "2"] in section(page.out, "Spec")
    assert [row[:3] for row in section(page.out, "Devices")[2:]] == [["w1-0", "w1", "NVIDIA"], ["w1-1", "w1", "NVIDIA"]]
    assert [row[4:7] for row in section(page.out, "Devices")[2:]] == [
        ["Assigned", "Assigned", "ConfirmedByAgent"],
        ["PendingAssignment", "Pending", "AskedFor"],
    ]
    assert section(page.out, "Pods that request its units")[2:] == [
        ["team-a/train", "w1", "1"],
        ["team-a/waits", "<none>", "2"],
    ]
    assert [row[:4] for row in section(page.out, "Matching devices that are not in it")[2:]] == [
        ["w1-2", "w1", "Ready", "IgnoredByLabel"],
        ["w1-3", "w1", "Faulted", "NotAskedFor,"],
        ["w1-4", "w1", "Ready", "NotAskedFor"],
    ]
    assert "Resource quotas:  Kubernetes was not asked: --no-kube leaves it out." in page.out
    for named in (("pool", POOL), ("gpool", "a"), ("pools", "gpupool.gpu.deckhouse.io/a")):
        assert (await run("describe", *named, "--no-kube")).out == page.out
    for missing in (("pool", "b"), ("clustergpupool", "a"), ("pool", "a", "-n", "team-b")):
        assert (await run("describe", *missing, "--no-kube")).code == 1


async def test_a_pools_quotas_are_read_from_kubernetes(run: Run, client: KubeClient) -> None:
    await some_pools(client)
    await publish(history())
    for name, namespace, resource in (("mine", "team-a", UNITS), ("other", "team-a", "cpu"), ("far", "team-b", UNITS)):
        hard = {"spec": {"hard": {f"requests.{resource}": "4"}}}
        await create(client, QUOTAS, {"metadata": {"name": name, "namespace": namespace}, **hard})
    await create(client, PODS, pod_with(UNITS, amount="3", namespace="team-a"))
    used = {f"requests.{UNITS}": "3"}  # as it is counted anyhow where there is a controller
    await client.merge_patch(QUOTAS, "mine", {"status": {"used": used}}, "team-a", subresource="status")
    page = await run("describe", "pool", POOL)
    assert section(page.out, "Resource quotas")[2:] == [["team-a", "mine", "3", "4"]]
    assert ["Total:", "8"] in section(page.out, "Capacity")
    assert "Status from:      Kubernetes" in page.out or "Status from:  Kubernetes" in page.out


class Blind(KubeClient):
    """May not read quotas."""

    async def send(self, request: KubeRequest) -> Object:
        if request.path.endswith(QUOTAS.plural):
            raise ForbiddenError("You may not.")
        return await super().send(request)


async def test_quotas_that_may_not_be_read_hide_nothing_else(kube: KubeServer, client: KubeClient) -> None:
    await some_pools(client)
    async with open_kube(KubeAccess(kube.kubeconfig), Blind) as blind:
        shown = await read_pool_objects(blind, POOL)
    assert (shown.quotas, shown.quotas_problem) == ([], "You may not.")
    assert shown.object is not None


async def test_pages_of_devices_and_nodes_show_decisions(run: Run) -> None:
    await publish(history())
    page = (await run("describe", "device", "w1-1", "--no-kube")).out
    assert section(page, "Preparation")[:2] == [["State:", "Ready"], ["Reason:", "r"]]
    assert section(page, "Assignment")[:3] == [["Pool:", POOL], ["Phase:", "Pending"], ["Reason:", "AskedFor"]]
    assert ["State:", "PendingAssignment"] in section(page, "GPUDevice")
    free = (await run("describe", "device", "w1-4", "--no-kube")).out
    assert "Assignment:  <none>" in free
    node = (await run("describe", "node", "w1", "--no-kube")).out
    assert ["Phase:", "Ready"] in section(node, "GPUNodeState")
    assert [row[:3] for row in section(node, "Conditions")[2:]] == [["ReadyForPooling", "True", "r"]]
    devices = {row[0]: (row[1], *row[4:]) for row in section(node, "GPUDevices")[2:]}
    assert devices["w1-0"] == ("Assigned", "true", POOL, "Assigned", "ConfirmedByAgent")
    assert devices["w1-3"] == ("Faulted", "true", "<none>", "<none>", "r")


async def test_timelines_show_decisions(run: Run) -> None:
    await publish(history())
    shown = (await run("timeline", "device", "w1-0", "--no-kube")).out.splitlines()
    assert any("state-changed" in line and "reason=r state=Ready" in line for line in shown)
    assert any("assignment-changed" in line and f"phase=Pending pool={POOL} reason=AskedFor" in line for line in shown)
    rows = (await run("timeline", "node", "w1", "--no-kube", "-o", "json")).json()
    assert {("bootstrap-changed", "node/w1"), ("assignment-changed", "device/w1-1")} <= {
        (row["event"], row["about"]) for row in rows
    }
    of_pool = await run("timeline", "pool", POOL, "--no-kube")
    assert "Configured=True" in of_pool.out
    rows = (await run("timeline", "pool", "a", "--no-kube", "-o", "json")).json()
    assert [row["about"] for row in rows if row["event"] == "assignment-changed"] == [
        "device/w1-0", "device/w1-0", "device/w1-1",
    ]  # fmt: skip
    assert (await run("timeline", "pool", "nobody", "--no-kube")).code == 1
    named = await run("timeline", "pool", "a", "-n", "team-a", "--no-kube")
    assert (named.code, named.out) == (0, of_pool.out)
    assert (await run("timeline", "pool", "a", "-n", "team-b", "--no-kube")).code == 1
    no_pool = await run("timeline", "device", "w1-0", "-n", "team-a")
    assert (no_pool.code, "--namespace is for pools" in no_pool.err) == (2, True)


@pytest.mark.parametrize(
    ("command", "kinds"),
    [
        ("timeline", "device, node, pool, machineconfigpool"),
        ("describe", "device, node, slice, pool, machineconfigpool"),
    ],
)
async def test_a_kind_that_there_is_not(run: Run, command: str, kinds: str) -> None:
    answer = await run(command, "unicorn", "x")
    assert (answer.code, f"There is no kind 'unicorn'. Choose from {kinds}." in answer.err) == (2, True)


async def annotations(client: KubeClient, device: str) -> dict[str, str]:
    return dict((await client.get(GPU_DEVICES, device))["metadata"].get("annotations") or {})


async def test_devices_are_assigned_and_taken_back(run: Run, client: KubeClient) -> None:
    await some_pools(client)
    await create_device(client, "w1-0")
    await client.merge_patch(GPU_DEVICES, "w1-0", {"metadata": {"annotations": {"mine": "stays"}}})
    given = await run("pool", "assign", "w1-0", "a")
    assert (given.code, "is assigned to GPUPool team-a/a" in given.err) == (0, True)
    assert await annotations(client, "w1-0") == {"mine": "stays", ASKED: "a"}
    assert "already" in (await run("pool", "assign", "gpudevice.gpu.deckhouse.io/w1-0", POOL)).err
    elsewhere = await run("pool", "assign", "w1-0", "c")
    assert elsewhere.code == 1
    assert "is assigned to GPUPool 'a'. Take it back (`gpuledger pool unassign w1-0`)" in elsewhere.err
    assert (await run("pool", "assign", "w1-0", "c", "--overwrite")).code == 0
    assert await annotations(client, "w1-0") == {"mine": "stays", ASKED_CLUSTER: "c"}
    assert (await run("pool", "unassign", "w1-0")).code == 0
    assert await annotations(client, "w1-0") == {"mine": "stays"}
    nothing = await run("pool", "unassign", "w1-0")
    assert (nothing.code, "was assigned to no pool" in nothing.err) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("assign", "nobody", "a"), "GPUDevice 'nobody' was not found"),
        (("unassign", "nobody"), "GPUDevice 'nobody' was not found"),
        (("assign", "w1-0", "nope"), "GPUPool or ClusterGPUPool 'nope' was not found"),
        (("assign", "w1-0", "a", "-n", "team-b"), "GPUPool 'team-b/a' was not found"),
        (("assign", "w1-0", "b"), "is assigned to ClusterGPUPool 'c'. Use --overwrite"),
        (("unassign", "w1-0"), "c attached GPUDevice 'w1-0' automatically"),
    ],
)
async def test_devices_that_cannot_be_assigned_or_taken_back(
    run: Run, client: KubeClient, arguments: tuple[str, ...], why: str
) -> None:
    await some_pools(client)
    await create_device(client, "w1-0", poolRef={"name": "c"}, autoAttach=True)
    refused = await run("pool", *arguments)
    assert (refused.code, why in refused.err) == (1, True), refused.err
    assert await annotations(client, "w1-0") == {}


class Disturbed(KubeClient):
    """Somebody else labels the device before each of the first writes."""

    disturbances = 0

    async def send(self, request: KubeRequest) -> Object:
        if request.method == "PATCH" and self.disturbances:
            self.disturbances -= 1
            label = {"metadata": {"labels": {"left": str(self.disturbances)}}}
            await super().send(KubeRequest("label", "PATCH", f"{GPU_DEVICES.path()}/w1-0", {}, label, MERGE_PATCH))
        return await super().send(request)


@pytest.mark.parametrize(("disturbances", "is_written"), [(TRIES_MAX - 1, True), (TRIES_MAX, False)])
async def test_a_device_that_others_change_is_read_again(
    kube: KubeServer, client: KubeClient, disturbances: int, is_written: bool
) -> None:
    await create_device(client, "w1-0")
    async with open_kube(KubeAccess(kube.kubeconfig), Disturbed) as disturbed:
        disturbed.disturbances = disturbances
        writing = annotate(disturbed, "w1-0", lambda _: {ASKED: "a"})
        if is_written:
            assert await writing
        else:
            with pytest.raises(ConflictError):
                await writing
    assert await annotations(client, "w1-0") == ({ASKED: "a"} if is_written else {})
