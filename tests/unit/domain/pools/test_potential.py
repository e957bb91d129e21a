"""How many units a pool could have at most, by the devices that its selectors select."""

from typing import Any

import pytest

from gpuledger.domain.inventory.state import GpuDevice
from gpuledger.domain.pools.potential import potential_units
from gpuledger.domain.pools.spec import spec_of
from support.events import hour
from support.pools import pool

ZONES = {"n1": {"zone": "a"}, "n2": {"zone": "b"}}
PROFILES = "1g.5gb,2g.10gb,7g.40gb"
MIG = {"unit": "MIG", "mig_profile": "2g.10gb"}


def row(name: str, node: str = "n1", **facts: Any) -> GpuDevice:
    at = hour(0)
    base = GpuDevice(name, node, f"GPU-{name}", False, None, "Ready", at, None, True, at, False, at, False, at)
    return base._replace(**{"pci_vendor": "10de", "pci_device": "20b5", "mig_capable": True, **facts})


FLEET = [row("a"), row("b"), row("c", "n2")]


@pytest.mark.parametrize(
    ("spec", "fleet", "expected"),
    [
        ({}, FLEET, 3),
        ({"slices_per_unit": 4}, FLEET, 12),
        ({"slices_per_unit": 64}, FLEET, 24),
        ({"node_selector": {"labels": {"zone": "b"}}}, FLEET, 1),
        ({"devices_per_node_max": 1}, FLEET, 2),
        ({}, [*FLEET, row("d", ignored=True)], 3),
        ({}, [*FLEET, row("d", missing=True)], 4),
        (MIG, [row("a", mig_profiles=PROFILES)], 3),
        (MIG, [row("a", mig_profiles=PROFILES), row("b")], 10),
        (MIG, [row("a", mig_capable=False)], None),
        ({"include": {"products": ["NVIDIA H100"]}}, FLEET, None),
        ({"node_selector": {"labels": {"zone": "c"}}}, FLEET, None),
        ({}, [], None),
    ],
)
def test_the_most_units_of_a_pool(spec: dict[str, Any], fleet: list[GpuDevice], expected: int | None) -> None:
    assert potential_units(spec_of(pool(**spec)), fleet, lambda node: ZONES[node], 8) == expected


def test_where_cards_differ_the_largest_of_a_node_count() -> None:
    fleet = [row("a", mig_profiles="1g.5gb,7g.40gb"), row("b", mig_profiles="1g.10gb,1g.5gb,7g.80gb")]
    spec = spec_of(pool(unit="MIG", mig_profile="1g.5gb", devices_per_node_max=1))
    assert potential_units(spec, fleet, lambda _: {}, 8) == 7
