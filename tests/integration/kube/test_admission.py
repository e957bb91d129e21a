"""Admission before a real API: the manifests of the design, and refusals as users see them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from gpuledger.api.kinds import CLUSTER_GPU_POOLS, GPU_DEVICES, GPU_POOLS, NAMESPACES, PODS, Resource
from gpuledger.api.labels import ANNOTATION_ASSIGNMENT, ANNOTATION_CLUSTER_ASSIGNMENT, LABEL_IGNORE
from gpuledger.edge.admission.rules.scheduling_hints import POOL_LABEL
from gpuledger.edge.kube.client import KubeClient
from support.admission import Json, device, namespace, pod_with, pool
from support.admission_serving import Webhooks, webhooks
from support.examples import manifests
from support.kube_http import MERGE, Api
from support.waiting import eventually

TEAMS = ("gpu-team-a", "gpu-team-b", "gpu-team-local", "prod-inference")
LOCAL, CLUSTER = "gpu.deckhouse.io/local-x", "cluster.gpu.deckhouse.io/cluster-a"
RESOURCE_QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota", namespaced=True)

READY = [
    *(namespace(team) for team in TEAMS),
    *pool("gpu-team-local/local-x", strategy="Spread"),
    *pool("cluster-a", strategy="Spread"),
    *device(),
]

POOL_KINDS = {GPU_POOLS.kind: GPU_POOLS, CLUSTER_GPU_POOLS.kind: CLUSTER_GPU_POOLS}


def pool_manifests() -> dict[str, Json]:
    return {one["metadata"]["name"]: one for one in (*manifests("cluster-pools"), *manifests("pools"))}


def pod(name: str, within: str, resource: str, **spec: Any) -> Json:
    found = pod_with(resource, spec=spec, namespace=within)
    found["metadata"]["name"] = name
    return found


@pytest.fixture
async def teams(client: KubeClient) -> None:
    for team in TEAMS:
        labels = {"gpu.deckhouse.io/enabled": "true"}
        await client.create(NAMESPACES, {"metadata": {"name": team, "labels": labels}})


@pytest.fixture
async def hooks(client: KubeClient, teams: None) -> AsyncIterator[Webhooks]:
    async with webhooks(client) as found:
        await found.record(*READY)
        yield found


@pytest.fixture
async def in_force(api: Api, hooks: Webhooks) -> Api:
    """The API server asks; a real one begins to a moment after it was told."""

    async def is_called() -> bool:
        refused = [
            await api("POST", f"{PODS.path('default')}?dryRun=All", pod_with(LOCAL)),
            await api("POST", f"{GPU_POOLS.path('default')}?dryRun=All", _typed(GPU_POOLS, "cluster-a")),
        ]
        return all(answer.code == 403 for answer in refused)

    await eventually(is_called)
    return api


def _typed(resource: Resource, name: str) -> Json:
    spec = pool_manifests()["cluster-a"]["spec"]
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "spec": spec}


async def made(api: Api, resource: Resource, body: Json) -> Json:
    return await api.made(resource.path(body["metadata"].get("namespace")), body)


async def refusal(api: Api, resource: Resource, body: Json) -> str:
    answer = await api("POST", resource.path(body["metadata"].get("namespace")), body)
    assert answer.code == 403, answer.text
    message: str = answer.body["message"]
    return message


async def test_the_manifests_of_the_design_work(in_force: Api) -> None:
    for manifest in pool_manifests().values():
        await made(in_force, POOL_KINDS[manifest["kind"]], manifest)
    for team, units in (("gpu-team-a", "2"), ("gpu-team-b", "1")):
        quota = {"metadata": {"name": "gpu-cluster-a", "namespace": team}}
        await made(in_force, RESOURCE_QUOTAS, quota | {"spec": {"hard": {f"requests.{CLUSTER}": units}}})
    for name, team, resource in (
        ("demo-a", "gpu-team-a", CLUSTER),
        ("demo-b", "gpu-team-b", CLUSTER),
        ("demo-local", "gpu-team-local", LOCAL),
    ):
        found = await made(in_force, PODS, pod(name, team, resource))
        assert found["metadata"]["labels"][POOL_LABEL] == resource.rpartition("/")[2]
        (constraint,) = found["spec"]["topologySpreadConstraints"]
        assert constraint["topologyKey"] == "topology.kubernetes.io/zone"
        assert constraint["whenUnsatisfiable"] == "ScheduleAnyway"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (pod("p", "gpu-team-a", LOCAL), "PoolNotFound: There is no GPUPool local-x in the namespace gpu-team-a"),
        (pod("p", "default", CLUSTER), "NamespaceNotEnabled: The namespace default may not use GPUs"),
        (pod_with(CLUSTER, "gpu.deckhouse.io/b", namespace="gpu-team-a"), "MixedPoolRequest: "),
        (pod_with(CLUSTER, amount="5", namespace="gpu-team-a"), "CapacityExceeded: "),
    ],
)
async def test_users_see_why_a_pod_is_refused(in_force: Api, given: Json, words: str) -> None:
    assert words in await refusal(in_force, PODS, given)


async def test_pools_are_validated(in_force: Api) -> None:
    manifests = pool_manifests()
    taken = {"metadata": {"name": "local-x"}, "spec": manifests["cluster-a"]["spec"]}
    kind = {"apiVersion": CLUSTER_GPU_POOLS.api_version, "kind": CLUSTER_GPU_POOLS.kind}
    assert "PoolNameTaken: There is the GPUPool gpu-team-local/local-x" in await refusal(
        in_force, CLUSTER_GPU_POOLS, kind | taken
    )
    await made(in_force, GPU_POOLS, manifests["local-x"])
    path = f"{GPU_POOLS.path('gpu-team-local')}/local-x"
    resliced = await in_force("PATCH", path, {"spec": {"resource": {"slicesPerUnit": 4}}}, media=MERGE)
    assert resliced.code != 200
    many = manifests["a100-mig-2g20gb"]
    many["spec"]["resource"]["slicesPerUnit"] = 9
    assert "InvalidPool: spec.resource.slicesPerUnit: 9" in await refusal(in_force, GPU_POOLS, many)
    relabelled = await in_force("PATCH", path, {"spec": {"scheduling": {"strategy": "BinPack"}}}, media=MERGE)
    assert relabelled.code == 200, relabelled.text
    assert (await in_force("DELETE", path)).code == 200


async def test_people_give_devices_to_pools(in_force: Api, hooks: Webhooks) -> None:
    await made(
        in_force, GPU_DEVICES, {"apiVersion": GPU_DEVICES.api_version, "kind": "GPUDevice", "metadata": {"name": "d1"}}
    )
    await hooks.record(*device("d1"))

    async def annotated(**annotations: str | None) -> tuple[int, str]:
        patch = {"metadata": {"annotations": {names[key]: value for key, value in annotations.items()}}}
        answer = await in_force("PATCH", f"{GPU_DEVICES.path()}/d1", patch, media=MERGE)
        return answer.code, answer.body.get("message", "")

    names = {"local": ANNOTATION_ASSIGNMENT, "cluster": ANNOTATION_CLUSTER_ASSIGNMENT}
    code, message = await annotated(local="none")
    assert (code, "PoolNotFound: There is no GPUPool 'none'" in message) == (403, True)
    assert await annotated(cluster="cluster-a") == (200, "")
    code, message = await annotated(local="local-x")
    assert (code, "AmbiguousAssignment" in message) == (403, True)
    assert await annotated(local="local-x", cluster=None) == (200, "")
    ignored = {"metadata": {"labels": {LABEL_IGNORE: "perhaps"}}}
    answer = await in_force("PATCH", f"{GPU_DEVICES.path()}/d1", ignored, media=MERGE)
    assert (answer.code, "InvalidIgnoreLabel" in answer.body["message"]) == (403, True)


RBAC = "/apis/rbac.authorization.k8s.io/v1"
ALICE = {"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"}


async def test_people_may_not_change_what_was_found(in_force: Api) -> None:
    labels = {"gpu.deckhouse.io/product": "a100"}
    d1 = {"apiVersion": GPU_DEVICES.api_version, "kind": "GPUDevice", "metadata": {"name": "d1", "labels": labels}}
    await made(in_force, GPU_DEVICES, d1)
    rule = {"apiGroups": [GPU_DEVICES.group], "resources": [GPU_DEVICES.plural], "verbs": ["get", "patch"]}
    await in_force.made(f"{RBAC}/clusterroles", {"metadata": {"name": "devices"}, "rules": [rule]})
    role = {"kind": "ClusterRole", "name": "devices", "apiGroup": "rbac.authorization.k8s.io"}
    binding = {"metadata": {"name": "devices"}, "roleRef": role, "subjects": [ALICE]}
    await in_force.made(f"{RBAC}/clusterrolebindings", binding)
    path, patch = f"{GPU_DEVICES.path()}/d1", {"metadata": {"labels": {"gpu.deckhouse.io/product": "h100"}}}

    async def is_refused() -> bool:
        answer = await in_force("PATCH", path, patch, media=MERGE, Impersonate_User="alice")
        return (
            answer.code == 403
            and "LabelNotYours: gpuledger keeps gpu.deckhouse.io/product of d1" in answer.body["message"]
        )

    await eventually(is_refused)
    assert (await in_force("PATCH", path, patch, media=MERGE)).code == 200


async def test_while_no_webhook_runs_only_gpu_pods_wait(api: Api, client: KubeClient, teams: None) -> None:
    async with webhooks(client) as found:
        await found.record(*READY)

        async def is_called() -> bool:
            return (await api("POST", f"{PODS.path('gpu-team-a')}?dryRun=All", pod_with(LOCAL))).code == 403

        await eventually(is_called)
    assert (await api("POST", PODS.path("gpu-team-a"), pod_with("cpu"))).code == 201
    answer = await api("POST", PODS.path("gpu-team-a"), pod("q", "gpu-team-a", CLUSTER))
    assert answer.code == 500
    assert "failed calling webhook" in answer.body["message"]
