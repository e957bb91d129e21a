"""Nodes: how they begin, and what of them may change."""

from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import pytest

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi.resources import Context
from gpuledger.local.kubeapi.strategies.nodes import NOT_READY, NodeStrategy

CONTEXT = Context(datetime(2026, 1, 2, tzinfo=UTC), "u", [])
INFO = [
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
]


def _node(status: Object | None = None, **spec: Any) -> Object:
    made: Object = {"metadata": {"name": "n"}}
    return made | ({"spec": spec} if spec else {}) | ({"status": status} if status else {})


def _created(node: Object) -> Object:
    made = deepcopy(node)
    NodeStrategy().default(made)
    NodeStrategy().prepare_for_create(made, CONTEXT)
    return made


def _updated(old: Object, subresource: str = "", **parts: Any) -> Object:
    new = deepcopy(old) | deepcopy(parts)
    NodeStrategy().default(new)
    NodeStrategy().prepare_for_update(new, old, subresource, CONTEXT)
    return new


def _found(new: Object, old: Object) -> set[tuple[str, str]]:
    return {(cause.reason, cause.field) for cause in NodeStrategy().validate_update(new, old, "")}


def test_a_new_node_is_not_ready_and_has_an_empty_status() -> None:
    node = _created(_node())
    assert node["spec"] == {"taints": [NOT_READY]}
    assert node["status"] == {
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
        "nodeInfo": dict.fromkeys(INFO, ""),
    }
    assert not NodeStrategy().has_generation


def test_a_taint_that_is_there_is_not_added_again() -> None:
    assert _created(_node(taints=[NOT_READY]))["spec"]["taints"] == [NOT_READY]
    other = {"key": "gpu", "effect": "NoSchedule"}
    assert _created(_node(taints=[other]))["spec"]["taints"] == [other, NOT_READY]


def test_allocatable_is_the_capacity_by_default() -> None:
    node = _created(_node({"capacity": {"cpu": "64", "x.io/gpu": "4"}}))
    assert node["status"]["capacity"] == node["status"]["allocatable"] == {"cpu": "64", "x.io/gpu": "4"}
    less = _updated(node, "status", status=node["status"] | {"capacity": {"x.io/gpu": "4"}})
    assert less["status"]["allocatable"] == {"cpu": "64", "x.io/gpu": "4"}


def test_status_and_spec_have_an_endpoint_each() -> None:
    old = _created(_node())
    cordoned: dict[str, Any] = {
        "spec": {"unschedulable": True},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    through_object, through_status = _updated(old, **cordoned), _updated(old, "status", **cordoned)
    assert (through_object["spec"], through_object["status"]) == ({"unschedulable": True}, old["status"])
    assert through_status["spec"] == old["spec"]
    condition = through_status["status"]["conditions"][0]
    assert (condition["lastHeartbeatTime"], condition["lastTransitionTime"]) == (None, None)


@pytest.mark.parametrize(
    ("taint", "expected"),
    [
        ({"key": "k", "effect": "Sometimes"}, ("FieldValueNotSupported", "metadata.taints[0].effect")),
        ({"key": "k"}, ("FieldValueRequired", "metadata.taints[0].effect")),
        ({"key": "b k", "effect": "NoExecute"}, ("FieldValueInvalid", "metadata.taints[0].key")),
        ({"key": "k", "value": "b v", "effect": "NoExecute"}, ("FieldValueInvalid", "metadata.taints[0].value")),
    ],
)
def test_a_taint_is_refused_under_its_field(taint: Object, expected: tuple[str, str]) -> None:
    old = _created(_node())
    assert _found(_updated(old, spec={"taints": [taint]}), old) == {expected}


def test_taints_are_unique_by_key_and_effect() -> None:
    old = _created(_node())
    taints = [{"key": "k", "effect": "NoSchedule"}, {"key": "k", "effect": "NoSchedule", "value": "x"}]
    assert _found(_updated(old, spec={"taints": taints}), old) == {("FieldValueDuplicate", "metadata.taints[1]")}
    taints[1]["effect"] = "NoExecute"
    assert not _found(_updated(old, spec={"taints": taints}), old)


@pytest.mark.parametrize(("name", "one", "other"), [("providerID", "a://1", "a://2"), ("podCIDR", "10.0.0.0/24", "")])
def test_the_identity_of_a_node_is_fixed(name: str, one: str, other: str) -> None:
    bare = _created(_node())
    named = _updated(bare, spec={name: one})
    assert not _found(named, bare)
    assert ("FieldValueForbidden", f"spec.{name}") in _found(_updated(named, spec={name: other}), named)
    assert not _found(_updated(named, spec=named["spec"] | {"unschedulable": True}), named)


def test_field_labels() -> None:
    assert NodeStrategy().field_labels(_node()) == {"spec.unschedulable": "false"}
    assert NodeStrategy().field_labels(_node(unschedulable=True)) == {"spec.unschedulable": "true"}
    assert NodeStrategy().field_labels({}).keys() == {"spec.unschedulable"}
