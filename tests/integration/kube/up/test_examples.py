"""The manifests of `examples/`, and the commands of its README, on the fleet that it starts."""

import asyncio
import os
import shutil
import sys
from pathlib import Path
from typing import Final

import pytest

from gpuledger.api.kinds import CLUSTER_GPU_POOLS, GPU_DEVICES, GPU_NODE_STATES, GPU_POOLS, PODS, Resource
from gpuledger.api.labels import ANNOTATION_ASSIGNMENT, ANNOTATION_CLUSTER_ASSIGNMENT, LABEL_PRODUCT
from gpuledger.edge.admission.rules.scheduling_hints import POOL_LABEL
from gpuledger.edge.kube.client import KubeClient, Object, Selection
from gpuledger.edge.kube.errors import ForbiddenError
from gpuledger.edge.watchers.resources.moduleconfig import understand
from support.chart import WITH_SECRET, needs_helm, render
from support.conditions import conditions_in, lacking
from support.examples import FOLDER, KINDS, apply, commands, fleet, manifests
from support.kube_http import Json
from support.refusals import is_refused, refusal
from support.up import DEADLINE_S, Up, environment, gpuledger
from support.waiting import eventually

pytestmark = pytest.mark.embedded_only("`gpuledger up` brings its own API server")

FLEET: Final = ("--fleet", fleet(), "--speed", "600")
ZONE: Final = "topology.kubernetes.io/zone"
CLUSTER_A: Final = "requests.cluster.gpu.deckhouse.io/cluster-a"
TOTALS: Final = {"cluster-a": 2, "local-x": 1, "a100-mig-2g20gb": 6}
GIVEN: Final = [
    ("h200", 0, ANNOTATION_CLUSTER_ASSIGNMENT, "cluster-a"),
    ("a100", 0, ANNOTATION_CLUSTER_ASSIGNMENT, "cluster-a"),
    ("h200", -1, ANNOTATION_ASSIGNMENT, "local-x"),
    ("a100", -1, ANNOTATION_ASSIGNMENT, "a100-mig-2g20gb"),
]
"""Product, place among the GPUDevices of that product, annotation, pool: what the README's commands say."""

CLUSTER_ROLES: Final = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole")
REVIEWS: Final = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview")


@pytest.fixture
async def in_force(client: KubeClient) -> KubeClient:
    """A client of a cluster whose webhooks are asked, with all but the pods."""
    (early,) = [one for one in manifests("pods") if one["metadata"]["name"] == "demo-local"]
    elsewhere = early | {"metadata": {"name": "early", "namespace": "default"}}
    await eventually(lambda: is_refused(client, elsewhere, "PoolNotFound"))
    await apply(client, "moduleconfig", "namespaces", "access", "cluster-pools", "pools", "quota")
    return client


async def devices(client: KubeClient, product: str) -> list[Object]:
    return (await client.list(GPU_DEVICES, Selection(labels=f"{LABEL_PRODUCT}={product}"))).items


def states(found: list[Object]) -> set[str]:
    return {one.get("status", {}).get("state", "") for one in found}


@pytest.fixture
async def offered(in_force: KubeClient) -> KubeClient:
    """The same, once the pools have the devices that they are given, and the pods are let in."""

    async def are_prepared() -> bool:
        found = [*await devices(in_force, "h200"), *await devices(in_force, "a100")]
        return len(found) == 6 and states(found) <= {"Ready", "PendingAssignment", "Assigned"}

    await eventually(are_prepared)
    for product, place, annotation, pool in GIVEN:
        device = (await devices(in_force, product))[place]["metadata"]["name"]
        metadata = {"name": device, "annotations": {annotation: pool}}
        await in_force.apply(GPU_DEVICES, {"metadata": metadata}, field_manager="examples", force=True)
    await eventually(lambda: are_offered(in_force))
    await eventually(lambda: are_let_in(in_force))
    return in_force


async def pools(client: KubeClient) -> dict[str, Object]:
    found = [*(await client.list(GPU_POOLS)).items, *(await client.list(CLUSTER_GPU_POOLS)).items]
    return {one["metadata"]["name"]: one for one in found}


async def are_offered(client: KubeClient) -> bool:
    statuses = {name: one.get("status") or {} for name, one in (await pools(client)).items() if name in TOTALS}
    return {name: (one.get("capacity") or {}).get("total") for name, one in statuses.items()} == TOTALS


@pytest.mark.long
async def test_pools_have_the_devices_that_they_are_given(offered: KubeClient) -> None:
    for one in (await pools(offered)).values():
        statuses = {kind["type"]: kind["status"] for kind in one["status"]["conditions"]}
        assert statuses == {
            "Supported": "True",
            "Configured": "True",
            "Misconfigured": "False",
            "CapacityLow": "False",
            "Maintenance": "False",
        }
    for resource in (GPU_POOLS, CLUSTER_GPU_POOLS, GPU_DEVICES, GPU_NODE_STATES):
        for one in (await offered.list(resource)).items:
            assert lacking(one) == []
            assert all(kind["observedGeneration"] <= one["metadata"]["generation"] for kind in conditions_in(one))
    for product, place, _, pool in GIVEN:
        status = (await devices(offered, product))[place]["status"]
        assert (status["state"], status["poolRef"]["name"]) == ("Assigned", pool)


async def are_let_in(client: KubeClient) -> bool:
    """Whether the pods are there; the webhooks know of the devices a moment sooner or later than the pools show."""
    try:
        await apply(client, "pods")
    except ForbiddenError:
        return False
    return True


async def pod(client: KubeClient, name: str) -> Json:
    (given,) = [one for one in manifests("pods") if one["metadata"]["name"] == name]
    return await client.get(PODS, name, given["metadata"]["namespace"])


@pytest.mark.parametrize(
    ("name", "pool"), [("demo-a", "cluster-a"), ("demo-b", "cluster-a"), ("demo-local", "local-x")]
)
async def test_pods_are_spread_over_zones(offered: KubeClient, name: str, pool: str) -> None:
    found = await pod(offered, name)
    assert found["metadata"]["labels"] == {POOL_LABEL: pool}
    (constraint,) = found["spec"]["topologySpreadConstraints"]
    assert (constraint["topologyKey"], constraint["whenUnsatisfiable"]) == (ZONE, "ScheduleAnyway")


async def test_pods_with_partitions_go_to_the_pools_nodes_and_are_packed(offered: KubeClient) -> None:
    found = await pod(offered, "inference")
    affinity = found["spec"]["affinity"]
    (term,) = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    (pool,) = [one for one in manifests("pools") if one["spec"]["resource"]["unit"] == "MIG"]
    assert term["matchExpressions"] == pool["spec"]["nodeSelector"]["matchExpressions"]
    (packed,) = affinity["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert packed["podAffinityTerm"]["topologyKey"] == ZONE


@pytest.mark.parametrize("given", manifests("refused"), ids=lambda one: str(one["metadata"]["name"]))
async def test_a_refusal_has_a_reason(offered: KubeClient, given: Json) -> None:
    await eventually(lambda: is_explained(offered, given))


async def is_explained(client: KubeClient, given: Json) -> bool:
    return words_of(given) in await refusal(client, given, KINDS[given["kind"]])


def words_of(given: Json) -> str:
    """What the refusal of one of `refused.yaml` says; its name tells."""
    name = given["metadata"]["name"]
    if given["kind"] != PODS.kind:
        return "PoolNameTaken: "
    if name == "exceeded-quota":
        return f"exceeded quota: gpu-cluster-a, requested: {CLUSTER_A}=1, used: {CLUSTER_A}=1, limited: {CLUSTER_A}=1"
    return "".join(word.capitalize() for word in name.split("-")) + ": "


@pytest.mark.parametrize(
    ("arguments", "quotas"),
    [
        (("cluster-a",), [["gpu-team-a", "gpu-cluster-a", "1", "2"], ["gpu-team-b", "gpu-cluster-a", "1", "1"]]),
        (("local-x", "-n", "gpu-team-local"), [["gpu-team-local", "gpu-local-x", "1", "1"]]),
    ],
)
async def test_quotas_are_shown_with_their_pool(
    up: Up, offered: KubeClient, arguments: tuple[str, ...], quotas: list[list[str]]
) -> None:
    async def are_shown() -> bool:
        result = await asyncio.to_thread(gpuledger, up.data_dir, "describe", "pool", *arguments)
        shown = result.stdout.decode().partition("Resource quotas:")[2].splitlines()
        return [line.split() for line in shown if "gpu-team" in line] == quotas

    await eventually(are_shown)


def test_every_setting_is_understood() -> None:
    (config,) = manifests("moduleconfig")
    understood = understand(config["spec"]["settings"], config["spec"]["enabled"])
    assert understood.problems == ()
    assert understood.values == {
        "enabled": True,
        "managed_label_key": "gpu.deckhouse.io/enabled",
        "enabled_by_default": True,
        "approval_mode": "Manual",
        "scheduling_strategy": "Spread",
        "topology_key": ZONE,
        "resync_period_s": 30,
        "high_availability": True,
    }


async def test_no_pool_takes_devices_by_itself(up: Up, in_force: KubeClient) -> None:
    """`deviceApproval.mode` is Manual, which holds for a pool that would."""
    spec: Json = {"resource": {"unit": "Card"}, "deviceSelector": {"include": {"products": ["Tesla T4"]}}}
    spec["deviceAssignment"] = {"requireAnnotation": False, "autoApproveSelector": {}}
    await in_force.apply(CLUSTER_GPU_POOLS, {"metadata": {"name": "by-itself"}, "spec": spec}, field_manager="test")

    async def is_reported() -> bool:
        result = await asyncio.to_thread(gpuledger, up.data_dir, "describe", "pool", "by-itself")
        return b"The module's setting has no pool approve devices by itself." in result.stdout

    await eventually(is_reported)
    await in_force.delete(CLUSTER_GPU_POOLS, "by-itself")


@needs_helm
@pytest.mark.parametrize(
    ("verb", "plural", "may"),
    [
        ("create", "gpupools", True),
        ("patch", "gpudevices", True),
        ("delete", "gpudevices", False),
        ("create", "clustergpupools", False),
    ],
)
async def test_the_group_has_the_rights_of_editors(in_force: KubeClient, verb: str, plural: str, may: bool) -> None:
    for role in render(WITH_SECRET).objects:
        if role["kind"] == "ClusterRole" and ":user-authz:" in role["metadata"]["name"]:
            await in_force.apply(CLUSTER_ROLES, role, field_manager="helm")
    attributes = {"verb": verb, "group": GPU_DEVICES.group, "resource": plural}
    review = {
        "metadata": {},
        "spec": {"user": "alice", "groups": ["devs@example.com"], "resourceAttributes": attributes},
    }
    answer = await in_force.create(REVIEWS, review)
    assert answer["status"]["allowed"] is may


async def shell(up: Up, script: str) -> tuple[int, str]:
    """Run one of the README's blocks; returns its exit code, and what is said on stderr."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environ = environment(up.data_dir) | {"PATH": path, "KUBECONFIG": str(up.data_dir / "kubeconfig")}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        "bash", "-e", "-c", script, cwd=FOLDER, env=environ | {"HOME": str(up.data_dir)}, stdout=pipe, stderr=pipe
    )
    async with asyncio.timeout(DEADLINE_S):
        _, complaint = await process.communicate()
    assert process.returncode is not None
    return process.returncode, complaint.decode()


async def works(up: Up, script: str) -> bool:
    code, _ = await shell(up, script)
    return code == 0


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
async def test_the_commands_of_the_readme(up: Up, in_force: KubeClient) -> None:
    _, _, setting_up, assigning, asking, refusing, switching = commands()
    for script in (setting_up, assigning, asking):
        await eventually(lambda script=script: works(up, script))  # type: ignore[misc]
    code, complaint = await shell(up, refusing)
    assert [words_of(one) for one in manifests("refused") if words_of(one) not in complaint] == []
    assert code == 1
    assert await works(up, switching)

    async def are_switched_off() -> bool:
        found = [one["status"] for one in await devices(in_force, "t4")]
        ignored = {c["status"] for one in found for c in one["conditions"] if c["type"] == "Ignored"}
        return [one["managed"] for one in found] == [False, False] and ignored == {"True", "False"}

    await eventually(are_switched_off)
