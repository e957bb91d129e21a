"""The policy that keeps the cluster's free GPUs, evaluated as the embedded API server does."""

from functools import cache
from typing import Any

import pytest

from gpuledger.api.kinds import GPU_POOLS
from gpuledger.local.kubeapi.admission_request import KindVersion, Question
from gpuledger.local.kubeapi.errors import ApiError
from gpuledger.local.kubeapi.policies import Review, outcome_of
from support.chart import WITH_SECRET, needs_helm, render, template

pytestmark = needs_helm

NAME = "gpu-control-plane-automatic-approval"
GRANTED, OTHER = "team-a", "team-b"
VALUES = {**WITH_SECRET, "restrictedAccess": {"automaticApproval": {"namespaces": [GRANTED, "team-c"]}}}

POLICY, BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
POOLS = KindVersion(GPU_POOLS.group, GPU_POOLS.version, GPU_POOLS.kind, GPU_POOLS.plural)

Json = dict[str, Any]

ANYTHING: Json = {"requireAnnotation": False, "autoApproveSelector": {}}
ON_REQUEST: Json = {"requireAnnotation": True}


def pool(assignment: Json | None = None, **spec: Any) -> Json:
    found: Json = {"resource": {"unit": "Card"}, "nodeSelector": {"matchLabels": {"rack": "1"}}, **spec}
    return {"spec": found if assignment is None else found | {"deviceAssignment": assignment}}


@cache
def rendered(kind: str, *, is_default: bool = False) -> Json:
    found: Json = render(WITH_SECRET if is_default else VALUES).one(kind, NAME)
    return found


def refusal(new: Json, old: Json | None = None, namespace: str = OTHER, *, is_default: bool = False) -> ApiError | None:
    question = Question("CREATE" if old is None else "UPDATE", POOLS, "p", namespace)
    review = Review(question, new, old, lambda _: None)
    policy, binding = (rendered(kind, is_default=is_default) for kind in (POLICY, BINDING))
    return outcome_of([policy], [binding], review).refusal


def is_allowed(new: Json, old: Json | None = None, namespace: str = OTHER, *, is_default: bool = False) -> bool:
    found = refusal(new, old, namespace, is_default=is_default)
    assert found is None or "denied request: ApprovalNotGranted: " in found.message, found.message
    return found is None


@pytest.mark.parametrize("selector", [{}, {"matchLabels": {"tier": "gold"}}])
def test_a_new_pool_takes_gpus_by_itself_only_where_its_namespace_may(selector: Json) -> None:
    approving = pool(ANYTHING | {"autoApproveSelector": selector})
    assert is_allowed(approving, namespace=GRANTED)
    assert not is_allowed(approving, namespace=OTHER)
    assert not is_allowed(approving, namespace=GRANTED, is_default=True)


@pytest.mark.parametrize("assignment", [None, {}, ON_REQUEST, {"requireAnnotation": False}])
def test_everybody_may_have_a_pool_that_takes_what_people_assign(assignment: Json | None) -> None:
    assert is_allowed(pool(assignment))
    assert is_allowed(pool(assignment), pool(ANYTHING)), "and may make one of a pool that took GPUs by itself"


WIDER = [
    (pool(ANYTHING), pool()),
    (pool(ANYTHING), pool(ON_REQUEST)),
    (pool(ANYTHING), pool({"requireAnnotation": False})),
    (pool(ANYTHING), pool({"requireAnnotation": False, "autoApproveSelector": {"matchLabels": {"a": "b"}}})),
    (pool(ANYTHING, nodeSelector={}), pool(ANYTHING)),
    ({"spec": {"resource": {"unit": "Card"}, "deviceAssignment": ANYTHING}}, pool(ANYTHING)),
    (pool(ANYTHING, resource={"unit": "Card", "maxDevicesPerNode": 8}), pool(ANYTHING)),
    (pool(ANYTHING), pool(ANYTHING, deviceSelector={"include": {"products": ["Tesla T4"]}})),
]


@pytest.mark.parametrize(("new", "old"), WIDER)
def test_no_change_reaches_other_gpus_without_the_grant(new: Json, old: Json) -> None:
    assert not is_allowed(new, old)
    assert is_allowed(new, old, GRANTED)


def test_a_pool_of_earlier_times_goes_on_and_changes_in_other_ways() -> None:
    old = pool(ANYTHING)
    assert is_allowed(old, old)
    assert is_allowed(pool(ANYTHING, scheduling={"strategy": "BinPack"}), old)
    assert is_allowed(old | {"metadata": {"finalizers": ["gpu.deckhouse.io/pool"]}}, old)


def test_a_refusal_names_the_namespace_and_the_value_that_grants() -> None:
    found = refusal(pool(ANYTHING))
    assert found is not None
    assert (found.code, found.reason) == (403, "Forbidden")
    assert f"ApprovalNotGranted: GPUPools of the namespace {OTHER} " in found.message
    assert "restrictedAccess.automaticApproval.namespaces" in found.message
    (validation,) = rendered(POLICY)["spec"]["validations"]
    assert validation["message"].startswith("ApprovalNotGranted: "), "where that message cannot be made"


def test_the_policy_is_in_force_for_pools_with_a_namespace() -> None:
    assert rendered(BINDING)["spec"] == {"policyName": NAME, "validationActions": ["Deny"]}
    (rule,) = rendered(POLICY)["spec"]["matchConstraints"]["resourceRules"]
    assert (rule["operations"], rule["resources"]) == (["CREATE", "UPDATE"], ["gpupools"])
    assert rendered(POLICY)["spec"]["failurePolicy"] == "Fail"


@pytest.mark.parametrize("namespaces", [["Team"], ["*"], "team-a"])
def test_what_is_no_namespace_grants_nothing(namespaces: object) -> None:
    result = template({**WITH_SECRET, "restrictedAccess": {"automaticApproval": {"namespaces": namespaces}}})
    assert result.code != 0
    assert "restrictedAccess.automaticApproval.namespaces" in result.err
