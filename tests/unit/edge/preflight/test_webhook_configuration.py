"""The webhook configuration: which pods an API server asks about, and when it asks nobody."""

from typing import Any

import pytest

from gpuledger.edge.preflight.configuration import read_configuration
from gpuledger.edge.preflight.settings import PreflightSettings
from gpuledger.edge.preflight.webhook_configuration import webhook_configuration
from gpuledger.edge.webhooks.configuration import WebhookTarget
from gpuledger.edge.webhooks.settings import WebhookAddress
from gpuledger.local.kubeapi.admission_request import KindVersion, Question
from gpuledger.local.kubeapi.strategies.webhook_configurations import MutatingConfigurationStrategy
from gpuledger.local.kubeapi.webhook_matching import matched_review
from support.admission import pod_with

TEXT = b"""
checks: [{name: dcgm-diag, image: i}]
gpuDetection: {resourceNames: [nvidia.com/gpu, "nvidia.com/mig-*"], deviceClasses: [gpu.nvidia.com]}
namespaces: [training, nvsentinel, kube-system, gpu-system]
excludeNamespaces: [nvsentinel]
"""
POD = KindVersion("", "v1", "Pod", "pods")


def configured(text: bytes = TEXT) -> dict[str, Any]:
    target = WebhookTarget("gpu-system", WebhookAddress("gpuledger-preflight"), b"PEM")
    return webhook_configuration(read_configuration(text, "f"), target, PreflightSettings())[1]


def is_sent(pod: dict[str, Any], namespace: str = "training", text: bytes = TEXT) -> bool:
    hook = configured(text)["webhooks"][0]
    labels = {"kubernetes.io/metadata.name": namespace}
    found = matched_review(hook, Question("CREATE", POD, "p", namespace), pod, None, lambda _: labels)
    return found is not None


def test_api_servers_accept_it() -> None:
    found = configured()
    assert MutatingConfigurationStrategy().validate(found) == []
    assert [hook["rules"][0]["resources"] for hook in found["webhooks"]] == [
        ["pods"],
        ["pods/ephemeralcontainers"],
        ["pods"],
    ]
    for hook in found["webhooks"]:
        assert hook["failurePolicy"] == "Fail"
        assert hook["timeoutSeconds"] > PreflightSettings().review_timeout_s > PreflightSettings().lookup_timeout_s


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (pod_with("nvidia.com/gpu"), True),
        (pod_with("nvidia.com/mig-1g.10gb"), True),
        (pod_with("nvidia.comXgpu"), False),
        (pod_with("nvidia.com/gpus"), False),
        (pod_with("cpu"), False),
        (pod_with("deviceclass.resource.kubernetes.io/gpu.nvidia.com"), True),
        (pod_with("deviceclass.resource.kubernetes.io/other.nvidia.com"), False),
        (pod_with("cpu", spec={"resourceClaims": [{"name": "g", "resourceClaimName": "g"}]}), True),
        (pod_with("cpu", spec={"initContainers": [{"name": "preflight-x", "image": "i"}]}), True),
        (pod_with("cpu") | {"metadata": {"name": "a", "labels": {"gpuledger.io/preflight": "true"}}}, True),
        (pod_with("cpu") | {"metadata": {"name": "a", "annotations": {"gpuledger.io/preflight-gang": "g"}}}, True),
    ],
)
def test_pods_without_gpus_and_marks_are_nobodys_business(pod: dict[str, Any], expected: bool) -> None:
    assert is_sent(pod) is expected


def test_claims_are_nobodys_business_where_no_device_class_means_gpus() -> None:
    text = TEXT.replace(b", deviceClasses: [gpu.nvidia.com]", b"")
    pod = pod_with("cpu", spec={"resourceClaims": [{"name": "g", "resourceClaimName": "g"}]})
    assert not is_sent(pod, text=text)
    assert is_sent(pod_with("nvidia.com/gpu"), text=text)


@pytest.mark.parametrize("namespace", ["nvsentinel", "kube-system", "gpu-system", "other"])
def test_other_namespaces_are_left_alone(namespace: str) -> None:
    assert not is_sent(pod_with("nvidia.com/gpu"), namespace)


@pytest.mark.parametrize(
    "text",
    [
        b"namespaces: [training]",
        b"checks: [{name: a, image: i}]",
        b"checks: [{name: a, image: i}]\nnamespaces: [kube-system]",
        b"enabled: false\nchecks: [{name: a, image: i}]\nnamespaces: [training]",
    ],
)
def test_without_checks_or_namespaces_nobody_is_asked(text: bytes) -> None:
    assert configured(text)["webhooks"] == []
