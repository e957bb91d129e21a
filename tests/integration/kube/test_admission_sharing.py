"""Shared devices before a real API: the seed's manifests become pods, and refusals as users see them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from gpuledger.api.kinds import GPU_DEVICES, PODS
from gpuledger.api.labels import ANNOTATION_CLUSTER_ASSIGNMENT
from gpuledger.api.sharing import SharingNames
from gpuledger.edge.kube.client import KubeClient
from gpuledger.events.node import NodeLabelled
from support.admission import Json, device, pool
from support.admission_serving import Webhooks, webhooks
from support.kube_http import MERGE, Answer, Api
from support.waiting import eventually

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ACCOUNT = "system:serviceaccount:gpus:extender"
NAMES = SharingNames(scheduler="sharing-scheduler", account=ACCOUNT)
ALLOCATION = '{"gpu":[{"minor":0,"resources":{"kooperator/gpu-core":"50"}}]}'
PATH = PODS.path("default")


@pytest.fixture
async def hooks(client: KubeClient) -> AsyncIterator[Webhooks]:
    async with webhooks(client, sharing=NAMES) as found:
        await found.record(
            *pool("cluster-a"), *device(), ("n1", NodeLabelled(uid="u", labels={NAMES.sharing: "enabled"}))
        )
        yield found


@pytest.fixture
async def in_force(api: Api, hooks: Webhooks) -> Api:
    """The API server asks; a real one begins to a moment after it was told."""

    async def is_called() -> bool:
        answer = await api("POST", f"{PATH}?dryRun=All", pod("probe", {"kooperator/gpu": "101"}))
        return answer.code == 403

    await eventually(is_called)
    return api


def pod(name: str, requests: Json, limits: Json | None = None, annotations: Json | None = None, **spec: Any) -> Json:
    resources = {"requests": requests} | ({"limits": limits} if limits else {})
    container = {"name": "trainer", "image": "i", "resources": resources}
    return {"metadata": {"name": name, "annotations": annotations or {}}, "spec": {"containers": [container], **spec}}


WHOLE_AND_PARTS: list[tuple[Json, Json]] = [
    ({"nvidia.com/gpu": "2"}, {"kooperator/gpu-core": "200", "kooperator/gpu-memory-ratio": "200"}),
    ({"kooperator/gpu": "50"}, {"kooperator/gpu-core": "50", "kooperator/gpu-memory-ratio": "50"}),
    ({"kooperator/gpu-core": "50", "kooperator/gpu-memory-ratio": "60"}, {}),
    ({"kooperator/gpu-core": "60", "kooperator/gpu-memory": "4Gi"}, {}),
]


@pytest.mark.parametrize(("requests", "split"), WHOLE_AND_PARTS)
async def test_the_seeds_manifests_have_requests_alone(in_force: Api, requests: Json, split: Json) -> None:
    """Without the webhook the API server refuses them: extended resources need limits."""
    others = {"cpu": "4", "memory": "8Gi"}
    is_whole = "nvidia.com/gpu" in requests
    spec: Json = {"schedulerName": "sharing-scheduler"} if is_whole else {}
    found = await in_force.made(PATH, pod("p", requests | others, **spec))
    resources = found["spec"]["containers"][0]["resources"]
    number = "2" if is_whole else "1"
    expected = (split or requests) | {"kooperator/gpu.shared": number}
    assert resources == {"limits": expected, "requests": expected | others}
    assert found["spec"]["schedulerName"] == "sharing-scheduler"


async def test_pods_that_do_not_ask_for_shares_stay_as_they_are(in_force: Api) -> None:
    found = await in_force.made(PATH, pod("p", {"cpu": "1"}, {"nvidia.com/gpu": "1"}))
    assert found["spec"]["schedulerName"] == "default-scheduler"
    assert found["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (pod("p", {"kooperator/gpu": "150"}), "in the container trainer, gpu: 150 is neither a share of one device"),
        (pod("p", {"kooperator/gpu-core": "50"}), "InvalidSharingRequest: Invalid request: in the container trainer"),
        (
            pod("p", {"kooperator/gpu": "50"}, {"kooperator/gpu": "30"}),
            "RequestNotLimit: The container trainer requests 50 of kooperator/gpu with a limit of 30",
        ),
        (
            pod("p", {"kooperator/gpu": "50"}, {"gpu.deckhouse.io/a": "1"}),
            "SharedAndPoolRequest: The container trainer asks for units of a pool",
        ),
        (
            pod("p", {"kooperator/gpu": "50"}, annotations={NAMES.allocated: ALLOCATION}),
            f"AllocationNotYours: Only {ACCOUNT} writes the annotation",
        ),
    ],
)
async def test_users_see_why_a_pod_is_refused(in_force: Api, given: Json, words: str) -> None:
    answer = await in_force("POST", PATH, given)
    assert answer.code in {403, 422}, answer.text
    assert words in answer.body["message"]


async def test_only_the_schedulers_account_says_which_devices_a_pod_has(in_force: Api) -> None:
    await let_patch_pods(in_force, ACCOUNT)
    await let_patch_pods(in_force, "eve")
    await in_force.made(PATH, pod("p", {"kooperator/gpu": "50"}))
    for user in ("eve", None):
        refused = await annotate(in_force, ALLOCATION, user)
        assert refused.code == 403, refused.text
        assert "AllocationNotYours" in refused.body["message"]
    assert (await annotate(in_force, ALLOCATION, ACCOUNT)).code == 200
    labelled = await in_force("PATCH", f"{PATH}/p", {"metadata": {"labels": {"a": "b"}}}, media=MERGE)
    assert labelled.code == 200, labelled.text
    assert labelled.body["metadata"]["annotations"] == {NAMES.allocated: ALLOCATION}
    assert (await annotate(in_force, None, "eve")).code == 403


async def test_no_pool_gets_a_card_of_a_node_that_shares_its_cards(in_force: Api) -> None:
    body = {"apiVersion": GPU_DEVICES.api_version, "kind": GPU_DEVICES.kind, "metadata": {"name": "d1"}}
    await in_force.made(GPU_DEVICES.path(), body)
    patch = {"metadata": {"annotations": {ANNOTATION_CLUSTER_ASSIGNMENT: "cluster-a"}}}
    answer = await in_force("PATCH", f"{GPU_DEVICES.path()}/d1", patch, media=MERGE)
    assert answer.code == 403, answer.text
    assert "CardShared: d1 is in the node n1, whose label node.kooperator/gpu-sharing=enabled" in answer.body["message"]
    assert "Remove the label from the node first" in answer.body["message"]


async def annotate(api: Api, text: str | None, user: str | None) -> Answer:
    who = {} if user is None else {"Impersonate_User": user}
    return await api("PATCH", f"{PATH}/p", {"metadata": {"annotations": {NAMES.allocated: text}}}, media=MERGE, **who)


async def let_patch_pods(api: Api, user: str) -> None:
    name = user.replace(":", "-")
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "patch"]}
    await api.made(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [rule]})
    role = {"kind": "ClusterRole", "name": name, "apiGroup": "rbac.authorization.k8s.io"}
    subject = {"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}
    binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
    await api.made(f"{RBAC}/clusterrolebindings", binding)
