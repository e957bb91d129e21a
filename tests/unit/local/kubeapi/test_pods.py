"""Pods: defaults, what is refused, what may change, binding."""

from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import pytest

from gpuledger.domain.quantities import parse_quantity
from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi.errors import ApiError
from gpuledger.local.kubeapi.resources import Context
from gpuledger.local.kubeapi.strategies.core_template import image_pull_policy
from gpuledger.local.kubeapi.strategies.pods import PodStrategy, bound

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NODE_PROBLEMS = [
    {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for name in ("not-ready", "unreachable")
]
GPU = "gpu.example.io/card"


def _pod(**spec: Any) -> Object:
    plain = {"automountServiceAccountToken": False, "containers": [{"name": "main", "image": "r.io/cuda:12"}]}
    return {"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": plain | spec}


def _created(pod: Object) -> Object:
    made = deepcopy(pod)
    PodStrategy().default(made)
    PodStrategy().prepare_for_create(made, Context(NOW, "u", []))
    return made


def _with_resources(**resources: Any) -> Object:
    return _pod(containers=[{"name": "main", "image": "x", "resources": resources}])


def _found(pod: Object) -> set[tuple[str, str]]:
    return {(cause.reason, cause.field) for cause in PodStrategy().validate(_created(pod))}


def _changed(old: Object, **spec: Any) -> set[tuple[str, str]]:
    new = deepcopy(old)
    new["spec"] |= spec
    PodStrategy().default(new)
    PodStrategy().prepare_for_update(new, old, "", Context(NOW, "u", []))
    return {(cause.reason, cause.field) for cause in PodStrategy().validate_update(new, old, "")}


def test_a_new_pod_has_what_a_server_gives_it() -> None:
    resources = {"limits": {GPU: "1", "cpu": "500m", "memory": "1Gi"}, "requests": {"cpu": "0.25"}}
    pod = _created(_with_resources(**resources))
    assert pod["spec"] == {
        "automountServiceAccountToken": False,
        "containers": [
            {
                "name": "main",
                "image": "x",
                "resources": {
                    "limits": {GPU: "1", "cpu": "500m", "memory": "1Gi"},
                    "requests": {GPU: "1", "cpu": "0.25", "memory": "1Gi"},
                },
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "Always",
            }
        ],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default",
        "serviceAccount": "default",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "tolerations": NODE_PROBLEMS,
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    assert pod["status"] == {"phase": "Pending", "qosClass": "Burstable"}


def test_defaults_change_nothing_the_second_time() -> None:
    pod = _created(_pod(volumes=[{"name": "a"}]))
    again = deepcopy(pod)
    PodStrategy().default(again)
    assert again == pod


def test_gates_hold_a_pod_back() -> None:
    pod = _created(_pod(schedulingGates=[{"name": "x.io/a"}]))
    (condition,) = pod["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "SchedulingGated")
    assert condition["lastTransitionTime"] == "2026-01-02T03:04:05Z"


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {GPU: "1"}}, "BestEffort"),
    ],
)
def test_class_of_service(resources: Object, expected: str) -> None:
    assert _created(_with_resources(**resources))["status"]["qosClass"] == expected


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("x", "Always"),
        ("r.io:5000/x", "Always"),
        ("x:latest", "Always"),
        ("r.io:5000/x:1", "IfNotPresent"),
        ("x@sha256:0", "IfNotPresent"),
    ],
)
def test_images_that_move_are_always_pulled(image: str, policy: str) -> None:
    assert image_pull_policy(image) == policy


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (_pod(containers=[]), {("FieldValueRequired", "spec.containers")}),
        (_pod(containers=[{"image": "x"}]), {("FieldValueRequired", "spec.containers[0].name")}),
        (_pod(containers=[{"name": "a"}]), {("FieldValueRequired", "spec.containers[0].image")}),
        (_pod(containers=[{"name": "a", "image": "x"}] * 2), {("FieldValueDuplicate", "spec.containers[1].name")}),
        (
            _with_resources(limits={"cpu": "1"}, requests={"cpu": "2"}),
            {("FieldValueInvalid", "spec.containers[0].resources.requests")},
        ),
        (
            _with_resources(limits={GPU: "2"}, requests={GPU: "1"}),
            {("FieldValueInvalid", "spec.containers[0].resources.requests")},
        ),
        (
            _with_resources(requests={GPU: "1"}),
            {("FieldValueRequired", "spec.containers[0].resources.limits")},
        ),
        (
            _with_resources(limits={GPU: "500m"}),
            {("FieldValueInvalid", f"spec.containers[0].resources.{part}[{GPU}]") for part in ("limits", "requests")},
        ),
        (
            _with_resources(requests={"cpu": "-1"}),
            {("FieldValueInvalid", "spec.containers[0].resources.requests[cpu]")},
        ),
        (
            _with_resources(requests={"gpus": "1"}),
            {("FieldValueInvalid", "spec.containers[0].resources.requests[gpus]")},
        ),
        (_pod(restartPolicy="Sometimes"), {("FieldValueNotSupported", "spec.restartPolicy")}),
        (_pod(nodeName="n", schedulingGates=[{"name": "x.io/a"}]), {("FieldValueForbidden", "spec.nodeName")}),
    ],
)
def test_a_pod_is_refused_under_its_field(pod: Object, expected: set[tuple[str, str]]) -> None:
    assert _found(pod) == expected


def test_a_container_may_only_use_claims_of_its_pod() -> None:
    claims = [{"name": "gpu", "resourceClaimName": "c"}]
    fine, bad = (_with_resources(claims=[{"name": name}]) for name in ("gpu", "other"))
    fine["spec"]["resourceClaims"] = bad["spec"]["resourceClaims"] = claims
    assert not _found(fine)
    assert _found(bad) == {("FieldValueNotFound", "spec.containers[0].resources.claims[0]")}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("0.25", "250m"), ("1024Mi", "1Gi"), ("1.5Gi", "1536Mi"), ("1000", "1k"), ("1000m", "1"), ("0", "0"),
        (2, "2"), (0.5, "500m"), ("12e2", "1200"), ("1e3", "1e3"), ("1024", "1024"), ("512Ki", "512Ki"),
        ("-1500m", "-1500m"), ("0.0000000001", "1n"), ("1E", "1E"), ("0.5Ki", "512"), ("100Ei", "9223372036854775807"),
    ],
)  # fmt: skip
def test_quantities_are_written_canonically(given: object, text: str) -> None:
    assert str(parse_quantity(given)) == text
    assert str(parse_quantity(text)) == text


@pytest.mark.parametrize("text", ["", "1 Gi", "Gi", "1ki", "1e", "--1", "1.2.3", True, [1]])
def test_other_text_is_no_quantity(text: object) -> None:
    with pytest.raises(ValueError, match="regular expression"):
        parse_quantity(text)


def test_little_of_a_pod_may_change() -> None:
    old = _created(_pod())
    image = [old["spec"]["containers"][0] | {"image": "r.io/cuda:13"}]
    assert not _changed(old, containers=image)
    assert not _changed(old, activeDeadlineSeconds=50)
    assert not _changed(old, tolerations=[*NODE_PROBLEMS, {"key": "a", "operator": "Exists"}])
    assert _changed(old, hostNetwork=True) == {("FieldValueForbidden", "spec")}
    assert _changed(old, nodeName="n") == {("FieldValueForbidden", "spec")}
    assert _changed(old, containers=image * 2) == {("FieldValueForbidden", "spec")}
    assert _changed(_created(_pod(tolerations=[{"key": "a", "operator": "Exists"}])), tolerations=[]) == {
        ("FieldValueForbidden", "spec.tolerations")
    }


def test_gates_are_only_removed_and_placement_narrows_meanwhile() -> None:
    old = _created(_pod(schedulingGates=[{"name": "x.io/a"}], nodeSelector={"zone": "a"}))
    assert not _changed(old, schedulingGates=[])
    assert not _changed(old, nodeSelector={"zone": "a", "gpu": "h200"})
    assert _changed(old, nodeSelector={"zone": "b"}) == {("FieldValueInvalid", "spec.nodeSelector")}
    more = [{"name": "x.io/a"}, {"name": "x.io/b"}]
    assert _changed(old, schedulingGates=more) == {("FieldValueForbidden", "spec.schedulingGates[1].name")}
    open_pod = _created(_pod(nodeSelector={"zone": "a"}))
    assert _changed(open_pod, nodeSelector={"zone": "a", "gpu": "h200"}) == {("FieldValueForbidden", "spec")}


def test_status_and_spec_have_an_endpoint_each() -> None:
    old = _created(_pod(nodeName="n"))
    new = deepcopy(old) | {
        "status": {"phase": "Running", "podIP": "10.1.2.3", "conditions": [{"type": "Ready", "status": "True"}]}
    }
    new["spec"]["nodeName"] = "elsewhere"
    written = deepcopy(new)
    PodStrategy().default(written)
    PodStrategy().prepare_for_update(written, old, "status", Context(NOW, "u", []))
    assert written["spec"] == old["spec"]
    assert written["status"]["qosClass"] == "BestEffort"
    assert written["status"]["podIPs"] == [{"ip": "10.1.2.3"}]
    assert written["status"]["conditions"][0]["lastProbeTime"] is None
    PodStrategy().prepare_for_update(new, old, "", Context(NOW, "u", []))
    assert new["status"] == old["status"]


@pytest.mark.parametrize(
    ("spec", "phase", "requested", "expected"),
    [
        ({}, "Pending", 60, 0),
        ({"nodeName": "n"}, "Running", None, 30),
        ({"nodeName": "n"}, "Running", 5, 5),
        ({"nodeName": "n"}, "Running", 0, 0),
        ({"nodeName": "n"}, "Running", -1, 1),
        ({"nodeName": "n", "terminationGracePeriodSeconds": 7}, "Pending", None, 7),
        ({"nodeName": "n"}, "Succeeded", 60, 0),
        ({"nodeName": "n"}, "Failed", None, 0),
    ],
)
def test_time_to_end(spec: Object, phase: str, requested: int | None, expected: int) -> None:
    pod = _created(_pod(**spec))
    pod["status"]["phase"] = phase
    assert PodStrategy().grace_s(pod, requested) == expected


def test_field_labels_are_complete_and_never_missing() -> None:
    labels = PodStrategy().field_labels(_created(_pod(nodeName="n")))
    assert labels["spec.nodeName"] == "n"
    assert labels["status.phase"] == "Pending"
    assert PodStrategy().field_labels({})["spec.nodeName"] == ""
    assert labels.keys() == PodStrategy().field_labels({}).keys()


def _binding(**more: Any) -> Object:
    return {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "node-1"}} | more


def test_binding_puts_a_pod_on_a_node() -> None:
    pod = _created(_pod())
    before = deepcopy(pod)
    marks = {"name": "p", "uid": "u", "annotations": {"a": "1"}, "labels": {"l": "1"}}
    moved = bound(pod, _binding(metadata=marks), NOW)
    assert moved["spec"]["nodeName"] == "node-1"
    assert moved["metadata"]["annotations"] == {"a": "1"}
    assert moved["status"]["conditions"] == [
        {
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        }
    ]
    assert pod == before


@pytest.mark.parametrize(
    ("pod", "binding", "code", "kind"),
    [
        (_pod(nodeName="n"), _binding(), 409, "pods/binding"),
        (_pod(schedulingGates=[{"name": "x.io/a"}]), _binding(), 409, "pods/binding"),
        (_pod(), _binding(metadata={"name": "p", "uid": "other"}), 409, "pods"),
        (_pod(), _binding(target={"kind": "Node", "name": ""}), 500, None),
        (_pod(), _binding(target={"kind": "Pod", "name": "x"}), 500, None),
        (_pod(), _binding(metadata={"name": "q"}), 400, None),
    ],
)
def test_a_binding_is_refused(pod: Object, binding: Object, code: int, kind: str | None) -> None:
    with pytest.raises(ApiError) as caught:
        bound(_created(pod), binding, NOW)
    assert caught.value.code == code
    assert (caught.value.details or {}).get("kind") == kind


def test_the_single_address_wins_over_the_list() -> None:
    pod = _created(_pod()) | {"status": {"podIP": "10.0.0.2", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}}
    PodStrategy().default(pod)
    assert pod["status"]["podIPs"] == [{"ip": "10.0.0.2"}]
    pod["status"] = {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}
    PodStrategy().default(pod)
    assert pod["status"]["podIP"] == "10.0.0.1"
