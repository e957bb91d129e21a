"""MIG profiles' names: one grammar for pools, labels, agents and the CRDs."""

import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuledger.api.mig_profile import CHARS_MAX, MigProfile, compute_instance_name, takes_media_engines
from gpuledger.edge.kube.crds import shipped

RECORDED = [
    "1g.5gb", "1g.6gb", "1g.6gb+me", "1g.10gb", "1g.10gb+me", "1g.12gb", "1g.18gb", "1g.24gb", "1g.24gb+gfx",
    "1g.24gb+me", "1g.24gb-me", "1g.24gb+me.all", "2g.10gb", "2g.12gb+me", "2g.20gb", "2g.35gb", "2g.48gb-me",
    "3g.40gb", "3g.71gb", "4g.24gb", "7g.80gb", "7g.141gb", "1c.3g.71gb", "2c.3g.71gb", "1c.2g.20gb",
]  # fmt: skip
"""As nvidia-smi, GPU Feature Discovery and mig-parted name them."""

OTHER = ["", "1g", "10gb", "1g.10g", "g.10gb", "1g.10gb+", "1g.10GB", "0g.10gb", "1g.010gb", "0c.1g.10gb", "c.1g.5gb"]
OTHER += ["1g.10gb ", "1g.10gb\n", "1g.10gb+ME", "1g.10gb+me.", "1g.10gb.me", "mig-1g.10gb", "１g.10gb"]

names = st.from_regex(r"([1-9]c\.)?[0-9]{1,2}g\.[0-9]{1,3}gb([+-][a-z]{1,4}(\.[a-z0-9]{1,4})?){0,2}", fullmatch=True)
almost = st.text("019cgb.+-me", max_size=CHARS_MAX + 2) | st.builds(lambda name, rest: name + rest, names, st.text())


def in_crds() -> list[dict[str, Any]]:
    """The schemas of `migProfile` in the CRDs of pools."""
    specs = [
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        for crd in shipped()
        if crd["spec"]["names"]["kind"] in ("GPUPool", "ClusterGPUPool")
        for version in crd["spec"]["versions"]
    ]
    return [spec["properties"]["resource"]["properties"]["migProfile"] for spec in specs]


def is_in_schema(name: str, schema: dict[str, Any]) -> bool:
    """Whether a schema accepts a name; unlike Kubernetes, Python lets `$` match before a line feed."""
    pattern = schema["pattern"].removesuffix("$") + r"\Z"
    return schema["minLength"] <= len(name) <= schema["maxLength"] and re.search(pattern, name) is not None


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_names_are_read_and_printed(name: str) -> None:
    profile = MigProfile.parse(name)
    assert profile is not None
    assert str(profile) == name
    assert MigProfile.parse(str(profile.gpu_instance)) == profile.gpu_instance


@pytest.mark.parametrize("name", OTHER)
def test_other_names_are_refused(name: str) -> None:
    assert MigProfile.parse(name) is None


@given(names | almost)
@example("1g.10gb\n")
@example("1" * (CHARS_MAX - len("g.10gb")) + "g.10gb")
@example("1" * (CHARS_MAX - len("g.10gb") + 1) + "g.10gb")
@example("1c.2g.20gb+me.all-gfx")
def test_the_crds_accept_the_same_names(name: str) -> None:
    schemas = in_crds()
    assert len(schemas) == 2
    profile = MigProfile.parse(name)
    assert [is_in_schema(name, schema) for schema in schemas] == [profile is not None] * 2
    assert profile is None or str(profile) == name


def test_its_parts() -> None:
    assert MigProfile.parse("1c.2g.20gb+me.all") == MigProfile(2, 20, "+me.all", 1)
    assert MigProfile(2, 20, "+me", 1).gpu_instance == MigProfile(2, 20, "+me")
    assert compute_instance_name("3g.40gb", 0) == "0c.3g.40gb"


@pytest.mark.parametrize(
    ("name", "resource"),
    [("1g.10gb", "mig-1g.10gb"), ("1g.10gb+me", "mig-1g.10gb.me"), ("1c.2g.20gb", "mig-1c.2g.20gb"),
     ("1g.24gb-me", "mig-1g.24gb-me"), ("1g.24gb+me.all", "mig-1g.24gb.me.all")],
)  # fmt: skip
def test_resources_have_a_dot_for_a_plus(name: str, resource: str) -> None:
    profile = MigProfile.parse(name)
    assert profile is not None
    assert profile.resource == resource
    assert MigProfile.of_resource(resource) == profile
    assert MigProfile.of_resource("gpu") is None


@pytest.mark.parametrize(
    ("name", "card", "has"),
    [
        ("2g.20gb", {"1g.10gb", "2g.20gb"}, True),
        ("1c.2g.20gb", {"2g.20gb"}, True),
        ("2g.20gb", {"1c.2g.20gb"}, False),
        ("1g.10gb+me", {"1g.10gb"}, False),
        ("1g.10gb", set(), False),
    ],
)
def test_a_card_has_the_parts_of_its_gpu_instances(name: str, card: set[str], *, has: bool) -> None:
    profile = MigProfile.parse(name)
    assert profile is not None
    assert profile.is_among(card) == has


def test_media_engines() -> None:
    taken = {"1g.10gb+me", "1g.24gb+me.all", "0c.1g.10gb+me"}
    assert {name for name in (*RECORDED, *taken) if takes_media_engines(name)} == taken | {
        "1g.6gb+me", "1g.24gb+me", "2g.12gb+me"
    }  # fmt: skip
