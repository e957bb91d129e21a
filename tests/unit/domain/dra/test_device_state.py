"""What is in the way of a device, and the state and reason that make of it; uses; what facts mean; taint rules."""

from typing import Any

import pytest

from gpuledger.domain.dra.counters import Balance
from gpuledger.domain.dra.device_state import UnavailableReason, blockers, pool_reason, state_of, taints_of
from gpuledger.domain.dra.facts import holdings_of, rule_of, slice_of
from gpuledger.domain.dra.objects import ClaimId, Holding, PoolId, TaintRule
from gpuledger.domain.dra.pools import seen_everywhere
from gpuledger.domain.dra.state import TaintRules
from gpuledger.domain.dra.use import UNUSED, Use, uses_of
from gpuledger.domain.quantities import UNIT, parse_quantity
from gpuledger.events.claim import Result
from gpuledger.events.slice import RequestPolicy, SliceDevice, TaintRuleSet
from support.dra import ANYWHERE, counters, device, given, partition, published, result, share, shared, taint

HELD = Use(is_exclusive=True)
GPU, BROKEN, SHAREABLE = device("d"), device("d", taints=(taint(),)), shared("d", m="4")
PART = partition("d", m="5")
MEAGRE = shared("d", RequestPolicy(default="8", values=("8",)), m="4")


def shares(amount: int) -> Use:
    return Use(shares=1, consumed={"m": amount * UNIT})


@pytest.mark.parametrize(
    ("device", "use", "of_pool", "reasons", "state"),
    [
        (GPU, UNUSED, None, [], "Available"),
        (GPU, HELD, None, ["TAKEN"], "Allocated"),
        (SHAREABLE, HELD, None, ["TAKEN"], "Allocated"),
        (SHAREABLE, shares(1), None, [], "PartiallyAllocated"),
        (SHAREABLE, shares(4), None, ["CAPACITY"], "Allocated"),
        (SHAREABLE, shares(0), None, [], "PartiallyAllocated"),
        (MEAGRE, UNUSED, None, ["CAPACITY"], "Unavailable/InsufficientCapacity"),
        (BROKEN, UNUSED, None, ["TAINTED"], "Unavailable/Tainted"),
        (BROKEN, HELD, None, ["TAKEN", "TAINTED"], "Allocated"),
        (PART, UNUSED, None, ["COUNTERS"], "Unavailable/InsufficientSharedCapacity"),
        (PART, HELD, None, ["TAKEN"], "Allocated"),
        (GPU, UNUSED, UnavailableReason.INCOMPLETE, ["INCOMPLETE"], "Unavailable/PoolIncomplete"),
        (GPU, HELD, UnavailableReason.INVALID, ["TAKEN", "INVALID"], "Allocated"),
        (SHAREABLE, shares(1), UnavailableReason.INVALID, ["INVALID"], "Unavailable/PoolInvalid"),
        (BROKEN, UNUSED, UnavailableReason.OUTDATED, ["OUTDATED", "TAINTED"], "Unavailable/OutdatedGeneration"),
        (PART, UNUSED, UnavailableReason.OUTDATED, ["OUTDATED"], "Unavailable/OutdatedGeneration"),
    ],
)
def test_reasons_and_states(
    device: SliceDevice, use: Use, of_pool: UnavailableReason | None, reasons: list[str], state: str
) -> None:
    offers = slice_of("a", published(device, count=2, reach=ANYWHERE))
    sets = slice_of("b", published(count=2, reach=ANYWHERE, counter_sets=(counters(m="4"),)))
    one = offers.devices[0]
    found = blockers(one, use, Balance(seen_everywhere([offers, sets]), {"d": use}), one.taints, of_pool)
    assert [reason.name for reason in found.reasons] == reasons
    assert "/".join(filter(None, state_of(use, found))) == state


def test_reasons_of_a_pool() -> None:
    whole, twice = seen_everywhere([slice_of("a", published(GPU))]), [slice_of("a", published(GPU, GPU))]
    partly = seen_everywhere([slice_of("a", published(GPU, count=2))])
    assert pool_reason(whole, is_current=True) is None
    assert pool_reason(whole, is_current=False) is UnavailableReason.OUTDATED
    assert pool_reason(partly, is_current=True) is UnavailableReason.INCOMPLETE
    assert pool_reason(seen_everywhere(twice), is_current=True) is UnavailableReason.INVALID


@pytest.mark.parametrize(
    ("effect", "blocks"), [("NoSchedule", True), ("NoExecute", True), ("None", False), ("X", False)]
)
def test_which_taints_block(effect: str, blocks: bool) -> None:
    one = slice_of("s", published(device("d", taints=(taint(effect),)))).devices[0]
    assert (
        bool(blockers(one, UNUSED, Balance(seen_everywhere([slice_of("s", published())]), {}), one.taints).taints)
        is blocks
    )


def rule(name: str, **selected: str) -> TaintRule:
    return rule_of(name, TaintRuleSet(uid="u", taint=taint(key=name), **selected))


@pytest.mark.parametrize(
    ("selected", "is_about_pool", "is_about_device"),
    [
        ({}, True, True),
        ({"driver": "d"}, True, True),
        ({"driver": "e"}, False, False),
        ({"pool": "p"}, True, True),
        ({"pool": "q"}, False, False),
        ({"device": "gpu-0"}, True, True),
        ({"device": "gpu-1"}, True, False),
        ({"driver": "d", "pool": "p", "device": "gpu-0"}, True, True),
    ],
)
def test_what_a_rule_is_about(selected: dict[str, str], is_about_pool: bool, is_about_device: bool) -> None:
    pool, one = PoolId("d", "p"), slice_of("s", published(device("gpu-0"))).devices[0]
    defined = TaintRules([rule("r", **selected)])
    assert bool(defined.about(pool)) is is_about_pool
    assert bool(taints_of(pool, one, defined.about(pool))) is is_about_device


def test_rules_are_replaced_and_lifted() -> None:
    rules, pool = TaintRules([rule("b"), rule("a", pool="p"), rule("c", pool="q")]), PoolId("d", "p")
    assert [one.name for one in rules.about(pool)] == ["a", "b"]
    rules.put(rule("a", pool="q"))
    assert [one.name for one in rules.about(pool)] == ["b"]
    assert all(rules.get(name) for name in ("a", "b", "c"))
    for name in ("a", "b", "c", "c"):
        rules.drop(name)
    assert (rules.about(pool), rules.get("a")) == ([], None)


CLAIM = ClaimId("ns", "c", "u")


def held(*results: Result) -> list[Holding]:
    return list(holdings_of(CLAIM, given(*results)))


@pytest.mark.parametrize(
    ("results", "use"),
    [
        ([], UNUSED),
        ([result("d")], HELD),
        ([result("d", admin_access=True)], UNUSED),
        ([share("d")], Use(shares=1)),
        ([share("d", m="0")], shares(0)),
        ([share("d", m="1"), share("d", "t", m="2")], Use(shares=2, consumed={"m": 3 * UNIT})),
        ([share("d"), share("d", "t", m="2")], Use(shares=2, consumed={"m": 2 * UNIT})),
        ([share("d", m="1"), result("d")], Use(True, 1, {"m": UNIT})),
        ([share("d", m="1500m"), share("d", m="1")], Use(shares=1, consumed={"m": 2_500_000_000})),
        ([result("d", admin_access=True), result("d")], HELD),
        ([result("d"), result("d", admin_access=True)], HELD),
        ([share("d", m="1"), result("d", share="s", consumed={"m": "2"}, admin_access=True)], shares(1)),
        ([result("d", share="s", consumed={"m": "2"}, admin_access=True), share("d", m="1")], shares(1)),
    ],
)
def test_how_a_device_is_used(results: list[Any], use: Use) -> None:
    assert uses_of(held(*results)).get("d", UNUSED) == use


def test_what_is_given_twice_is_one_holding() -> None:
    assert len(held(result("d"), result("d", admin_access=True), share("d", m="1"), share("d", m="2"))) == 2


@pytest.mark.parametrize(
    ("amounts", "total"), [(("1Ki", "1"), "1025"), (("1Ki", "1Ki"), "2Ki"), (("1", "1Ki"), "1025")]
)
def test_what_is_consumed_twice_reads_as_its_text_does(amounts: tuple[str, str], total: str) -> None:
    (one,) = held(*(share("d", m=amount) for amount in amounts))
    assert one.consumed == {"m": parse_quantity(total)}
    assert str(one.consumed["m"]) == total


def test_a_slice_that_defines_counters_offers_no_devices() -> None:
    assert slice_of("s", published(GPU, counter_sets=(counters(m="1"),))).devices == ()
