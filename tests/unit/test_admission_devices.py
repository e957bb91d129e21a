"""GPUDevices: who gives one to which pool, and which labels people may set."""

from typing import Any

import pytest

from gpuledger.admission.decide import decide
from gpuledger.admission.known import Known
from gpuledger.admission.review import CREATE, UPDATE, User, Verdict
from gpuledger.events.device import DeviceWithdrawn
from support.admission import (
    MASTER,
    PRODUCT,
    TEAM,
    USER,
    Json,
    Said,
    assigned,
    device,
    known,
    pool,
    review,
    settings,
)

LOCAL, CLUSTER = "gpu.deckhouse.io/assignment", "cluster.gpu.deckhouse.io/assignment"
IGNORE, PRODUCT_LABEL = "gpu.deckhouse.io/ignore", "gpu.deckhouse.io/product"
POOLS = [*pool(f"{TEAM}/local-x"), *pool("cluster-a")]
READY = [*POOLS, *device()]


def gpu(annotations: Json | None = None, labels: Json | None = None) -> Json:
    return {"metadata": {"name": "d1", "annotations": annotations or {}, "labels": labels or {}}}


def judged(new: Json, old: Json, *said: Said, user: User = USER) -> Verdict:
    return decide(review("gpudevices", new, old, operation=UPDATE, within="", user=user), known(*said))


@pytest.mark.parametrize("annotations", [{LOCAL: "local-x"}, {CLUSTER: "cluster-a"}])
def test_a_ready_device_may_be_given_to_a_pool_that_means_it(annotations: Json) -> None:
    assert judged(gpu(annotations), gpu(), *READY) == Verdict()


def refused(annotations: Json, *said: Said, labels: Json | None = None) -> tuple[Json, list[Said]]:
    return gpu(annotations, labels), list(said)


TO_A = {CLUSTER: "cluster-a"}
REFUSED: dict[str, tuple[tuple[Json, list[Said]], str]] = {
    "AmbiguousAssignment": (refused({LOCAL: "local-x", CLUSTER: "cluster-a"}, *READY), "Keep one"),
    "PoolNotFound": (refused({LOCAL: "none"}, *READY), "There is no GPUPool 'none'"),
    "PoolKindMismatch": (refused({LOCAL: "cluster-a"}, *READY), f"Annotate {CLUSTER}"),
    "DeviceUnknown": (refused(TO_A, *POOLS), "Nothing is known of d1"),
    "DeviceMismatch": (refused(TO_A, *pool("cluster-a", include={"pci_devices": ["2204"]}), *device()), "pciDevices"),
    "DeviceNotReady": (refused(TO_A, *POOLS, *device(state="Validating")), "d1 is Validating"),
    "DeviceNotManaged": (refused(TO_A, *POOLS, *device(managed=False)), "n1, which is not managed"),
    "DeviceIgnored": (refused(TO_A, *READY, labels={IGNORE: "true"}), "Remove it first"),
    "DeviceInUse": (refused(TO_A, *READY, assigned("d1", f"{TEAM}/local-x")), f"in the pool {TEAM}/local-x"),
    "PoolDeleting": (refused(TO_A, *pool("cluster-a", deleting=True), *device()), "being deleted"),
    "InvalidIgnoreLabel": (refused({}, *READY, labels={IGNORE: "yes"}), "Use true or false"),
    "LabelNotYours": (refused({}, *READY, labels={PRODUCT_LABEL: "h100"}), "gpu.deckhouse.io/product of d1"),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_is_refused_says_why(reason: str) -> None:
    (new, said), words = REFUSED[reason]
    verdict = judged(new, gpu(), *said)
    assert verdict.reason == reason
    assert words in verdict.message


@pytest.mark.parametrize(
    ("new", "old", "said"),
    [
        (gpu(TO_A), gpu(TO_A), POOLS),
        (gpu(), gpu({LOCAL: "none"}), READY),
        (gpu(TO_A), gpu(), [*READY, assigned("d1", "cluster-a", "Unassigning")]),
        (gpu(TO_A), gpu(), [*POOLS, *device(state="Faulted"), assigned("d1", "cluster-a", "Pending")]),
        (gpu(TO_A), gpu({LOCAL: "local-x"}), [*READY, assigned("d1", f"{TEAM}/local-x"), assigned("d1", None)]),
        (gpu(labels={IGNORE: "false"}), gpu(labels={IGNORE: "true"}), READY),
        (gpu(), gpu(labels={IGNORE: "odd"}), READY),
        (gpu(labels={"team": "a"}), gpu(), READY),
        (gpu(TO_A), gpu(), [*pool("cluster-a", node_selector={"labels": {"zone": "a"}}), *device()]),
        (gpu({LOCAL: "a", CLUSTER: "b"}), gpu(), [settings(enabled=False)]),
    ],
)
def test_what_is_allowed(new: Json, old: Json, said: list[Said]) -> None:
    assert judged(new, old, *said) == Verdict()


def test_the_node_has_to_be_one_of_the_pools() -> None:
    elsewhere = pool("cluster-a", node_selector={"labels": {"zone": "b"}})
    verdict = judged(gpu(TO_A), gpu(), *elsewhere, *device())
    assert (verdict.reason, "nodeSelector" in verdict.message) == ("DeviceMismatch", True)


def test_a_device_that_is_gone_is_unknown() -> None:
    assert judged(gpu(TO_A), gpu(), *READY, ("d1", DeviceWithdrawn())).reason == "DeviceUnknown"


@pytest.mark.parametrize(("user", "reason"), [(USER, "LabelNotYours"), (MASTER, ""), (PRODUCT, "")])
@pytest.mark.parametrize("old", [{}, {PRODUCT_LABEL: "a100"}, {"gpu.deckhouse.io/precision.fp8": "true"}])
def test_labels_that_say_what_was_found_are_kept_by_the_product(user: User, reason: str, old: Json) -> None:
    new = gpu(labels={"gpu.deckhouse.io/vendor": "nvidia"})
    assert judged(new, gpu(labels=old), *READY, user=user).reason == reason


def test_what_the_product_assigns_was_decided_already() -> None:
    said = [*POOLS, *device(state="Discovered")]
    assert judged(gpu(TO_A), gpu(), *said, user=PRODUCT).is_allowed
    assert judged(gpu(TO_A), gpu(), *said, user=MASTER).reason == "DeviceNotReady"
    asked = review("gpudevices", gpu(TO_A), gpu(), operation=UPDATE, within="", user=MASTER)
    assert decide(asked._replace(manager="gpuledger-auto-approval"), known(*said)).is_allowed
    assert not decide(asked._replace(manager="gpuledger-auto-approval", user=USER), known(*said)).is_allowed


def test_the_product_is_who_runs_in_its_namespace() -> None:
    asked = review("gpudevices", gpu(labels={PRODUCT_LABEL: "x"}), gpu(), operation=UPDATE, within="", user=PRODUCT)
    assert decide(asked, Known()).is_allowed
    assert not decide(asked, Known("elsewhere")).is_allowed


def test_only_changes_are_looked_at() -> None:
    asked: dict[str, Any] = {"within": "", "user": USER}
    assert decide(review("gpudevices", gpu({LOCAL: "none"}), operation=CREATE, **asked), known()) == Verdict()
