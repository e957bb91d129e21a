"""Which cards pools take and keep by what is known of them: their MIG profiles, and whether they are seen."""

from typing import Any

import pytest

from gpuledger.events.device import Hardware
from gpuledger.events.payload import Payload
from support.pools import A100, PoolsLog, applied, described, marked, pool, refused, released

MIG: dict[str, Any] = {"unit": "MIG", "mig_profile": "2g.10gb"}
POOL, PENDING, FREE = "ns/p", ("ns/p", "Pending"), (None, None)
WITH = A100.model_copy(update={"mig_profiles": ("1g.5gb", "2g.10gb")})
WITHOUT = A100.model_copy(update={"mig_profiles": ("1g.10gb", "2g.20gb")})
GOLD: dict[str, Any] = {"requires_annotation": False, "auto_approve": {"labels": {"tier": "gold"}}}


@pytest.fixture
def world() -> PoolsLog:
    world = PoolsLog().begin("n1", devices=2)
    world.record(POOL, pool(**MIG))
    return world


@pytest.mark.parametrize(
    ("hardware", "message"),
    [
        (WITHOUT, "The device's card has no MIG profile 2g.10gb, only 1g.10gb, 2g.20gb."),
        (A100.model_copy(update={"mig_capable": False}), "The device cannot be partitioned."),
    ],
    ids=["other profiles", "none at all"],
)
def test_one_wrong_annotation_leaves_the_pool_open(world: PoolsLog, hardware: Hardware, message: str) -> None:
    world.record("n1-0", described(hardware))
    world.record("n1-0", marked("p"))
    row = world.state.assignment.rows["n1-0"]
    assert (world.of("n1-0"), row.reason, row.message) == (FREE, "AnnotationMismatch", message)
    world.record("n1-1", marked("p"))
    assert world.of("n1-1") == PENDING


@pytest.mark.parametrize("hardware", [A100, WITH], ids=["unknown", "known"])
def test_a_card_that_may_have_the_profile_is_taken(world: PoolsLog, hardware: Hardware) -> None:
    world.record("n1-0", described(hardware))
    world.record("n1-0", marked("p"))
    assert world.of("n1-0") == PENDING


def test_a_device_is_taken_once_its_card_reports_the_profile(world: PoolsLog) -> None:
    world.record("n1-0", described(WITHOUT))
    world.record("n1-0", marked("p"))
    world.record("n1-0", described(WITH))
    assert world.of("n1-0") == PENDING


def test_a_pool_approves_no_card_without_its_profile(world: PoolsLog) -> None:
    world.record(POOL, pool(**MIG, **GOLD))
    world.record("n1-0", described(WITHOUT))
    world.record("n1-0", marked(tier="gold"))
    world.record("n1-1", marked(tier="gold"))
    assert (world.of("n1-0"), world.of("n1-1")) == (FREE, PENDING)


@pytest.mark.parametrize("word", [applied(POOL, 3), refused(POOL)], ids=["set up", "refused"])
def test_a_pool_keeps_its_devices_whatever_profiles_are_reported(world: PoolsLog, word: Payload) -> None:
    world.record("n1-0", marked("p"))
    world.record("n1-0", word)
    held, troubles = world.of("n1-0"), world.state.problem.where("pool", POOL)
    world.record("n1-0", described(WITHOUT))
    assert held[0] == POOL
    assert (world.of("n1-0"), world.state.problem.where("pool", POOL)) == (held, troubles)


@pytest.mark.parametrize("fields", [{}, GOLD], ids=["asked for", "approved"])
def test_a_card_that_is_not_seen_keeps_its_place_and_has_it_when_it_comes_back(
    world: PoolsLog, fields: dict[str, Any]
) -> None:
    world.record("ns/few", pool(devices_per_node_max=1, **fields))
    mark = marked(tier="gold") if fields else marked("few")
    world.record("n1-0", mark)
    world.record("n1-0", applied("ns/few"))
    world.record("n1-0", described(missing=True))
    world.record("n1-1", mark)
    assert (world.of("n1-0"), world.of("n1-1")) == (("ns/few", "Assigned"), FREE)
    world.record("n1-0", described())
    assert (world.of("n1-0"), world.of("n1-1")) == (("ns/few", "Assigned"), FREE)


def test_the_place_of_a_card_that_is_not_seen_is_given_away_by_ignoring_it(world: PoolsLog) -> None:
    world.record("ns/few", pool(devices_per_node_max=1, **GOLD))
    for device in ("n1-0", "n1-1"):
        world.record(device, marked(tier="gold"))
    world.record("n1-0", described(missing=True, ignored=True))
    assert world.of("n1-1") == FREE
    world.record("n1-0", released("ns/few"))
    assert (world.of("n1-0"), world.of("n1-1")) == (FREE, ("ns/few", "Pending"))
