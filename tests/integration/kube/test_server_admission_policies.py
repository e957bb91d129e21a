"""ValidatingAdmissionPolicies of an API server: what they refuse and warn of, and what nobody can lock."""

from typing import Any

import pytest

from support.kube_http import APPLY, CONFIGMAPS, MERGE, Api, Json, configmap
from support.waiting import eventually

GROUP = "/apis/admissionregistration.k8s.io/v1"
POLICIES, BINDINGS = f"{GROUP}/validatingadmissionpolicies", f"{GROUP}/validatingadmissionpolicybindings"
SECRETS = CONFIGMAPS.replace("configmaps", "secrets")
PROBE = {"in-force": "asked"}
REFUSED = "ValidatingAdmissionPolicy 'probe.example.com' with binding 'probe.example.com' denied request: "
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"


def rule(*resources: str, group: str = "", operations: tuple[str, ...] = ("CREATE", "UPDATE", "DELETE")) -> Json:
    return {"apiGroups": [group], "apiVersions": ["v1"], "operations": list(operations), "resources": list(resources)}


def policy(*validations: Json, name: str = "probe.example.com", rules: tuple[Json, ...] = (), **spec: Any) -> Json:
    """It also refuses what bears the labels of a probe."""
    probe = {
        "expression": "object == null || !has(object.metadata.labels) || !('in-force' in object.metadata.labels)",
        "message": "a probe",
    }
    match = {"resourceRules": list(rules) or [rule("configmaps")]}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {"matchConstraints": match, "validations": [probe, *validations], **spec},
    }


def binding(*actions: str, name: str = "probe.example.com", **spec: Any) -> Json:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": "probe.example.com", "validationActions": list(actions or ("Deny",)), **spec},
    }


async def in_force(api: Api, one: Json, bound: Json) -> None:
    """Create both, and wait until they are obeyed; a real server learns of them a moment later than it accepts them."""
    await api.made(POLICIES, one)
    await api.made(BINDINGS, bound)

    async def is_obeyed() -> bool:
        answer = await api("POST", f"{CONFIGMAPS}?dryRun=All", configmap("probe", labels=PROBE))
        return answer.code == 422 or "Warning" in answer.headers

    await eventually(is_obeyed)


async def test_a_refusal_is_a_status_of_its_reason(api: Api) -> None:
    forbidden = {"expression": "!('b' in object.data)", "reason": "Forbidden", "message": "no b"}
    await in_force(api, policy({"expression": "object.data.a == 'x'"}, forbidden), binding())
    for data, code, reason, message in (
        ({"a": "y"}, 422, "Invalid", "failed expression: object.data.a == 'x'"),
        ({"a": "x", "b": ""}, 403, "Forbidden", "no b"),
    ):
        answer = await api("POST", CONFIGMAPS, configmap("c") | {"data": data})
        assert (answer.code, answer.body["reason"], answer.body["code"]) == (code, reason, code)
        assert answer.body["message"] == f'configmaps "c" is forbidden: {REFUSED}{message}'
        assert answer.body["details"] == {
            "name": "c",
            "kind": "configmaps",
            "causes": [{"message": REFUSED + message}],
        }
    assert (await api("GET", f"{CONFIGMAPS}/c")).code == 404
    assert (await api("POST", CONFIGMAPS, configmap("c") | {"data": {"a": "x"}})).code == 201


async def test_changes_and_deletions_see_the_old_object(api: Api) -> None:
    await api.made(CONFIGMAPS, configmap("c") | {"data": {"a": "x"}})
    kept = {
        "expression": "oldObject == null || !has(oldObject.data)",
        "messageExpression": "'it has ' + oldObject.data.a",
    }
    await in_force(api, policy(kept), binding())
    patch = {"data": {"a": "y"}}
    apply = configmap("c") | {"data": {"a": "z"}}
    answers = [
        await api("PATCH", f"{CONFIGMAPS}/c", patch, media=MERGE),
        await api("PATCH", f"{CONFIGMAPS}/c?fieldManager=me&force=true", apply, media=APPLY),
        await api("DELETE", f"{CONFIGMAPS}/c"),
        await api("DELETE", CONFIGMAPS),
    ]
    assert [answer.code for answer in answers] == [422] * 4
    assert {answer.body["message"].partition(REFUSED)[2] for answer in answers} == {"it has x"}
    await api("DELETE", f"{BINDINGS}/probe.example.com")

    async def is_free() -> bool:
        return (await api("PATCH", f"{CONFIGMAPS}/c", patch, media=MERGE)).code == 200

    await eventually(is_free)


async def test_a_warning_lets_the_request_through(api: Api) -> None:
    await in_force(api, policy({"expression": "has(object.data)", "message": "no data"}), binding("Warn", "Audit"))
    answer = await api("POST", CONFIGMAPS, configmap("c"))
    assert answer.code == 201
    where = "ValidatingAdmissionPolicy 'probe.example.com' with binding 'probe.example.com'"
    assert answer.headers["Warning"] == f'299 - "Validation failed for {where}: no data"'


async def test_a_binding_chooses_objects(api: Api) -> None:
    chosen = {"matchLabels": {"team": "a"}}
    match = {"objectSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]}}
    conditions = [{"name": "of-a", "expression": "object == null || object.metadata.labels.team == 'a'"}]
    refusing = policy({"expression": "false"}, matchConditions=conditions)
    await api.made(POLICIES, refusing)
    await api.made(BINDINGS, binding(matchResources=match))

    async def is_obeyed() -> bool:
        answer = await api("POST", f"{CONFIGMAPS}?dryRun=All", configmap("c", labels=chosen["matchLabels"]))
        return answer.code == 422

    await eventually(is_obeyed)
    for labels, code in (({"team": "a"}, 422), ({"team": "b"}, 201), ({}, 201)):
        assert (await api("POST", f"{CONFIGMAPS}?dryRun=All", configmap("c", labels=labels))).code == code


async def test_an_expression_that_fails_refuses_unless_the_policy_ignores_it(api: Api) -> None:
    failing = policy({"expression": "object.data.none == 'x'"})
    await in_force(api, failing, binding())
    answer = await api("POST", CONFIGMAPS, configmap("c") | {"data": {"a": "x"}})
    assert answer.code == 422
    assert "expression 'object.data.none == 'x'' resulted in error: no such key: none" in answer.body["message"]
    ignoring = {"spec": {"failurePolicy": "Ignore"}}
    assert (await api("PATCH", f"{POLICIES}/probe.example.com", ignoring, media=MERGE)).code == 200

    async def is_ignored() -> bool:
        return (await api("POST", f"{CONFIGMAPS}?dryRun=All", configmap("c") | {"data": {"a": "x"}})).code == 201

    await eventually(is_ignored)


async def test_nobody_can_lock_the_policies(api: Api) -> None:
    every = rule("*", group="admissionregistration.k8s.io")
    await in_force(api, policy({"expression": "false"}, rules=(rule("configmaps"), every)), binding())
    hooks = {"metadata": {"name": "hooks"}, "webhooks": []}
    assert (await api("POST", f"{GROUP}/validatingwebhookconfigurations", hooks)).code == 422
    for path in (f"{BINDINGS}/probe.example.com", f"{POLICIES}/probe.example.com"):
        assert (await api("DELETE", path)).code == 200


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"matchConstraints": None}, "spec.matchConstraints"),
        ({"validations": [{"expression": "object.spec. <"}]}, "spec.validations[0].expression"),
        ({"validations": [{"expression": "nothing == 1"}]}, "spec.validations[0].expression"),
        ({"variables": [{"name": "a", "expression": "variables.b"}]}, "spec.variables[0].expression"),
        ({"matchConditions": [{"name": "c", "expression": "variables.b"}]}, "spec.matchConditions[0].expression"),
        pytest.param(
            {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}},
            "spec.paramKind",
            marks=pytest.mark.embedded_only("the embedded server evaluates no parameters"),
        ),
    ],
)
async def test_a_policy_that_cannot_be_evaluated_is_refused(api: Api, spec: Json, field: str) -> None:
    one = policy()
    one["spec"] |= spec
    answer = await api("POST", POLICIES, one)
    assert answer.code == 422, answer.text
    assert {where for _, where in answer.causes} == {field}


async def test_what_is_left_out_is_filled_in(api: Api) -> None:
    made = await api.made(POLICIES, policy())
    assert made["spec"]["failurePolicy"] == "Fail"
    match = made["spec"]["matchConstraints"]
    assert (match["matchPolicy"], match["namespaceSelector"], match["objectSelector"]) == ("Equivalent", {}, {})
    assert match["resourceRules"][0]["scope"] == "*"
    assert made["metadata"]["generation"] == 1


async def test_tables_show_what_is_in_force(api: Api) -> None:
    await api.made(POLICIES, policy())
    await api.made(BINDINGS, binding())
    for path, names, cells in (
        (POLICIES, ["Name", "Validations", "ParamKind", "Age"], ["probe.example.com", 1, "<unset>"]),
        (BINDINGS, ["Name", "PolicyName", "ParamRef", "Age"], ["probe.example.com", "probe.example.com", "<unset>"]),
    ):
        table = (await api("GET", f"{path}/probe.example.com", Accept=TABLE)).body
        assert [column["name"] for column in table["columnDefinitions"]] == names
        assert table["rows"][0]["cells"][:-1] == cells
