"""The Helm chart's presets: none unless they are asked for, and then exactly what was meant."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuledger.api.kinds import GPU_GROUP
from gpuledger.api.pool_ref import PoolRef
from support.chart import (
    CHART,
    KUBE_VERSION,
    WITH_SECRET,
    Manifests,
    Object,
    helm,
    manifests,
    needs_helm,
    render,
    template,
)

GUIDE = (CHART.parents[1] / "docs" / "presets.md").read_text()
TEAM = "ml-team-a"
PROJECT_CHART = {
    "Chart.yaml": "{apiVersion: v2, name: project, version: 0.1.0}",
    "templates/template.yaml": "{{- tpl .Values.projectTemplate.resourcesTemplate .Values.project }}",
}
"""How the multitenancy-manager makes a project's objects of a template."""

pytestmark = needs_helm


def presets(**given: Any) -> dict[str, Any]:
    """Values with presets."""
    return {**WITH_SECRET, "presets": given}


def made(**given: Any) -> list[Object]:
    """What the presets are made into, without the labels that all objects have."""
    objects = [one for one in render(presets(**given)).objects if _is_preset(one)]
    for one in objects:
        del one["metadata"]["labels"]
    return objects


def _is_preset(obj: Object) -> bool:
    return bool(obj["metadata"]["labels"]["app.kubernetes.io/component"] == "presets")


def workload(**given: Any) -> dict[str, Any]:
    """An entry for a Deployment."""
    return {"namespace": TEAM, "name": "llm", **given}


def test_presets_are_off_by_default() -> None:
    assert made() == []


def test_an_operation_policy_requires_what_a_pod_needs_to_run_well() -> None:
    (policy,) = made(operationPolicy={"enabled": True})
    assert policy == {
        "apiVersion": "deckhouse.io/v1alpha1",
        "kind": "OperationPolicy",
        "metadata": {"name": "gpu-control-plane-baseline"},
        "spec": {
            "enforcementAction": "Deny",
            "match": _namespaces({"operation-policy.deckhouse.io/gpu-control-plane": "true"}),
            "policies": {
                "requiredResources": {"requests": ["cpu", "memory"], "limits": ["cpu", "memory"]},
                "disallowedImageTags": ["latest"],
                "requiredProbes": ["livenessProbe", "readinessProbe"],
                "checkHostNetworkDNSPolicy": True,
            },
        },
    }


def _namespaces(labels: dict[str, str]) -> Object:
    return {"namespaceSelector": {"labelSelector": {"matchLabels": labels}}}


def test_an_operation_policy_takes_classes_probes_and_annotations() -> None:
    owner = {"key": "owner", "allowedRegex": "^[a-z]+$"}
    given = {"requiredProbes": [], "allowedPriorityClasses": ["gpu-serving"], "requiredAnnotations": [owner]}
    (policy,) = made(operationPolicy={"enabled": True, "enforcementAction": "Warn", **given})
    assert policy["spec"]["enforcementAction"] == "Warn"
    policies = policy["spec"]["policies"]
    assert policies["priorityClassNames"] == ["gpu-serving"]
    assert policies["requiredAnnotations"] == {"annotations": [owner], "watchKinds": ["/Pod"]}
    assert "requiredProbes" not in policies


def test_a_security_policy_keeps_pods_off_their_node() -> None:
    (policy,) = made(securityPolicy={"enabled": True})
    assert (policy["apiVersion"], policy["kind"]) == ("deckhouse.io/v1alpha1", "SecurityPolicy")
    assert policy["metadata"] == {"name": "gpu-control-plane-restricted"}
    assert policy["spec"]["match"] == _namespaces({"security.deckhouse.io/gpu-control-plane": "restricted"})
    policies = policy["spec"]["policies"]
    volumes = policies.pop("allowedVolumes")
    assert policies == {
        **dict.fromkeys(("allowHostIPC", "allowHostNetwork", "allowHostPID", "allowPrivileged"), False),
        "allowedHostPorts": [],
        "allowPrivilegeEscalation": True,
    }
    assert {"emptyDir", "persistentVolumeClaim", "configMap", "secret", "projected", "csi", "nfs"} <= set(volumes)
    assert not {"hostPath", "*"} & set(volumes)


def test_a_quota_is_on_the_units_of_both_kinds_of_pools() -> None:
    quota = {"namespace": TEAM, "pools": {"local-a": 4}, "clusterPools": {"training": 1_000_000}}
    (only,) = made(quotas=[quota])
    assert only == {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpu-control-plane", "namespace": TEAM},
        "spec": {
            "hard": {
                f"requests.{PoolRef('local-a', TEAM).resource_name}": "4",
                f"requests.{PoolRef('training').resource_name}": "1000000",
            }
        },
    }


def test_quotas_of_a_namespace_differ_by_their_classes_and_names() -> None:
    serving = {"namespace": TEAM, "name": "serving", "pools": {"a": 2}, "priorityClasses": ["gpu-serving"]}
    rest = {"namespace": TEAM, "hard": {"pods": 20, "requests.cpu": 64, "limits.memory": "512Gi"}}
    first, second = made(quotas=[serving, rest])
    assert [one["metadata"]["name"] for one in (first, second)] == ["serving", "gpu-control-plane"]
    expression = {"scopeName": "PriorityClass", "operator": "In", "values": ["gpu-serving"]}
    assert first["spec"]["scopeSelector"] == {"matchExpressions": [expression]}
    assert second["spec"] == {"hard": {"pods": 20, "requests.cpu": 64, "limits.memory": "512Gi"}}


def test_a_limit_range_is_about_containers_and_needs_no_quota() -> None:
    limits = {"default": {"cpu": 2, "memory": "8Gi"}, "defaultRequest": {"cpu": "500m"}, "max": {"cpu": 32}}
    (only,) = made(quotas=[{"namespace": TEAM, "limitRange": limits}])
    assert (only["apiVersion"], only["kind"]) == ("v1", "LimitRange")
    assert only["metadata"] == {"name": "gpu-control-plane", "namespace": TEAM}
    assert only["spec"] == {"limits": [{"type": "Container", **limits}]}


def test_a_priority_class_has_its_value_to_the_digit() -> None:
    polite = {"name": "gpu-batch", "value": -1_000_001, "description": "Waits: for all.", "preemptionPolicy": "Never"}
    serving, batch = made(priorityClasses=[{"name": "gpu-serving", "value": 1_000_000_000}, polite])
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    metadata = {"name": "gpu-serving"}
    assert serving == {**kind, "metadata": metadata, "value": 1_000_000_000, "preemptionPolicy": "PreemptLowerPriority"}
    assert batch == {**kind, "metadata": {"name": polite.pop("name")}, **polite}


@pytest.mark.parametrize(
    "given", [{"minAvailable": 1}, {"minAvailable": "50%"}, {"maxUnavailable": 0}, {"maxUnavailable": "25%"}], ids=str
)
def test_a_budget_is_about_the_pods_of_its_workload(given: dict[str, Any]) -> None:
    (budget,) = made(workloads=[workload(podDisruptionBudget={"selector": {"app": "llm"}, **given})])
    assert (budget["apiVersion"], budget["kind"]) == ("policy/v1", "PodDisruptionBudget")
    assert budget["metadata"] == {"name": "llm", "namespace": TEAM}
    selector = {"matchLabels": {"app": "llm"}}
    assert budget["spec"] == {**given, "unhealthyPodEvictionPolicy": "AlwaysAllow", "selector": selector}


def test_autoscalers_are_about_their_workload_and_the_vertical_one_only_recommends() -> None:
    metric = {"type": "Pods", "pods": {"metric": {"name": "queue"}, "target": {"type": "Value", "value": 3}}}
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 600}}
    scaled = {"minReplicas": 2, "maxReplicas": 8, "metrics": [metric], "behavior": behavior}
    horizontal, vertical = made(workloads=[workload(horizontalPodAutoscaler=scaled, verticalPodAutoscaler={})])
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "llm"}
    assert horizontal == {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "llm", "namespace": TEAM},
        "spec": {"scaleTargetRef": target, **scaled},
    }
    assert vertical == {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": "llm", "namespace": TEAM},
        "spec": {"targetRef": target, "updatePolicy": {"updateMode": "Off"}},
    }


def test_a_workload_may_be_of_any_kind() -> None:
    policies = [{"containerName": "proxy", "mode": "Off"}]
    given = {"apiVersion": "batch/v1", "kind": "CronJob", "verticalPodAutoscaler": {"containerPolicies": policies}}
    own = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet"}
    horizontal, vertical = made(
        workloads=[workload(**given), workload(name="sets", **own, horizontalPodAutoscaler={"maxReplicas": 3})]
    )
    assert vertical["spec"]["targetRef"] == {"apiVersion": "batch/v1", "kind": "CronJob", "name": "llm"}
    assert vertical["spec"]["resourcePolicy"] == {"containerPolicies": policies}
    assert horizontal["spec"] == {"scaleTargetRef": {**own, "name": "sets"}, "minReplicas": 1, "maxReplicas": 3}


def project(tmp_path: Path, **parameters: Any) -> Manifests:
    """What a project with such parameters consists of."""
    (made_of,) = made(projectTemplate={"enabled": True})
    assert (made_of["apiVersion"], made_of["kind"]) == ("deckhouse.io/v1alpha1", "ProjectTemplate")
    assert made_of["metadata"] == {"name": "gpu-control-plane"}
    assert set(parameters) <= set(made_of["spec"]["parametersSchema"]["openAPIV3Schema"]["properties"])
    for name, text in PROJECT_CHART.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    about = {"projectName": TEAM, "projectTemplateName": "gpu-control-plane", "parameters": parameters or None}
    result = helm("template", TEAM, str(tmp_path), values={"projectTemplate": made_of["spec"], "project": about})
    assert result.code == 0, result.err
    return manifests(result.out)


def test_a_project_without_parameters_is_a_namespace_that_may_use_gpus(tmp_path: Path) -> None:
    metadata = {"name": TEAM, "labels": {f"{GPU_GROUP}/enabled": "true"}}
    assert project(tmp_path).objects == [{"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}]


def test_a_project_has_its_quota_labels_and_tolerations(tmp_path: Path) -> None:
    toleration = {"key": "dedicated", "operator": "Equal", "value": "it's", "effect": "NoSchedule"}
    labels = {"security.deckhouse.io/gpu-control-plane": "restricted", f"{GPU_GROUP}/enabled": "false"}
    given = {"pools": {"local-a": 4}, "clusterPools": {"training": 2_000_000}}
    found = project(tmp_path, **given, labels=labels, tolerations=[toleration])
    metadata = found.one("Namespace", TEAM)["metadata"]
    assert metadata["labels"] == {**labels, f"{GPU_GROUP}/enabled": "true"}
    tolerated = metadata["annotations"]["scheduler.alpha.kubernetes.io/defaultTolerations"]
    assert yaml.safe_load(tolerated) == [toleration]
    assert found.one("ResourceQuota", "gpu-control-plane")["spec"]["hard"] == {
        f"requests.{PoolRef('local-a', TEAM).resource_name}": "4",
        f"requests.{PoolRef('training').resource_name}": "2000000",
    }


BUDGET = {"selector": {"app": "llm"}, "minAvailable": 1}
QUOTA = {"namespace": TEAM, "pools": {"a": 1}}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"operationPolicies": {}}, "Additional property operationPolicies is not allowed"),
    ({"operationPolicy": {"enforcementAction": "Refuse"}}, "presets.operationPolicy.enforcementAction must be one of"),
    ({"operationPolicy": {"requiredProbes": ["probe"]}}, "presets.operationPolicy.requiredProbes.0 must be one of"),
    ({"operationPolicy": {"requiredAnnotations": [{}]}}, "requiredAnnotations.0: key is required"),
    ({"securityPolicy": {"allowPrivileged": True}}, "Additional property allowPrivileged is not allowed"),
    ({"projectTemplate": {"enabled": "yes"}}, "projectTemplate.enabled: Invalid type. Expected: boolean"),
    ({"quotas": [{"pools": {"a": 1}}]}, "presets.quotas.0: namespace is required"),
    ({"quotas": [{**QUOTA, "namespace": "a.b"}]}, "presets.quotas.0.namespace: Does not match pattern"),
    ({"quotas": [{**QUOTA, "pools": {"a": -1}}]}, "presets.quotas.0.pools.a: Must be greater than or equal to 0"),
    ({"quotas": [{**QUOTA, "pools": {"a": "4Gi"}}]}, "presets.quotas.0.pools.a: Invalid type. Expected: integer"),
    ({"quotas": [{**QUOTA, "pools": {"gpu/a": 1}}]}, 'Property name of "gpu/a" does not match'),
    ({"quotas": [{**QUOTA, "hard": {"gpu.deckhouse.io/a": 1}}]}, "property gpu.deckhouse.io/a is not allowed"),
    ({"quotas": [{**QUOTA, "hard": {"limits.memory": "32GB"}}]}, "limits.memory: Does not match pattern"),
    ({"quotas": [{**QUOTA, "limitRange": {"max": {"gpu.deckhouse.io/a": 1}}}]}, "gpu.deckhouse.io/a is not allowed"),
    ({"quotas": [{"namespace": TEAM}]}, f"presets.quotas limits nothing for {TEAM}/gpu-control-plane. Give it pools"),
    (
        {"quotas": [{"namespace": TEAM, "priorityClasses": ["a"], "limitRange": {"max": {"cpu": 1}}}]},
        "limits nothing for",
    ),
    ({"quotas": [QUOTA, QUOTA]}, f"presets.quotas names {TEAM}/gpu-control-plane twice. Give all of it in one entry"),
    (
        {"quotas": [{"namespace": TEAM, "name": name, "limitRange": {"max": {"cpu": 1}}} for name in ("a", "b")]},
        f"presets.quotas with a limitRange names {TEAM} twice. Keep one limitRange",
    ),
    ({"priorityClasses": [{"name": "gpu"}]}, "presets.priorityClasses.0: value is required"),
    ({"priorityClasses": [{"name": "GPU", "value": 1}]}, "priorityClasses.0.name: Does not match pattern"),
    ({"priorityClasses": [{"name": "gpu", "value": 2_000_000_000}]}, "value: Must be less than or equal to"),
    ({"priorityClasses": [{"name": "system-gpu", "value": 1}]}, "names system-gpu, and names that begin with system-"),
    ({"priorityClasses": [{"name": "gpu", "value": 1}] * 2}, "presets.priorityClasses names gpu twice. Keep one"),
    ({"workloads": [{"name": "llm"}]}, "presets.workloads.0: namespace is required"),
    ({"workloads": [workload()]}, f"presets.workloads asks for nothing for {TEAM}/llm. Give it a podDisruptionBudget"),
    ({"workloads": [workload(podDisruptionBudget=BUDGET)] * 2}, f"presets.workloads names {TEAM}/llm twice"),
    ({"workloads": [workload(podDisruptionBudget={"minAvailable": 1})]}, "podDisruptionBudget: selector is required"),
    (
        {"workloads": [workload(podDisruptionBudget={**BUDGET, "selector": {}})]},
        "podDisruptionBudget.selector: Must have at least 1 properties",
    ),
    (
        {"workloads": [workload(podDisruptionBudget={**BUDGET, "maxUnavailable": 1})]},
        f"the podDisruptionBudget of {TEAM}/llm gives both of minAvailable and maxUnavailable. Give one of them.",
    ),
    (
        {"workloads": [workload(podDisruptionBudget={"selector": {"app": "llm"}})]},
        "gives neither of minAvailable and maxUnavailable",
    ),
    (
        {"workloads": [workload(podDisruptionBudget={**BUDGET, "minAvailable": "200%"})]},
        "podDisruptionBudget.minAvailable: Does not match pattern",
    ),
    (
        {"workloads": [workload(horizontalPodAutoscaler={"minReplicas": 2})]},
        "horizontalPodAutoscaler: maxReplicas is required",
    ),
    (
        {"workloads": [workload(horizontalPodAutoscaler={"minReplicas": 4, "maxReplicas": 3})]},
        f"the horizontalPodAutoscaler of {TEAM}/llm has minReplicas 4 above maxReplicas 3",
    ),
    (
        {"workloads": [workload(kind="DaemonSet", horizontalPodAutoscaler={"maxReplicas": 3})]},
        f"{TEAM}/llm is a DaemonSet, which has no replicas to scale",
    ),
    (
        {"workloads": [workload(verticalPodAutoscaler={"updateMode": "Auto"})]},
        "Additional property updateMode is not allowed",
    ),
]


@pytest.mark.parametrize(("given", "expected"), WRONG, ids=[f"{at}-{problem}" for at, (_, problem) in enumerate(WRONG)])
def test_nonsense_is_refused_in_words(given: dict[str, Any], expected: str) -> None:
    result = template(presets(**given))
    assert result.code != 0
    assert expected in result.err


def test_the_guides_example_is_taken_and_shows_every_preset() -> None:
    (example,) = re.findall(r"^```yaml\n(presets:\n.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    values = {**WITH_SECRET, **yaml.safe_load(example)}
    result = helm("lint", "--strict", str(CHART), "--kube-version", KUBE_VERSION, values=values)
    assert result.code == 0, result
    found = [one for one in render(values).objects if _is_preset(one)]
    assert {one["kind"] for one in found} == set(re.findall(r"^\| `([A-Z]\w+)", GUIDE, re.MULTILINE))
