"""Shared counters: what is left, which devices a lack of them keeps out, and a balance that is kept."""

from itertools import product

import pytest

from gpuledger.domain.dra.counters import Balance, counters_left, overdrawn_counters, short_counters
from gpuledger.domain.dra.facts import slice_of
from gpuledger.domain.dra.objects import DraDevice
from gpuledger.domain.dra.pools import PoolView, seen_everywhere
from gpuledger.domain.dra.use import UNUSED, Use
from gpuledger.domain.quantities import UNIT
from support.dra import ANYWHERE, counters, device, partition, published

PARTS = (
    partition("half", "a", m="2"),
    partition("other", "a", m="2"),
    partition("whole", "a", m="4"),
    partition("apart", "b", m="1"),
    partition("nothing", "b", m="0"),
    device("free"),
)
NAMES = [one.name for one in PARTS]
HELD, SHARED, CONSUMED = Use(is_exclusive=True), Use(shares=1), Use(shares=2, consumed={})


def view(count: int = 2) -> PoolView:
    sets = (counters("a", m="4"), counters("b", m="1"))
    return seen_everywhere(
        [
            slice_of("devices", published(*PARTS, count=count, reach=ANYWHERE)),
            slice_of("sets", published(count=count, reach=ANYWHERE, counter_sets=sets)),
        ]
    )


def part(name: str) -> DraDevice:
    return next(one.device for one in view().located() if one.device.name == name)


@pytest.mark.parametrize(
    ("used", "left", "short"),
    [
        ({}, (4, 1), {}),
        ({"half"}, (2, 1), {"whole": ["a/m"]}),
        ({"half", "other"}, (0, 1), {"half": ["a/m"], "other": ["a/m"], "whole": ["a/m"]}),
        ({"apart"}, (4, 0), {"apart": ["b/m"]}),
        ({"free", "gone"}, (4, 1), {}),
        (
            {"half", "whole"},
            (-2, 1),
            {name: ["a/m"] for name in ("half", "other", "whole", "apart", "nothing")},
        ),
    ],
)
def test_what_is_left_and_which_devices_are_short(
    used: set[str], left: tuple[int, int], short: dict[str, list[str]]
) -> None:
    for use in (HELD, SHARED):
        found = counters_left(view(), dict.fromkeys(used, use))
        assert (found["a"]["m"], found["b"]["m"]) == (left[0] * UNIT, left[1] * UNIT)
        names = overdrawn_counters(found)
        kept_out = {one.name: short_counters(part(one.name), UNUSED, found, names) for one in PARTS}
        assert {name: found_short for name, found_short in kept_out.items() if found_short} == short


def test_a_share_with_a_recorded_consumption_pays_no_counters_again() -> None:
    whole = part("whole")._replace(is_shareable=True)
    left = {"a": {"m": -UNIT}}
    assert short_counters(whole, SHARED, left, ["a/m"]) == ["a/m"]
    assert short_counters(whole, CONSUMED, left, ["a/m"]) == []
    assert short_counters(whole._replace(is_shareable=False), CONSUMED, left, ["a/m"]) == ["a/m"]


def test_a_pool_that_gives_nothing_has_no_balance() -> None:
    assert Balance(view(3), {"half": HELD}).left == {}


@pytest.mark.parametrize(("first", "second"), list(product(NAMES, repeat=2)))
def test_a_kept_balance_equals_a_recount(first: str, second: str) -> None:
    kept, uses = Balance(view(), {}), dict[str, Use]()
    for name, use in ((first, HELD), (second, HELD), (first, SHARED), (second, UNUSED), (first, UNUSED)):
        before, was = uses.get(name, UNUSED), {one: _short(kept, one) for one in NAMES}
        uses[name] = use
        moved = kept.move(name, before, use)
        fresh = Balance(view(), uses)
        assert (kept.left, kept.overdrawn) == (fresh.left, fresh.overdrawn)
        assert {one for one, short in was.items() if short != _short(kept, one)} <= moved


def _short(balance: Balance, name: str) -> list[str]:
    return short_counters(part(name), UNUSED, balance.left, balance.overdrawn)
