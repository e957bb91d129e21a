"""The orders of the decider of pools to agents: which devices pools have, how they are set up, and when to answer."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.domain.pools.agent_reports import next_request_time, without_report
from gpuledger.domain.pools.orders import last_orders
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.events.device import DeviceWithdrawn, Hardware
from gpuledger.events.envelope import Decoded
from gpuledger.events.node import CARDS_PER_NODE_MAX, NodeDevicesWanted, WantedDevice
from gpuledger.events.payload import Payload
from gpuledger.events.pool import PoolDefined, PoolGone
from gpuledger.events.settings import SettingsChanged
from support.events import hour
from support.pools import (
    A100,
    MET,
    PoolsLog,
    applied,
    described,
    detected,
    marked,
    pool,
    prepared,
    refused,
    released,
    state,
)

MIG: dict[str, Any] = {"unit": "MIG", "mig_profile": "1g.5gb"}
CARD = A100.model_copy(update={"uuid": "GPU-1", "pci_address": "0000:17:00.0"})


def lists(decided: list[Decoded]) -> dict[str, tuple[WantedDevice, ...]]:
    """The lists among the decisions, by node; there is one of a node at most."""
    orders = [(one.subject, one.data.devices) for one in decided if isinstance(one.data, NodeDevicesWanted)]
    assert len(orders) == len(dict(orders))
    return dict(orders)


def order(world: PoolsLog, device: str = "n1-0") -> WantedDevice:
    """The last order for the device."""
    return last_orders(world.state, device.partition("-")[0])[device]


def setup(world: PoolsLog, device: str = "n1-0") -> tuple[str, str | None, int]:
    one = order(world, device)
    return (one.unit, one.mig_profile, one.slices_per_unit)


def asked_at(world: PoolsLog) -> datetime:
    return order(world).asked_at


def held(**definition: Any) -> PoolsLog:
    """A device that a pool has assigned."""
    world = PoolsLog().begin("n1")
    world.record("ns/p", pool(**definition))
    return world.assign("n1-0", "ns/p", 7 if definition.get("unit") == "MIG" else None)


def test_the_order_for_a_device_has_all_that_its_agent_needs() -> None:
    world = PoolsLog().begin("n1", devices=0)
    world.record("n1-0", detected("n1", CARD))
    world.record("ns/p", pool(slices_per_unit=2, **MIG))
    world.record("n1-0", marked("p"))
    decided = world.record("n1-0", state("Ready"))
    one = WantedDevice(
        device="n1-0",
        uuid="GPU-1",
        pci_address="0000:17:00.0",
        pool="ns/p",
        resource="gpu.deckhouse.io/p",
        unit="MIG",
        mig_profile="1g.5gb",
        slices_per_unit=2,
        asked_at=hour(world.clock),
    )
    assert lists(decided) == {"n1": (one,)}
    assert decided[-1].subject == "n1"
    assert decided[-1].time == hour(world.clock)


def test_units_of_a_cluster_wide_pool_have_their_own_resource() -> None:
    world = PoolsLog().begin("n1")
    world.record("p", pool())
    world.assign("n1-0", "p")
    assert (order(world).pool, order(world).resource) == ("p", "cluster.gpu.deckhouse.io/p")


def test_orders_list_all_devices_of_the_node_by_name() -> None:
    world = PoolsLog().begin("n1", "n2", devices=3)
    world.record("ns/p", pool())
    for device in ("n1-2", "n2-0", "n1-0"):
        decided = world.record(device, marked("p"))
    assert [one.device for one in lists(decided)["n1"]] == ["n1-0", "n1-2"]


NOTHING_NEW: dict[str, tuple[str, Payload]] = {
    "the agent sets it up": ("n1-0", applied("ns/p")),
    "the agent repeats its report": ("n1-0", applied("ns/p")),
    "a pool would take it by itself": ("n1-0", marked("p", tier="gold")),
    "its card is described as it was": ("n1-0", described()),
    "something else is known of its card": (
        "n1-0",
        described(A100.model_copy(update={"memory_mib": 1, "serial": "s"})),
    ),
    "the card is not seen": ("n1-0", described(missing=True)),
    "the pool is under maintenance": ("ns/p", pool(maintenance="enabled")),
    "the node falls": ("n1", prepared(ready=False)),
    "the agent refuses it after all": ("n1-0", refused("ns/p")),
    "another pool comes": ("ns/other", pool(slices_per_unit=3)),
    "another cap that does not matter": (MODULE_CONFIG, SettingsChanged(max_slices_per_device=1)),
}


def test_a_fact_that_changes_no_order_gives_none() -> None:
    world = PoolsLog().begin("n1")
    world.record("ns/p", pool())
    world.record("n1-0", marked("p"))
    for what, (subject, data) in NOTHING_NEW.items():
        assert lists(world.record(subject, data)) == {}, what
    assert world.of("n1-0") == ("ns/p", "Pending")


def test_the_agent_is_requested_to_report_again_when_its_report_no_longer_counts() -> None:
    world = held()
    first = asked_at(world)
    assert lists(world.record("n1-0", state("Faulted")))["n1"][0].asked_at == hour(world.clock) > first
    assert lists(world.record("n1-0", state("Ready"))) == {}
    assert lists(world.record("n1-0", applied("ns/p"))) == {}
    assert world.of("n1-0") == ("ns/p", "Assigned")
    one = lists(world.record("n1-0", marked()))["n1"][0]
    assert (one.releasing, one.asked_at) == (True, hour(world.clock))


def test_it_does_not_matter_to_the_agent_who_requests_a_device() -> None:
    world = PoolsLog().begin("n1")
    world.record("p", pool(requires_annotation=False, auto_approve={"labels": {"tier": "gold"}}))
    world.record("n1-0", marked(tier="gold"))
    assert lists(world.record("n1-0", marked(cluster="p", tier="gold"))) == {}
    assert world.why("n1-0") == "AskedFor"


def test_each_request_has_a_later_time_than_the_one_before() -> None:
    world = held()
    first = asked_at(world)
    world.record("n1-0", state("Faulted"), at=1)
    second = asked_at(world)
    world.record("n1-0", state("Ready"), at=1)
    assert world.of("n1-0") == ("ns/p", "Pending")
    world.record("n1-0", marked(), at=world.clock - 2)
    assert order(world).releasing
    assert first < second < asked_at(world)


def test_a_time_at_the_end_of_the_calendar_stops_nobody() -> None:
    end = datetime.max.replace(tzinfo=UTC)
    assert next_request_time(without_report("n1-0", "ns/p", None, end), end) == end
    assert next_request_time(without_report("n1-0", "ns/p", None, end - timedelta(microseconds=1)), hour(0)) == end


def test_what_was_released_leaves_one_empty_list() -> None:
    world = held()
    world.record("n1-0", marked())
    assert lists(world.record("n1-0", released("ns/p"))) == {"n1": ()}
    assert lists(world.record("n1-0", state("Faulted"))) == {}
    assert lists(world.record(MODULE_CONFIG, MET)) == {}
    assert lists(world.record("n1-0", DeviceWithdrawn())) == {}


def test_a_node_without_devices_in_pools_gets_no_orders() -> None:
    world = PoolsLog().begin("n1")
    assert world.state.orders.rows == {}
    world.record("n1-0", DeviceWithdrawn())
    assert world.state.orders.rows == {}


def test_from_pool_to_pool_at_once_is_one_list() -> None:
    world = held()
    world.record("ns/q", pool(slices_per_unit=4))
    assert lists(world.record("n1-0", marked("q")))["n1"][0].pool == "ns/p"
    decided = lists(world.record("n1-0", released("ns/p")))
    assert [(one.pool, one.slices_per_unit, one.releasing) for one in decided["n1"]] == [("ns/q", 4, False)]


def test_a_device_that_is_withdrawn_leaves_the_list() -> None:
    world = PoolsLog().begin("n1", devices=2)
    world.record("ns/p", pool())
    world.assign("n1-0", "ns/p").assign("n1-1", "ns/p")
    assert [one.device for one in lists(world.record("n1-0", DeviceWithdrawn()))["n1"]] == ["n1-1"]


def test_the_order_for_a_device_follows_it_to_another_node() -> None:
    world = held()
    decided = lists(world.record("n1-0", detected("n2")))
    assert (decided["n1"], [one.device for one in decided["n2"]]) == ((), ["n1-0"])


def test_orders_change_with_what_is_recorded_of_the_card() -> None:
    world = held()
    decided = lists(world.record("n1-0", described(CARD)))
    assert [(one.uuid, one.pci_address) for one in decided["n1"]] == [("GPU-1", "0000:17:00.0")]


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        (pool(slices_per_unit=3, **MIG), ("MIG", "1g.5gb", 3)),
        (pool(unit="MIG", mig_profile="2g.10gb"), ("MIG", "2g.10gb", 1)),
        (pool(), ("Card", None, 1)),
    ],
)
def test_a_new_definition_gives_new_orders_to_the_nodes_of_the_pool(
    definition: PoolDefined, expected: tuple[str, str | None, int]
) -> None:
    world = PoolsLog().begin("n1", "n2", "n3", devices=2)
    for name in ("p", "q"):
        world.record(f"ns/{name}", pool(**MIG))
    world.assign("n1-0", "ns/p", 7).assign("n2-1", "ns/p", 7).assign("n3-0", "ns/q", 7)
    before = {device: order(world, device).asked_at for device in ("n1-0", "n2-1")}
    assert set(lists(world.record("ns/p", definition))) == {"n1", "n2"}
    for device, time in before.items():
        assert (setup(world, device), order(world, device).asked_at) == (expected, time)
    assert setup(world, "n3-0") == ("MIG", "1g.5gb", 1)


def test_a_card_that_its_pool_divides_otherwise_has_not_drifted() -> None:
    world = held(**MIG)
    world.record("ns/p", pool(unit="MIG", mig_profile="3g.20gb"))
    world.record("n1-0", applied("ns/p", 2))
    assert (world.total("ns/p"), world.conditions("ns/p")["Maintenance"]) == (2, ("False", "InService"))
    world.record("n1-0", applied("ns/p", 1))
    assert world.conditions("ns/p")["Maintenance"] == ("True", "Drift")


def test_orders_have_no_more_slices_than_the_module_allows() -> None:
    world = held(slices_per_unit=4)
    assert [one.slices_per_unit for one in lists(world.record("ns/p", pool(slices_per_unit=9)))["n1"]] == [8]
    decided = lists(world.record(MODULE_CONFIG, SettingsChanged(max_slices_per_device=2)))
    assert [one.slices_per_unit for one in decided["n1"]] == [2] == [world.total("ns/p")]
    decided = lists(world.record(MODULE_CONFIG, SettingsChanged(max_slices_per_device=16)))
    assert [one.slices_per_unit for one in decided["n1"]] == [9]


WRONG: dict[str, PoolDefined] = {
    "no profile": pool(unit="MIG"),
    "no such profile": pool(unit="MIG", mig_profile="all", slices_per_unit=5),
    "a profile of no use": pool(unit="Card", mig_profile="1g.5gb"),
    "another backend": pool(backend="DRA", slices_per_unit=5),
    "another provider": pool(provider="AMD", slices_per_unit=5),
}


@pytest.mark.parametrize("what", WRONG)
def test_devices_of_a_pool_whose_spec_makes_no_sense_stay_set_up_as_they_are(what: str) -> None:
    world = held(slices_per_unit=2, **MIG)
    assert lists(world.record("ns/p", WRONG[what])) == {}
    assert lists(world.record(MODULE_CONFIG, MET)) == {}
    assert setup(world) == ("MIG", "1g.5gb", 2)
    world.record("n1-0", state("Faulted"))
    assert setup(world) == ("MIG", "1g.5gb", 2), "Asked anew, and for the same."
    assert [one.slices_per_unit for one in lists(world.record("ns/p", pool(slices_per_unit=3, **MIG)))["n1"]] == [3]


def test_what_is_wrong_with_selectors_does_not_keep_the_set_up_back() -> None:
    world = held()
    wrong = {"requirements": [{"key": "zone", "operator": "In"}]}
    world.record("ns/p", pool(slices_per_unit=3, auto_approve=wrong))
    assert world.conditions("ns/p")["Misconfigured"] == ("True", "SelectorInvalid")
    assert setup(world) == ("Card", None, 3)


ENDS: dict[str, Callable[[PoolsLog], object]] = {
    "nobody asks for it": lambda world: world.record("n1-0", marked()),
    "the pool is deleted": lambda world: world.record("ns/p", pool(deleting=True, slices_per_unit=5)),
    "the pool is gone": lambda world: world.record("ns/p", PoolGone()),
    "another card is meant": lambda world: world.record(
        "ns/p", pool(include={"products": ["B200"]}, slices_per_unit=5)
    ),
}


@pytest.mark.parametrize("what", ENDS)
def test_what_leaves_its_pool_is_not_set_up_otherwise_first(what: str) -> None:
    world = held(slices_per_unit=2, **MIG)
    ENDS[what](world)
    assert (order(world).releasing, setup(world)) == (True, ("MIG", "1g.5gb", 2))
    if "ns/p" in world.state.pool.rows:
        world.record("ns/p", pool(deleting=True, slices_per_unit=7))
    assert setup(world) == ("MIG", "1g.5gb", 2)
    assert lists(world.record("n1-0", released("ns/p"))) == {"n1": ()}


def test_a_log_of_an_older_build_has_no_list_to_go_by() -> None:
    """A device without a recorded set-up is not offered; one that is to be released is, whatever it was."""
    world = held(**MIG)
    world.record("ns/p", pool(unit="MIG"))
    world.state.orders.delete("n1")
    assert lists(world.record(MODULE_CONFIG, MET)) == {}
    world.record("ns/p", PoolGone())
    assert (order(world).releasing, setup(world)) == (True, ("Card", None, 1))


def test_lost_orders_are_given_again() -> None:
    world = held(slices_per_unit=2)
    before = order(world)
    world.state.orders.delete("n1")
    assert lists(world.record(MODULE_CONFIG, MET)) == {"n1": (before,)}


def test_a_device_never_keeps_the_set_up_of_another_pool() -> None:
    world = held(**MIG)
    world.record("ns/p", pool(unit="MIG"))
    row = world.state.orders.rows["n1"]
    world.state.orders.put(row._replace(devices=row.devices.replace("ns/p", "ns/q")))
    assert lists(world.record(MODULE_CONFIG, MET)) == {"n1": ()}


def test_no_orders_are_given_while_the_service_decides_nothing() -> None:
    world = held()
    world.record(MODULE_CONFIG, SettingsChanged(enabled=False))
    assert lists(world.record("ns/p", pool(slices_per_unit=2))) == {}
    assert lists(world.record("n1-0", described(CARD))) == {}
    one = lists(world.record(MODULE_CONFIG, SettingsChanged()))["n1"][0]
    assert (one.slices_per_unit, one.uuid) == (2, "GPU-1")


def test_a_device_that_goes_while_nothing_is_decided_leaves_the_list_afterwards() -> None:
    world = held()
    world.record(MODULE_CONFIG, SettingsChanged(enabled=False))
    world.record("n1-0", DeviceWithdrawn())
    assert lists(world.record(MODULE_CONFIG, SettingsChanged())) == {"n1": ()}


def test_orders_never_have_an_earlier_time_than_the_last() -> None:
    world = held()
    first_changed_at = world.state.orders.rows["n1"].changed_at
    decided = world.record("n1-0", described(CARD), at=0)
    assert [one.time for one in decided] == [first_changed_at]
    assert [one.time >= first_changed_at for one in world.record("n1-0", DeviceWithdrawn(), at=0)] == [True, True]
    world.record("n1-0", detected("n1"), at=0)
    world.record("n1-0", state("Ready"), at=0)
    assert [one.device for one in last_orders(world.state, "n1").values()] == ["n1-0"]
    assert world.state.orders.rows["n1"].changed_at >= first_changed_at


def crowd(world: PoolsLog, count: int) -> list[str]:
    """So many devices on a node, each requested; they are named in their order."""
    devices = [f"n1-{number:03}" for number in range(count)]
    for device in devices:
        world.record(device, detected("n1"))
        world.record(device, marked("p"))
    return devices


def test_pools_take_no_more_devices_of_a_node_than_one_list_of_orders_holds() -> None:
    world = PoolsLog().begin("n1", devices=0)
    world.record("ns/p", pool())
    devices = crowd(world, CARDS_PER_NODE_MAX + 1)
    for device in devices:
        world.record(device, state("Ready"))
    assert world.of(devices[-2]) == ("ns/p", "Pending")
    assert (world.of(devices[-1]), world.why(devices[-1])) == ((None, None), "NodeLimitReached")
    assert list(last_orders(world.state, "n1")) == devices[:-1]
    world.record(devices[7], DeviceWithdrawn())
    assert world.of(devices[-1]) == ("ns/p", "Pending"), "There is room for it now."
    assert list(last_orders(world.state, "n1")) == [one for one in devices if one != devices[7]]


def test_more_devices_than_a_list_holds_stop_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a log of an older build may have them: the orders list the first by name."""
    monkeypatch.setattr(PoolFacts, "is_crowded", lambda _state, _node: False)
    world = PoolsLog().begin("n1", devices=0)
    devices = crowd(world, CARDS_PER_NODE_MAX + 2)
    world.record("ns/p", pool())
    for device in devices:
        world.record(device, state("Ready"))
    assert world.of(devices[-1]) == ("ns/p", "Pending")
    assert list(last_orders(world.state, "n1")) == devices[:CARDS_PER_NODE_MAX]
    world.record(devices[0], described(Hardware(product="another")))
    assert list(last_orders(world.state, "n1")) == devices[:CARDS_PER_NODE_MAX]
