"""The policy that keeps the inventory: its expressions, as an API server would evaluate them."""

from copy import deepcopy
from functools import cache
from importlib.resources import files
from typing import Any

import cel
import pytest
import yaml

from gpuledger.api.kinds import NAMESPACE
from gpuledger.api.labels import ANNOTATION_ASSIGNMENT, ANNOTATION_CLUSTER_ASSIGNMENT, LABEL_IGNORE
from gpuledger.edge.admission.rules.access import trusted_groups
from support.admission import Json

EDITORS = ("devs", "system:authenticated")
NAME = "gpu-control-plane-restricted-access"


@cache
def manifest(name: str) -> Json:
    read: Json = yaml.safe_load((files("gpuledger.schemas") / "manifests" / f"{name}.yaml").read_text())
    return read


class Variables(dict[str, Any]):
    """The policy's variables. Each is evaluated when it stands in an expression that is asked for, as a server does."""

    def __init__(self, inputs: Json) -> None:
        super().__init__()
        for variable in manifest("restricted-access-policy")["spec"]["variables"]:
            if self._is_needed(variable["name"], inputs):
                self[variable["name"]] = value(variable["expression"], inputs | {"variables": dict(self)})

    @staticmethod
    def _is_needed(name: str, inputs: Json) -> bool:
        """Only changes get as far as comparing objects."""
        return not name.startswith("keeps") or inputs["request"]["operation"] == "UPDATE"


def value(expression: str, inputs: Json) -> Any:
    return cel.compile(expression).execute(inputs)


def allows(
    old: Json | None, new: Json | None, *, groups: tuple[str, ...] = EDITORS, plural: str = "gpudevices", sub: str = ""
) -> bool:
    operation = "CREATE" if old is None else "DELETE" if new is None else "UPDATE"
    request: Json = {"operation": operation, "resource": {"resource": plural}, "userInfo": {"groups": list(groups)}}
    if sub:
        request["subResource"] = sub
    inputs = {"request": request, "object": new, "oldObject": old}
    (validation,) = manifest("restricted-access-policy")["spec"]["validations"]
    found = value(validation["expression"], inputs | {"variables": dict(Variables(inputs))})
    assert isinstance(found, bool)
    return found


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
        (device(annotations=TO_A), DEVICE),
        (device(annotations=TO_A | {"x": "y"}), device(annotations={"x": "y"})),
        (DEVICE, device({LABEL_IGNORE: "true"})),
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


@pytest.mark.parametrize("groups", [(), EDITORS, ("system:serviceaccounts:default",), ("system:serviceaccounts",)])
def test_nobody_else_is_trusted(groups: tuple[str, ...]) -> None:
    assert not allows(None, DEVICE, groups=groups)


def test_the_policy_is_in_force() -> None:
    policy, binding = manifest("restricted-access-policy"), manifest("restricted-access-binding")
    assert policy["metadata"]["name"] == NAME
    assert binding["spec"] == {"policyName": NAME, "validationActions": ["Deny"]}
    (rule,) = policy["spec"]["matchConstraints"]["resourceRules"]
    assert rule["operations"] == ["CREATE", "UPDATE", "DELETE"]
