"""AdmissionReviews as they come and as they are answered, and the fold of what is known."""

import base64

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.api.pool_ref import PoolRef
from gpuledger.edge.admission.cache import AdmissionCache, CacheProjection
from gpuledger.edge.admission.rules.decide import RULES, decide
from gpuledger.edge.webhooks.errors import ReviewError
from gpuledger.edge.webhooks.serving.review import (
    AdmissionRequest,
    AdmissionResponse,
    Requester,
    read_request,
    review_document,
)
from gpuledger.events.namespace import NamespaceGone
from gpuledger.events.pool import PoolChanged, PoolDefined, PoolGone
from gpuledger.ledger.api import Message
from support.admission import RecordedFact, cached, log, namespace, pool, review
from support.events import event, folded, message

REQUEST = {
    "uid": "u1",
    "operation": "CREATE",
    "resource": {"group": "", "version": "v1", "resource": "pods"},
    "name": "p",
    "namespace": "team",
    "userInfo": {"username": "alice", "groups": ["devs"]},
    "object": {"metadata": {"name": "p"}},
    "oldObject": None,
    "options": {"fieldManager": "kubectl"},
}
REVIEW = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": REQUEST}


def test_a_review_is_read() -> None:
    user = Requester("alice", frozenset({"devs"}))
    assert read_request(REVIEW) == AdmissionRequest(
        "u1", "CREATE", "pods", "p", "team", user, {"metadata": {"name": "p"}}, {}, "kubectl"
    )


@pytest.mark.parametrize("document", [[], {}, None, {**REVIEW, "apiVersion": "v1"}, {**REVIEW, "request": {}}])
def test_a_body_that_is_not_a_review_is_an_error(document: object) -> None:
    with pytest.raises(ReviewError):
        read_request(document)


def test_a_refusal_begins_with_its_reason() -> None:
    response = review_document("u1", AdmissionResponse("MixedPoolRequest", "The pod asks for two."))["response"]
    assert response["allowed"] is False
    assert response["uid"] == "u1"
    assert response["status"]["message"] == "MixedPoolRequest: The pod asks for two."
    assert response["status"]["code"] == 403


def test_an_answer_carries_warnings_and_a_patch() -> None:
    patch = ({"op": "add", "path": "/a", "value": 1},)
    response = review_document("u1", AdmissionResponse(warnings=("careful",), patch=patch))["response"]
    assert response["allowed"] is True
    assert response["warnings"] == ["careful"]
    assert orjson.loads(base64.b64decode(response["patch"])) == list(patch)
    assert review_document("u1", AdmissionResponse())["response"] == {"uid": "u1", "allowed": True}


def test_what_has_no_rule_is_allowed() -> None:
    assert decide(review("deployments", {"spec": {}}), cached()) == AdmissionResponse()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["metadata", "spec", "containers", "resources", "limits", "name", "resource", "taints",
                         "gpu.deckhouse.io/x", "annotations", "labels", "scheduling", "matchExpressions"]),
        inner, max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(st.sampled_from(sorted(RULES)), st.sampled_from(["CREATE", "UPDATE", "DELETE"]), json_values, json_values)
def test_whatever_the_objects_look_like_there_is_an_answer(kind: str, operation: str, new: object, old: object) -> None:
    resource = {"resource": kind}
    request = REVIEW | {
        "request": REQUEST | {"operation": operation, "resource": resource, "object": new, "oldObject": old}
    }
    response = review_document("u1", decide(read_request(request), cached(*pool("x"), namespace("team"))))
    assert isinstance(orjson.loads(orjson.dumps(response)), dict)


def test_a_pool_that_comes_again_begins_anew() -> None:
    state = cached(*pool("a"), ("a", PoolGone()), ("a", PoolDefined(uid="v", unit="Card")))
    found = state.pool(PoolRef("a"))
    assert found is not None
    assert found.total is None
    assert [one.ref.id for one in state.pools_named("a")] == ["a"]


def test_what_is_decided_of_a_pool_that_is_gone_is_nothing() -> None:
    state = cached(*pool("a"), ("a", PoolGone()), ("a", PoolChanged(total=1)))
    assert not state.pools.total.rows
    assert state.pool(PoolRef("a")) is None


def test_a_pool_that_is_gone_does_not_come_back_by_what_is_recorded_late() -> None:
    (_, defined), *_ = pool("a")
    late = message(event(defined, "a", number=9, at=-1, source="/watchers/all"), 9)
    for facts in ([*pool("a"), ("a", PoolGone())], [("a", PoolGone())]):
        state = folded(CacheProjection(), [*log(*facts), late]).state
        assert isinstance(state, AdmissionCache)
        assert state.pool(PoolRef("a")) is None
        assert not list(state.pools_named("a"))


def test_a_namespace_that_is_gone_has_no_gate() -> None:
    assert cached(namespace("n")).allows_gpus("n")
    assert not cached(namespace("n"), ("n", NamespaceGone())).allows_gpus("n")
    assert not cached().allows_gpus("n")


def test_a_late_fact_changes_nothing() -> None:
    facts: list[RecordedFact] = [namespace("n", enabled=True)]
    late = event(namespace("n", enabled=False)[1], "n", number=2, at=0, source="/watchers/all")
    messages: list[Message] = [*log(*facts), message(late, 2)]
    assert folded(CacheProjection(), messages).state.allows_gpus("n")  # type: ignore[attr-defined]
