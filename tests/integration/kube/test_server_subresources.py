"""Parts of objects with endpoints of their own in an API server: status, scale, binding, eviction."""

import pytest

from support.kube_http import (
    APPLY,
    DEFAULT,
    JSON_PATCH,
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
SCALE = {"apiVersion": "autoscaling/v1", "kind": "Scale"}
PATHS = {"specReplicasPath": ".spec.wanted.count", "statusReplicasPath": ".status.count"}


@pytest.fixture
async def scaled(api: Api) -> Api:
    """With a kind of things that has a scale."""
    await api.serve(thing_crd(thing_version(subresources={"status": {}, "scale": PATHS})))
    return api


def pod(name: str) -> Json:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


def scale(replicas: object, **meta: str) -> Json:
    return SCALE | {"metadata": {"name": "t", **meta}, "spec": {"replicas": replicas}}


async def count(api: Api) -> int:
    found: int = (await api("GET", f"{THINGS}/t")).body["spec"]["wanted"]["count"]
    return found


async def test_a_scale_is_written_where_the_definition_says(scaled: Api) -> None:
    await scaled.made(THINGS, thing("t", {"wanted": {"count": 1}, "other": True}))
    found = await scaled("GET", f"{THINGS}/t/scale")
    assert (found.body["kind"], found.body["spec"], found.body["status"]) == ("Scale", {"replicas": 1}, {"replicas": 0})
    assert (await scaled("PUT", f"{THINGS}/t/scale", scale(2))).body["spec"] == {"replicas": 2}
    assert await count(scaled) == 2
    assert (await scaled("PATCH", f"{THINGS}/t/scale", {"spec": {"replicas": 3}}, media=MERGE)).code == 200
    assert await count(scaled) == 3
    operations = [
        {"op": "test", "path": "/kind", "value": "Scale"},
        {"op": "replace", "path": "/spec/replicas", "value": 4},
    ]
    assert (await scaled("PATCH", f"{THINGS}/t/scale", operations, media=JSON_PATCH)).code == 200
    assert await count(scaled) == 4
    assert (await scaled("PATCH", f"{THINGS}/t/scale?fieldManager=a&force=1", scale(5), media=APPLY)).code == 200
    assert (await scaled("GET", f"{THINGS}/t")).body["spec"] == {"wanted": {"count": 5}, "other": True}


async def test_a_scale_that_is_none_is_refused(scaled: Api) -> None:
    await scaled.made(THINGS, thing("t", {"wanted": {"count": 1}}))
    answer = await scaled("PUT", f"{THINGS}/t/scale", scale(-1))
    assert (answer.code, answer.causes) == (422, {("FieldValueInvalid", "spec.replicas")})
    assert answer.body["details"]["kind"] == "Scale"
    assert (await scaled("PUT", f"{THINGS}/t/scale", scale(2, resourceVersion="1"))).code == 409
    assert (await scaled("PUT", f"{THINGS}/t/scale", thing("t"))).code == 400
    assert await count(scaled) == 1


async def test_workloads_tell_their_selector(api: Api) -> None:
    labels = {
        "matchLabels": {"app": "x"},
        "matchExpressions": [{"key": "tier", "operator": "In", "values": ["b", "a"]}],
    }
    template = {"metadata": {"labels": {"app": "x", "tier": "a"}}, "spec": pod("p")["spec"]}
    body = {"metadata": {"name": "d"}, "spec": {"replicas": 2, "selector": labels, "template": template}}
    await api.made(DEPLOYMENTS, body)
    found = await api("GET", f"{DEPLOYMENTS}/d/scale")
    assert found.body["status"] == {"replicas": 0, "selector": "app=x,tier in (a,b)"}


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


@pytest.mark.parametrize("path", [f"{PODS}/p/binding", f"{DEFAULT}/bindings"])
async def test_pods_are_bound(api: Api, path: str) -> None:
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
