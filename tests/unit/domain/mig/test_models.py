"""The profiles of NVIDIA's cards as data: they agree with themselves, and with what else knows of them."""

import pytest

from gpuledger.api.mig_profile import MigProfile
from gpuledger.domain.mig.geometry import Profile, find_profile, partitions_of
from gpuledger.domain.mig.models import (
    A30,
    A100_40GB,
    A100_80GB,
    B200_180GB,
    GB200_189GB,
    GB300_278GB,
    GEOMETRIES,
    H100_80GB,
    H100_94GB,
    H100_96GB,
    H200_141GB,
    RTX_PRO_6000,
    Geometry,
    find_geometry,
)
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
    name = MigProfile.parse(profile.name)
    assert name is not None
    assert profile.compute == name.gpu_slices
    assert name.memory_gb * 1024 * 0.85 < profile.memory_mib <= name.memory_gb * 1024
    slices = max(start + each.size for each in geometry.profiles for start in each.starts)
    assert profile.size / slices == pytest.approx(name.memory_gb * 1024 / geometry.memory_mib, rel=0.25)


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
        (RTX_PRO_6000, "1g.24gb", (0, 3, 6, 9), 3),
        (RTX_PRO_6000, "1g.24gb-me", (0, 3, 6, 9), 3),
        (RTX_PRO_6000, "2g.48gb+gfx", (0, 6), 6),
        (RTX_PRO_6000, "4g.96gb", (0,), 12),
    ],
)
def test_places_agree_with_nvidia_smi(geometry: Geometry, name: str, starts: tuple[int, ...], size: int) -> None:
    profile = find_profile(geometry.profiles, name)
    assert profile is not None
    assert (profile.starts, profile.size) == (starts, size)


@pytest.mark.parametrize(
    ("geometry", "name", "gib"),
    [
        (H100_94GB, "1g.12gb", "10.75"),
        (H100_94GB, "1g.24gb", "21.62"),
        (H100_94GB, "3g.47gb", "46.38"),
        (H100_94GB, "7g.94gb", "93.12"),
        (B200_180GB, "1g.23gb+me", "20.50"),
        (B200_180GB, "2g.45gb", "44.25"),
        (GB200_189GB, "1g.23gb", "20.00"),
        (GB200_189GB, "1g.47gb", "45.50"),
        (GB200_189GB, "2g.47gb", "45.50"),
        (RTX_PRO_6000, "1g.24gb", "23.62"),
        (RTX_PRO_6000, "2g.48gb", "47.38"),
        (RTX_PRO_6000, "4g.96gb", "95.12"),
    ],
)
def test_memory_agrees_with_nvidia_smi(geometry: Geometry, name: str, gib: str) -> None:
    profile = find_profile(geometry.profiles, name)
    assert profile is not None
    assert f"{profile.memory_mib / 1024:.2f}" == gib


@pytest.mark.parametrize(
    ("product", "memory_mib", "geometry"),
    [
        ("NVIDIA A30", 24576, A30),
        ("NVIDIA A100-SXM4-40GB", 40960, A100_40GB),
        ("NVIDIA A100 80GB PCIe", 81920, A100_80GB),
        ("NVIDIA A800-SXM4-80GB", 81251, A100_80GB),
        ("NVIDIA H100 80GB HBM3", 81559, H100_80GB),
        ("NVIDIA H100 PCIe", 81559, H100_80GB),
        ("NVIDIA H100 NVL", 95830, H100_94GB),
        ("NVIDIA GH200 480GB", 97871, H100_96GB),
        ("NVIDIA H200", 143771, H200_141GB),
        ("NVIDIA B200", 183359, B200_180GB),
        ("NVIDIA B200", 182784, B200_180GB),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, RTX_PRO_6000),
        ("NVIDIA GB200", 189471, GB200_189GB),
        ("NVIDIA GB300", 284208, GB300_278GB),
        ("NVIDIA GH200 144G HBM3e", 147456, None),
        ("NVIDIA L40S", 46068, None),
        ("Tesla T4", 15360, None),
        ("NVIDIA H100 80GB HBM3", None, None),
        (None, 81559, None),
    ],
)
def test_the_model_of_a_card(product: str | None, memory_mib: int | None, geometry: Geometry | None) -> None:
    assert find_geometry(product, memory_mib) is geometry


def test_a_cards_model_is_never_two() -> None:
    for geometry in GEOMETRIES:
        for chip in geometry.chips:
            assert find_geometry(f"NVIDIA {chip}", geometry.memory_mib) is geometry
