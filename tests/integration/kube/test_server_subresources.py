"""Parts of objects with endpoints of their own in an API server: status, binding, eviction."""

import pytest

from support.kube_http import (
    APPLY,
    DEFAULT,
    MERGE,
    THINGS,
    Api,
    Json,
    thing,
    thing_crd,
    thing_version,
)

PODS = f"{DEFAULT}/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
STATEFUL_SETS = "/apis/apps/v1/namespaces/default/statefulsets"
SCALE: Json = {"apiVersion": "autoscaling/v1", "kind": "Scale"}
PATHS = {"specReplicasPath": ".spec.wanted.count", "statusReplicasPath": ".status.count"}


@pytest.fixture
async def scaled(api: Api) -> Api:
    """With a kind of things that has a scale."""
    await api.serve(thing_crd(thing_version(subresources={"status": {}, "scale": PATHS})))
    return api


def pod(name: str) -> Json:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


@pytest.mark.embedded_only("it says what the embedded server does not implement")
async def test_a_scale_is_not_implemented(scaled: Api) -> None:
    await scaled.made(THINGS, thing("t", {"wanted": {"count": 1}}))
    for path in (f"{THINGS}/t/scale", f"{STATEFUL_SETS}/d/scale"):
        assert (await scaled("GET", path)).code == 501


@pytest.mark.parametrize("count", [-1, 2**31])
async def test_the_count_of_a_scale_is_checked_where_it_lies(scaled: Api, count: int) -> None:
    answer = await scaled("POST", THINGS, thing("t", {"wanted": {"count": count}}))
    assert (answer.code, answer.causes) == (422, {("FieldValueInvalid", ".spec.wanted.count")})
    await scaled.made(THINGS, thing("t"))
    answer = await scaled("PATCH", f"{THINGS}/t", {"spec": {"wanted": {"count": count}}}, media=MERGE)
    assert (answer.code, answer.causes) == (422, {("FieldValueInvalid", ".spec.wanted.count")})
    answer = await scaled("PATCH", f"{THINGS}/t/status", {"status": {"count": count}}, media=MERGE)
    assert (answer.code, answer.causes) == (422, {("FieldValueInvalid", ".status.count")})


async def test_a_scale_of_a_custom_resource_cannot_be_applied(scaled: Api) -> None:
    await scaled.made(THINGS, thing("t", {"wanted": {"count": 1}}))
    scale = SCALE | {"metadata": {"name": "t"}, "spec": {"replicas": 5}}
    path = f"{THINGS}/t/scale?fieldManager=a&force=true"
    answer = await scaled("PATCH", path, scale, media=APPLY)
    assert (answer.code, answer.body.get("reason", "")) == (500, "")
    assert "request to convert CR to an invalid group/version: autoscaling/v1" in answer.body["message"]
    assert (await scaled("GET", f"{THINGS}/t")).body["spec"] == {"wanted": {"count": 1}}
    assert (await scaled("PATCH", path, thing("t"), media=APPLY)).code == 400
    assert (await scaled("PATCH", f"{THINGS}/t/scale", scale, media=APPLY)).code == 422
    assert (await scaled("PATCH", path.replace("/t/", "/none/"), scale, media=APPLY)).code == 404


@pytest.fixture
async def deployed(api: Api) -> Json:
    """A Deployment `d` of two replicas."""
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": {"b": "y", "a": "x"}, "matchExpressions": [{"key": "c", "operator": "Exists"}]},
        "template": {"metadata": {"labels": {"a": "x", "b": "y", "c": ""}}, "spec": pod("p")["spec"]},
    }
    return await api.made(DEPLOYMENTS, {"metadata": {"name": "d", "labels": {"one": "more"}}, "spec": spec})


async def test_the_scale_of_a_deployment_has_its_identity_and_its_replicas(api: Api, deployed: Json) -> None:
    found = (await api("GET", f"{DEPLOYMENTS}/d/scale")).body
    metadata = deployed["metadata"]
    assert (found["kind"], found["apiVersion"], found["spec"]) == ("Scale", "autoscaling/v1", {"replicas": 2})
    assert found["metadata"] == {
        name: metadata[name] for name in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    }
    assert found["status"] == {"replicas": 0, "selector": "a=x,b=y,c"}
    assert (await api("GET", f"{DEPLOYMENTS}/none/scale")).code == 404


async def test_a_patch_of_a_scale_changes_the_replicas_alone(api: Api, deployed: Json) -> None:
    patch = {"metadata": {"labels": {"a": "b"}}, "spec": {"replicas": 3}, "status": {"replicas": 9}}
    answer = await api("PATCH", f"{DEPLOYMENTS}/d/scale?fieldManager=scaler", patch, media=MERGE)
    assert (answer.code, answer.body["spec"], answer.body["status"]["replicas"]) == (200, {"replicas": 3}, 0)
    after = (await api("GET", f"{DEPLOYMENTS}/d")).body
    assert after["spec"] == deployed["spec"] | {"replicas": 3}
    assert (after["metadata"]["labels"], after["metadata"]["generation"]) == ({"one": "more"}, 2)
    (entry,) = (one for one in after["metadata"]["managedFields"] if one["manager"] == "scaler")
    assert (entry["operation"], entry["subresource"], entry["apiVersion"]) == ("Update", "scale", "apps/v1")
    assert entry["fieldsV1"] == {"f:spec": {"f:replicas": {}}}


async def test_a_scale_of_an_earlier_version_is_a_conflict_and_zero_shows_nothing(api: Api, deployed: Json) -> None:
    path, version = f"{DEPLOYMENTS}/d/scale", deployed["metadata"]["resourceVersion"]
    to = {"metadata": {"resourceVersion": version}, "spec": {"replicas": 0}}
    assert (await api("PATCH", path, to, media=MERGE)).body["spec"] == {}
    assert (await api("PATCH", path, to, media=MERGE)).code == 409
    scale = (await api("GET", path)).body
    assert (await api("PUT", path, scale | {"spec": {"replicas": 1}})).body["spec"] == {"replicas": 1}
    assert (await api("PUT", path, scale | {"spec": {"replicas": 4}})).code == 409


@pytest.mark.parametrize(
    ("patch", "code"),
    [
        ({"spec": {"replicas": -1}}, 422),
        ({"spec": {"replicas": "two"}}, 422),
        ({"metadata": {"name": "other"}}, 400),
        ({"kind": "Deployment"}, 422),
    ],
)
async def test_a_scale_that_cannot_be_is_refused(api: Api, deployed: Json, patch: Json, code: int) -> None:
    answer = await api("PATCH", f"{DEPLOYMENTS}/d/scale", patch, media=MERGE)
    assert answer.code == code, answer
    assert (await api("GET", f"{DEPLOYMENTS}/d")).body["spec"] == deployed["spec"]


async def test_a_status_changes_nothing_else_of_a_custom_resource(scaled: Api) -> None:
    await scaled.made(THINGS, thing("t", {"wanted": {"count": 1}}))
    patch = {"metadata": {"labels": {"a": "b"}}, "spec": {"wanted": {"count": 9}}, "status": {"count": 7}}
    body = (await scaled("PATCH", f"{THINGS}/t/status", patch, media=MERGE)).body
    assert (body["metadata"].get("labels"), body["spec"]["wanted"]) == (None, {"count": 1})
    assert (body["status"], body["metadata"]["generation"]) == ({"count": 7}, 1)
    body = (await scaled("PATCH", f"{THINGS}/t", {"status": {"count": 8}, "spec": {"x": 1}}, media=MERGE)).body
    assert (body["status"], body["metadata"]["generation"]) == ({"count": 7}, 2)


async def test_a_status_takes_labels_along_for_built_in_types(api: Api) -> None:
    await api.made(PODS, pod("p"))
    patch = {"metadata": {"labels": {"a": "b"}}, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}}
    body = (await api("PATCH", f"{PODS}/p/status", patch, media=MERGE)).body
    assert (body["metadata"]["labels"], body["status"]["phase"]) == ({"a": "b"}, "Running")
    assert "nodeName" not in body["spec"]


async def test_pods_are_bound(api: Api) -> None:
    path = f"{PODS}/p/binding"
    await api.made(PODS, pod("p"))
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
    assert (await api("POST", path, binding)).body["status"] == "Success"
    assert (await api("GET", f"{PODS}/p")).body["spec"]["nodeName"] == "n"
    assert (await api("POST", path, binding)).code == 409


@pytest.mark.embedded_only("what a disruption budget allows is counted by a controller")
async def test_budgets_hold_pods(api: Api) -> None:
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    labelled = pod("p")
    labelled["metadata"]["labels"] = {"app": "x"}
    await api.made(PODS, labelled)
    await api.made(f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}})
    ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    await api("PATCH", f"{PODS}/p/status", ready, media=MERGE)
    await api.made(
        budgets, {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}}
    )
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    answer = await api("POST", f"{PODS}/p/eviction", eviction)
    assert (answer.code, answer.causes) == (429, {("DisruptionBudget", "")})
    await api("DELETE", f"{budgets}/b")
    older = eviction | {"apiVersion": "policy/v1beta1"}
    assert (await api("POST", f"{PODS}/p/eviction", older)).code == 201
    assert (await api("GET", f"{PODS}/p")).body["metadata"]["deletionTimestamp"]


async def test_an_eviction_of_another_pod_of_the_name_changes_nothing_of_it(api: Api) -> None:
    await api("POST", PODS, pod("p"))
    before = (await api("GET", f"{PODS}/p")).body
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    for preconditions in ({"uid": "u0"}, {"resourceVersion": "1"}):
        refused = await api(
            "POST", f"{PODS}/p/eviction", eviction | {"deleteOptions": {"preconditions": preconditions}}
        )
        assert (refused.code, refused.body["reason"]) == (409, "Conflict")
    assert (await api("GET", f"{PODS}/p")).body == before
    metadata = before["metadata"]
    exact = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    found = await api("POST", f"{PODS}/p/eviction", eviction | {"deleteOptions": {"preconditions": exact}})
    assert (found.code, found.body["status"]) == (201, "Success")


async def test_ephemeral_containers_are_added_through_their_subresource_alone(api: Api) -> None:
    path = f"{PODS}/p"
    await api.made(PODS, pod("p"))
    debug = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "i"}]}}
    answer = await api("PATCH", path, debug, media=MERGE)
    assert (answer.code, answer.causes) == (422, {("FieldValueForbidden", "spec")})
    also = debug | {"metadata": {"labels": {"a": "b"}}}
    answer = await api("PATCH", f"{path}/ephemeralcontainers", also, media=MERGE)
    assert answer.code == 200, answer.body
    found = (await api("GET", path)).body
    assert [one["name"] for one in found["spec"]["ephemeralContainers"]] == ["debug"]
    assert "labels" not in found["metadata"]
    answer = await api("PATCH", f"{path}/ephemeralcontainers", {"spec": {"ephemeralContainers": []}}, media=MERGE)
    assert (answer.code, answer.causes) == (422, {("FieldValueForbidden", "spec.ephemeralContainers")})
