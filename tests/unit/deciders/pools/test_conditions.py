"""What holds for a pool: its total, its conditions, drift and maintenance, names that collide, and its end."""

from typing import Any

import pytest

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.events.device import DeviceWithdrawn, Hardware
from gpuledger.events.pool import PoolChanged, PoolGone, PoolReleased
from gpuledger.events.settings import SettingsChanged
from support.pools import A100, PoolsLog, applied, described, marked, pool, refused, released, state

FINE = {
    "CapacityLow": ("True", "NoCapacity"),
    "Configured": ("True", "Configured"),
    "Maintenance": ("False", "InService"),
    "Misconfigured": ("False", "NoProblems"),
    "Supported": ("True", "Supported"),
}
MIG = {"unit": "MIG", "mig_profile": "1g.5gb"}


@pytest.fixture
def world() -> PoolsLog:
    return PoolsLog().begin("n1", devices=3)


@pytest.mark.parametrize(
    ("fields", "differs", "total"),
    [
        ({}, {}, 0),
        (MIG, {}, 0),
        (
            {"provider": "AMD"},
            {"Supported": ("False", "ProviderNotSupported"), "Configured": ("False", "ProviderNotSupported")},
            None,
        ),
        (
            {"backend": "DRA"},
            {"Supported": ("False", "BackendNotSupported"), "Configured": ("False", "BackendNotSupported")},
            None,
        ),
        (
            {"unit": "MIG"},
            {"Misconfigured": ("True", "MIGProfileMissing"), "Configured": ("False", "MIGProfileMissing")},
            0,
        ),
        (
            {"slices_per_unit": 9},
            {"Misconfigured": ("True", "SlicesAboveCap"), "Configured": ("False", "SlicesAboveCap")},
            0,
        ),
        ({"deleting": True}, {"Configured": ("False", "Deleting")}, 0),
        ({"maintenance": "enabled"}, {"Maintenance": ("True", "ByOperator")}, 0),
    ],
)
def test_the_conditions_of_a_pool_without_devices(
    world: PoolsLog, fields: dict[str, Any], differs: dict[str, Any], total: int | None
) -> None:
    world.record("ns/p", pool(generation=3, **fields))
    low = {"CapacityLow": ("True", "CapacityUnknown")} if total is None else {}
    assert world.conditions("ns/p") == {**FINE, **differs, **low}
    assert world.state.total.rows["ns/p"][1:3] == (total, 3)
    assert world.record("ns/p", pool(generation=3, **fields)) == []


@pytest.mark.parametrize(
    ("fields", "partitions", "total"),
    [
        ({}, None, 2),
        ({"slices_per_unit": 4}, None, 8),
        (MIG, 7, 14),
        ({**MIG, "slices_per_unit": 2}, 7, 28),
        (MIG, 0, 0),
    ],
)
def test_the_total_counts_what_is_set_up(
    world: PoolsLog, fields: dict[str, Any], partitions: int | None, total: int
) -> None:
    world.record("ns/p", pool(**fields))
    for device in ("n1-0", "n1-1"):
        world.assign(device, "ns/p", partitions)
    world.record("n1-2", marked("p"))
    assert world.total("ns/p") == total
    assert world.conditions("ns/p")["CapacityLow"][0] == ("False" if total else "True")


def test_the_cap_limits_the_total_and_the_message_names_it(world: PoolsLog) -> None:
    world.record("ns/p", pool(slices_per_unit=8))
    world.assign("n1-0", "ns/p")
    world.record(MODULE_CONFIG, SettingsChanged(max_slices_per_device=2))
    assert world.total("ns/p") == 2
    assert world.conditions("ns/p")["Misconfigured"] == ("True", "SlicesAboveCap")


def test_a_refusal_misconfigures_the_pool_until_it_is_taken_back(world: PoolsLog) -> None:
    world.record("ns/p", pool())
    for device in ("n1-0", "n1-1"):
        world.record(device, marked("p"))
        world.record(device, refused("ns/p", "MIGNotEnabled", "No MIG mode."))
    assert world.of("n1-0") == ("ns/p", "Pending")
    assert world.conditions("ns/p")["Misconfigured"] == ("True", "MIGNotEnabled")
    assert world.conditions("ns/p")["Configured"] == ("False", "MIGNotEnabled")
    message = world.state.condition.rows["ns/p", "Misconfigured"].message
    assert message == "An agent refuses n1-0 and 1 more: No MIG mode."
    world.record("n1-0", applied("ns/p"))
    world.record("n1-1", marked())
    assert world.conditions("ns/p") == {**FINE, "CapacityLow": ("False", "HasCapacity")}


def test_a_refusal_of_an_assigned_device_misconfigures_the_pool_although_it_steps_back(world: PoolsLog) -> None:
    world.record("ns/p", pool())
    world.assign("n1-0", "ns/p")
    world.record("n1-0", refused("ns/p"))
    assert (world.of("n1-0"), world.conditions("ns/p")["Misconfigured"]) == (
        ("ns/p", "Pending"), ("True", "MIGNotEnabled"),
    )  # fmt: skip


DRIFTS = [
    ("n1-0", applied("ns/p", 6)),
    ("n1-0", refused("ns/p")),
    ("n1-0", released("ns/p")),
    ("n1-0", described(Hardware(product="another"))),
]


@pytest.mark.parametrize(("subject", "fact"), DRIFTS)
def test_drift_lasts_until_it_is_confirmed(world: PoolsLog, subject: str, fact: Any) -> None:
    fields = {**MIG, "include": {"products": [A100.product]}}
    world.record("ns/p", pool(**fields))
    world.assign("n1-0", "ns/p", 7)
    world.record(subject, fact)
    assert world.conditions("ns/p")["Maintenance"] == ("True", "Drift")
    world.record("n1-1", marked("p"))
    assert world.why("n1-1") == "PoolTakesNoDevices"
    world.record("n1-0", described())
    world.record("n1-0", applied("ns/p", 7))
    assert world.conditions("ns/p")["Maintenance"] == ("True", "Drift")
    world.record("ns/p", pool(**fields, maintenance="confirmed"))
    assert world.conditions("ns/p")["Maintenance"] == ("False", "InService")
    assert world.of("n1-1") == ("ns/p", "Pending")


def test_what_was_confirmed_is_what_is_expected_from_then_on(world: PoolsLog) -> None:
    world.record("ns/p", pool(**MIG))
    world.assign("n1-0", "ns/p", 7)
    world.record("n1-0", applied("ns/p", 4))
    world.record("ns/p", pool(**MIG, maintenance="confirmed"))
    world.record("n1-0", applied("ns/p", 4))
    assert (world.total("ns/p"), world.conditions("ns/p")["Maintenance"][0]) == (4, "False")
    world.record("n1-0", applied("ns/p", 3))
    assert world.conditions("ns/p")["Maintenance"] == ("True", "Drift")
    world.record("ns/p", pool(**MIG))
    assert world.conditions("ns/p")["Maintenance"] == ("True", "Drift")


INCLUDED = {
    "products": [A100.product], "pci_vendors": ["10de"], "pci_devices": ["20b5"], "mig_capable": True,
    "mig_profiles": ["1g.5gb"],
}  # fmt: skip


@pytest.mark.parametrize("property_name", ["product", "pci_vendor", "pci_device", "mig_capable", "mig_profiles"])
def test_a_property_that_is_no_longer_reported_is_not_drift(property_name: str) -> None:
    whole = A100.model_copy(update={"mig_profiles": ("1g.5gb", "7g.40gb")})
    world = PoolsLog().begin("n1")
    world.record("n1-0", described(whole))
    world.record("ns/p", pool(**MIG, include=INCLUDED))
    world.assign("n1-0", "ns/p", 7)
    world.record("n1-0", described(whole.model_copy(update={property_name: None})))
    assert (world.of("n1-0"), world.conditions("ns/p")["Maintenance"]) == (("ns/p", "Assigned"), ("False", "InService"))
    world.record("n1-0", described(whole.model_copy(update={"mig_capable": False, "mig_profiles": None})))
    assert (world.of("n1-0"), world.conditions("ns/p")["Maintenance"]) == (("ns/p", "Unassigning"), ("True", "Drift"))


def test_a_property_that_nobody_reports_brings_no_card_into_a_pool() -> None:
    world = PoolsLog().begin("n1")
    world.record("ns/p", pool(include={"mig_profiles": ["1g.5gb"]}))
    world.record("n1-0", marked("p"))
    assert world.why("n1-0") == "AnnotationMismatch"


def test_a_device_that_was_not_assigned_yet_cannot_drift(world: PoolsLog) -> None:
    world.record("ns/p", pool(include={"products": [A100.product]}))
    world.record("n1-0", marked("p"))
    world.record("n1-0", refused("ns/p"))
    world.record("n1-0", described(Hardware(product="another")))
    assert world.conditions("ns/p")["Maintenance"] == ("False", "InService")


def test_a_device_that_waits_for_room_keeps_waiting_however_the_pool_drifts(world: PoolsLog) -> None:
    world.record("ns/p", pool(**MIG, devices_per_node_max=1))
    world.assign("n1-0", "ns/p", 1)
    world.record("n1-1", marked("p"))
    world.record("n1-0", applied("ns/p", 0))
    assert world.conditions("ns/p")["Maintenance"] == ("True", "Drift")
    assert world.record("n1-1", marked("p")) == []
    assert world.why("n1-1") == "NodeLimitReached"


def test_what_drifts_when_its_pool_is_gone_leaves_nothing(world: PoolsLog) -> None:
    world.record("ns/p", pool())
    world.assign("n1-0", "ns/p")
    world.record(MODULE_CONFIG, SettingsChanged(enabled=False))
    world.record("ns/p", PoolGone())
    world.record("n1-0", refused("ns/p"))
    world.record(MODULE_CONFIG, SettingsChanged())
    assert world.of("n1-0") == ("ns/p", "Unassigning")
    assert len(world.state.problem) == 0


def test_a_fault_is_not_drift(world: PoolsLog) -> None:
    world.record("ns/p", pool(**MIG))
    world.assign("n1-0", "ns/p", 7)
    world.record("n1-0", state("Faulted"))
    world.record("n1-0", released("ns/p"))
    world.record("n1-0", state("Ready"))
    world.record("n1-0", applied("ns/p", 4))
    assert (world.total("ns/p"), world.conditions("ns/p")["Maintenance"][0]) == (4, "False")


def test_of_pools_of_one_name_the_older_has_it(world: PoolsLog) -> None:
    world.record("ns/p", pool(uid="1"))
    world.record("other/p", pool(uid="2", requires_annotation=False, auto_approve={}))
    world.record("p", pool(uid="3"))
    assert world.conditions("ns/p") == FINE
    for later in ("other/p", "p"):
        assert world.conditions(later)["Configured"] == ("False", "NameCollision")
    world.record("n1-0", marked("p"))
    world.record("n1-1", marked(cluster="p"))
    assert (world.of("n1-0"), world.why("n1-1")) == (("ns/p", "Pending"), "AnnotationMismatch")
    assert world.of("n1-2") == (None, None)
    world.record("ns/p", PoolGone())
    assert world.conditions("other/p")["Configured"] == ("True", "Configured")
    assert world.of("n1-2") == ("other/p", "Pending")
    world.record("n1-0", released("ns/p"))
    assert world.of("n1-0") == ("other/p", "Pending")


def test_a_pool_that_is_made_anew_is_the_younger(world: PoolsLog) -> None:
    world.record("ns/p", pool(uid="1"))
    world.record("other/p", pool(uid="2"))
    world.record("ns/p", pool(uid="3"))
    assert world.conditions("ns/p")["Configured"] == ("False", "NameCollision")
    assert world.conditions("other/p") == FINE


def test_a_pool_may_go_once_it_holds_nothing(world: PoolsLog) -> None:
    world.record("ns/p", pool())
    for device in ("n1-0", "n1-1"):
        world.assign(device, "ns/p")
    endings = [world.record("ns/p", pool(deleting=True)), world.record("n1-0", released("ns/p"))]
    assert not any(isinstance(one.data, PoolReleased) for decided in endings for one in decided)
    decided = world.record("n1-1", DeviceWithdrawn())
    assert [one.subject for one in decided if isinstance(one.data, PoolReleased)] == ["ns/p"]
    for again in (world.record("ns/p", pool(deleting=True)), world.record(MODULE_CONFIG, SettingsChanged())):
        assert not any(isinstance(one.data, PoolReleased) for one in again)
    world.record("ns/p", PoolGone())
    assert world.conditions("ns/p") == {}
    assert "ns/p" not in world.state.total.rows


def test_a_pool_that_was_released_and_made_anew_is_released_again(world: PoolsLog) -> None:
    for uid in ("1", "2"):
        world.record("ns/p", pool(uid=uid))
        decided = world.record("ns/p", pool(uid=uid, deleting=True))
        assert any(isinstance(one.data, PoolReleased) for one in decided)


def test_facts_about_an_earlier_pool_of_the_name_do_not_count(world: PoolsLog) -> None:
    world.record("ns/p", pool(slices_per_unit=2), at=50)
    assert world.record("ns/p", pool(deleting=True), at=49) == []
    assert world.record("ns/p", PoolGone(), at=48) == []
    assert world.conditions("ns/p") == FINE


def test_a_condition_keeps_the_time_of_its_status(world: PoolsLog) -> None:
    world.record("ns/p", pool(backend="DRA"))
    began = world.state.condition.rows["ns/p", "Configured"].changed_at
    decided = world.record("ns/p", pool(unit="MIG"))
    assert [one.subject for one in decided if isinstance(one.data, PoolChanged)] == ["ns/p"]
    row = world.state.condition.rows["ns/p", "Configured"]
    assert (row.reason, row.changed_at) == ("MIGProfileMissing", began)


def test_a_decision_is_never_before_an_earlier_one_about_the_same(world: PoolsLog) -> None:
    world.record("ns/p", pool(), at=90)
    world.record("n1-0", marked("p"), at=80)
    assert world.state.assignment.rows["n1-0"].changed_at < world.state.total.rows["ns/p"].changed_at
    decided = world.record("n1-0", applied("ns/p"), at=10)
    assert [one.time for one in decided] == [
        world.state.assignment.rows["n1-0"].changed_at,
        world.state.total.rows["ns/p"].changed_at,
    ]
    assert decided[0].time < decided[1].time
