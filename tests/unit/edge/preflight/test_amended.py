"""What admission plugins amend of checks' containers stays when the API server asks the webhook again.

An API server runs its own plugins anew once the webhook has changed a pod, then the webhook, and only then validates.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from gpuledger.edge.preflight.injection import inject
from support.admission import pod_with
from support.preflight import GoldenPod, golden_pods

(GOLDEN,) = (one for one in golden_pods() if one.name == "extended-resource")
NAME = "preflight-dcgm-diag"


def after(golden: GoldenPod, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The container of a check after the webhook, a plugin that changes it, and the webhook again."""
    pod = golden.injected().pod
    spec = {**pod["spec"], "initContainers": [changed(one, changes) for one in pod["spec"]["initContainers"]]}
    again = golden.injected({**pod, "spec": spec}).pod
    found: dict[str, Any] = again["spec"]["initContainers"][0]
    assert golden.injected(again).pod == again, "a third time changes nothing"
    return found


def changed(container: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    both = {key: {**container.get(key, {}), **value} for key, value in changes.items() if isinstance(value, dict)}
    return {**container, **changes, **both}


def test_images_that_are_always_pulled_stay_so() -> None:
    assert after(GOLDEN, {"imagePullPolicy": "Always"})["imagePullPolicy"] == "Always"


@pytest.mark.parametrize(
    "added",
    [
        {"runAsUser": 1000680000, "runAsGroup": 0},
        {"runAsNonRoot": True, "readOnlyRootFilesystem": True},
        {"seLinuxOptions": {"level": "s0:c26,c5"}},
    ],
)
def test_users_and_what_confines_a_container_stay(added: dict[str, Any]) -> None:
    found = after(GOLDEN, {"securityContext": added})["securityContext"]
    assert added.items() <= found.items()
    assert found["capabilities"] == {"drop": ["ALL"]}


def test_defaults_of_a_namespace_stay() -> None:
    limits = {"nvidia.com/gpu": "8", "ephemeral-storage": "1Gi", "cpu": "2"}
    requests = {"nvidia.com/gpu": "8", "ephemeral-storage": "1Gi", "cpu": "1"}
    found = after(GOLDEN, {"resources": {"limits": limits, "requests": requests}})
    assert found["resources"] == {"limits": limits, "requests": requests}


@pytest.mark.parametrize(
    "forged",
    [
        {"image": "other"},
        {"command": ["true"]},
        {"imagePullPolicy": "Never"},
        {"lifecycle": {"postStart": {"exec": {"command": ["sh"]}}}},
        {"restartPolicy": "Always"},
        {"env": [{"name": "LD_PRELOAD", "value": "/mine/lib.so"}]},
        {"volumeMounts": [{"name": "mine", "mountPath": "/usr/bin"}]},
        {"securityContext": {"privileged": True, "capabilities": {"add": ["SYS_ADMIN"]}}},
        {"securityContext": {"procMount": "Unmasked", "runAsNonRoot": False, "seccompProfile": {"type": "Unconfined"}}},
        {"resources": {"limits": {"nvidia.com/gpu": "0", "hugepages-2Mi": "1Gi"}, "claims": [{"name": "x"}]}},
    ],
)
def test_nothing_else_of_a_container_with_a_name_of_a_check_stays(forged: dict[str, Any]) -> None:
    clean = GOLDEN.injected().pod["spec"]["initContainers"][0]
    assert after(GOLDEN, forged) == clean


def test_a_container_that_runs_something_else_is_replaced_as_a_whole() -> None:
    pod = pod_with(
        "nvidia.com/gpu", spec={"initContainers": [{"name": NAME, "image": "x", "imagePullPolicy": "Always"}]}
    )
    found = inject(pod, GOLDEN.findings, GOLDEN.configuration).pod["spec"]["initContainers"][0]
    assert (found["image"], found["imagePullPolicy"]) == ("registry.example/gpuledger:1", "IfNotPresent")
