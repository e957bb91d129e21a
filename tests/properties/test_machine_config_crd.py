"""The CRD of MachineConfigs takes a path, a unit, an owner and a mode just where the renderer does."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.api.kinds import MACHINE_CONFIGS
from gpuledger.api.machine_config import POWER_UNITS, REFUSED_PATHS, REFUSED_UNITS
from gpuledger.domain.machineconfig.rendered_object import UNIT_STATES
from gpuledger.domain.machineconfig.validation import (
    PATH_BYTES_MAX,
    UNIT_SUFFIXES,
    mode_problem,
    owner_problem,
    path_problem,
    state_problem,
    unit_problem,
)
from gpuledger.edge.kube import crds
from gpuledger.edge.kube.schema.correlation import ABSENT
from gpuledger.edge.kube.schema.rules import broken_rules, rules_of
from gpuledger.edge.kube.schema.structural import node_of
from gpuledger.edge.kube.schema.values import ValuePlace, problems_of_value

(CRD,) = (one for one in crds.shipped() if one["metadata"]["name"] == MACHINE_CONFIGS.full_name)
SCHEMA = node_of(CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
RULES = rules_of(SCHEMA)

PARTS = st.sampled_from(
    [
        "",
        ".",
        "..",
        "...",
        ".a",
        "..a",
        "a.",
        "a b",
        "ä",
        "\n",
        "\x7f",
        *{part for one in REFUSED_PATHS for part in one.split("/")},
    ]
)
PATHS = st.one_of(
    st.lists(PARTS, max_size=5).map("/".join),
    st.lists(PARTS, max_size=5).map(lambda parts: "/" + "/".join(parts)),
    st.tuples(st.sampled_from(REFUSED_PATHS), st.sampled_from(["", "/", "/a", "a", "/../a"])).map("".join),
)
UNITS = st.tuples(
    st.sampled_from([*REFUSED_UNITS, "", "a", "a.b", "a b", "ä", "a\\x2d", "kubelets"]),
    st.sampled_from(["", "@", "@a", "@a.b", "@a@b"]),
    st.sampled_from(["", ".", ".conf", ".service\n", *(f".{suffix}" for suffix in UNIT_SUFFIXES)]),
).map("".join)


def takes(spec: dict[str, Any]) -> bool:
    """Whether an API server takes a MachineConfig of this spec."""
    obj = {"apiVersion": MACHINE_CONFIGS.api_version, "kind": MACHINE_CONFIGS.kind, "spec": spec}
    assert RULES is not None
    return not problems_of_value(obj, SCHEMA, ValuePlace("")) and not list(broken_rules(obj, RULES, ABSENT))


@given(PATHS)
def test_paths(path: str) -> None:
    assert takes({"files": [{"path": path}]}) is (path_problem(path) is None)


def test_a_path_that_is_too_long_is_refused_by_its_bytes_alone() -> None:
    """A server counts characters, and knows nothing of parts of a path; watchers and the renderer do."""
    path = "/a" * (PATH_BYTES_MAX // 2)
    assert takes({"files": [{"path": path}]})
    assert path_problem(path) is None
    assert path_problem(f"{path}ää") is not None


@given(UNITS)
def test_units(name: str) -> None:
    assert takes({"systemd": {"units": [{"name": name}]}}) is (unit_problem(name) is None)


@given(
    st.sampled_from([*POWER_UNITS, "systemd-sleep", "systemd-exit", "reboot-notify", "runlevel2", "a"]),
    st.sampled_from(["", "@a"]),
    st.sampled_from(UNIT_SUFFIXES),
    st.none() | st.sampled_from(UNIT_STATES),
)
def test_states_of_units(stem: str, instance: str, suffix: str, state: str | None) -> None:
    unit = {"name": f"{stem}{instance}.{suffix}"} | ({"state": state} if state else {})
    assert takes({"systemd": {"units": [unit]}}) is (state_problem(unit["name"], state) is None)


@given(st.text("ar0:.-_ \n", max_size=6) | st.just("root:root"))
def test_owners(owner: str) -> None:
    assert takes({"files": [{"path": "/etc/a", "owner": owner}]}) is (owner_problem(owner) is None)


@given(st.integers(-1, 0o10001))
def test_modes(mode: int) -> None:
    assert takes({"files": [{"path": "/etc/a", "mode": mode}]}) is (mode_problem(mode) is None)
