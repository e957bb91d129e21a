"""Tokens of service accounts: what may be requested, and how a review answers."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpuledger.local.kubeapi.errors import ApiError
from gpuledger.local.kubeapi.tokens import EXTRA, ISSUER, TokenIssuer

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ACCOUNT = {"metadata": {"name": "agent", "namespace": "gpu", "uid": "a1"}}
POD = {
    "metadata": {"name": "p", "namespace": "gpu", "uid": "p1"},
    "spec": {"serviceAccountName": "agent", "nodeName": "n.1"},
}
NODE = {"metadata": {"name": "n.1", "uid": "n1"}}
POD_REF = {"kind": "Pod", "apiVersion": "v1", "name": "p"}


class World:
    """The objects that there are, and one issuer."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {
            ("serviceaccounts", "agent"): ACCOUNT,
            ("pods", "p"): POD,
            ("nodes", "n.1"): NODE,
        }
        self.issuer = TokenIssuer(lambda: "id-1")

    def find(self, plural: str, _namespace: str, name: str) -> dict[str, Any] | None:
        return self.objects.get((plural, name))

    def token(self, **spec: Any) -> str:
        return str(self.issuer.request(ACCOUNT, {"spec": spec}, self.find, NOW)["status"]["token"])

    def review(self, token: str, *audiences: str, after_s: float = 0) -> Any:
        body = {"spec": {"token": token, "audiences": list(audiences)}}
        return self.issuer.review(body, self.find, NOW + timedelta(seconds=after_s))["status"]


def test_a_token_of_a_pod_names_its_node() -> None:
    world = World()
    status = world.review(world.token(audiences=["x"], boundObjectRef=POD_REF), "y", "x")
    assert status["authenticated"] is True
    assert status["audiences"] == ["x"]
    assert status["user"]["username"] == "system:serviceaccount:gpu:agent"
    assert status["user"]["groups"] == [
        "system:serviceaccounts",
        "system:serviceaccounts:gpu",
        "system:authenticated",
    ]
    assert status["user"]["extra"] == {
        f"{EXTRA}/credential-id": ["JTI=id-1"],
        f"{EXTRA}/node-name": ["n.1"],
        f"{EXTRA}/node-uid": ["n1"],
        f"{EXTRA}/pod-name": ["p"],
        f"{EXTRA}/pod-uid": ["p1"],
    }


def test_a_token_that_is_bound_to_nothing_names_no_node() -> None:
    world = World()
    status = world.review(world.token())
    assert status["audiences"] == [ISSUER]
    assert list(status["user"]["extra"]) == [f"{EXTRA}/credential-id"]


def test_what_is_not_accepted() -> None:
    world = World()
    token = world.token(audiences=["x"], expirationSeconds=600, boundObjectRef=POD_REF)
    assert "authenticated" not in world.review(token, "y")
    assert "audiences" in world.review(token)["error"]
    assert world.review(token, "x", after_s=599)["authenticated"]
    assert "expired" in world.review(token, "x", after_s=600)["error"]
    for text in ("garbage", "a.b.c", f"{token[:-4]}AAAA", World().token(audiences=["x"])):
        assert world.review(text, "x") == {"user": {}, "error": "invalid bearer token"}


@pytest.mark.parametrize("gone", [("pods", "p"), ("serviceaccounts", "agent")])
def test_a_token_is_void_without_what_it_is_bound_to(gone: tuple[str, str]) -> None:
    world = World()
    token = world.token(boundObjectRef=POD_REF)
    before = world.objects.pop(gone)
    assert "invalidated" in world.review(token)["error"]
    world.objects[gone] = before | {"metadata": before["metadata"] | {"uid": "another"}}
    assert "invalidated" in world.review(token)["error"]


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ({"expirationSeconds": 599}, 422),
        ({"expirationSeconds": (1 << 32) + 1}, 422),
        ({"boundObjectRef": POD_REF | {"name": "q"}}, 404),
        ({"boundObjectRef": POD_REF | {"uid": "another"}}, 409),
        ({"boundObjectRef": POD_REF | {"kind": "ConfigMap"}}, 400),
        ({"boundObjectRef": POD_REF | {"kind": "Secret"}}, 501),
    ],
)
def test_what_may_not_be_requested(spec: dict[str, Any], code: int) -> None:
    with pytest.raises(ApiError) as caught:
        World().token(**spec)
    assert caught.value.code == code


def test_a_pod_of_another_account_lends_no_token() -> None:
    world = World()
    world.objects["pods", "p"] = POD | {"spec": {"nodeName": "n.1"}}
    with pytest.raises(ApiError) as caught:
        world.token(boundObjectRef=POD_REF)
    assert caught.value.code == 400


def test_a_review_needs_a_token() -> None:
    with pytest.raises(ApiError) as caught:
        World().review("")
    assert caught.value.code == 400
