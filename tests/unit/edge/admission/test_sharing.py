"""Pods that ask for shared devices: what becomes of them, and every refusal, by table."""

import re
from dataclasses import replace
from typing import Any

import pytest
import yaml

from gpuledger.api.sharing import SharingNames
from gpuledger.edge.admission.cache import AdmissionCache
from gpuledger.edge.admission.rules.decide import decide
from gpuledger.edge.admission.rules.sharing import asks_for_shares
from gpuledger.edge.admission.settings import AdmissionSettings
from gpuledger.edge.admission.webhook_configuration import configurations
from gpuledger.edge.webhooks.configuration import MUTATING, VALIDATING
from gpuledger.edge.webhooks.serving.review import CREATE, UPDATE, AdmissionResponse, Requester
from gpuledger.edge.webhooks.settings import WebhookAddress
from gpuledger.local.kubeapi.admission_request import KindVersion, Question
from gpuledger.local.kubeapi.patches import json_patch
from gpuledger.local.kubeapi.strategies.webhook_configurations import (
    MutatingConfigurationStrategy,
    ValidatingConfigurationStrategy,
)
from gpuledger.local.kubeapi.webhook_matching import matched_review
from support.admission import MASTER, PRODUCT, USER, Json, review
from support.paths import ROOT

ACCOUNT = "system:serviceaccount:gpus:extender"
NAMES = SharingNames("gpus.example", "sharing-scheduler", ACCOUNT)
HOME = "d8-gpu-operator"
GPU, CORE, RATIO, MEMORY, SHARED, RDMA = (
    f"gpus.example/{one}" for one in ("gpu", "gpu-core", "gpu-memory-ratio", "gpu-memory", "gpu.shared", "rdma")
)
NVIDIA = "nvidia.com/gpu"
ALLOCATED = NAMES.allocated
EXTENDER = Requester(ACCOUNT, frozenset({"system:serviceaccounts:gpus"}))


def container(limits: Json | None = None, requests: Json | None = None, name: str = "c", **more: Any) -> Json:
    resources = {kind: given for kind, given in (("limits", limits), ("requests", requests)) if given is not None}
    return {"name": name, "resources": resources, **more}


def pod(*containers: Json, init: list[Json] | None = None, annotations: Json | None = None, **spec: Any) -> Json:
    whole = {"containers": list(containers), "schedulerName": "default-scheduler", **spec}
    metadata: Json = {"name": "p"} | ({"annotations": annotations} if annotations else {})
    return {"metadata": metadata, "spec": whole | ({"initContainers": init} if init else {})}


def judged(new: Json, names: SharingNames = NAMES) -> AdmissionResponse:
    return decide(review("pods", new), AdmissionCache(HOME, names))


def admitted(new: Json, names: SharingNames = NAMES) -> Json:
    """The pod as it is stored; a second review changes nothing."""
    found = judged(new, names)
    assert found.is_allowed, found
    after: Json = json_patch(new, list(found.patch)) if found.patch else new
    again = judged(after, names)
    assert again == AdmissionResponse()
    return after


def resources(after: Json, plural: str = "containers") -> list[Json]:
    found = [one["resources"] for one in after["spec"][plural]]
    assert all(one["limits"] == one["requests"] for one in found)
    return [one["limits"] for one in found]


@pytest.mark.parametrize(
    ("given", "after"),
    [
        (container({GPU: "50"}), {CORE: "50", RATIO: "50", SHARED: "1"}),
        (container(requests={GPU: "50"}), {CORE: "50", RATIO: "50", SHARED: "1"}),
        (container({GPU: "200"}, {GPU: "200"}), {CORE: "200", RATIO: "200", SHARED: "2"}),
        (container({NVIDIA: 2, RDMA: "1"}), {CORE: "200", RATIO: "200", SHARED: "2", RDMA: "1"}),
        (container(requests={CORE: "60", MEMORY: "4Gi"}), {CORE: "60", MEMORY: "4Gi", SHARED: "1"}),
        (container({CORE: "60"}, {MEMORY: "4Gi"}), {CORE: "60", MEMORY: "4Gi", SHARED: "1"}),
        (container({RATIO: "30"}, {RATIO: 30}), {RATIO: "30", SHARED: "1"}),
        (container({MEMORY: "1Gi"}, {MEMORY: "1024Mi"}), {MEMORY: "1Gi", SHARED: "1"}),
        (container({"gpus.example/fpga": "100"}), {"gpus.example/fpga": "100"}),
    ],
)
def test_requests_and_limits_become_the_same(given: Json, after: Json) -> None:
    found = admitted(pod(given))
    (container_after,) = found["spec"]["containers"]
    limits, requests = (container_after["resources"][kind] for kind in ("limits", "requests"))
    assert limits.keys() == requests.keys() == after.keys()
    assert limits == after
    assert found["spec"]["schedulerName"] == "sharing-scheduler"


def test_other_resources_stay_as_they_are() -> None:
    given = pod(container({GPU: "50", "cpu": "4"}, {"cpu": "2", "memory": "8Gi"}), container({"cpu": "1"}, name="d"))
    first, second = admitted(given)["spec"]["containers"]
    split = {CORE: "50", RATIO: "50", SHARED: "1"}
    assert first["resources"] == {"limits": {"cpu": "4"} | split, "requests": {"cpu": "2", "memory": "8Gi"} | split}
    assert second == given["spec"]["containers"][1]


def test_several_containers_mean_together_what_their_percentages_say() -> None:
    """Two numbers of GPUs would add up to two; half a GPU twice is one."""
    after = admitted(pod(container({GPU: "50"}), container({GPU: "50"}, name="d")))
    assert resources(after) == [{CORE: "50", RATIO: "50"}] * 2


def test_init_containers_are_rewritten_too() -> None:
    after = admitted(pod(container({GPU: "50"}), init=[container({GPU: "100"}, name="i")]))
    assert resources(after, "initContainers") == [{CORE: "100", RATIO: "100", SHARED: "1"}]


@pytest.mark.parametrize(
    ("names", "spec", "scheduler"),
    [
        (NAMES, {}, "sharing-scheduler"),
        (NAMES, {"schedulerName": ""}, "sharing-scheduler"),
        (NAMES, {"schedulerName": "mine"}, "mine"),
        (SharingNames("gpus.example"), {}, "default-scheduler"),
    ],
)
def test_the_scheduler_is_set_where_the_pod_names_none(names: SharingNames, spec: Json, scheduler: str) -> None:
    assert admitted(pod(container({RATIO: "50"}), **spec), names)["spec"]["schedulerName"] == scheduler


def test_whole_gpus_are_ours_where_the_sharing_scheduler_places_the_pod() -> None:
    theirs = pod(container({NVIDIA: "1"}))
    assert judged(theirs) == AdmissionResponse()
    ours = admitted(pod(container({NVIDIA: "1"}), schedulerName="sharing-scheduler"))
    assert resources(ours) == [{CORE: "100", RATIO: "100", SHARED: "1"}]
    assert judged(pod(container({NVIDIA: "1"})), SharingNames("gpus.example")) == AdmissionResponse()


REFUSED = {
    "a percentage above a whole": (
        pod(container({GPU: "150"}, name="trainer")),
        "InvalidSharingRequest",
        "in the container trainer, gpu: 150 is neither a share of one device (1 to 100) nor whole ones",
    ),
    "core alone": (
        pod(container({"cpu": "1"}, name="a"), container({CORE: "50"}, name="b")),
        "InvalidSharingRequest",
        "in the container b, the resources gpu-core do not go together; allowed are nvidia.com/gpu or gpu alone",
    ),
    "gpu beside core": (
        pod(container({GPU: "50", CORE: "50"})),
        "InvalidSharingRequest",
        "in the container c, the resources gpu, gpu-core do not go together",
    ),
    "gpu beside nvidia.com/gpu": (pod(container({GPU: "50", NVIDIA: "1"})), "InvalidSharingRequest", "gpu, nvidia"),
    "containers that do not fit together": (
        pod(container({MEMORY: "4Gi"}), container({RATIO: "50"}, name="d")),
        "InvalidSharingRequest",
        "in all containers together, the resources gpu-memory, gpu-memory-ratio do not go together",
    ),
    "nothing left of it to place": (pod(container({SHARED: "2"})), "InvalidSharingRequest", "gpu.shared do not go"),
    "a fraction": (
        pod(container({CORE: "1500m", RATIO: "5"})),
        "InvalidQuantity",
        f"'1500m' of {CORE} in the limits of the container c is no whole number. Ask for a whole number",
    ),
    "a negative amount": (pod(container({RATIO: "-1"})), "InvalidQuantity", "'-1' of"),
    "no amount": (pod(container({RATIO: "half"})), "InvalidQuantity", "'half' of"),
    "a limit of its own": (
        pod(container({RATIO: "50"}, {RATIO: "30"})),
        "RequestNotLimit",
        f"The container c requests 30 of {RATIO} with a limit of 50. Make both the same, or leave one of them out",
    ),
    "units of a pool beside it": (
        pod(container({RATIO: "50"}), container({"gpu.deckhouse.io/a": "1"}, name="d")),
        "SharedAndPoolRequest",
        "The container d asks for units of a pool",
    ),
    "a hint that nobody can read": (
        pod(container({RATIO: "50"}), annotations={NAMES.allocate_hint: "{"}),
        "InvalidSharingHint",
        "The annotation device-allocate-hint is invalid: it is not JSON",
    ),
    "a joint allocation of nothing": (
        pod(container({RATIO: "50"}), annotations={NAMES.joint_allocate: "{}"}),
        "InvalidSharingHint",
        "The annotation device-joint-allocate is invalid: deviceTypes is empty",
    ),
    "a node that no scheduler chose": (
        pod(container({RATIO: "50"}), nodeName="w1"),
        "SchedulerBypassed",
        "spec.nodeName is w1 already, so no scheduler would choose devices for the pod. Leave it out",
    ),
    "all cards in place of its own": (
        pod(container({RATIO: "50"}, name="t", env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}])),
        "ReservedVariable",
        "The container t sets the variable NVIDIA_VISIBLE_DEVICES",
    ),
    "all cards in a container beside it": (
        pod(container({RATIO: "50"}), {"name": "d", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "0"}]}),
        "ReservedVariable",
        "The container d sets",
    ),
    "a limit of its own memory": (
        pod(container({RATIO: "50"}, env=[{"name": "CUDA_DEVICE_MEMORY_LIMIT_0", "value": "80g"}])),
        "ReservedVariable",
        "CUDA_DEVICE_MEMORY_LIMIT_0",
    ),
    "a limit of compute from elsewhere": (
        pod(
            container({RATIO: "50"}),
            init=[{"name": "i", "env": [{"name": "CUDA_DEVICE_SM_LIMIT", "valueFrom": {"fieldRef": {}}}]}],
        ),
        "ReservedVariable",
        "The container i sets",
    ),
    "an allocation of one's own": (
        pod(container({RATIO: "50"}), annotations={ALLOCATED: "{}"}),
        "AllocationNotYours",
        f"Only {ACCOUNT} writes the annotation {ALLOCATED}",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_says_where_and_what_is_allowed(case: str) -> None:
    given, reason, words = REFUSED[case]
    found = judged(given)
    assert found.reason == reason
    assert words in found.message
    assert not found.patch


@pytest.mark.parametrize("value", ["void", "none", ""])
def test_a_container_may_hide_the_cards_from_itself(value: str) -> None:
    hidden = {"name": "d", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": value}, {"name": "A", "value": "all"}]}
    assert admitted(pod(container({RATIO: "50"}), hidden))["spec"]["containers"][1] == hidden


def of_allocation(value: str | None) -> Json:
    return pod(container({RATIO: "50"}, {RATIO: "50"}), annotations=None if value is None else {ALLOCATED: value})


@pytest.mark.parametrize(("old", "new"), [(None, "{}"), ("{}", None), ("{}", '{"gpu":[]}')])
@pytest.mark.parametrize(
    ("user", "account", "is_allowed"),
    [
        (EXTENDER, ACCOUNT, True),
        (USER, ACCOUNT, False),
        (MASTER, ACCOUNT, False),
        (PRODUCT, ACCOUNT, False),
        (PRODUCT, None, True),
        (USER, None, False),
        (MASTER, None, False),
        (EXTENDER, None, False),
    ],
)
def test_only_one_account_writes_allocations(
    old: str | None, new: str | None, user: Requester, account: str | None, is_allowed: bool
) -> None:
    names = NAMES._replace(account=account)
    request = review("pods", of_allocation(new), of_allocation(old), operation=UPDATE, user=user)
    found = decide(request, AdmissionCache(HOME, names))
    assert found.reason == ("" if is_allowed else "AllocationNotYours")
    binding = review("pods", {"metadata": {"annotations": {ALLOCATED: "{}"}}}, operation=CREATE, user=user)
    found = decide(binding._replace(subresource="binding"), AdmissionCache(HOME, names))
    assert found.is_allowed is is_allowed
    found = decide(binding._replace(plural="bindings"), AdmissionCache(HOME, names))
    assert found.is_allowed is is_allowed, "the older way to bind a pod"


def test_whoever_leaves_the_allocation_alone_may_change_the_rest() -> None:
    new, old = of_allocation("{}"), of_allocation("{}")
    new["metadata"]["labels"] = {"a": "b"}
    assert decide(review("pods", new, old, operation=UPDATE), AdmissionCache(HOME, NAMES)) == AdmissionResponse()


PAGE = (ROOT / "docs" / "sharing.md").read_text()
MANIFESTS = [
    one
    for block in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for one in yaml.safe_load_all(block)
    if isinstance(one, dict) and one.get("kind") == "Pod"
]


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda one: one["metadata"]["name"])
def test_the_pods_of_the_page_are_admitted(manifest: Json) -> None:
    names = SharingNames(scheduler="gpuledger-scheduler")
    assert asks_for_shares(manifest, names)
    assert all(one.keys() - {"cpu", "memory"} for one in resources_of(admitted(manifest, names)))


def resources_of(after: Json) -> list[Json]:
    return [one["resources"]["limits"] for one in after["spec"]["containers"] if "resources" in one]


POD = KindVersion("", "v1", "Pod", "pods")
SHARES, ALLOCATIONS = (f"{one}.gpu-control-plane.deckhouse.io" for one in ("shares", "allocations"))


def hooks(kind: str, names: SharingNames = NAMES) -> list[Json]:
    found = configurations(AdmissionSettings(sharing=names), WebhookAddress("s"), b"PEM", "t")
    configured = {resource.kind: configuration for resource, configuration in found}
    assert MutatingConfigurationStrategy().validate(configured[MUTATING.kind]) == []
    assert ValidatingConfigurationStrategy().validate(configured[VALIDATING.kind]) == []
    webhooks: list[Json] = configured[kind]["webhooks"]
    return webhooks


def called(question: Question, new: Json, old: Json | None = None, names: SharingNames = NAMES) -> set[str]:
    every = (*hooks(MUTATING.kind, names), *hooks(VALIDATING.kind, names))
    return {one["name"] for one in every if matched_review(one, question, new, old, lambda _: {}) is not None}


@pytest.mark.parametrize(
    ("given", "is_theirs"),
    [
        (pod(container({"cpu": "1"})), False),
        (pod({"name": "c"}), False),
        (pod(container({NVIDIA: "1"})), False),
        (pod(container({NVIDIA: "1"}), schedulerName="sharing-scheduler"), True),
        (pod(container({"cpu": "1"}), schedulerName="sharing-scheduler"), False),
        (pod(container({"kooperator/gpu": "1"})), False),
        (pod(container({RATIO: "1"})), True),
        (pod(container(requests={"gpus.example/tape": "1"})), True),
        (pod(container({"cpu": "1"}), init=[container({RATIO: "1"})]), True),
    ],
)
def test_the_api_server_asks_about_the_pods_that_the_rules_are_about(given: Json, is_theirs: bool) -> None:
    assert (SHARES in called(Question("CREATE", POD, "p", "team"), given)) is is_theirs
    assert bool(judged(given).patch) is is_theirs or not judged(given).is_allowed


@pytest.mark.parametrize("sub", ["", "status"])
@pytest.mark.parametrize(("old", "new"), [(None, "{}"), ("{}", None), ("{}", '{"gpu":[]}')])
def test_the_api_server_asks_whenever_others_change_an_allocation(sub: str, old: str | None, new: str | None) -> None:
    question = Question("UPDATE", POD, "p", "team", subresource=sub, user={"username": "eve", "groups": ["devs"]})
    assert ALLOCATIONS in called(question, of_allocation(new), of_allocation(old))
    assert called(question, of_allocation(new), of_allocation(new)) == set()
    by_scheduler = replace(question, user={"username": ACCOUNT})
    assert called(by_scheduler, of_allocation(new), of_allocation(old)) == set()


def test_the_api_server_asks_about_bindings_that_bring_an_allocation() -> None:
    user = {"username": "eve"}
    question = Question("CREATE", POD, "p", "team", subresource="binding", user=user)
    older = Question("CREATE", KindVersion("", "v1", "Binding", "bindings"), "p", "team", user=user)
    for one in (question, older):
        assert called(one, {"metadata": {"annotations": {ALLOCATED: "{}"}}}) == {ALLOCATIONS}
        assert called(one, {"metadata": {}}) == set()


def test_without_an_account_the_product_goes_on_though_nobody_answers() -> None:
    user = {"username": "x", "groups": [f"system:serviceaccounts:{HOME}"]}
    question = Question("UPDATE", POD, "p", "team", user=user)
    names = SharingNames("gpus.example")
    assert called(question, of_allocation("{}"), of_allocation(None), names) == set()
