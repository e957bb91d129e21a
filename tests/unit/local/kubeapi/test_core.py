"""The other built-in types: what they are filled with, what is refused, what stays."""

from base64 import b64encode
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import pytest

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi.errors import ApiError
from gpuledger.local.kubeapi.resources import Context
from gpuledger.local.kubeapi.strategies.core import STRATEGIES
from gpuledger.local.kubeapi.strategies.core_shared import selects

CONTEXT = Context(datetime(2026, 1, 2, tzinfo=UTC), "u", [])
MIB = 1024 * 1024
TEMPLATE: Object = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "main", "image": "x:1"}]}}
WORKLOAD: Object = {"selector": {"matchLabels": {"app": "a"}}, "template": TEMPLATE}
APPS = ("deployments", "replicasets", "statefulsets", "daemonsets")


def _made(key: tuple[str, str], **parts: Any) -> Object:
    obj: Object = {"metadata": {"name": "a", "uid": "u"}} | deepcopy(parts)
    STRATEGIES[key].decode(obj)
    STRATEGIES[key].default(obj)
    STRATEGIES[key].prepare_for_create(obj, CONTEXT)
    return obj


def _found(key: tuple[str, str], **parts: Any) -> set[tuple[str, str]]:
    return {(cause.reason, cause.field) for cause in STRATEGIES[key].validate(_made(key, **parts))}


def _changed(key: tuple[str, str], old: Object, subresource: str = "", **parts: Any) -> set[tuple[str, str]]:
    new = deepcopy(old) | deepcopy(parts)
    STRATEGIES[key].default(new)
    STRATEGIES[key].prepare_for_update(new, old, subresource, CONTEXT)
    return {(cause.reason, cause.field) for cause in STRATEGIES[key].validate_update(new, old, subresource)}


@pytest.mark.parametrize("key", STRATEGIES)
def test_defaults_are_stable_and_bear_an_object_that_says_nothing(key: tuple[str, str]) -> None:
    obj = _made(key)
    again = deepcopy(obj)
    STRATEGIES[key].default(again)
    assert again == obj
    STRATEGIES[key].prepare_for_update(again, obj, "", CONTEXT)
    assert not STRATEGIES[key].spec_changed(again, obj)
    assert set(STRATEGIES[key].field_labels(obj)) == STRATEGIES[key].field_names()


def test_a_namespace_begins_as_active() -> None:
    made = _made(("", "namespaces"))
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": "a"}
    assert (made["spec"], made["status"]) == ({"finalizers": ["kubernetes"]}, {"phase": "Active"})
    assert STRATEGIES["", "namespaces"].validate_name("a.b")
    assert not STRATEGIES["", "namespaces"].validate_name("a-b")


def test_a_namespace_keeps_its_name_as_a_label_and_its_finalizers() -> None:
    key = ("", "namespaces")
    old = _made(key)
    for subresource, spec, status in (("", False, False), ("status", False, True), ("finalize", True, False)):
        new = deepcopy(old) | {"spec": {}, "status": {"phase": "Terminating"}}
        new["metadata"]["labels"] = {}
        STRATEGIES[key].default(new)
        STRATEGIES[key].prepare_for_update(new, old, subresource, CONTEXT)
        assert new["metadata"]["labels"] == {"kubernetes.io/metadata.name": "a"}
        assert (new["spec"] != old["spec"], new["status"] != old["status"]) == (spec, status)
    bad = {"spec": {"finalizers": ["kubernetes", "bare"]}}
    assert _changed(key, old, "finalize", **bad) == {("FieldValueInvalid", "spec.finalizers[1]")}


def test_a_secret_takes_plain_text() -> None:
    made = _made(("", "secrets"), stringData={"a": "hello"}, data={"a": "eA==", "b": "d29ybGQ="})
    assert made["data"] == {"a": "aGVsbG8=", "b": "d29ybGQ="}
    assert made["type"] == "Opaque"
    assert "stringData" not in made


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"type": "kubernetes.io/tls"}, {("FieldValueRequired", f"data[tls.{name}]") for name in ("crt", "key")}),
        ({"type": "kubernetes.io/basic-auth", "stringData": {"username": "u"}}, set()),
        ({"type": "kubernetes.io/ssh-auth"}, {("FieldValueRequired", "data[ssh-privatekey]")}),
        (
            {"type": "kubernetes.io/service-account-token"},
            {("FieldValueRequired", "metadata.annotations[kubernetes.io/service-account.name]")},
        ),
        (
            {"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "{"}},
            {("FieldValueInvalid", "data[.dockerconfigjson]")},
        ),
        ({"stringData": {"a b": ""}}, {("FieldValueInvalid", "data[a b]")}),
        ({"data": {"a": b64encode(bytes(MIB)).decode()}}, set()),
        ({"data": {"a": b64encode(bytes(MIB + 1)).decode()}}, {("FieldValueTooLong", "data")}),
    ],
)
def test_a_secret_has_what_its_type_needs(parts: Object, expected: set[tuple[str, str]]) -> None:
    assert _found(("", "secrets"), **parts) == expected


def test_a_secret_keeps_its_type() -> None:
    old = _made(("", "secrets"))
    assert _changed(("", "secrets"), old, type="other") == {("FieldValueInvalid", "type")}


@pytest.mark.parametrize("plural", ["secrets", "configmaps"])
def test_an_immutable_one_stays_as_it_is(plural: str) -> None:
    old = _made(("", plural), data={"a": "eA=="}, immutable=True)
    assert not _changed(("", plural), old)
    assert _changed(("", plural), old, data={}) == {("FieldValueForbidden", "data")}
    assert _changed(("", plural), old, immutable=False) == {("FieldValueForbidden", "immutable")}


@pytest.mark.parametrize(("plural", "field"), [("secrets", "data"), ("configmaps", "binaryData")])
def test_what_is_no_base64_cannot_be_read(plural: str, field: str) -> None:
    with pytest.raises(ApiError) as caught:
        _made(("", plural), **{field: {"a": "?"}})
    assert caught.value.code == 400


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"data": {"a.B-1_": "x"}}, set()),
        ({"data": {"..a": ""}}, {("FieldValueInvalid", "data[..a]")}),
        ({"binaryData": {"a/b": ""}}, {("FieldValueInvalid", "binaryData[a/b]")}),
        ({"data": {"a": ""}, "binaryData": {"a": ""}}, {("FieldValueInvalid", "data[a]")}),
        ({"data": {"a": "x" * (MIB + 1)}}, {("FieldValueTooLong", "")}),
    ],
)
def test_a_config_map_is_refused_under_its_field(parts: Object, expected: set[tuple[str, str]]) -> None:
    assert _found(("", "configmaps"), **parts) == expected


def test_a_config_map_leaves_out_what_is_empty() -> None:
    assert _made(("", "configmaps"), data={}, binaryData={}) == {"metadata": {"name": "a", "uid": "u"}}


@pytest.mark.parametrize("plural", APPS)
def test_workloads_take_the_defaults_of_pods(plural: str) -> None:
    made = _made(("apps", plural), spec=WORKLOAD)
    template = made["spec"]["template"]["spec"]
    assert template["restartPolicy"] == "Always"
    assert template["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    assert not {"enableServiceLinks", "tolerations", "serviceAccountName"} & template.keys()
    assert not STRATEGIES["apps", plural].validate(made)


def test_a_deployment_rolls_out_a_quarter_at_a_time() -> None:
    spec = _made(("apps", "deployments"), spec=WORKLOAD)["spec"]
    assert {name: spec[name] for name in spec if name not in WORKLOAD} == {
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
    }


@pytest.mark.parametrize("plural", APPS)
def test_a_selector_must_choose_the_template_and_stay(plural: str) -> None:
    key = ("apps", plural)
    mismatch = ("FieldValueInvalid", "spec.template.metadata.labels")
    other = WORKLOAD | {"selector": {"matchLabels": {"app": "b"}}}
    assert _found(key, spec=other) == {mismatch}
    assert _found(key, spec={"template": TEMPLATE}) == {mismatch, ("FieldValueRequired", "spec.selector")}
    assert _found(key, spec=WORKLOAD | {"selector": {}}) == {("FieldValueInvalid", "spec.selector")}
    old = _made(key, spec=WORKLOAD)
    labels = {"metadata": {"labels": {"app": "a", "b": "c"}}, "spec": TEMPLATE["spec"]}
    wider = old["spec"] | {"template": labels, "selector": {"matchLabels": {"b": "c"}}}
    assert _changed(key, old, spec=wider) == {("FieldValueInvalid", "spec.selector")}


def test_annotations_of_a_deployment_count_as_its_spec() -> None:
    strategy, old = STRATEGIES["apps", "deployments"], _made(("apps", "deployments"), spec=WORKLOAD)
    new = deepcopy(old)
    new["metadata"]["annotations"] = {"a": "b"}
    assert strategy.spec_changed(new, old)


def test_a_job_chooses_its_pods_by_uid_and_keeps_its_template() -> None:
    key = ("batch", "jobs")
    pod = TEMPLATE["spec"] | {"restartPolicy": "Never"}
    old = _made(key, spec={"template": {"spec": pod}})
    assert old["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}
    assert (old["spec"]["completions"], old["spec"]["parallelism"], old["spec"]["backoffLimit"]) == (1, 1, 6)
    assert not STRATEGIES[key].validate(old)
    assert not _changed(key, old, spec=old["spec"] | {"parallelism": 2})
    template = {"metadata": old["spec"]["template"]["metadata"], "spec": pod | {"priorityClassName": "b"}}
    assert _changed(key, old, spec=old["spec"] | {"template": template}) == {("FieldValueInvalid", "spec.template")}
    assert _found(key, spec={"template": TEMPLATE}) == {("FieldValueNotSupported", "spec.template.spec.restartPolicy")}


def test_a_cron_job_needs_a_schedule() -> None:
    job = {"jobTemplate": {"spec": {"template": {"spec": TEMPLATE["spec"] | {"restartPolicy": "Never"}}}}}
    assert _found(("batch", "cronjobs"), spec=job) == {("FieldValueRequired", "spec.schedule")}
    assert not _found(("batch", "cronjobs"), spec=job | {"schedule": "*/5 * * * *"})
    assert _found(("batch", "cronjobs"), spec=job | {"schedule": "* *"}) == {("FieldValueInvalid", "spec.schedule")}


def test_a_service_knows_its_ports() -> None:
    made = _made(("", "services"), spec={"ports": [{"port": 80}]})
    assert made["spec"]["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    assert made["spec"]["type"] == "ClusterIP"
    assert made["status"] == {"loadBalancer": {}}
    assert _found(("", "services"), spec={}) == {("FieldValueRequired", "spec.ports")}
    assert not _found(("", "services"), spec={"clusterIP": "None"})
    assert STRATEGIES["", "services"].validate_name("1a")


def test_a_priority_class_does_not_change() -> None:
    key = ("scheduling.k8s.io", "priorityclasses")
    old = _made(key, value=5)
    assert _changed(key, old, value=6) == {("FieldValueForbidden", "value")}
    assert _found(key, value=2_000_000_000) == {("FieldValueForbidden", "value")}


def test_quantities_are_canonical_everywhere() -> None:
    quota = _made(("", "resourcequotas"), spec={"hard": {"requests.cpu": "1000m"}})
    assert quota["spec"]["hard"] == {"requests.cpu": "1"}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}}
    made = _made(("", "persistentvolumeclaims"), spec=claim)
    assert made["spec"]["resources"]["requests"] == {"storage": "1Gi"}
    assert not STRATEGIES["", "persistentvolumeclaims"].validate(made)
    with pytest.raises(ApiError):
        _made(("", "resourcequotas"), spec={"hard": {"cpu": "lots"}})


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ({"operator": "In", "values": ["a"]}, True),
        ({"operator": "NotIn", "values": ["a"]}, False),
        ({"operator": "Exists"}, True),
        ({"operator": "DoesNotExist"}, False),
        ({"operator": "Like"}, False),
    ],
)
def test_selectors_choose_by_expression(expression: Object, *, expected: bool) -> None:
    assert selects({"matchExpressions": [{"key": "app"} | expression]}, {"app": "a"}) is expected
