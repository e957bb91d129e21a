"""The other built-in types: what they are filled with, what is refused, what stays."""

from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import pytest

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi.builtin import BUILTIN
from gpuledger.local.kubeapi.resources import Context
from gpuledger.local.kubeapi.strategies.core_shared import selects

CONTEXT = Context(datetime(2026, 1, 2, tzinfo=UTC), "u", [])
TEMPLATE: Object = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "main", "image": "x:1"}]}}
WORKLOAD: Object = {"selector": {"matchLabels": {"app": "a"}}, "template": TEMPLATE}
STRATEGIES = {resource.key: resource.strategy for resource in BUILTIN if "get" in resource.verbs}


def _made(key: tuple[str, str], **parts: Any) -> Object:
    obj: Object = {"metadata": {"name": "a", "uid": "u"}} | deepcopy(parts)
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
def test_defaults_are_stable_and_accept_an_empty_object(key: tuple[str, str]) -> None:
    obj = _made(key)
    again = deepcopy(obj)
    STRATEGIES[key].default(again)
    assert again == obj
    STRATEGIES[key].prepare_for_update(again, obj, "", CONTEXT)
    assert not STRATEGIES[key].spec_changed(again, obj)
    assert STRATEGIES[key].field_labels(obj).keys() == STRATEGIES[key].field_labels({}).keys()


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
        ({"stringData": {"a b": ""}}, {("FieldValueInvalid", "data[a b]")}),
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


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"data": {"a.B-1_": "x"}}, set()),
        ({"data": {"..a": ""}}, {("FieldValueInvalid", "data[..a]")}),
        ({"binaryData": {"a/b": ""}}, {("FieldValueInvalid", "binaryData[a/b]")}),
    ],
)
def test_a_config_map_is_refused_under_its_field(parts: Object, expected: set[tuple[str, str]]) -> None:
    assert _found(("", "configmaps"), **parts) == expected


@pytest.mark.parametrize("plural", ["deployments", "daemonsets", "statefulsets"])
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


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ({"operator": "In", "values": ["a"]}, True),
        ({"operator": "NotIn", "values": ["a"]}, False),
        ({"operator": "Exists"}, True),
        ({"operator": "DoesNotExist"}, False),
    ],
)
def test_selectors_choose_by_expression(expression: Object, *, expected: bool) -> None:
    assert selects({"matchExpressions": [{"key": "app"} | expression]}, {"app": "a"}) is expected
