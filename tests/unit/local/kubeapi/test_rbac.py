"""What roles and bindings allow, and which of them are valid."""

from typing import Any

import pytest

from gpuledger.local.kubeapi.strategies.rbac import RoleBindingStrategy, allowed

GROUP = "rbac.authorization.k8s.io"


def role(name: Any, *rules: Any, namespace: Any = "", labels: Any = None, **more: Any) -> Any:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {}) | ({"labels": labels} if labels else {})
    return {"metadata": metadata, "rules": list(rules)} | more


def binding(name: Any, kind: Any, of: Any, *subjects: Any, namespace: Any = "") -> Any:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"metadata": metadata, "roleRef": {"apiGroup": GROUP, "kind": kind, "name": of}, "subjects": list(subjects)}


JANE = {"kind": "User", "name": "jane"}
SA = {"kind": "ServiceAccount", "name": "sa", "namespace": "a"}
PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}


def policies(*rules: Any, kind: Any = "ClusterRole", namespace: Any = "", subjects: Any = (JANE,)) -> Any:
    roles = {"clusterroles" if kind == "ClusterRole" else "roles": [role("r", *rules, namespace=namespace)]}
    plural = "rolebindings" if namespace else "clusterrolebindings"
    return roles | {plural: [binding("b", kind, "r", *subjects, namespace=namespace)]}


def may(
    objects: Any, verb: Any = "get", user: Any = "jane", groups: Any = ("system:authenticated",), **attributes: Any
) -> Any:
    return allowed(user, groups, {"verb": verb, "resource": "pods", **attributes}, objects)[0]


def test_masters_may_do_everything() -> None:
    assert allowed("root", ("system:masters",), {"verb": "delete", "resource": "nodes"}, {}) == (True, "")


def test_nobody_may_do_anything_without_a_role() -> None:
    assert allowed("jane", (), {"verb": "get", "resource": "pods"}, {}) == (False, "")


def test_a_cluster_role_and_its_binding() -> None:
    decision = allowed("jane", (), {"verb": "get", "resource": "pods"}, policies(PODS))
    assert decision == (True, 'RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "r" to User "jane"')
    assert not may(policies(PODS), verb="delete")
    assert not may(policies(PODS), group="apps")
    assert not may(policies(PODS), user="joe")


@pytest.mark.parametrize(
    ("resources", "subresource", "expected"),
    [
        (["pods"], "status", False),
        (["pods/status"], "status", True),
        (["*/status"], "status", True),
        (["*"], "status", True),
        (["*/status"], "", False),
        (["pods/status"], "", False),
    ],
)
def test_subresources(resources: Any, subresource: Any, expected: Any) -> None:
    assert may(policies(PODS | {"resources": resources}), subresource=subresource) is expected


def test_resource_names() -> None:
    objects = policies(PODS | {"resourceNames": ["p"]})
    assert may(objects, name="p")
    assert not may(objects, name="q")
    assert not may(objects, verb="list")


def test_paths() -> None:
    objects = policies({"nonResourceURLs": ["/logs/*"], "verbs": ["get"]})
    assert allowed("jane", (), {"verb": "get", "path": "/logs/a"}, objects)[0]
    assert not allowed("jane", (), {"verb": "get", "path": "/metrics"}, objects)[0]


def test_a_role_holds_in_its_namespace() -> None:
    objects = policies(PODS, kind="Role", namespace="a", subjects=[SA])
    user = "system:serviceaccount:a:sa"
    decision = allowed(user, (), {"verb": "get", "resource": "pods", "namespace": "a"}, objects)
    assert decision == (True, 'RBAC: allowed by RoleBinding "b/a" of Role "r" to ServiceAccount "sa/a"')
    assert not may(objects, user=user, namespace="b")
    assert not may(objects, user=user)


def test_everybody_may_read_the_version() -> None:
    decision = allowed("system:anonymous", ("system:unauthenticated",), {"verb": "get", "path": "/version"}, {})
    assert decision[0]
    assert "system:public-info-viewer" in decision[1]


def fields(causes: Any) -> Any:
    return [(cause.reason.removeprefix("FieldValue"), cause.field) for cause in causes]


def test_bindings_default_and_keep_their_role() -> None:
    obj: Any = {
        "metadata": {"name": "b"},
        "roleRef": {"kind": "ClusterRole", "name": "r"},
        "subjects": [{**JANE}, {**SA}],
    }
    strategy = RoleBindingStrategy()
    strategy.default(obj)
    assert obj["subjects"] == [JANE | {"apiGroup": GROUP}, SA]
    assert strategy.validate(obj) == []
    other = obj | {"roleRef": obj["roleRef"] | {"name": "other"}}
    assert fields(strategy.validate_update(other, obj, "")) == [("Invalid", "roleRef")]


def test_a_binding_gives_a_role() -> None:
    assert fields(RoleBindingStrategy().validate(binding("b", "Role", ""))) == [("Required", "roleRef.name")]
    assert RoleBindingStrategy().validate_name("system:a b") is None
    assert RoleBindingStrategy().validate_name("a/b")
