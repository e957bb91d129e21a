"""Pods: what they may ask of pools, rule by rule."""

from typing import Any, NoReturn

import pytest

from gpuledger.api.kinds import NAMESPACE
from gpuledger.api.pool_ref import PoolRef
from gpuledger.api.sharing import SharingNames
from gpuledger.edge.admission.rules.decide import decide
from gpuledger.edge.admission.rules.pods import MODULE_DISABLED
from gpuledger.edge.admission.rules.requests import PoolRequest, containers_with_units, pool_request
from gpuledger.edge.webhooks.serving.review import CREATE, UPDATE, AdmissionResponse
from gpuledger.events.pool import PoolChanged, PoolDefined, PoolGone
from support.admission import TEAM, Json, RecordedFact, cached, device, namespace, pod_with, pool, review, settings

LOCAL, CLUSTER = "gpu.deckhouse.io/local-x", "cluster.gpu.deckhouse.io/cluster-a"
READY = [namespace(), *pool(f"{TEAM}/local-x"), *pool("cluster-a")]


class Untouchable:
    """Has nothing but settings, and must not be asked for more."""

    sharing = SharingNames()
    home = NAMESPACE

    def __getattr__(self, name: str) -> NoReturn:
        raise AssertionError(f"{name} was looked up")


def judged(pod: Json, *facts: RecordedFact, within: str = TEAM) -> AdmissionResponse:
    return decide(review("pods", pod, within=within), cached(*facts))


def container(name: str = "c", limits: Json | None = None, requests: Json | None = None, **more: Any) -> Json:
    return {"name": name, "resources": {"limits": limits or {}, "requests": requests or {}}, **more}


def pod(*containers: Json, init: list[Json] | None = None) -> Json:
    return {"metadata": {"name": "p"}, "spec": {"containers": list(containers), "initContainers": init or []}}


@pytest.mark.parametrize(
    "given",
    [
        {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}},
        pod(container(limits={"cpu": "1", "nvidia.com/gpu": "1"})),
        pod(container(limits={"other.gpu.deckhouse.io/x": "1"})),
        {"spec": {"containers": None, "initContainers": None}},
        {},
    ],
)
def test_a_pod_without_our_resources_costs_no_lookup(given: Json) -> None:
    assert decide(review("pods", given), Untouchable()) == AdmissionResponse()  # type: ignore[arg-type]


@pytest.mark.parametrize(("resource", "within"), [(LOCAL, TEAM), (CLUSTER, TEAM), (CLUSTER, "other")])
def test_a_pod_may_use_a_pool_that_is_set_up(resource: str, within: str) -> None:
    verdict = judged(pod_with(resource), *READY, namespace("other"), within=within)
    assert verdict.is_allowed
    assert verdict.patch


def test_only_new_pods_are_checked() -> None:
    request = review("pods", pod_with(LOCAL), pod_with(LOCAL), operation=UPDATE)
    assert decide(request, cached()) == AdmissionResponse()
    assert not decide(request._replace(operation=CREATE), cached()).is_allowed


REFUSED = {
    "MixedPoolRequest": (pod_with(LOCAL, CLUSTER), READY, "one pool only"),
    "PoolNotFound": (pod_with("gpu.deckhouse.io/none"), READY, "There is no GPUPool none in the namespace gpu-team-a"),
    "NamespaceNotEnabled": (pod_with(LOCAL), [*READY, namespace(enabled=False)], "gpu.deckhouse.io/enabled=true"),
    "PoolDeleting": (pod_with(CLUSTER), [namespace(), *pool("cluster-a", deleting=True)], "being deleted"),
    "PoolNotSupported": (
        pod_with(CLUSTER), [namespace(), *pool("cluster-a", has={"Supported": False})], "Supported is False (Tested)",
    ),
    "PoolMisconfigured": (
        pod_with(CLUSTER), [namespace(), *pool("cluster-a", has={"Misconfigured": True})], "Misconfigured is True",
    ),
    "PoolNotConfigured": (
        pod_with(CLUSTER), [namespace(), *pool("cluster-a", has={"Configured": False})], "Configured is False",
    ),
    "PoolInMaintenance": (
        pod_with(CLUSTER), [namespace(), *pool("cluster-a", has={"Maintenance": True})], "Maintenance is True",
    ),
    "CapacityExceeded": (
        pod_with(CLUSTER, amount="5"), [*READY, *device()],
        "asks for 5 of cluster.gpu.deckhouse.io/cluster-a, and all devices that the pool selects offer 4",
    ),
    "InvalidQuantity": (pod_with(CLUSTER, amount="1500m"), READY, "not a whole number"),
    "RequestNotLimit": (
        pod(container(limits={CLUSTER: "2"}, requests={CLUSTER: "1"})), READY,
        f"container c requests 1 of {CLUSTER} with a limit of 2. Make both the same number",
    ),
    "PoolLabelConflict": (pod_with(CLUSTER, labels={"gpu.deckhouse.io/pool": "b"}), READY, "says 'b'"),
    "PlacementConflict": (
        pod_with(CLUSTER, spec={"nodeSelector": {"zone": "b"}}),
        [namespace(), *pool("cluster-a", node_selector={"labels": {"zone": "a"}})],
        "zone In a, but the pod can run on none: its nodeSelector or node affinity says otherwise about zone. Remove",
    ),
}  # fmt: skip


@pytest.mark.parametrize("reason", REFUSED)
def test_a_refusal_has_a_reason(reason: str) -> None:
    given, facts, words = REFUSED[reason]
    verdict = judged(given, *facts)
    assert verdict.reason == reason
    assert words in verdict.message
    assert not verdict.patch


def test_what_needs_only_its_opposite_is_allowed() -> None:
    """Beside each refusal above: the same, but for what was wrong."""
    assert judged(pod_with(CLUSTER, amount="4"), *READY).is_allowed
    assert judged(pod_with(CLUSTER, amount="400"), namespace(), *pool("cluster-a", total=None)).is_allowed
    assert judged(pod(container(limits={CLUSTER: "2"}, requests={CLUSTER: 2})), *READY).is_allowed
    assert judged(pod_with(CLUSTER, labels={"gpu.deckhouse.io/pool": "cluster-a"}), *READY).is_allowed
    assert judged(pod(container("a", {CLUSTER: "1"}), container("b", {CLUSTER: "1"})), *READY).is_allowed
    assert judged(pod_with(CLUSTER), namespace(enabled=False), *READY).is_allowed
    selected = pool("cluster-a", node_selector={"labels": {"zone": "a"}})
    assert judged(pod_with(CLUSTER, spec={"nodeSelector": {"zone": "a"}}), namespace(), *selected).is_allowed


NEW = ("cluster-a", PoolDefined(uid="u", unit="Card"))
CARDS = [fact for name in ("d1", "d2", "d3") for fact in device(name)]


@pytest.mark.parametrize(
    "facts",
    [
        [NEW],
        pool("cluster-a", total=0),
        pool("cluster-a", total=2),
        [*pool("cluster-a", total=0), *CARDS],
        [*pool("cluster-a", total=2), *CARDS],
    ],
)
def test_a_pod_that_comes_before_its_cards_waits_for_them(facts: list[RecordedFact]) -> None:
    verdict = judged(pod_with(CLUSTER, amount="3"), namespace(), *facts)
    assert verdict.is_allowed
    assert verdict.patch
    (warning,) = verdict.warnings
    assert "stays Pending" in warning


def test_a_pod_that_all_cards_of_a_pool_together_could_not_hold_is_refused() -> None:
    verdict = judged(pod_with(CLUSTER, amount="4"), namespace(), *pool("cluster-a", total=0), *CARDS)
    assert verdict.reason == "CapacityExceeded"
    assert "offer 3. Ask for 3 or fewer" in verdict.message


def test_a_pod_that_fits_into_the_pool_has_no_warning() -> None:
    assert judged(pod_with(CLUSTER, amount="4"), *READY, *device()).warnings == ()


def test_a_condition_that_nobody_gave_does_not_hold() -> None:
    defined, _ = pool("cluster-a")
    verdict = judged(pod_with(CLUSTER), namespace(), defined, ("cluster-a", PoolChanged(total=4)))
    assert (verdict.reason, "Supported is Unknown." in verdict.message) == ("PoolNotSupported", True)


def test_a_namespace_that_nobody_has_seen_is_closed() -> None:
    verdict = judged(pod_with(CLUSTER), *READY, within="unseen")
    assert (verdict.reason, "The namespace unseen may not" in verdict.message) == ("NamespaceNotEnabled", True)


def test_a_pool_that_is_gone_is_not_found() -> None:
    assert judged(pod_with(CLUSTER), *READY, ("cluster-a", PoolGone())).reason == "PoolNotFound"


@pytest.mark.parametrize(
    ("resource", "words"),
    [
        ("gpu.deckhouse.io/cluster-a", "ask for cluster.gpu.deckhouse.io/cluster-a"),
        ("gpu.deckhouse.io/local-y", "in another namespace"),
        ("cluster.gpu.deckhouse.io/local-x", "There is a GPUPool of that name: ask for gpu.deckhouse.io/local-x."),
        ("cluster.gpu.deckhouse.io/local-y", "in another namespace"),
        ("gpu.deckhouse.io/", "names no pool"),
        ("cluster.gpu.deckhouse.io/gpu-team-a/local-x", "names no pool"),
        ("cluster.gpu.deckhouse.io/elsewhere/local-y", "names no pool"),
        ("cluster.gpu.deckhouse.io/none", "There is no ClusterGPUPool none, which"),
    ],
)
def test_where_no_pool_is_found_the_message_shows_a_way(resource: str, words: str) -> None:
    verdict = judged(pod_with(resource), *READY, *pool("elsewhere/local-y"))
    assert verdict.reason == "PoolNotFound"
    assert words in verdict.message


def test_nothing_is_refused_while_the_module_is_disabled() -> None:
    assert judged(pod_with(LOCAL, CLUSTER), settings(enabled=False)) == AdmissionResponse(warnings=(MODULE_DISABLED,))


@pytest.mark.parametrize(
    ("given", "amount"),
    [
        (pod(container("a", {LOCAL: "1"}), container("b", {LOCAL: 2})), 3),
        (pod(container("a", {LOCAL: "1"}), init=[container("i", {LOCAL: "3"})]), 3),
        (pod(container("a", {LOCAL: "2"}), init=[container("i", {LOCAL: "1"}), container("j", {LOCAL: "2"})]), 2),
        (pod(container("a", {LOCAL: "2"}), init=[container("s", {LOCAL: "1"}, restartPolicy="Always")]), 3),
        (
            pod(
                container("a", {LOCAL: "1"}),
                init=[container("s", {LOCAL: "2"}, restartPolicy="Always"), container("i", {LOCAL: "3"})],
            ),
            5,
        ),
        (pod(container("a", {LOCAL: "0"})), 0),
        (pod(container("a", {LOCAL: "2k"})), 2000),
    ],
)
def test_a_pod_holds_what_the_scheduler_counts(given: Json, amount: int) -> None:
    assert pool_request(containers_with_units(given), TEAM) == PoolRequest(PoolRef("local-x", TEAM), amount)


@pytest.mark.parametrize("amount", ["-1", "1.5", "many", True])
def test_units_are_whole(amount: object) -> None:
    verdict = judged(pod_with(LOCAL, amount=amount), *READY)
    assert verdict.reason == "InvalidQuantity"
    assert f"{amount!r} of {LOCAL} in the limits of container c is not a whole number" in verdict.message


def test_a_request_needs_a_limit() -> None:
    verdict = judged(pod(container("a", requests={LOCAL: "1"})), *READY)
    assert (verdict.reason, f"requests {LOCAL} without a limit" in verdict.message) == ("RequestNotLimit", True)
