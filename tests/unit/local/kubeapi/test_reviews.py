"""Reviews of access."""

from datetime import UTC, datetime
from typing import Any

import pytest

from gpuledger.local.kubeapi.errors import ApiError
from gpuledger.local.kubeapi.reviews import Reviewer, review

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GET = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
ROLES = {
    "clusterroles": [{"metadata": {"name": "r"}, "rules": [GET, {"verbs": ["get"], "nonResourceURLs": ["/x"]}]}],
    "clusterrolebindings": [
        {
            "metadata": {"name": "b"},
            "roleRef": {"kind": "ClusterRole", "name": "r"},
            "subjects": [{"kind": "User", "name": "jane"}],
        }
    ],
}
REASON = 'RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "r" to User "jane"'


def ask(plural: Any, spec: Any = None, *, namespace: Any = "", metadata: Any = None) -> Any:
    body = {"metadata": metadata or {}, "spec": spec or {}}
    return review(plural, body, Reviewer(namespace, "jane", ("all",), ROLES, NOW))


def refusal(*given: Any, **more: Any) -> Any:
    with pytest.raises(ApiError) as caught:
        ask(*given, **more)
    return caught.value


PODS = {"verb": "get", "group": "", "resource": "pods"}


def test_a_review_answers_with_its_spec() -> None:
    answer = ask("subjectaccessreviews", {"user": "jane", "groups": [], "resourceAttributes": PODS})
    assert answer == {
        "metadata": {},
        "spec": {"user": "jane", "resourceAttributes": {"verb": "get", "resource": "pods"}},
        "status": {"allowed": True, "reason": REASON},
    }


def test_others_are_not_allowed() -> None:
    assert ask("subjectaccessreviews", {"user": "joe", "resourceAttributes": PODS})["status"] == {"allowed": False}


def test_self_reviews_concern_the_caller() -> None:
    assert ask("selfsubjectaccessreviews", {"resourceAttributes": PODS})["status"]["allowed"]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (
            {"user": "x", "resourceAttributes": PODS, "nonResourceAttributes": {"path": "/"}},
            "spec.nonResourceAttributes",
        ),
        ({"user": "x"}, "spec.resourceAttributes"),
        ({"resourceAttributes": PODS}, "spec.user"),
    ],
)
def test_invalid_reviews(spec: Any, field: Any) -> None:
    error = refusal("subjectaccessreviews", spec)
    assert error.code == 422
    assert error.details["group"] == "authorization.k8s.io"
    assert "kind" not in error.details
    assert [cause["field"] for cause in error.details["causes"]] == [field]


def test_a_local_review_stays_in_its_namespace() -> None:
    here = {"user": "jane", "resourceAttributes": PODS | {"namespace": "a"}}
    assert ask("localsubjectaccessreviews", here, namespace="a")["metadata"] == {"namespace": "a"}
    assert refusal("localsubjectaccessreviews", here, namespace="b").code == 422
    assert refusal("localsubjectaccessreviews", here, namespace="b", metadata={"namespace": "a"}).code == 400


def test_rules_of_oneself() -> None:
    status = ask("selfsubjectrulesreviews", {"namespace": "a"})["status"]
    assert (len(status["resourceRules"]), len(status["nonResourceRules"])) == (1, 1)


def test_who_am_i() -> None:
    answer = ask("selfsubjectreviews")
    assert answer["metadata"] == {"creationTimestamp": "2026-01-01T00:00:00Z"}
    assert answer["status"]["userInfo"] == {"username": "jane", "groups": ["all"]}
