"""The profiles of NVIDIA's cards as data: they agree with themselves, and with what else knows of them."""

import pytest

from gpuledger.domain.mig.geometry import Profile, find_profile, partitions_of
from gpuledger.domain.mig.models import A30, A100_80GB, GEOMETRIES, H100_80GB, H200_141GB, Geometry
from gpuledger.domain.mig.plan import MigState, Plan, plan
from gpuledger.tools.simulation import hardware

ALL = [
    pytest.param(geometry, profile, id=f"{geometry.name} {profile.name}")
    for geometry in GEOMETRIES
    for profile in geometry.profiles
]


def _on_an_empty_card(geometry: Geometry, profile: Profile) -> int:
    found = plan(MigState(enabled=True, profiles=geometry.profiles), profile.name)
    assert isinstance(found, Plan)
    return len(found.target)


@pytest.mark.parametrize(("geometry", "profile"), ALL)
def test_an_empty_card_has_as_many_instances_as_in_the_guide(geometry: Geometry, profile: Profile) -> None:
    assert _on_an_empty_card(geometry, profile) == profile.instances_max


@pytest.mark.parametrize(("geometry", "profile"), ALL)
def test_pools_count_on_as_many_instances_as_can_be_made(geometry: Geometry, profile: Profile) -> None:
    names = [each.name for each in geometry.profiles]
    assert partitions_of(profile.name, names) == _on_an_empty_card(geometry, profile)


@pytest.mark.parametrize(("geometry", "profile"), ALL)
def test_a_profile_has_what_its_name_promises(geometry: Geometry, profile: Profile) -> None:
    compute, memory = profile.name.split("+")[0].removesuffix("gb").split("g.")
    assert profile.compute == int(compute)
    assert int(memory) * 1024 * 0.85 < profile.memory_mib <= int(memory) * 1024
    slices = max(start + each.size for each in geometry.profiles for start in each.starts)
    assert profile.size / slices == pytest.approx(int(memory) * 1024 / geometry.memory_mib, rel=0.25)


@pytest.mark.parametrize(
    ("geometry", "model"), [(A100_80GB, hardware.A100), (H200_141GB, hardware.H200)], ids=["A100", "H200"]
)
def test_simulated_fleets_have_the_same_cards(geometry: Geometry, model: hardware.Model) -> None:
    assert tuple(profile.name for profile in geometry.profiles) == model.mig_profiles
    assert geometry.memory_mib == model.memory_mib


def test_simulated_fleets_have_the_same_instances() -> None:
    layouts = [layout for profile in hardware.PROFILES["mig-a100"] for layout in profile.layouts]
    for part in {part for layout in layouts for part in layout}:
        profile = find_profile(A100_80GB.profiles, str(part.profile))
        assert profile is not None
        assert (profile.compute, profile.memory_mib) == (part.slices, part.memory_mib)


@pytest.mark.parametrize(
    ("geometry", "name", "starts", "size"),
    [
        (A30, "1g.6gb", (0, 1, 2, 3), 1),
        (A30, "2g.12gb", (0, 2), 2),
        (A30, "4g.24gb", (0,), 4),
        (H100_80GB, "1g.10gb", (0, 1, 2, 3, 4, 5, 6), 1),
        (H100_80GB, "1g.20gb", (0, 2, 4, 6), 2),
        (H100_80GB, "2g.20gb", (0, 2, 4), 2),
        (H100_80GB, "3g.40gb", (0, 4), 4),
        (H100_80GB, "4g.40gb", (0,), 4),
        (H100_80GB, "7g.80gb", (0,), 8),
    ],
)
def test_places_agree_with_nvidia_smi(geometry: Geometry, name: str, starts: tuple[int, ...], size: int) -> None:
    profile = find_profile(geometry.profiles, name)
    assert profile is not None
    assert (profile.starts, profile.size) == (starts, size)
