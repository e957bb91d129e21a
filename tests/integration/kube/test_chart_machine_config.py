"""What the agent of machine configuration may do, by the chart's role and policy and its pod's token; and who else."""

from collections.abc import Mapping
from typing import Any

import pytest

from gpuledger.api.kinds import MACHINE_CONFIG_GROUP
from gpuledger.api.machine_config import (
    ANNOTATION_CORDONED,
    ANNOTATION_CURRENT,
    ANNOTATION_DESIRED,
    ANNOTATION_LAST_ERROR,
    ANNOTATION_POOL,
    ANNOTATION_REBOOT_PENDING,
    ANNOTATION_STATE,
    DESIRED_ANNOTATIONS,
    OBSERVED_ANNOTATIONS,
)
from gpuledger.edge.admission.rules.access import BREAK_GLASS
from support.admission import Json
from support.chart import NAME, NAMESPACE, WITH_SECRET, needs_helm, render
from support.kube_http import MERGE, Answer, Api
from support.waiting import eventually

pytestmark = needs_helm

AGENT = "machine-config-agent"
POLICY = "machine-config-annotations"
VALUES = {**WITH_SECRET, "machineConfig": {"enabled": True}}
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
PATHS = {
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
    "ValidatingAdmissionPolicy": f"{ADMISSION}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{ADMISSION}/validatingadmissionpolicybindings",
}
NODES = "/api/v1/nodes"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
ACCOUNTS = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
OWN, OTHER = "w1", "w2"
SERVICES, PERSON = f"system:serviceaccount:{NAMESPACE}:{NAME}", "alice"
REVISION = "rendered-workers-a1b2c3d4e5"

User = Mapping[str, Any]


class Requests:
    """Requests on behalf of others, with all that the review of a token says of them."""

    def __init__(self, api: Api) -> None:
        self.api = api

    async def __call__(self, who: User, method: str, path: str, body: Json | None = None) -> Answer:
        headers = {"Impersonate-User": who["username"]}
        if who.get("groups"):
            headers["Impersonate-Group"] = who["groups"][0]
        for key, (value,) in who.get("extra", {}).items():
            headers[f"Impersonate-Extra-{key.replace('/', '%2F')}"] = value
        return await self.api(method, path, body, media=MERGE if method == "PATCH" else "application/json", **headers)

    async def annotate(self, who: User, node: str, **annotations: str | None) -> Answer:
        """Change annotations of a node, given by the name behind the group."""
        named = {f"{MACHINE_CONFIG_GROUP}/{name.replace('_', '-')}": value for name, value in annotations.items()}
        return await self(who, "PATCH", f"{NODES}/{node}", marks(annotations=named))

    async def agent_on(self, node: str) -> User:
        """The agent of a node, as a review describes the token of its pod."""
        name = f"{AGENT}-{node}"
        containers = [{"name": "agent", "image": "registry.example/gpuledger"}]
        spec = {"serviceAccountName": AGENT, "nodeName": node, "containers": containers}
        await self.api.made(PODS, {"metadata": {"name": name}, "spec": spec})
        reference = {"kind": "Pod", "apiVersion": "v1", "name": name}
        token = await self.api("POST", f"{ACCOUNTS}/{AGENT}/token", {"spec": {"boundObjectRef": reference}})
        review = await self.api("POST", REVIEWS, {"spec": {"token": token.body["status"]["token"]}})
        user: User = review.body["status"]["user"]
        return user


def marks(**metadata: Any) -> Json:
    return {"metadata": metadata}


@pytest.fixture
async def asks(api: Api) -> Requests:
    """A server with the chart's role and policy in force, two nodes, and people who may write Nodes."""
    await api.made("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    await api.made(ACCOUNTS, {"metadata": {"name": AGENT}})
    for node in (OWN, OTHER):
        await api.made(NODES, {"metadata": {"name": node, "labels": {"rack": "1"}, "annotations": {"theirs": "x"}}})
    rule = {"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["*"]}
    await api.made(PATHS["ClusterRole"], {"metadata": {"name": "nodes"}, "rules": [rule]})
    names = (("User", PERSON), ("User", SERVICES), ("Group", BREAK_GLASS))
    subjects = [{"kind": kind, "name": name, "apiGroup": "rbac.authorization.k8s.io"} for kind, name in names]
    role = {"kind": "ClusterRole", "name": "nodes", "apiGroup": "rbac.authorization.k8s.io"}
    bound = {"metadata": {"name": "nodes"}, "roleRef": role, "subjects": subjects}
    await api.made(PATHS["ClusterRoleBinding"], bound)
    for one in render(VALUES).objects:
        if one["metadata"]["name"] in (AGENT, POLICY) and one["kind"] in PATHS:
            await api.made(PATHS[one["kind"]], one)
    found = Requests(api)

    async def is_in_force() -> bool:
        path = f"{NODES}/{OWN}?dryRun=All"
        answer = await found({"username": PERSON}, "PATCH", path, marks(annotations={ANNOTATION_POOL: "x"}))
        return answer.code == 403 and POLICY in answer.text

    await eventually(is_in_force)
    return found


async def test_an_agent_reports_on_its_own_node_what_it_observes(asks: Requests) -> None:
    agent = await asks.agent_on(OWN)
    for annotations in (
        {"current_revision": REVISION, "agent_state": "done", "last_error": "", "reboot_pending": "false"},
        {"agent_state": "error", "last_error": "cannot write /etc/x"},
        {"last_error": None},
    ):
        answer = await asks.annotate(agent, OWN, **annotations)
        assert answer.code == 200, answer.text
    found = answer.body["metadata"]["annotations"]
    assert (found[ANNOTATION_CURRENT], found[ANNOTATION_STATE]) == (REVISION, "error")
    assert (found["theirs"], ANNOTATION_LAST_ERROR in found) == ("x", False)


async def test_an_agent_changes_no_other_node(asks: Requests) -> None:
    agent = await asks.agent_on(OWN)
    for who in (agent, {"username": agent["username"]}):
        answer = await asks.annotate(who, OTHER, agent_state="done")
        assert (answer.code, answer.body["reason"]) == (403, "Forbidden"), answer.text
        assert "denied request: NotItsOwnNode: " in answer.body["message"]


async def test_a_token_that_names_no_node_writes_to_none(asks: Requests) -> None:
    agent = await asks.agent_on(OWN)
    answer = await asks.annotate({"username": agent["username"]}, OWN, agent_state="done")
    assert answer.code == 403
    assert "NotItsOwnNode" in answer.text


BEYOND: list[Json] = [
    *(marks(annotations={name: "x"}) for name in DESIRED_ANNOTATIONS),
    marks(annotations={"theirs": "y"}),
    marks(annotations={"theirs": None}),
    marks(annotations={ANNOTATION_STATE: "done", "more": "x"}),
    marks(labels={"rack": "2"}),
    marks(labels={"more": "x"}),
    marks(finalizers=["example.com/x"]),
    {"spec": {"unschedulable": True}},
    {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}},
]


async def test_an_agent_changes_nothing_else_of_its_node(asks: Requests) -> None:
    agent = await asks.agent_on(OWN)
    for body in BEYOND:
        answer = await asks(agent, "PATCH", f"{NODES}/{OWN}", body)
        assert (answer.code, answer.body["reason"]) == (403, "Forbidden"), (body, answer.text)
        assert "denied request: NotObserved: " in answer.body["message"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PATCH", f"{NODES}/{OWN}/status"),
        ("DELETE", f"{NODES}/{OWN}"),
        ("GET", PODS),
        ("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets"),
    ],
)
async def test_an_agent_has_no_further_rights(asks: Requests, method: str, path: str) -> None:
    agent = await asks.agent_on(OWN)
    answer = await asks(agent, method, path, {"status": {}} if method == "PATCH" else None)
    assert answer.code == 403
    assert "cannot" in answer.body["message"]


async def test_people_write_no_annotation_of_rollouts(asks: Requests) -> None:
    person = {"username": PERSON}
    assert (await asks.annotate({"username": SERVICES}, OWN, desired_revision=REVISION)).code == 200
    for name in (*DESIRED_ANNOTATIONS, *OBSERVED_ANNOTATIONS):
        for path in (f"{NODES}/{OWN}", f"{NODES}/{OWN}/status"):
            answer = await asks(person, "PATCH", path, marks(annotations={name: "mine"}))
            assert (answer.code, answer.body["reason"]) == (403, "Forbidden"), answer.text
            assert "denied request: MachineConfigAnnotations: " in answer.body["message"]
    removed = await asks(person, "PATCH", f"{NODES}/{OWN}", marks(annotations={ANNOTATION_DESIRED: None}))
    assert removed.code == 403
    created = await asks(person, "POST", NODES, marks(name="w3", annotations={ANNOTATION_CURRENT: REVISION}))
    assert created.code == 403


async def test_people_change_everything_else_of_nodes(asks: Requests) -> None:
    person = {"username": PERSON}
    assert (await asks.annotate({"username": SERVICES}, OWN, desired_revision=REVISION)).code == 200
    for body in (
        marks(annotations={"theirs": "y"}, labels={"rack": "2"}),
        marks(annotations={ANNOTATION_DESIRED: REVISION}),
        {"spec": {"unschedulable": True}},
    ):
        answer = await asks(person, "PATCH", f"{NODES}/{OWN}", body)
        assert answer.code == 200, answer.text
    assert (await asks(person, "POST", NODES, marks(name="w3", annotations={"theirs": "x"}))).code == 201


@pytest.mark.parametrize("who", [{"username": SERVICES}, {"username": "eva", "groups": [BREAK_GLASS]}])
async def test_the_services_and_who_breaks_the_glass_may(asks: Requests, who: User) -> None:
    for name in (*DESIRED_ANNOTATIONS, *OBSERVED_ANNOTATIONS):
        answer = await asks(who, "PATCH", f"{NODES}/{OTHER}", marks(annotations={name: "x"}))
        assert answer.code == 200, answer.text


def test_the_policy_names_the_annotations_of_the_contract() -> None:
    variables = {
        one["name"]: one["expression"]
        for one in render(VALUES).one("ValidatingAdmissionPolicy", POLICY)["spec"]["variables"]
    }
    for name in OBSERVED_ANNOTATIONS:
        assert f"'{name}'" in variables["observed"]
    for name in (*DESIRED_ANNOTATIONS, *OBSERVED_ANNOTATIONS):
        assert f"'{name}'" in variables["ours"]
    assert ANNOTATION_REBOOT_PENDING in variables["observed"]
    assert ANNOTATION_CORDONED not in variables["observed"]


def test_without_agents_there_is_no_policy() -> None:
    made = render(WITH_SECRET)
    assert {AGENT, POLICY}.isdisjoint(one["metadata"]["name"] for one in made.objects)
