"""What a pool's spec means: which devices and nodes it selects, and how many units cards offer."""

from typing import Any

import pytest

from gpuledger.api.mig_profile import CHARS_MAX
from gpuledger.domain.pools.spec import (
    DeviceFacts,
    matches,
    mismatch,
    selects,
    spec_of,
    units,
)
from gpuledger.events.device import PROFILES_MAX
from gpuledger.events.payload import NAME_LENGTH_MAX, TEXT_LENGTH_MAX
from support.pools import pool

DEVICE = DeviceFacts("w1-0000:17:00.0", "NVIDIA A100", "10de", "20b5", True, frozenset({"1g.5gb", "2g.10gb"}))


@pytest.mark.parametrize(
    ("given", "means"),
    [
        ({}, True),
        ({"inventory_ids": ["w1-0000:17:00.0"]}, True),
        ({"inventory_ids": ["w2"]}, False),
        ({"products": ["NVIDIA H100", "NVIDIA A100"]}, True),
        ({"products": ["nvidia a100"]}, False),
        ({"pci_vendors": ["10DE"]}, True),
        ({"pci_vendors": ["0x10de"]}, True),
        ({"pci_vendors": ["1002"]}, False),
        ({"pci_devices": ["0X20B5"]}, True),
        ({"pci_devices": ["2203"]}, False),
        ({"mig_capable": True}, True),
        ({"mig_capable": False}, False),
        ({"mig_profiles": ["1g.5gb", "2g.10gb"]}, True),
        ({"mig_profiles": ["1g.5gb", "7g.40gb"]}, False),
        ({"products": ["NVIDIA A100"], "pci_devices": ["2203"]}, False),
    ],
)
def test_each_given_part_of_a_filter_has_to_match(given: dict[str, Any], *, means: bool) -> None:
    assert matches(spec_of(pool(include=given)), DEVICE) == means
    assert matches(spec_of(pool(exclude=given)), DEVICE) == (not means or not given)


def test_a_property_that_nobody_reports_matches_no_filter_for_it() -> None:
    unknown = DeviceFacts("w1-0-10de-20b5", None, None, None, None, frozenset())
    for part, value in {
        "products": ["a"],
        "pci_vendors": ["10de"],
        "mig_capable": False,
        "mig_profiles": ["1g.5gb"],
    }.items():
        assert mismatch(spec_of(pool(include={part: value})), unknown) is not None


def test_a_pool_of_partitions_selects_no_device_without_mig() -> None:
    spec = spec_of(pool(unit="MIG", mig_profile="1g.5gb"))
    assert matches(spec, DEVICE)
    assert matches(spec, DEVICE._replace(mig_capable=None))
    assert not matches(spec, DEVICE._replace(mig_capable=False))


@pytest.mark.parametrize(
    ("profile", "listed", "means"),
    [
        ("1g.5gb", {"1g.5gb", "2g.10gb"}, True),
        ("2g.20gb", {"1g.5gb", "2g.10gb"}, False),
        ("2g.10gb", {"12g.10gb", "2g.10gb+me"}, False),
        ("1g.5gb+me", {"1g.5gb"}, False),
        ("1g.5gb+me", {"1g.5gb", "1g.5gb+me"}, True),
        ("1g.12gb+me.all", {"1g.12gb+me"}, False),
        ("1g.24gb-me", {"1g.24gb", "1g.24gb+me"}, False),
        ("1c.2g.10gb", {"2g.10gb"}, True),
        ("1c.2g.10gb", {"1c.2g.10gb"}, True),
        ("1c.2g.20gb", {"2g.10gb"}, False),
        ("1c.1g.5gb+me", {"1g.5gb+me"}, True),
        ("1c.1g.5gb+me", {"1g.5gb"}, False),
        ("2g.20gb", set(), True),
        ("all", {"1g.5gb"}, True),
        (None, {"1g.5gb"}, True),
    ],
)
def test_a_pool_of_partitions_selects_no_card_that_lacks_its_profile(
    profile: str | None, listed: set[str], *, means: bool
) -> None:
    device = DEVICE._replace(mig_profiles=frozenset(listed))
    for capable in (True, None):
        spec = spec_of(pool(unit="MIG", mig_profile=profile))
        assert matches(spec, device._replace(mig_capable=capable)) == means
    assert mismatch(spec, device, is_held=True) is None
    assert matches(spec_of(pool(mig_profile=profile)), device)


def test_the_message_lists_the_cards_profiles_and_fits_an_event() -> None:
    spec = spec_of(pool(unit="MIG", mig_profile="2g.20gb"))
    assert mismatch(spec, DEVICE) == "The device's card has no MIG profile 2g.20gb, only 1g.5gb, 2g.10gb."
    ten = frozenset(f"{number}g.1gb" for number in range(10))
    assert str(mismatch(spec, DEVICE._replace(mig_profiles=ten))).endswith("8g.1gb, 9g.1gb.")
    most = frozenset(f"{number:02}" + "x" * (NAME_LENGTH_MAX - 2) for number in range(PROFILES_MAX))
    longest = spec_of(pool(unit="MIG", mig_profile="1" * (CHARS_MAX - 6) + "g.20gb"))
    message = str(mismatch(longest, DEVICE._replace(mig_profiles=most)))
    assert message.endswith(" and 54 more.")
    assert len(message) <= TEXT_LENGTH_MAX


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ({}, True),
        ({"labels": {"zone": "a"}}, True),
        ({"labels": {"zone": "b"}}, False),
        ({"labels": {"zone": "a", "rack": "1"}}, False),
        ({"requirements": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}, True),
        ({"requirements": [{"key": "rack", "operator": "NotIn", "values": ["1"]}]}, True),
        ({"requirements": [{"key": "rack", "operator": "Exists"}]}, False),
        ({"requirements": [{"key": "rack", "operator": "DoesNotExist"}]}, True),
        ({"labels": {"zone": "a"}, "requirements": [{"key": "rack", "operator": "Exists"}]}, False),
        ({"requirements": [{"key": "zone", "operator": "Near", "values": ["a"]}]}, False),
    ],
)
def test_nodes_are_selected_as_kubernetes_selects(selector: dict[str, Any], *, selected: bool) -> None:
    assert selects(spec_of(pool(node_selector=selector)).nodes, "w1", {"zone": "a"}) == selected


@pytest.mark.parametrize(
    ("fields", "cap", "offers"),
    [
        ({}, 8, 2),
        ({"slices_per_unit": 4}, 8, 8),
        ({"slices_per_unit": 64}, 8, 16),
        ({"unit": "MIG", "slices_per_unit": 3}, 8, 42),
    ],
)
def test_units(fields: dict[str, Any], cap: int, offers: int) -> None:
    assert units(pool(**fields), cards=2, partitions=14, cap=cap) == offers
