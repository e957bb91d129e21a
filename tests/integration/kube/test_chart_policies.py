"""The chart's two policies, rendered by helm, in an API server that enforces them."""

from typing import Any

import pytest

from gpuledger.api.kinds import GPU_DEVICES, GPU_NODE_STATES, GPU_POOLS, Resource
from gpuledger.api.labels import ANNOTATION_ASSIGNMENT, ANNOTATION_CLUSTER_ASSIGNMENT, ANNOTATION_RETIRED, LABEL_IGNORE
from gpuledger.edge.admission.rules.access import BREAK_GLASS
from gpuledger.edge.kube.client import KubeClient
from support.admission import Json
from support.chart import NAMESPACE, WITH_SECRET, needs_helm, render
from support.kube_http import MERGE, Answer, Api
from support.waiting import eventually

pytestmark = needs_helm

GROUP = "/apis/admissionregistration.k8s.io/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
GRANTED, OTHER = "team-a", "team-b"
VALUES = {**WITH_SECRET, "restrictedAccess": {"automaticApproval": {"namespaces": [GRANTED]}}}
PATHS = {
    "ValidatingAdmissionPolicy": f"{GROUP}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{GROUP}/validatingadmissionpolicybindings",
}
EDITOR, BREAKING, PRODUCT = "alice", "eva", f"system:serviceaccount:{NAMESPACE}:gpuledger"
GROUPS = {BREAKING: BREAK_GLASS}
DEVICE, STATE = f"{GPU_DEVICES.path()}/d1", f"{GPU_NODE_STATES.path()}/n1"


class People:
    """Requests on behalf of others, who may do everything with the product's kinds as far as roles go."""

    def __init__(self, api: Api) -> None:
        self.api = api

    async def __call__(self, who: str, method: str, path: str, body: Json | None = None) -> Answer:
        media = MERGE if method == "PATCH" else "application/json"
        groups = {"Impersonate_Group": GROUPS[who]} if who in GROUPS else {}
        return await self.api(method, path, body, media=media, Impersonate_User=who, **groups)


@pytest.fixture
async def people(client: KubeClient, api: Api) -> People:
    """A server with the chart's policies in force, a device and a node's state."""
    rule = {"apiGroups": [GPU_DEVICES.group], "resources": ["*"], "verbs": ["*"]}
    await api.made(f"{RBAC}/clusterroles", {"metadata": {"name": "everything"}, "rules": [rule]})
    subjects = [{"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"} for name in (EDITOR, PRODUCT)]
    subjects += [{"kind": "Group", "name": BREAK_GLASS, "apiGroup": "rbac.authorization.k8s.io"}]
    role = {"kind": "ClusterRole", "name": "everything", "apiGroup": "rbac.authorization.k8s.io"}
    bound = {"metadata": {"name": "everything"}, "roleRef": role, "subjects": subjects}
    await api.made(f"{RBAC}/clusterrolebindings", bound)
    for namespace in (GRANTED, OTHER):
        await api.made("/api/v1/namespaces", {"metadata": {"name": namespace}})
    await api.made(GPU_POOLS.path(OTHER), pool("old", ANYTHING))
    await api.made(GPU_DEVICES.path(), made(GPU_DEVICES, "d1", {}))
    await api.made(GPU_NODE_STATES.path(), made(GPU_NODE_STATES, "n1", {"nodeName": "n1"}))
    for one in render(VALUES).objects:
        if one["kind"] in PATHS:
            await api.made(PATHS[one["kind"]], one)
    found = People(api)

    async def are_in_force() -> bool:
        answers = [
            await found(EDITOR, "PATCH", f"{DEVICE}?dryRun=All", {"metadata": {"annotations": {"x": "y"}}}),
            await found(EDITOR, "POST", f"{GPU_POOLS.path(OTHER)}?dryRun=All", pool("probe", ANYTHING)),
        ]
        return all(answer.code == 403 and "ValidatingAdmissionPolicy" in answer.text for answer in answers)

    await eventually(are_in_force)
    return found


ANYTHING: Json = {"requireAnnotation": False, "autoApproveSelector": {}}
ON_REQUEST: Json = {"requireAnnotation": True}


def made(kind: Resource, name: str, spec: Json) -> Json:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, "spec": spec}


def pool(name: str, assignment: Json, **spec: Any) -> Json:
    return made(GPU_POOLS, name, {"resource": {"unit": "Card"}, "deviceAssignment": assignment, **spec})


def marks(**metadata: Any) -> Json:
    return {"metadata": metadata}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (DEVICE, marks(annotations={ANNOTATION_ASSIGNMENT: "a"})),
        (DEVICE, marks(annotations={ANNOTATION_CLUSTER_ASSIGNMENT: "a"})),
        (DEVICE, marks(annotations={ANNOTATION_RETIRED: "true"})),
        (DEVICE, marks(labels={LABEL_IGNORE: "true"})),
    ],
)
async def test_people_set_the_marks_that_are_for_them(people: People, path: str, body: Json) -> None:
    answer = await people(EDITOR, "PATCH", path, body)
    assert answer.code == 200, answer.text


REFUSED: list[tuple[str, str, Json | None]] = [
    ("PATCH", DEVICE, marks(annotations={"x": "y"})),
    ("PATCH", DEVICE, marks(labels={"team": "a"})),
    ("PATCH", DEVICE, marks(finalizers=["example.com/x"])),
    ("PATCH", f"{DEVICE}/status", {"status": {"state": "Faulted"}}),
    ("PATCH", STATE, marks(annotations={"x": "y"})),
    ("POST", GPU_DEVICES.path(), made(GPU_DEVICES, "d2", {})),
    ("DELETE", DEVICE, None),
    ("DELETE", GPU_NODE_STATES.path(), None),
]


async def test_people_change_nothing_else_of_the_inventory(people: People) -> None:
    for method, path, body in REFUSED:
        answer = await people(EDITOR, method, path, body)
        assert (answer.code, answer.body["reason"]) == (403, "Forbidden"), answer.text
        assert "denied request: RestrictedAccess: the GPU control plane manages" in answer.body["message"]


@pytest.mark.parametrize("who", [PRODUCT, BREAKING])
async def test_the_product_and_who_breaks_the_glass_may(people: People, who: str) -> None:
    for method, path, body in REFUSED:
        answer = await people(who, method, path, body)
        assert answer.code < 300, answer.text


async def test_a_pool_takes_gpus_by_itself_only_where_its_namespace_may(people: People) -> None:
    for namespace, assignment, code in (
        (GRANTED, ANYTHING, 201),
        (OTHER, ON_REQUEST, 201),
        (OTHER, ANYTHING, 403),
    ):
        answer = await people(EDITOR, "POST", GPU_POOLS.path(namespace), pool("p", assignment))
        assert answer.code == code, answer.text
    assert answer.body["reason"] == "Forbidden"
    assert f"ApprovalNotGranted: GPUPools of the namespace {OTHER} may not" in answer.body["message"]
    widened = {"spec": {"deviceAssignment": ANYTHING}}
    assert (await people(EDITOR, "PATCH", f"{GPU_POOLS.path(OTHER)}/p", widened)).code == 403


async def test_a_pool_of_earlier_times_goes_on(people: People) -> None:
    path = f"{GPU_POOLS.path(OTHER)}/old"
    for body, code in (
        (marks(labels={"team": "a"}), 200),
        ({"status": {"capacity": {"total": 1}}}, 200),
        ({"spec": {"nodeSelector": {"matchLabels": {"rack": "1"}}}}, 403),
        ({"spec": {"deviceAssignment": ON_REQUEST}}, 200),
        ({"spec": {"deviceAssignment": ANYTHING}}, 403),
    ):
        answer = await people(EDITOR, "PATCH", path, body)
        assert answer.code == code, answer.text
