"""Uses of the break-glass group: what counts as one, by the policy's own expressions, and what its event says."""

from copy import deepcopy
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.api.kinds import NAMESPACE
from gpuledger.api.labels import ANNOTATION_ASSIGNMENT, ANNOTATION_RETIRED, LABEL_IGNORE
from gpuledger.edge.admission.caller_token import TOKENS_KEPT, CallerTokens, caller_token
from gpuledger.edge.admission.rules.access import BREAK_GLASS, MASTERS
from gpuledger.edge.admission.rules.break_glass import is_for_everybody, name_of, use_of
from gpuledger.edge.webhooks.certificates.authority import authority_at
from gpuledger.edge.webhooks.serving.review import CREATE, DELETE, UPDATE, AdmissionRequest, Requester, read_request
from gpuledger.events.break_glass import CHANGED_MAX
from gpuledger.events.device import DeviceBreakGlassUsed
from gpuledger.events.node import NodeBreakGlassUsed
from gpuledger.events.payload import CUT, TEXT_LENGTH_MAX
from support.access_policy import allows
from support.admission import Json, cached, device, pool, review
from support.events import START

EVA = Requester("eva", frozenset({"system:authenticated", BREAK_GLASS}))
DEVICE: Json = {
    "metadata": {"name": "d1", "labels": {"team": "a"}, "annotations": {"x": "y"}, "resourceVersion": "1"},
    "spec": {},
    "status": {"state": "Ready"},
}


def changed(**more: Any) -> Json:
    """The device with other parts; `metadata` is added to its own."""
    found = deepcopy(DEVICE)
    found["metadata"] |= {"resourceVersion": "2"} | more.pop("metadata", {})
    return found | more


FAULTED = changed(status={"state": "Faulted"})


def write(old: Json | None, new: Json | None, plural: str = "gpudevices", sub: str = "") -> AdmissionRequest:
    """A write by a member of the group."""
    operation = CREATE if old is None else DELETE if new is None else UPDATE
    return review(plural, new, old, operation=operation, within="", user=EVA)._replace(subresource=sub)


def use(request: AdmissionRequest) -> Json | None:
    found = use_of(request, None, NAMESPACE)
    return None if found is None else found.model_dump(exclude_none=True, mode="json")


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (write(None, DEVICE), {"operation": "CREATE", "changed": []}),
        (write(DEVICE, None), {"operation": "DELETE", "changed": []}),
        (write(DEVICE, FAULTED), {"operation": "UPDATE", "changed": ["status.state"]}),
        (write(DEVICE, FAULTED, sub="status"), {"operation": "UPDATE", "subresource": "status"}),
        (write(DEVICE, changed(metadata={"labels": {}})), {"changed": ["metadata.labels"]}),
        (write(DEVICE, changed(metadata={"annotations": {"x": "z"}})), {"operation": "UPDATE"}),
        (write(DEVICE, changed(spec=None, other=["1"])), {"changed": ["other", "spec"]}),
    ],
)
def test_what_only_the_group_may_write_is_a_use(request_: AdmissionRequest, says: Json) -> None:
    found = use(request_)
    assert found is not None
    assert found["user"] == "eva"
    assert found | says == found
    for plural, model in (("gpudevices", DeviceBreakGlassUsed), ("gpunodestates", NodeBreakGlassUsed)):
        assert type(use_of(request_._replace(plural=plural), None, NAMESPACE)) is model


@pytest.mark.parametrize(
    "request_",
    [
        write(DEVICE, changed(metadata={"annotations": {"x": "y", ANNOTATION_ASSIGNMENT: "a"}})),
        write(DEVICE, changed(metadata={"annotations": {"x": "y", ANNOTATION_RETIRED: "true"}})),
        write(DEVICE, changed(metadata={"labels": {"team": "a", LABEL_IGNORE: "true"}})),
        write(DEVICE, FAULTED)._replace(is_dry_run=True),
        write(DEVICE, FAULTED)._replace(user=Requester("alice", frozenset({"devs"}))),
        write(DEVICE, FAULTED)._replace(user=Requester("root", frozenset({MASTERS, BREAK_GLASS}))),
        write(DEVICE, FAULTED)._replace(plural="pods"),
        write(DEVICE, FAULTED)._replace(operation="CONNECT"),
    ],
)
def test_what_others_may_write_too_or_nobody_stores_is_none(request_: AdmissionRequest) -> None:
    assert use(request_) is None


def test_what_the_webhooks_would_have_refused_to_others_is_a_use() -> None:
    cache = cached(*pool("team/a"), *device("d1", "Faulted"))
    assign = write(DEVICE, changed(metadata={"annotations": {"x": "y", ANNOTATION_ASSIGNMENT: "a"}}))
    found = use_of(assign, cache, NAMESPACE)
    assert found is not None
    assert found.changed == ("metadata.annotations",)
    assert use_of(assign, cached(*pool("team/a"), *device("d1", "Ready")), NAMESPACE) is None


texts = st.sampled_from(["a", "b"])
keys = st.sampled_from([ANNOTATION_ASSIGNMENT, ANNOTATION_RETIRED, LABEL_IGNORE, "team"])
marks = st.dictionaries(keys, texts, max_size=2)
lists = st.lists(texts, max_size=1)
metadata = st.fixed_dictionaries(
    {}, optional={"labels": marks, "annotations": marks, "finalizers": lists, "ownerReferences": lists, "uid": texts}
)
objects = st.fixed_dictionaries({"metadata": metadata}, optional={"spec": marks, "status": marks})


@given(objects, objects, st.sampled_from(["gpudevices", "gpunodestates"]), st.sampled_from(["", "status"]))
def test_the_rule_says_what_the_policys_expressions_say(old: Json, new: Json, plural: str, sub: str) -> None:
    for before, after in ((old, new), (old, old), (None, new), (old, None)):
        assert is_for_everybody(write(before, after, plural, sub)) == allows(before, after, plural=plural, sub=sub)


@given(marks, marks)
def test_the_rule_says_what_the_policys_expressions_say_of_marks(old: Json, new: Json) -> None:
    for kind in ("labels", "annotations"):
        before, after = ({"metadata": {kind: one}} for one in (old, new))
        assert is_for_everybody(write(before, after)) == allows(before, after)


def test_an_event_holds_whatever_others_wrote() -> None:
    request = write(DEVICE, changed(status={f"f{index}": "1" for index in range(CHANGED_MAX + 1)}))
    found = use_of(request._replace(user=Requester("e\0" + "a" * TEXT_LENGTH_MAX, EVA.groups)), None, NAMESPACE)
    assert found is not None
    assert len(found.changed) == CHANGED_MAX
    assert found.user.startswith("e\\0a")
    assert found.user.endswith(CUT)


def test_a_deletion_of_a_collection_names_each_object() -> None:
    assert name_of(write(DEVICE, None)._replace(name="")) == "d1"
    assert name_of(write(None, {"metadata": {"generateName": "d"}})) == ""


def test_a_review_says_whether_it_is_of_a_subresource_and_a_dry_run() -> None:
    asked: Json = {"uid": "u", "operation": UPDATE, "subResource": "status", "dryRun": True}
    read = read_request({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked})
    assert (read.subresource, read.is_dry_run) == ("status", True)


def test_callers_know_what_follows_from_the_authority() -> None:
    first, second = authority_at(None, START), authority_at(None, START + timedelta(days=1))
    tokens = CallerTokens()
    assert caller_token(first) not in tokens
    assert "" not in tokens
    tokens.accept(caller_token(first))
    tokens.accept(caller_token(first))
    assert caller_token(first) in tokens
    assert caller_token(second) not in tokens
    tokens.accept(caller_token(second))
    assert all(caller_token(one) in tokens for one in (first, second))
    for index in range(TOKENS_KEPT):
        tokens.accept(str(index))
    assert caller_token(second) not in tokens
