"""Pools on pages and timelines: a spec by the fields of its manifest, names, and decisions on one line."""

import pytest

from gpuledger.cli.commands.timeline import NODE_VIEW
from gpuledger.cli.describe.pool import spec_tree
from gpuledger.cli.get.nouns import pool_name
from gpuledger.cli.render.page import tree_lines
from gpuledger.cli.render.values import cell
from gpuledger.events.node import NodeBootstrapChanged
from gpuledger.events.pool import DeviceFilter, LabelSelector, PoolTaint
from gpuledger.events.reach import NodeRequirement
from gpuledger.tools.queries.pool_name import PoolName
from support.gpu_states import ready
from support.pools import pool


def test_a_spec_by_its_fields() -> None:
    requirement = NodeRequirement(key="zone", operator="In", values=("a", "b"))
    spec = pool(
        unit="MIG",
        mig_profile="1g.10gb",
        slices_per_unit=2,
        devices_per_node_max=4,
        node_selector=LabelSelector(labels={"rack": "r1"}, requirements=(requirement,)),
        include=DeviceFilter(products=("NVIDIA A100-PCIE-40GB",), mig_capable=True),
        exclude=DeviceFilter(inventory_ids=("w1-0",), mig_capable=False),
        requires_annotation=False,
        auto_approve=LabelSelector(),
        strategy="Spread",
        taints=(PoolTaint(key="gpu", value="a", effect="NoSchedule"), PoolTaint(key="b", effect="NoExecute")),
    )
    assert [line.split(":", 1)[0].strip() for line in tree_lines(spec_tree(spec))] == [
        "Provider", "Backend", "Resource", "Unit", "MIG Profile", "Slices Per Unit", "Max Devices Per Node",
        "Node Selector", "Device Selector", "Include", "Products", "MIG Capable", "Exclude", "Inventory IDs",
        "MIG Capable", "Device Assignment", "Require Annotation", "Auto Approve Selector", "Scheduling", "Strategy",
        "Taints Enabled", "Taints", "gpu=a", "b",
    ]  # fmt: skip
    tree = spec_tree(spec)
    assert tree["Node Selector"] == "rack=r1, zone In (a, b)"
    assert tree["Device Assignment"] == {"Require Annotation": False, "Auto Approve Selector": "everything"}


def test_what_is_not_given_is_not_shown() -> None:
    tree = spec_tree(pool())
    assert (tree["Node Selector"], tree["Device Selector"], tree["Not supported"]) == ("everything", "everything", None)
    assert spec_tree(pool(backend="DRA"))["Not supported"] == "The backend is DRA; DevicePlugin is supported."


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("pool", "a", None), PoolName("a")),
        (("gpool", "a", "team"), PoolName("a", "team", False)),
        (("pools", "team/a", None), PoolName("a", "team")),
        (("CGPool", "clustergpupool.gpu.deckhouse.io/c", None), PoolName("c", None, True)),
        (("device", "a", None), None),
    ],
)
def test_how_pools_are_named(given: tuple[str, str, str | None], expected: PoolName | None) -> None:
    assert pool_name(*given) == expected


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        (PoolName("a"), ["team/a", "other/a", "a"]),
        (PoolName("a", "team"), ["team/a"]),
        (PoolName("a", None, True), ["a"]),
        (PoolName("a", None, False), ["team/a", "other/a"]),
    ],
)
def test_which_pools_are_meant(name: PoolName, meant: list[str]) -> None:
    assert [pool for pool in ("team/a", "other/a", "a", "team/b", "b") if name.matches(pool)] == meant


def test_a_timeline_shows_conditions_by_their_status() -> None:
    (column,) = (one for one in NODE_VIEW.columns if one.field == "detail")
    recorded: NodeBootstrapChanged = ready()
    detail = recorded.model_dump(mode="json")
    assert cell(detail, column) == "conditions=ReadyForPooling=True,DriverMissing=False phase=Ready"
    assert cell({"message": "", "labels": {}, "reason": "AskedFor"}, column) == "reason=AskedFor"
