"""How much of a capacity a claim consumes, what fits, and what is left to be had; also where policies make no sense."""

from typing import Any

import pytest

from gpuledger.domain.dra.capacity import consumption, fits, fits_least, least
from gpuledger.domain.dra.facts import slice_of
from gpuledger.domain.dra.objects import Capacity, DraDevice
from gpuledger.domain.dra.use import UNUSED, Use
from gpuledger.domain.quantities import UNIT, parse_quantity
from gpuledger.events.slice import DeviceCapacity, RequestPolicy
from support.dra import published, shared
from support.dra_capacity import most, remaining

RANGE: dict[str, Any] = {"min": "2", "max": "10", "step": "3"}


def made(value: str, **policy: Any) -> DraDevice:
    """A device with one capacity."""
    return slice_of("s", published(shared("d", RequestPolicy(**policy) if policy else None, m=value))).devices[0]


def capacity(value: str, **policy: Any) -> Capacity:
    return made(value, **policy).capacity["m"]


def nanos(text: str | None) -> int | None:
    return None if text is None else parse_quantity(text).nanos


def used(amount: str) -> Use:
    return Use(shares=1, consumed={"m": parse_quantity(amount).nanos})


@pytest.mark.parametrize(
    ("policy", "requested", "consumed"),
    [
        ({}, None, "16"),
        ({}, "3", "3"),
        ({"default": "4"}, None, "4"),
        ({"default": "4"}, "3", "3"),
        ({"default": "0"}, None, "0"),
        ({"default": "4", "values": ["8", "4"]}, None, "4"),
        ({"values": ["8", "4"]}, "1", "4"),
        ({"values": ["8", "4"]}, "5", "8"),
        ({"values": ["8", "4"]}, "9", None),
        ({"values": ["8", "4"]}, None, "16"),
        (RANGE, "1", "2"),
        (RANGE, "2", "2"),
        (RANGE, "3", "5"),
        (RANGE, "8", "8"),
        (RANGE, "9", None),
        ({"min": "2"}, "7", "7"),
        ({"min": "2", "max": "6"}, "7", None),
        ({"min": "1500m", "step": "1"}, "1", "1500m"),
        ({"min": "1500m", "step": "1"}, "1600m", "2"),
        ({"min": "2", "step": "0"}, "3", "3"),
        ({"min": "2", "step": "-1"}, "3", "3"),
        ({"max": "2"}, "3", "3"),
        ({"min": "4", "max": "2"}, "1", None),
        ({"min": "-2"}, "1", "1"),
    ],
)
def test_what_a_request_consumes(policy: dict[str, Any], requested: str | None, consumed: str | None) -> None:
    assert consumption(capacity("16", **policy), nanos(requested)) == nanos(consumed)


@pytest.mark.parametrize(
    ("policy", "is_least", "free", "is_most"),
    [
        ({}, "1n", "5", "5"),
        ({}, "1n", "0", "0"),
        ({"default": "4"}, "1n", "3", "3"),
        ({"default": "0"}, "0", "0", "0"),
        ({"values": ["4", "8"]}, "4", "7", "4"),
        ({"values": ["4", "8"]}, "4", "3", "0"),
        (RANGE, "2", "9", "8"),
        (RANGE, "2", "1", "0"),
        (RANGE, "2", "16", "16"),
        ({"default": "1", **RANGE}, "1", "1500m", "1"),
        ({"default": "-1"}, "-1", "5", "5"),
    ],
)
def test_the_least_and_the_most_of_a_capacity(policy: dict[str, Any], is_least: str, free: str, is_most: str) -> None:
    one = capacity("16", **policy)
    assert least(one) == nanos(is_least)
    assert most(one, parse_quantity(free).nanos) == nanos(is_most)


@pytest.mark.parametrize(
    ("value", "policy", "use", "is_fitting"),
    [
        ("4", {}, UNUSED, True),
        ("4", {}, used("3999999999n"), True),
        ("4", {}, used("4"), False),
        ("4", {"default": "0"}, used("4"), True),
        ("4", {"default": "0"}, used("5"), False),
        ("0", {}, UNUSED, True),
        ("-1", {"default": "0"}, UNUSED, False),
        ("4", {"values": ["2", "4"]}, used("3"), False),
        ("4", {"min": "8"}, UNUSED, True),
        ("4", {"min": "8"}, used("1"), False),
    ],
)
def test_whether_the_least_fits(value: str, policy: dict[str, Any], use: Use, is_fitting: bool) -> None:
    assert fits_least(made(value, **policy), use) is is_fitting


def test_a_device_for_one_claim_is_requested_whole() -> None:
    alone = made("4")._replace(is_shareable=False)
    assert fits_least(alone, UNUSED)
    assert fits_least(alone, Use(shares=1))
    assert not fits_least(alone, used("1n"))


def test_every_capacity_has_to_fit() -> None:
    both = slice_of("s", published(shared("d", m="4", n="2"))).devices[0]
    assert fits(both, used("1"), {"m": 3 * UNIT, "n": UNIT})
    assert not fits(both, used("1"), {"m": 4 * UNIT, "n": UNIT})
    assert not fits(both, used("1"), {"n": UNIT})
    assert remaining(both, used("1")) == {"m": 3 * UNIT, "n": 2 * UNIT}
    assert remaining(both, used("4")) == {"m": 0, "n": 0}


def test_a_capacity_without_a_policy_has_none() -> None:
    assert capacity("4") == Capacity(parse_quantity("4"))
    assert slice_of("s", published(shared("d", m="4"))).devices[0].capacity["m"].policy is None
    assert DeviceCapacity(value="4").policy is None
