"""Reviews of access, and reading credentials."""

from datetime import UTC, datetime
from typing import Any

import pytest

from gpuledger.local.kubeapi.errors import ApiError
from gpuledger.local.kubeapi.reviews import NOBODY, User, authenticate, refused, review, service_account, verb_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def ask(plural: Any, spec: Any = None, *, namespace: Any = "", metadata: Any = None, **more: Any) -> Any:
    def authorize(user: Any, groups: Any, attributes: Any) -> Any:
        return user == "jane" and attributes["verb"] == "get", "because" if user == "jane" else ""

    body = {"metadata": metadata or {}, "spec": spec or {}}
    given: dict[str, Any] = {"user": "jane", "groups": ("system:authenticated",), "authorize": authorize} | more
    return review(plural, body, namespace=namespace, **given)


def refusal(*given: Any, **more: Any) -> Any:
    with pytest.raises(ApiError) as caught:
        ask(*given, **more)
    return caught.value


PODS = {"verb": "get", "group": "", "resource": "pods"}


def test_a_review_answers_with_what_was_asked() -> None:
    answer = ask("subjectaccessreviews", {"user": "jane", "groups": [], "resourceAttributes": PODS})
    assert answer == {
        "metadata": {},
        "spec": {"user": "jane", "resourceAttributes": {"verb": "get", "resource": "pods"}},
        "status": {"allowed": True, "reason": "because"},
    }


def test_others_are_not_allowed() -> None:
    assert ask("subjectaccessreviews", {"user": "joe", "resourceAttributes": PODS})["status"] == {"allowed": False}


def test_oneself_is_who_asks() -> None:
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
def test_what_is_no_question(spec: Any, field: Any) -> None:
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
    rules = [PODS | {"verbs": ["get"]}, {"verbs": ["get"], "nonResourceURLs": ["/x"]}]
    status = ask("selfsubjectrulesreviews", {"namespace": "a"}, rules=lambda *_: rules)["status"]
    assert (len(status["resourceRules"]), len(status["nonResourceRules"])) == (1, 1)


def test_who_am_i() -> None:
    answer = ask("selfsubjectreviews", now=NOW, uid="1")
    assert answer["metadata"] == {"creationTimestamp": "2026-01-01T00:00:00Z"}
    assert answer["status"]["userInfo"] == {"username": "jane", "uid": "1", "groups": ["system:authenticated"]}


def test_tokens() -> None:
    tokens = {"t": User("jane")}
    known = ask("tokenreviews", {"token": "t"}, tokens=tokens)["status"]
    assert known["authenticated"]
    assert known["user"] == {"username": "jane", "groups": ["system:authenticated"]}
    assert "authenticated" not in ask("tokenreviews", {"token": "x"}, tokens=tokens)["status"]
    assert refusal("tokenreviews", {}).code == 400


def test_credentials() -> None:
    tokens = {"t": service_account("a", "sa")}
    assert authenticate({}, None, tokens) == NOBODY
    assert authenticate({"Authorization": "Bearer t"}, None, tokens).name == "system:serviceaccount:a:sa"
    subject = ((("organizationName", "system:masters"),), (("commonName", "admin"),))
    certified = authenticate({}, {"subject": subject}, tokens)
    assert certified == User("admin", ("system:masters", "system:authenticated"))


@pytest.mark.parametrize(("headers", "anonymous"), [({"authorization": "Bearer bogus"}, True), ({}, False)])
def test_no_credential_that_holds(headers: Any, anonymous: Any) -> None:
    with pytest.raises(ApiError) as caught:
        authenticate(headers, None, {}, anonymous=anonymous)
    assert caught.value.status() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "Unauthorized",
        "reason": "Unauthorized",
        "code": 401,
    }


def test_a_refusal_tells_what_was_refused() -> None:
    error = refused(
        "system:anonymous", {"verb": "get", "group": "g", "resource": "pools", "name": "a", "namespace": "n"}
    )
    assert error.details == {"name": "a", "group": "g", "kind": "pools"}
    assert error.message == (
        'pools.g "a" is forbidden: User "system:anonymous" cannot get resource "pools" in API group "g" '
        'in the namespace "n"'
    )
    assert refused("x", {"verb": "get", "path": "/metrics"}).details == {}


def test_verbs() -> None:
    assert verb_of("GET", is_named=False) == "list"
    assert verb_of("GET", is_named=False, watches=True) == "watch"
    assert verb_of("DELETE", is_named=False) == "deletecollection"
    assert verb_of("PATCH", is_named=True) == "patch"
