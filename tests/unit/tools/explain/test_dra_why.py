"""Why a claim has no devices: the obstacles of each device and pool, and of all requests at once."""

import pytest

from gpuledger.domain.dra.constraints import Mismatch, tolerates
from gpuledger.domain.dra.device_state import UnavailableReason
from gpuledger.domain.dra.objects import DeviceTaint as Tainted
from gpuledger.events.claim import ClaimRequested, Request, Toleration, Wish
from gpuledger.events.reach import NodeReach, NodeRequirement
from gpuledger.events.slice import (
    DeviceCapacity,
    DeviceClassDefined,
    RequestPolicy,
    SliceDevice,
    TaintRuleSet,
)
from gpuledger.tools.explain.dra_wording import answer_words
from support.dra_explanations import (
    BAD,
    PARTS,
    SLICE,
    available,
    devices,
    explained,
    holding,
    node,
    requesting,
    slice_of,
    wish,
    words,
)
from support.events import SubjectFact


def first_hindrances(*facts: SubjectFact, claim: ClaimRequested, at: str | None = None) -> dict[str, tuple[str, str]]:
    """By device what is most in the way of the claim's first request."""
    (option,) = explained(available(*facts), claim, at=at).claims[0].requests[0].options
    found = {one.device.name: one.constraints for one in option.candidates}
    return {name: (str(many[0].kind), many[0].detail) for name, many in found.items() if many}


def test_a_claim_that_could_be_allocated_shows_where() -> None:
    facts = words(SLICE, holding("a/x", "w1/gpu-0"), claim=requesting(wish(count=2)))
    assert facts == (
        "it could be allocated now on node w1: gpu gets gpu.example.com/w1/gpu-1, gpu gets gpu.example.com/w1/gpu-2"
    )


def test_missing_devices_are_counted_by_the_most_specific_reason() -> None:
    facts = (
        slice_of("w1", *devices("gpu-0", "gpu-1", "gpu-2"), *devices("gpu-3", taints=(BAD,))),
        holding("a/x", "w1/gpu-0"),
        holding("b/y", "w1/gpu-1"),
    )
    assert words(*facts, claim=requesting(wish(count=2))) == (
        "request gpu: 2 devices requested, 1 available: 2 taken, 1 tainted"
    )


def test_the_holder_of_a_device_is_part_of_the_explanation() -> None:
    state = available(SLICE, holding("a/x", "w1/gpu-0"))
    (option,) = explained(state, requesting(wish(count=3))).claims[0].requests[0].options
    (held,) = [one for one in option.candidates if one.constraints]
    assert [str(one.claim) for one in held.constraints[0].holdings] == ["a/x"]


@pytest.mark.parametrize(
    ("facts", "requested", "constraint"),
    [
        ((slice_of("w1", *devices("d", taints=(BAD,))),), wish(), (UnavailableReason.TAINTED, "bad=yes:NoSchedule")),
        (
            (slice_of("w1", *devices("d")), ("rule", TaintRuleSet(uid="u", taint=BAD))),
            wish(),
            (UnavailableReason.TAINTED, "bad=yes:NoSchedule"),
        ),
        (
            (slice_of("w1", *devices("d"), slice_count=3),),
            wish(),
            (UnavailableReason.INCOMPLETE, "1 of 3 slices of generation 1 are there"),
        ),
        (
            (slice_of("w1", *devices("d")), slice_of("w1", name="new", pool_generation=2, slice_count=1)),
            wish(),
            (UnavailableReason.OUTDATED, "generation 1, and 2 counts"),
        ),
        (
            (slice_of("w1", SliceDevice(name="d", consumes={"mem": {"gi": "4"}})),),
            wish(),
            (UnavailableReason.INVALID, "device d in w1-slice consumes the unknown counter set mem"),
        ),
        (
            (slice_of("w1", *devices("d", attributes={"model": "A100"})),),
            wish(selectors=("model=H200",)),
            (Mismatch.SELECTOR, "the request: model=H200"),
        ),
        (
            (slice_of("w1", *devices("d")),),
            wish(selectors=("model!",)),
            (Mismatch.SELECTOR_FAILS, "the request: model!: no such key: model"),
        ),
        (
            (slice_of("w1", *devices("d")), ("gpu", DeviceClassDefined(uid="u", selectors=("model=H200",)))),
            wish(),
            (Mismatch.SELECTOR, "DeviceClass gpu: model=H200"),
        ),
        (
            (slice_of("gone", *devices("d")), node("w1")),
            wish(),
            (Mismatch.UNREACHABLE, "from any node that is known"),
        ),
        (
            (slice_of("w1", *devices("d", capacity={"memory": DeviceCapacity(value="10Gi")})),),
            wish(capacity={"memory": "12Gi"}),
            (UnavailableReason.CAPACITY, "memory: 12Gi asked, 10Gi left"),
        ),
        (
            (slice_of("w1", *devices("d")),),
            wish(capacity={"memory": "1Gi"}),
            (UnavailableReason.CAPACITY, "memory: 1Gi asked, and it has none"),
        ),
    ],
)
def test_what_is_in_the_way_of_a_device(
    facts: tuple[SubjectFact, ...], requested: Wish, constraint: tuple[UnavailableReason | Mismatch, str]
) -> None:
    assert first_hindrances(*facts, claim=requesting(requested)) == {"d": (str(constraint[0]), constraint[1])}


def test_an_amount_is_rounded_before_it_is_compared() -> None:
    policy = RequestPolicy(default="4Gi", min="4Gi", max="16Gi", step="4Gi")
    capacity = {"memory": DeviceCapacity(value="16Gi", policy=policy)}
    facts = (
        slice_of("w1", SliceDevice(name="d", shareable=True, capacity=capacity)),
        holding("a/x", "w1/d", share="s1", consumed={"memory": "12Gi"}),
    )
    short = first_hindrances(*facts, claim=requesting(wish(capacity={"memory": "5Gi"})))
    assert short == {"d": ("InsufficientCapacity", "memory: 5Gi asked, which consumes 8Gi, 4Gi left")}
    refused = first_hindrances(*facts, claim=requesting(wish(capacity={"memory": "17Gi"})))
    assert refused == {"d": ("InsufficientCapacity", "memory: 17Gi asked, which its policy does not allow")}
    assert words(*facts, claim=requesting(wish(capacity={"memory": "3Gi"}))).startswith("it could be allocated now")


def test_exhausted_counters_are_named() -> None:
    found = first_hindrances(*PARTS, holding("a/x", "w1/half-0"), claim=requesting(wish()))
    assert found == {
        "half-0": ("Taken", ""),
        "whole": ("InsufficientSharedCapacity", "mem/gi: 8 needed, 4 left"),
    }


def test_a_toleration_has_a_tainted_device() -> None:
    facts = slice_of("w1", *devices("d", taints=(BAD,)))
    claim = requesting(wish(tolerations=(Toleration(key="bad", operator="Exists"),)))
    assert words(facts, claim=claim).startswith("it could be allocated now")


@pytest.mark.parametrize(
    ("toleration", "is_tolerated"),
    [
        (Toleration(operator="Exists"), True),
        (Toleration(key="bad", operator="Exists"), True),
        (Toleration(key="other", operator="Exists"), False),
        (Toleration(key="bad", value="yes"), True),
        (Toleration(key="bad", value="no"), False),
        (Toleration(key="bad"), False),
        (Toleration(key="bad", operator="Exists", effect="NoExecute"), False),
        (Toleration(key="bad", operator="Matches", value="yes"), False),
    ],
)
def test_which_tolerations_are_for_a_taint(toleration: Toleration, is_tolerated: bool) -> None:
    assert tolerates([toleration], Tainted("bad", "yes", "NoSchedule")) is is_tolerated


def test_administrators_have_what_others_have() -> None:
    facts = (slice_of("w1", *devices("d")), holding("a/x", "w1/d"))
    assert words(*facts, claim=requesting(wish())) == "request gpu: 1 device requested, 0 available: 1 taken"
    assert words(*facts, claim=requesting(wish(admin_access=True))).startswith("it could be allocated now")


def test_all_devices_means_all_that_match() -> None:
    every = requesting(wish(mode="All"))
    assert words(SLICE, claim=every).count("gpu gets") == 3
    assert words(SLICE, holding("a/x", "w1/gpu-0"), claim=every) == (
        "request gpu: all devices requested, 2 available: 1 taken"
    )
    half = (SLICE, slice_of("w1", *devices("nic-0"), name="nics", driver="nic.example.com", slice_count=2))
    assert words(*half, claim=every) == (
        "request gpu: all devices requested, 3 available: 1 in incomplete pools, "
        "and how many all are is not known while a pool is incomplete or invalid"
    )


def test_an_unknown_class_is_the_problem() -> None:
    claim = requesting(wish(device_class="tpu"))
    assert words(SLICE, claim=claim) == "request gpu: 1 device requested, and DeviceClass tpu does not exist"


def test_nothing_matches() -> None:
    claim = requesting(wish(selectors=("model=H200",)))
    assert words(SLICE, claim=claim) == "request gpu: 1 device requested, none of 3 matches"
    assert words(claim=claim) == "request gpu: 1 device requested, none is offered"


def test_the_first_alternative_that_can_be_had_is_given() -> None:
    options = (wish("many", count=4), wish("few", count=2))
    claim = ClaimRequested(uid="u", requests=(Request(name="gpu", wishes=options),))
    assert words(SLICE, claim=claim).startswith("it could be allocated now on node w1: gpu/few gets")
    assert words(SLICE, holding("a/x", "w1/gpu-0", "w1/gpu-1"), claim=claim) == (
        "request gpu, the first available of 2: many: 4 devices requested, 1 available: 2 taken; "
        "few: 2 devices requested, 1 available: 2 taken"
    )


def test_a_network_device_goes_where_its_selector_allows() -> None:
    zone = NodeReach(terms=((NodeRequirement(key="zone", operator="In", values=("a",)),),))
    facts = (slice_of("net", *devices("n"), reach=zone), node("w1", zone="b"), node("w2", zone="a"))
    assert words(*facts, claim=requesting(wish())).startswith("it could be allocated now on node w2")
    assert first_hindrances(*facts[:2], claim=requesting(wish())) == {
        "n": ("NotReachable", "from any node that is known")
    }


def test_from_a_node_only_what_it_reaches_is_seen() -> None:
    facts = (SLICE, slice_of("w2", *devices("d")), holding("a/x", "w2/d"))
    assert words(*facts, claim=requesting(wish()), at="w2") == "request gpu: 1 device requested, 0 available: 1 taken"


def test_an_answer_about_the_past_has_its_time() -> None:
    found = explained(available(SLICE), requesting(wish()))
    assert answer_words(found, "at noon").startswith("it could have been allocated at noon on node w1")
