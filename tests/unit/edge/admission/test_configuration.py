"""The webhook configurations: what API servers are told to ask, and about which pods."""

import base64
from dataclasses import replace
from typing import Any

import pytest

from gpuledger.edge.admission.rules.access import BREAK_GLASS
from gpuledger.edge.admission.rules.requests import containers_with_units
from gpuledger.edge.admission.settings import SERVICE, AdmissionSettings
from gpuledger.edge.admission.webhook_configuration import configurations
from gpuledger.edge.webhooks.configuration import MUTATING, VALIDATING, server_names
from gpuledger.edge.webhooks.settings import WebhookAddress
from gpuledger.local.kubeapi.admission_request import KindVersion, Question
from gpuledger.local.kubeapi.strategies.webhook_configurations import (
    MutatingConfigurationStrategy,
    ValidatingConfigurationStrategy,
)
from gpuledger.local.kubeapi.webhook_matching import matched_review
from support.admission import Json, pod_with

TOKEN = "t0k3n"
SETTINGS = AdmissionSettings()
LOCAL, CLUSTER = "gpu.deckhouse.io/x", "cluster.gpu.deckhouse.io/x"
BREAK_GLASS_HOOK = "break-glass.gpu-control-plane.deckhouse.io"
POD = KindVersion("", "v1", "Pod", "pods")
POOL = KindVersion("gpu.deckhouse.io", "v1alpha1", "GPUPool", "gpupools")
DEVICE = KindVersion("gpu.deckhouse.io", "v1alpha1", "GPUDevice", "gpudevices")
NODE_STATE = KindVersion("gpu.deckhouse.io", "v1alpha1", "GPUNodeState", "gpunodestates")
MEMBER = {"username": "eva", "groups": ["system:authenticated", BREAK_GLASS]}


def configured(reached: WebhookAddress | None = None) -> dict[str, Json]:
    found = configurations(SETTINGS, reached or WebhookAddress(SERVICE), b"PEM", TOKEN)
    return {resource.kind: configuration for resource, configuration in found}


def is_asked(hook: Json, question: Question, new: Json | None, old: Json | None) -> bool:
    return matched_review(hook, question, new, old, lambda _: {}) is not None


def test_api_servers_accept_them() -> None:
    found = configured()
    assert MutatingConfigurationStrategy().validate(found[MUTATING.kind]) == []
    assert ValidatingConfigurationStrategy().validate(found[VALIDATING.kind]) == []


def test_everything_but_deletions_fails_closed_in_time() -> None:
    for configuration in configured().values():
        for hook in configuration["webhooks"]:
            if hook["name"] == BREAK_GLASS_HOOK:
                continue
            (rule,) = hook["rules"]
            assert hook["failurePolicy"] == ("Ignore" if "DELETE" in rule["operations"] else "Fail")
            assert "DELETE" not in rule["operations"] or rule["operations"] == ["DELETE"]
            assert hook["timeoutSeconds"] > SETTINGS.review_timeout_s
            assert hook["sideEffects"] == "None"
            assert base64.b64decode(hook["clientConfig"]["caBundle"]) == b"PEM"


def test_a_service_leads_to_them_or_a_url() -> None:
    hook, _ = configured()[MUTATING.kind]["webhooks"]
    service = {"name": "gpu-control-plane-admission", "namespace": "d8-gpu-operator", "path": "/mutate", "port": 443}
    assert hook["clientConfig"]["service"] == service
    hook, _ = configured(WebhookAddress(url="https://127.0.0.1:9443"))[MUTATING.kind]["webhooks"]
    assert hook["clientConfig"]["url"] == "https://127.0.0.1:9443/mutate"


@pytest.mark.parametrize(
    ("reached", "name"),
    [
        (WebhookAddress(SERVICE), "gpu-control-plane-admission.d8-gpu-operator.svc"),
        (WebhookAddress(url="https://127.0.0.1:9443"), "127.0.0.1"),
        (WebhookAddress(url="https://[::1]:9443"), "::1"),
        (WebhookAddress(url="https://gpu.example"), "gpu.example"),
    ],
)
def test_the_certificate_names_the_host_that_api_servers_call(reached: WebhookAddress, name: str) -> None:
    assert server_names("d8-gpu-operator", reached) == (name,)


def without(kind: str, pod: Json) -> Json:
    (container,) = pod["spec"]["containers"]
    container["resources"][kind] = container["resources"].pop("limits")
    return pod


@pytest.mark.parametrize(
    ("pod", "is_theirs"),
    [
        (pod_with("cpu", "nvidia.com/gpu"), False),
        ({"metadata": {}, "spec": {"containers": [{"name": "c"}]}}, False),
        ({"metadata": {}, "spec": {"containers": [{"name": "c", "resources": {}}], "initContainers": []}}, False),
        (pod_with("other.gpu.deckhouse.io/x"), False),
        (pod_with(LOCAL), True),
        (pod_with("cpu", CLUSTER), True),
        (without("requests", pod_with(LOCAL)), True),
        (pod_with("cpu", spec={"initContainers": pod_with(LOCAL)["spec"]["containers"]}), True),
    ],
)
def test_only_pods_that_request_units_reach_the_webhooks(pod: Json, is_theirs: bool) -> None:
    """The API server tells by an expression what the rules tell by reading the pod; both must say the same."""
    question = Question("CREATE", POD, "p", "team")
    for configuration in configured().values():
        hooks: list[Any] = [one for one in configuration["webhooks"] if one["name"].startswith("pods.")]
        assert [is_asked(hook, question, pod, None) for hook in hooks] == [is_theirs]
    assert (bool(containers_with_units(pod))) is is_theirs


@pytest.mark.parametrize(
    ("new", "old", "is_theirs"),
    [
        ({}, {}, False),
        ({"resourceVersion": "2"}, {"resourceVersion": "1"}, False),
        ({"labels": {}}, {}, False),
        ({"labels": {"a": "b"}}, {"labels": {"a": "b"}}, False),
        ({"labels": {"a": "b"}}, {}, True),
        ({}, {"annotations": {"a": "b"}}, True),
        ({"annotations": {"a": "b"}}, {"annotations": {"a": "c"}}, True),
    ],
)
def test_only_devices_whose_labels_or_annotations_change_reach_the_webhooks(
    new: Json, old: Json, is_theirs: bool
) -> None:
    question = Question("UPDATE", DEVICE, "d", is_namespaced=False)
    hooks: list[Any] = configured()[VALIDATING.kind]["webhooks"]
    called = [hook for hook in hooks if is_asked(hook, question, {"metadata": new}, {"metadata": old})]
    assert len(called) == is_theirs


SPEC: Json = {"spec": {"resource": {"unit": "Card"}}}


@pytest.mark.parametrize(
    ("new", "old", "is_theirs"),
    [
        ({"metadata": {}} | SPEC, None, True),
        ({"metadata": {}} | SPEC, {"metadata": {}} | SPEC, False),
        ({"metadata": {}}, {"metadata": {}}, False),
        ({"metadata": {"labels": {"a": "b"}}} | SPEC, {"metadata": {}} | SPEC, False),
        ({"metadata": {"finalizers": []}} | SPEC, {"metadata": {"finalizers": ["x"]}} | SPEC, False),
        ({"metadata": {"annotations": {"a": "b"}}} | SPEC, {"metadata": {}} | SPEC, True),
        ({"metadata": {}, "spec": {"resource": {"unit": "MIG"}}}, {"metadata": {}} | SPEC, True),
        ({"metadata": {}}, {"metadata": {}} | SPEC, True),
    ],
)
def test_only_pools_whose_spec_or_annotations_change_reach_the_webhooks(
    new: Json, old: Json | None, is_theirs: bool
) -> None:
    question = Question("CREATE" if old is None else "UPDATE", POOL, "x", "team")
    hooks: list[Any] = configured()[VALIDATING.kind]["webhooks"]
    assert len([hook for hook in hooks if is_asked(hook, question, new, old)]) == is_theirs


def test_a_deletion_of_a_pool_reaches_the_webhooks_once() -> None:
    hooks: list[Any] = configured()[VALIDATING.kind]["webhooks"]
    question, old = Question("DELETE", POOL, "x", "team"), SPEC | {"metadata": {}}
    assert len([hook for hook in hooks if is_asked(hook, question, None, old)]) == 1


@pytest.mark.parametrize(
    ("user", "is_theirs"),
    [
        ({}, True),
        ({"groups": []}, True),
        ({"groups": ["system:masters"]}, True),
        ({"groups": ["system:serviceaccounts", "system:serviceaccounts:team"]}, True),
        ({"groups": ["system:serviceaccounts", "system:serviceaccounts:d8-gpu-operator"]}, False),
    ],
)
def test_the_product_marks_devices_though_nobody_answers(user: Json, is_theirs: bool) -> None:
    question = Question("UPDATE", DEVICE, "d", is_namespaced=False, user=user)
    hooks: list[Any] = configured()[VALIDATING.kind]["webhooks"]
    new: Json = {"metadata": {"labels": {"a": "b"}}}
    old: Json = {"metadata": {}}
    assert len([hook for hook in hooks if is_asked(hook, question, new, old)]) == is_theirs


def called(question: Question, new: Json | None, old: Json | None) -> list[str]:
    """The names of the validating webhooks that an API server calls."""
    hooks: list[Any] = configured()[VALIDATING.kind]["webhooks"]
    return [hook["name"] for hook in hooks if is_asked(hook, question, new, old)]


@pytest.mark.parametrize("resource", [DEVICE, NODE_STATE])
@pytest.mark.parametrize("sub", ["", "status"])
@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE"])
def test_what_members_of_the_break_glass_group_write_is_watched_and_nothing_else(
    resource: KindVersion, sub: str, operation: str
) -> None:
    old: Json = {"metadata": {"labels": {"a": "b"}}}
    new: Json = {"metadata": {}}
    objects = (None if operation == "DELETE" else new, None if operation == "CREATE" else old)
    question = Question(operation, resource, "d", subresource=sub, is_namespaced=False, user=MEMBER)
    assert called(question, *objects) == [BREAK_GLASS_HOOK]
    for user in ({"username": "alice", "groups": ["devs"]}, {"username": "anonymous"}):
        assert BREAK_GLASS_HOOK not in called(replace(question, user=user), *objects)


def test_what_watches_the_break_glass_group_never_stands_in_its_way() -> None:
    (hook,) = [one for one in configured()[VALIDATING.kind]["webhooks"] if one["name"] == BREAK_GLASS_HOOK]
    assert (hook["failurePolicy"], hook["sideEffects"]) == ("Ignore", "NoneOnDryRun")
    assert hook["clientConfig"]["service"]["path"] == f"/break-glass/{TOKEN}"
