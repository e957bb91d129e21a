"""Which devices pools approve automatically, and what people and the module's settings have to say about it."""

from typing import Any

import pytest

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.events.settings import SettingsChanged
from support.pools import PoolsLog, applied, marked, pool, prepared, state, steps

PENDING, ASSIGNED, UNASSIGNING = "Pending", "Assigned", "Unassigning"
FREE = (None, None)


@pytest.fixture
def world() -> PoolsLog:
    return PoolsLog().begin("n1", devices=2)


@pytest.mark.parametrize(
    ("settings", "fields", "labels", "takes"),
    [
        ({}, {"requires_annotation": False, "auto_approve": {"labels": {"tier": "gold"}}}, {"tier": "gold"}, True),
        ({}, {"requires_annotation": False, "auto_approve": {"labels": {"tier": "gold"}}}, {"tier": "tin"}, False),
        (
            {},
            {"requires_annotation": False, "auto_approve": {"labels": {"gpu.deckhouse.io/product": "a100"}}},
            {},
            True,
        ),
        ({}, {"requires_annotation": False, "auto_approve": {}}, {}, True),
        ({}, {"requires_annotation": False}, {}, False),
        ({}, {"requires_annotation": True, "auto_approve": {}}, {}, False),
        (
            {},
            {
                "requires_annotation": False,
                "auto_approve": {"requirements": [{"key": "tier", "operator": "NotIn", "values": ["tin"]}]},
            },
            {"tier": "tin"},
            False,
        ),
        ({"approval_mode": "Manual"}, {"requires_annotation": False, "auto_approve": {}}, {}, False),
        ({"approval_mode": "Selector"}, {"requires_annotation": False, "auto_approve": {}}, {}, False),
        (
            {"approval_mode": "Selector", "approval_selector": {"tier": "gold"}},
            {"requires_annotation": False, "auto_approve": {}},
            {"tier": "gold"},
            True,
        ),
        (
            {"approval_mode": "Selector", "approval_selector": {"tier": "gold"}},
            {"requires_annotation": False, "auto_approve": {}},
            {"tier": "tin"},
            False,
        ),
        *(
            (
                {
                    "approval_mode": "Selector",
                    "approval_requirements": [{"key": "tier", "operator": "NotIn", "values": ["tin"]}],
                    **labels,
                },
                {"requires_annotation": False, "auto_approve": {}},
                {"tier": tier, "team": "a"},
                takes,
            )
            for labels, tier, takes in (
                ({}, "gold", True),
                ({}, "tin", False),
                ({"approval_selector": {"team": "a"}}, "gold", True),
                ({"approval_selector": {"team": "b"}}, "gold", False),
            )
        ),
    ],
)
@pytest.mark.parametrize("pool_first", [False, True])
def test_a_pool_may_approve_devices_automatically(
    world: PoolsLog, settings: Any, fields: Any, labels: Any, *, takes: bool, pool_first: bool
) -> None:
    world.record(MODULE_CONFIG, SettingsChanged(**settings))
    facts = [("ns/p", pool(**fields)), ("n1-0", state("Ready"))]
    world.record("n1-0", state("Validating"))
    world.record("n1-0", marked(**labels))
    for subject, fact in facts if pool_first else reversed(facts):
        world.record(subject, fact)
    assert world.of("n1-0") == (("ns/p", PENDING) if takes else FREE)
    row = world.state.assignment.get("n1-0")
    assert row is None or row.automatic == takes


def test_an_annotation_comes_before_what_pools_approve(world: PoolsLog) -> None:
    everything = {"requires_annotation": False, "auto_approve": {}}
    world.record("n1-0", marked(cluster="q"))
    world.record("ns/p", pool(**everything))
    assert (world.of("n1-0"), world.of("n1-1")) == (FREE, ("ns/p", PENDING))
    world.record("n1-1", marked(cluster="q"))
    assert world.of("n1-1") == ("ns/p", UNASSIGNING)


def test_an_assignment_may_become_automatic_and_back_without_a_move(world: PoolsLog) -> None:
    world.record("ns/p", pool(requires_annotation=False, auto_approve={}))
    world.record("n1-0", applied("ns/p"))
    assert world.state.assignment.rows["n1-0"].automatic
    for mark, automatic in ((marked("p"), False), (marked(), True)):
        assert steps(world.record("n1-0", mark)) == [("n1-0", "ns/p", ASSIGNED)]
        assert world.state.assignment.rows["n1-0"].automatic == automatic
        assert world.total("ns/p") == 1


def test_of_the_pools_that_approve_a_device_the_oldest_takes_it(world: PoolsLog) -> None:
    world.record("n1", prepared(ready=False))
    for name in ("z", "a"):
        world.record(name, pool(uid=name, requires_annotation=False, auto_approve={}))
    world.record("n1", prepared())
    assert world.of("n1-0") == ("z", PENDING)


def test_a_pool_keeps_automatic_devices_when_only_new_ones_need_people(world: PoolsLog) -> None:
    world.record("ns/p", pool(requires_annotation=False, auto_approve={}))
    world.record(MODULE_CONFIG, SettingsChanged(approval_mode="Manual"))
    assert world.of("n1-0") == ("ns/p", PENDING)
    world.record("ns/p", pool())
    assert world.of("n1-0") == ("ns/p", UNASSIGNING)
