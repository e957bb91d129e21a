"""GPUDevices: who gives one to which pool, and which labels people may set."""

from typing import Any

import pytest

from gpuledger.api.kinds import NAMESPACE
from gpuledger.edge.admission.cache import AdmissionCache
from gpuledger.edge.admission.rules.access import trusted_groups
from gpuledger.edge.admission.rules.decide import decide
from gpuledger.edge.webhooks.serving.review import CREATE, UPDATE, AdmissionResponse, Requester
from gpuledger.events.device import DeviceDescribed, DeviceWithdrawn, Hardware
from gpuledger.events.node import NodeLabelled
from support.admission import (
    MASTER,
    PRODUCT,
    TEAM,
    USER,
    Json,
    RecordedFact,
    assigned,
    cached,
    device,
    pool,
    review,
    settings,
)

EVACUATE = "gpu.deckhouse.io/evacuate"
LOCAL, CLUSTER = "gpu.deckhouse.io/assignment", "cluster.gpu.deckhouse.io/assignment"
IGNORE, PRODUCT_LABEL = "gpu.deckhouse.io/ignore", "gpu.deckhouse.io/product"
POOLS = [*pool(f"{TEAM}/local-x"), *pool("cluster-a")]
READY = [*POOLS, *device()]


def gpu(annotations: Json | None = None, labels: Json | None = None) -> Json:
    return {"metadata": {"name": "d1", "annotations": annotations or {}, "labels": labels or {}}}


def judged(new: Json, old: Json, *facts: RecordedFact, user: Requester = USER) -> AdmissionResponse:
    return decide(review("gpudevices", new, old, operation=UPDATE, within="", user=user), cached(*facts))


@pytest.mark.parametrize("annotations", [{LOCAL: "local-x"}, {CLUSTER: "cluster-a"}])
def test_a_ready_device_may_be_given_to_a_pool_that_means_it(annotations: Json) -> None:
    assert judged(gpu(annotations), gpu(), *READY) == AdmissionResponse()


def refused(annotations: Json, *facts: RecordedFact, labels: Json | None = None) -> tuple[Json, list[RecordedFact]]:
    return gpu(annotations, labels), list(facts)


TO_A = {CLUSTER: "cluster-a"}
REFUSED: dict[str, tuple[tuple[Json, list[RecordedFact]], str]] = {
    "AmbiguousAssignment": (refused({LOCAL: "local-x", CLUSTER: "cluster-a"}, *READY), "Keep one"),
    "PoolNotFound": (refused({LOCAL: "none"}, *READY), "There is no GPUPool 'none'"),
    "PoolKindMismatch": (
        refused({LOCAL: "cluster-a"}, *READY),
        f"There is no GPUPool cluster-a, but the ClusterGPUPool cluster-a. Use the annotation {CLUSTER}",
    ),
    "DeviceUnknown": (refused(TO_A, *POOLS), "gpuledger has not recorded d1 yet"),
    "DeviceMismatch": (refused(TO_A, *pool("cluster-a", include={"pci_devices": ["2204"]}), *device()), "pciDevices"),
    "DeviceNotReady": (refused(TO_A, *POOLS, *device(state="Validating")), "d1 is Validating"),
    "DeviceNotManaged": (refused(TO_A, *POOLS, *device(managed=False)), "n1, which is not managed"),
    "DeviceIgnored": (refused(TO_A, *READY, labels={IGNORE: "true"}), "Remove it first"),
    "DeviceInUse": (refused(TO_A, *READY, assigned("d1", f"{TEAM}/local-x")), f"in the pool {TEAM}/local-x"),
    "PoolDeleting": (refused(TO_A, *pool("cluster-a", deleting=True), *device()), "being deleted"),
    "CardShared": (
        refused(TO_A, *READY, ("n1", NodeLabelled(uid="u", labels={"node.kooperator/gpu-sharing": "enabled"}))),
        "whose label node.kooperator/gpu-sharing=enabled shares its cards. Remove the label from the node first",
    ),
    "InvalidIgnoreLabel": (refused({}, *READY, labels={IGNORE: "yes"}), "Use true or false"),
    "InvalidEvacuateLabel": (refused({}, *READY, labels={EVACUATE: "now"}), "Use one of Immediate, DeleteAfterTimeout"),
    "LabelNotYours": (refused({}, *READY, labels={PRODUCT_LABEL: "h100"}), "gpu.deckhouse.io/product of d1"),
}  # fmt: skip


@pytest.mark.parametrize("reason", REFUSED)
def test_a_refusal_has_a_reason(reason: str) -> None:
    (new, facts), words = REFUSED[reason]
    verdict = judged(new, gpu(), *facts)
    assert verdict.reason == reason
    assert words in verdict.message


@pytest.mark.parametrize(
    ("new", "old", "facts"),
    [
        (gpu(TO_A), gpu(TO_A), POOLS),
        (gpu(), gpu({LOCAL: "none"}), READY),
        (gpu(TO_A), gpu(), [*READY, assigned("d1", "cluster-a", "Unassigning")]),
        (gpu(TO_A), gpu(), [*POOLS, *device(state="Faulted"), assigned("d1", "cluster-a", "Pending")]),
        (gpu(TO_A), gpu({LOCAL: "local-x"}), [*READY, assigned("d1", f"{TEAM}/local-x"), assigned("d1", None)]),
        (gpu(TO_A), gpu({LOCAL: "local-x"}), [*READY, assigned("d1", f"{TEAM}/local-x", automatic=True)]),
        (gpu(labels={IGNORE: "false"}), gpu(labels={IGNORE: "true"}), READY),
        (gpu(), gpu(labels={IGNORE: "odd"}), READY),
        (gpu(labels={IGNORE: "odd", "team": "a"}), gpu(labels={IGNORE: "odd"}), READY),
        (gpu(labels={IGNORE: "true"}), gpu(), READY),
        (gpu(labels={EVACUATE: "Immediate"}), gpu(), READY),
        (gpu(), gpu(labels={EVACUATE: "odd"}), READY),
        (gpu(TO_A, {IGNORE: "false"}), gpu(), READY),
        (gpu(labels={"team": "a"}), gpu(), READY),
        (gpu(TO_A), gpu(), [*pool("cluster-a", node_selector={"labels": {"zone": "a"}}), *device()]),
        (gpu({LOCAL: "a", CLUSTER: "b"}), gpu(), [settings(enabled=False)]),
    ],
)
def test_what_is_allowed(new: Json, old: Json, facts: list[RecordedFact]) -> None:
    assert judged(new, old, *facts) == AdmissionResponse()


def test_the_node_has_to_be_one_of_the_pools() -> None:
    elsewhere = pool("cluster-a", node_selector={"labels": {"zone": "b"}})
    verdict = judged(gpu(TO_A), gpu(), *elsewhere, *device())
    assert (verdict.reason, "nodeSelector" in verdict.message) == ("DeviceMismatch", True)


def test_the_card_has_to_have_the_profile_of_a_pool_of_partitions() -> None:
    divided = pool("cluster-a", unit="MIG", mig_profile="2g.20gb")
    card = Hardware(pci_vendor="10de", pci_device="2203", mig_profiles=("1g.5gb", "2g.10gb"))
    verdict = judged(gpu(TO_A), gpu(), *divided, *device(hardware=card))
    assert verdict.reason == "DeviceMismatch"
    assert "has no MIG profile 2g.20gb, only 1g.5gb, 2g.10gb." in verdict.message
    assert judged(gpu(TO_A), gpu(), *divided, *device()) == AdmissionResponse()


def test_a_device_that_is_gone_is_unknown() -> None:
    assert judged(gpu(TO_A), gpu(), *READY, ("d1", DeviceWithdrawn())).reason == "DeviceUnknown"


def test_a_device_that_is_not_seen_is_not_ready() -> None:
    unseen = DeviceDescribed(hardware=Hardware(pci_vendor="10de", pci_device="2203"), managed=True, missing=True)
    verdict = judged(gpu(TO_A), gpu(), *READY, ("d1", unseen))
    assert (verdict.reason, "d1 is missing" in verdict.message) == ("DeviceNotReady", True)


@pytest.mark.parametrize(
    ("annotations", "reason", "words"),
    [
        ({CLUSTER: "none"}, "PoolNotFound", "There is no ClusterGPUPool 'none'"),
        ({CLUSTER: "local-x"}, "PoolKindMismatch", f"but the GPUPool {TEAM}/local-x. Use the annotation {LOCAL}"),
    ],
)
def test_the_other_kind_of_pool_is_denied_alike(annotations: Json, reason: str, words: str) -> None:
    verdict = judged(gpu(annotations), gpu(), *READY)
    assert (verdict.reason, words in verdict.message) == (reason, True)


@pytest.mark.parametrize(
    "user", [USER, Requester("eve"), Requester("x", frozenset({"system:serviceaccounts:default"}))]
)
@pytest.mark.parametrize("label", [PRODUCT_LABEL, "gpu.deckhouse.io/vendor", "gpu.deckhouse.io/precision.fp8"])
@pytest.mark.parametrize(("old", "new"), [(None, "a"), ("a", "b"), ("a", None)])
def test_labels_that_say_what_was_found_are_kept_by_the_product(
    user: Requester, label: str, old: str | None, new: str | None
) -> None:
    before, after = ({} if value is None else {label: value} for value in (old, new))
    request = gpu(labels=after), gpu(labels=before)
    verdict = judged(*request, *READY, user=user)
    assert verdict.reason == "LabelNotYours"
    assert f"gpuledger keeps {label} of d1." in verdict.message
    for group in trusted_groups(NAMESPACE):
        assert judged(*request, *READY, user=Requester("x", frozenset({group}))) == AdmissionResponse()


def test_what_the_product_assigns_was_decided_already() -> None:
    facts = [*POOLS, *device(state="Discovered")]
    assert judged(gpu(TO_A), gpu(), *facts, user=PRODUCT).is_allowed
    assert judged(gpu(TO_A), gpu(), *facts, user=MASTER).reason == "DeviceNotReady"


@pytest.mark.parametrize(
    ("manager", "user", "is_the_product"),
    [
        ("gpuledger-auto-approval", MASTER, True),
        ("gpuledger", MASTER, True),
        ("kubectl", MASTER, False),
        ("gpuledger-auto-approval", USER, False),
        ("gpuledger", USER, False),
    ],
)
def test_an_administrator_may_act_for_the_product(manager: str, user: Requester, is_the_product: bool) -> None:
    request = review("gpudevices", gpu(TO_A), gpu(), operation=UPDATE, within="", user=user)._replace(manager=manager)
    verdict = decide(request, cached(*POOLS, *device(state="Discovered")))
    assert (verdict.reason, verdict.is_allowed) == ("" if is_the_product else "DeviceNotReady", is_the_product)


def test_the_product_is_who_runs_in_its_namespace() -> None:
    request = review("gpudevices", gpu(labels={PRODUCT_LABEL: "x"}), gpu(), operation=UPDATE, within="", user=PRODUCT)
    assert decide(request, AdmissionCache()).is_allowed
    assert not decide(request, AdmissionCache("elsewhere")).is_allowed


def test_only_changes_are_checked() -> None:
    request: dict[str, Any] = {"within": "", "user": USER}
    assert (
        decide(review("gpudevices", gpu({LOCAL: "none"}), operation=CREATE, **request), cached()) == AdmissionResponse()
    )
