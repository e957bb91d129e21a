"""Pools: the static rules of their spec, what may not change, and unique names."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.api.kinds import GPU_POOLS
from gpuledger.domain.pools.validation import problems
from gpuledger.edge.admission.rules.decide import decide
from gpuledger.edge.admission.rules.pool_manifest import manifest_problems
from gpuledger.edge.watchers.decide import ObjectPart
from gpuledger.edge.watchers.resources.gpupools import KIND, read
from gpuledger.edge.webhooks.serving.review import CREATE, DELETE, UPDATE, AdmissionResponse
from support.admission import TEAM, Json, RecordedFact, cached, pool, review, settings

CARD: Json = {
    "metadata": {"name": "local-x"},
    "spec": {
        "provider": "Nvidia",
        "backend": "DevicePlugin",
        "resource": {"unit": "Card"},
        "deviceSelector": {"include": {"pciVendors": ["10de"], "pciDevices": ["2203"]}},
        "scheduling": {"strategy": "Spread", "topologyKey": "topology.kubernetes.io/zone"},
    },
}
MIG: Json = {
    "metadata": {"name": "a100-mig"},
    "spec": {"resource": {"unit": "MIG", "migProfile": "2g.20gb", "slicesPerUnit": 2, "maxDevicesPerNode": 2}},
}
ACCEPTED = "accepted"


def with_(path: str, value: object, given: Json = CARD) -> Json:
    """The pool with another value at a path in its spec."""
    changed = deepcopy(given)
    holder = changed["spec"]
    *parents, last = path.split(".")
    for name in parents:
        holder = holder.setdefault(name, {})
    holder[last] = value
    return changed


def judged(
    new: Json | None, old: Json | None = None, *facts: RecordedFact, kind: str = "gpupools", **more: Any
) -> AdmissionResponse:
    return decide(review(kind, new, old, **{"operation": CREATE if old is None else UPDATE, **more}), cached(*facts))


AUTO = {"requireAnnotation": False, "autoApproveSelector": {"matchLabels": {"a": "b"}}}

RULES = [
    ("resource", {"unit": "MIG", "migProfile": "1g.10gb"}, {"unit": "MIG"}, "spec.resource.migProfile: a pool of MIG"),
    ("resource", {"unit": "Card"}, {"unit": "Card", "migProfile": "1g.10gb"}, "only a pool with unit MIG"),
    (
        "resource",
        {"unit": "MIG", "migProfile": "1g.10gb"},
        {"unit": "MIG", "migProfile": "10gb"},
        "spec.resource.migProfile: '10gb' is not a MIG profile",
    ),
    ("resource.slicesPerUnit", 1, 0, "slicesPerUnit: 0 is not from 1 to 8"),
    ("resource.slicesPerUnit", 8, 9, "slicesPerUnit: 9 is not from 1 to 8"),
    ("resource.slicesPerUnit", 2, "2", "slicesPerUnit: '2'"),
    ("resource.slicesPerUnit", 2, True, "slicesPerUnit: True"),
    ("deviceSelector.include.migProfiles", ["1g.10gb"], ["10gb"], "include.migProfiles: '10gb'"),
    ("deviceAssignment", AUTO, {**AUTO, "requireAnnotation": True}, "autoApproveSelector: it needs requireAnnotation"),
    ("deviceAssignment", AUTO, {"autoApproveSelector": {}}, "autoApproveSelector: it needs requireAnnotation"),
    (
        "deviceAssignment",
        AUTO,
        {"requireAnnotation": False, "autoApproveSelector": {"matchLabels": {"a b": "c"}}},
        "spec.deviceAssignment.autoApproveSelector.matchLabels: 'a b' is not a label's key",
    ),
    ("scheduling.topologyKey", "rack", "a rack", "spec.scheduling.topologyKey: 'a rack' is not a label's key"),
    (
        "scheduling.taints",
        [{"key": "gpu", "effect": "NoSchedule", "value": "yes"}],
        [{"key": "gpu", "effect": "NoSchedule", "value": "oh no"}],
        "spec.scheduling.taints[0].value: 'oh no' is not a label's value",
    ),
    (
        "scheduling.taints",
        [{"key": "a", "effect": "NoExecute"}, {"key": "b/c", "effect": "PreferNoSchedule"}],
        [{"key": "a", "effect": "NoExecute"}, {"effect": "PreferNoSchedule"}],
        "spec.scheduling.taints[1].key: None is not a label's key",
    ),
    ("nodeSelector.matchLabels", {"a.b/c": "d"}, {"a b": "d"}, "spec.nodeSelector.matchLabels: 'a b'"),
    (
        "nodeSelector.matchLabels",
        {"a": ""},
        {"a": "b c"},
        "spec.nodeSelector.matchLabels: 'b c' is not a label's value",
    ),
    (
        "nodeSelector.matchExpressions",
        [{"key": "a", "operator": "In", "values": ["b"]}],
        [{"key": "a", "operator": "In"}],
        "matchExpressions[0].values: In takes at least one",
    ),
    (
        "nodeSelector.matchExpressions",
        [{"key": "a", "operator": "Exists"}],
        [{"key": "a", "operator": "Near", "values": ["b"]}],
        "matchExpressions[0].operator: 'Near'",
    ),
    (
        "nodeSelector.matchExpressions",
        [{"key": "a", "operator": "DoesNotExist"}],
        [{"key": "a", "operator": "DoesNotExist", "values": ["b"]}],
        "matchExpressions[0].values: DoesNotExist takes none",
    ),
    (
        "nodeSelector.matchExpressions",
        [{"key": "a", "operator": "NotIn", "values": ["b"]}],
        [{"key": "a/", "operator": "NotIn", "values": ["b"]}],
        "matchExpressions[0].key: 'a/' is not a label's key",
    ),
    (
        "nodeSelector.matchExpressions",
        [{"key": "a", "operator": "In", "values": ["b"]}],
        [{"key": "a", "operator": "In", "values": ["b", "-"]}],
        "matchExpressions[0].values: '-' is not a label's value",
    ),
    (
        "nodeSelector.matchExpressions",
        [{"key": "a", "operator": "Exists"}],
        [{"key": "a", "operator": ["Exists"]}],
        "matchExpressions[0].operator: ['Exists'] is not known",
    ),
]


@pytest.mark.parametrize(("path", "good", "bad", "words"), RULES)
def test_each_rule_accepts_and_refuses(path: str, good: object, bad: object, words: str) -> None:
    assert judged(with_(path, good)).is_allowed
    verdict = judged(with_(path, bad))
    assert verdict.reason == "InvalidPool"
    assert words in verdict.message


@pytest.mark.parametrize(
    ("profile", "fits"),
    [
        *((one, True) for one in ("1g.10gb", "7g.80gb", "1g.10gb+me", "1c.3g.40gb", "1g.12gb+gfx", "1g.10gb-me")),
        *((one, True) for one in ("1g.10gb+me.all", "3g.141gb")),
        *((one, False) for one in ("1g", "1g.10g", "g.10gb", "1g.10gb+", "1g.10GB", "0g.10gb", "1g.10gb ")),
    ],
)
def test_mig_profiles(profile: str, fits: bool) -> None:
    assert judged(with_("resource.migProfile", profile, MIG)).is_allowed is fits


def test_the_modules_setting_caps_the_slices() -> None:
    capped = settings(max_slices_per_device=2)
    assert judged(with_("resource.slicesPerUnit", 2), None, capped).is_allowed
    assert "is not from 1 to 2" in judged(with_("resource.slicesPerUnit", 3), None, capped).message
    assert judged(with_("resource.slicesPerUnit", 64), None, settings(max_slices_per_device=64)).is_allowed
    assert "is not from 1 to 64" in "".join(manifest_problems(with_("resource.slicesPerUnit", 65), slices_max=100))


def test_a_refusal_lists_all_problems() -> None:
    message = judged(with_("resource.slicesPerUnit", 0, with_("scheduling.topologyKey", "a rack"))).message
    assert "spec.resource.slicesPerUnit" in message
    assert "spec.scheduling.topologyKey" in message


def test_a_name_has_to_fit_into_a_resources_name() -> None:
    assert judged(CARD | {"metadata": {"name": "x" * 63}}).is_allowed
    verdict = judged(CARD | {"metadata": {"name": "x" * 64}})
    assert (verdict.reason, "metadata.name: it is part of a resource's name" in verdict.message) == (
        "InvalidPool",
        True,
    )


def test_dra_is_accepted_with_a_warning() -> None:
    assert "not served yet" in judged(with_("backend", "DRA")).warnings[0]


@pytest.mark.parametrize(
    ("assignment", "number"),
    [
        ({}, 0),
        ({"requireAnnotation": True}, 0),
        (AUTO, 0),
        ({"requireAnnotation": False, "autoApproveSelector": {}}, 0),
        ({"requireAnnotation": False}, 1),
        ({"requireAnnotation": False, "autoApproveSelector": None}, 1),
    ],
)
def test_approval_without_a_selector_is_one_warning(assignment: Json, number: int) -> None:
    verdict = judged(with_("deviceAssignment", assignment))
    assert verdict.is_allowed
    assert len(verdict.warnings) == number
    assert all("Set autoApproveSelector" in one for one in verdict.warnings)


IMMUTABLE = [
    ("backend", "DRA"),
    ("resource", {"unit": "MIG", "migProfile": "1g.10gb"}),
    ("resource.slicesPerUnit", 2),
    ("deviceSelector.include.pciDevices", ["2204"]),
    ("deviceSelector", None),
]


@pytest.mark.parametrize(("path", "value"), IMMUTABLE)
def test_what_a_pool_is_cannot_change(path: str, value: object) -> None:
    verdict = judged(with_(path, value), CARD)
    assert verdict.reason == "PoolImmutable"
    assert f"spec.{path.partition('.')[0]} cannot change" in verdict.message


def test_a_provider_of_earlier_times_cannot_change_either() -> None:
    verdict = judged(CARD, with_("provider", "Amd"))
    assert (verdict.reason, "spec.provider cannot change" in verdict.message) == ("PoolImmutable", True)


def test_the_rest_can_change() -> None:
    assert judged(with_("nodeSelector.matchLabels", {"a": "b"}), CARD).is_allowed
    assert judged(with_("scheduling.strategy", "BinPack"), CARD).is_allowed


def test_writing_a_default_in_is_no_change() -> None:
    bare = {"metadata": {"name": "local-x"}, "spec": {"resource": {"unit": "Card"}}}
    full = with_("resource.slicesPerUnit", 1, with_("provider", "Nvidia", with_("backend", "DevicePlugin", bare)))
    assert judged(full, bare).is_allowed


def test_an_unchanged_spec_is_not_held_against_rules_that_came_later() -> None:
    old = with_("resource.slicesPerUnit", 8)
    labelled = old | {"metadata": {"name": "local-x", "labels": {"a": "b"}, "finalizers": []}}
    capped = settings(max_slices_per_device=2)
    assert judged(labelled, old, capped).is_allowed


def test_a_change_answers_only_for_what_it_brings_in() -> None:
    """What cannot change any more could not be corrected either."""
    old, capped = with_("resource.slicesPerUnit", 8), settings(max_slices_per_device=2)
    assert judged(with_("scheduling.strategy", "BinPack", old), old, capped).is_allowed
    verdict = judged(with_("scheduling.topologyKey", "a rack", old), old, capped)
    assert (verdict.reason, "slicesPerUnit" in verdict.message) == ("InvalidPool", False)
    assert judged(old, None, capped).reason == "InvalidPool"


@pytest.mark.parametrize(
    ("kind", "within", "there", "reason"),
    [
        ("gpupools", TEAM, "other/local-x", "PoolNameTaken"),
        ("gpupools", TEAM, "local-x", "PoolNameTaken"),
        ("clustergpupools", "", "other/local-x", "PoolNameTaken"),
        ("gpupools", TEAM, "other/local-y", ""),
        ("gpupools", TEAM, f"{TEAM}/local-x", ""),
        ("clustergpupools", "", "local-x", ""),
    ],
)
def test_names_are_unique_in_the_cluster(kind: str, within: str, there: str, reason: str) -> None:
    verdict = judged(CARD, None, *pool(there), kind=kind, within=within)
    assert verdict.reason == reason
    assert not reason or there in verdict.message


@pytest.mark.parametrize(("value", "fits"), [("enabled", True), ("confirmed", True), ("", True), ("soon", False)])
def test_the_words_of_maintenance(value: str, fits: bool) -> None:
    metadata = {"name": "local-x", "annotations": {"gpu.deckhouse.io/maintenance": value}}
    verdict = judged(CARD | {"metadata": metadata}, CARD)
    assert verdict.reason == ("" if fits else "InvalidMaintenance")
    assert fits or "Use enabled or confirmed" in verdict.message
    assert judged(CARD | {"metadata": metadata}, CARD | {"metadata": metadata}).is_allowed


def recorded(manifest: Json) -> ObjectPart:
    return read(GPU_POOLS, manifest | {"metadata": {"name": "x", "namespace": "n", "uid": "u", "generation": 1}})


profiles = st.from_regex(r"([1-9]c\.)?[1-9]g\.[1-9][0-9]{0,3}gb([+-][a-z]{1,4}(\.[a-z]{1,4})?)?", fullmatch=True)
resources = st.fixed_dictionaries(
    {"unit": st.sampled_from(["Card", "MIG"])},
    optional={"migProfile": profiles | st.text(max_size=8), "slicesPerUnit": st.integers(0, 10)},
)
operators = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt"])
expressions = st.fixed_dictionaries(
    {"key": st.sampled_from(["a", "b/c", "-"]), "operator": operators}, optional={"values": st.lists(st.just("v"))}
)


@given(resources, st.lists(expressions, max_size=2))
def test_the_decider_finds_no_problem_in_what_admission_allows(resource: Json, expressions: list[Json]) -> None:
    manifest = {"spec": {"resource": resource, "nodeSelector": {"matchExpressions": expressions}}}
    if not list(manifest_problems(manifest, slices_max=8)):
        part = recorded(manifest)
        assert part.problems == ()
        assert list(problems("n/x", KIND.combine([part.content]), 8)) == []


def test_a_deletion_is_allowed_with_a_warning_about_what_is_released() -> None:
    facts = pool(f"{TEAM}/local-x", total=3)
    verdict = judged(None, CARD, *facts, operation=DELETE)
    assert verdict.is_allowed
    assert "3 units" in verdict.warnings[0]
    assert judged(None, CARD, operation=DELETE) == AdmissionResponse()
