"""The policy that keeps the inventory, evaluated as the embedded API server does."""

from copy import deepcopy
from typing import Any

import pytest

from gpuledger.api.kinds import NAMESPACE
from gpuledger.api.labels import (
    ANNOTATION_ASSIGNMENT,
    ANNOTATION_CLUSTER_ASSIGNMENT,
    ANNOTATION_RETIRED,
    LABEL_EVACUATE,
    LABEL_IGNORE,
)
from gpuledger.edge.admission.rules.access import BREAK_GLASS, trusted_groups
from support.access_policy import EDITORS, allows, manifest
from support.admission import Json

NAME = "gpu-control-plane-restricted-access"


DEVICE: Json = {
    "metadata": {"name": "d", "labels": {"gpu.deckhouse.io/product": "a100"}, "resourceVersion": "1"},
    "spec": {},
    "status": {"state": "Ready"},
}


def device(labels: Json | None = None, annotations: Json | None = None, **more: Any) -> Json:
    changed = deepcopy(DEVICE)
    changed["metadata"]["labels"] |= labels or {}
    changed["metadata"]["resourceVersion"] = "2"
    if annotations is not None:
        changed["metadata"]["annotations"] = annotations
    changed["metadata"] |= more.pop("metadata", {})
    return changed | more


TO_A = {ANNOTATION_ASSIGNMENT: "a"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (DEVICE, device(annotations=TO_A)),
        (DEVICE, device(annotations={ANNOTATION_CLUSTER_ASSIGNMENT: "b"})),
        (DEVICE, device(annotations={ANNOTATION_RETIRED: "true"})),
        (device(annotations=TO_A), DEVICE),
        (device(annotations=TO_A | {"x": "y"}), device(annotations={"x": "y"})),
        (DEVICE, device({LABEL_IGNORE: "true"})),
        (DEVICE, device({LABEL_EVACUATE: "Immediate"})),
        (device({LABEL_EVACUATE: "Immediate"}), DEVICE),
        (device({LABEL_IGNORE: "true"}), DEVICE),
        (DEVICE, device(metadata={"managedFields": [{"manager": "kubectl"}]})),
    ],
)
def test_an_editor_may_set_the_marks_that_are_for_people(old: Json, new: Json) -> None:
    assert allows(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (None, DEVICE),
        (DEVICE, None),
        (DEVICE, device(annotations={"x": "y"})),
        (device(annotations={"x": "y"}), device(annotations={"x": "z"} | TO_A)),
        (device(annotations={"x": "y"}), device(annotations=TO_A)),
        (DEVICE, device({"gpu.deckhouse.io/product": "h100", LABEL_IGNORE: "true"})),
        (device({"team": "a"}), DEVICE),
        (DEVICE, device({"team": "a"})),
        (DEVICE, device(spec={"a": 1})),
        (DEVICE, device(status={"state": "Faulted"})),
        (DEVICE, device(metadata={"finalizers": ["x"]})),
        (device(metadata={"finalizers": ["x"]}), DEVICE),
        (DEVICE, device(metadata={"ownerReferences": [{"name": "x"}]})),
    ],
)
def test_an_editor_may_do_nothing_else(old: Json | None, new: Json | None) -> None:
    assert not allows(old, new)
    assert allows(old, new, groups=("system:masters",))


@pytest.mark.parametrize(
    ("plural", "sub"), [("gpunodestates", ""), ("gpudevices", "status"), ("gpunodestates", "status")]
)
def test_states_and_statuses_are_the_products(plural: str, sub: str) -> None:
    new = device(annotations=TO_A)
    assert not allows(DEVICE, new, plural=plural, sub=sub)
    assert allows(DEVICE, new, plural=plural, sub=sub, groups=("system:serviceaccounts:d8-gpu-operator",))


@pytest.mark.parametrize("group", sorted(trusted_groups(NAMESPACE)))
def test_the_webhooks_trust_the_same_groups(group: str) -> None:
    assert allows(None, DEVICE, groups=(group,))
    (trusted, *_) = manifest("restricted-access-policy")["spec"]["variables"]
    assert trusted["expression"].count("'system:") == len(trusted_groups(NAMESPACE))


@pytest.mark.parametrize("plural", ["gpudevices", "gpunodestates"])
@pytest.mark.parametrize("sub", ["", "status"])
def test_whoever_breaks_the_glass_may_do_anything(plural: str, sub: str) -> None:
    groups = ("system:authenticated", BREAK_GLASS)
    for old, new in ((None, DEVICE), (DEVICE, None), (DEVICE, device({"team": "a"}, status={"state": "Faulted"}))):
        assert allows(old, new, groups=groups, plural=plural, sub=sub)
        assert not allows(old, new, groups=("system:authenticated", f"{BREAK_GLASS}-drill"), plural=plural, sub=sub)


@pytest.mark.parametrize("groups", [(), EDITORS, ("system:serviceaccounts:default",), ("system:serviceaccounts",)])
def test_nobody_else_is_trusted(groups: tuple[str, ...]) -> None:
    assert not allows(None, DEVICE, groups=groups)


def test_the_policy_is_in_force() -> None:
    policy, binding = manifest("restricted-access-policy"), manifest("restricted-access-binding")
    assert policy["metadata"]["name"] == NAME
    assert binding["spec"] == {"policyName": NAME, "validationActions": ["Deny"]}
    (rule,) = policy["spec"]["matchConstraints"]["resourceRules"]
    assert rule["operations"] == ["CREATE", "UPDATE", "DELETE"]
