"""The inventory: which GPUDevices there are, whichever source reports their cards first, and what becomes of them."""

import pytest

from gpuledger.domain.inventory.facts import is_current
from gpuledger.events.device import DeviceMarked, DeviceWithdrawn
from gpuledger.events.node import NodeFeaturesGone, NodeFeaturesObserved, NodeGone, NodeObserved, PciDevice
from gpuledger.events.settings import SettingsChanged
from support.events import hour
from support.inventory import MODULE, RecordedInventory, card, cards_seen, features, kinds, labels, observed

A100 = {"gpu_product": "NVIDIA-A100-PCIE-40GB", "gpu_memory": "40960", "gpu_compute_major": "8"}


def recorded(*facts: tuple[str, object]) -> RecordedInventory:
    """The decider after these facts, an hour apart."""
    inventory = RecordedInventory()
    for at, (subject, data) in enumerate(facts):
        inventory.record(at, subject, data)  # type: ignore[arg-type] # payloads all
    return inventory


def test_labels_alone_give_provisional_devices_with_the_names_of_their_places() -> None:
    inventory = recorded(("w1", observed("2203", "2203", **A100)))
    assert inventory.names() == ["w1-0-10de-2203", "w1-1-10de-2203"]
    (first, _) = inventory.devices()
    assert (first.provisional, first.state, first.managed, first.missing) == (True, "Discovered", True, False)
    assert (first.product, first.memory_mib, first.precision) == ("NVIDIA-A100-PCIE-40GB", 40960, "fp32,fp16,bf16")
    assert inventory.conditions("w1") == {
        "InventoryComplete": ("True", "AllDevicesDescribed"),
        "ManagedDisabled": ("False", "Enabled"),
    }


def test_a_fact_is_decided_on_in_one_order() -> None:
    inventory = RecordedInventory()
    decided = inventory.record(0, "w1", observed("2203"))
    assert kinds(decided) == ["module.prerequisite-changed", "device.detected", "node.inventory-changed"]
    decided = inventory.record(1, "w1", cards_seen(card("GPU-a")))
    assert kinds(decided) == ["device.identified", "device.described", "device.attached"]
    assert decided[0].source == "/services/inventory"
    assert inventory.record(2, "w1", cards_seen(card("GPU-a"))) == []


def test_the_agent_names_devices_by_address_when_its_report_is_first() -> None:
    inventory = recorded(
        ("cpu", observed()), ("worker-01", cards_seen(card("GPU-a", serial="s1", product="NVIDIA H200")))
    )
    (device,) = inventory.devices()
    assert device.name == "worker-01-0000-17-00-0"
    assert (device.uuid, device.serial, device.pci_address) == ("GPU-a", "s1", "0000:17:00.0")
    assert device.slot == "worker-01/0000:17:00.0"


def test_nfd_after_the_agent_adds_no_second_device() -> None:
    inventory = recorded(
        ("cpu", observed()), ("w1", cards_seen(card("GPU-a", 0), card("GPU-b", 1))), ("w1", observed("2203", "2203"))
    )
    assert inventory.names() == ["w1-0000-17-00-0", "w1-0000-18-00-0"]
    assert [row.pci_class for row in inventory.devices()] == ["0300", "0300"]


def test_the_agent_after_nfd_identifies_the_devices_in_their_order_and_keeps_their_names() -> None:
    inventory = recorded(("w1", observed("2203", "2203")), ("w1", cards_seen(card("GPU-b", 1), card("GPU-a", 0))))
    assert [(row.name, row.uuid, row.provisional) for row in inventory.devices()] == [
        ("w1-0-10de-2203", "GPU-a", False),
        ("w1-1-10de-2203", "GPU-b", False),
    ]


def test_only_cards_of_the_same_vendor_and_model_are_taken_for_one_another() -> None:
    inventory = recorded(
        ("w1", observed("2203", "20b5")), ("w1", cards_seen(card("GPU-a", 0, "20b5"), card("GPU-b", 1)))
    )
    assert [(row.name, row.uuid) for row in inventory.devices()] == [
        ("w1-0-10de-2203", "GPU-b"),
        ("w1-1-10de-20b5", "GPU-a"),
    ]


def test_devices_that_the_agent_does_not_see_stay_provisional_and_are_reported() -> None:
    inventory = recorded(("w1", observed("2203", "2203")), ("w1", cards_seen(card("GPU-a"))))
    assert [row.uuid for row in inventory.devices()] == ["GPU-a", None]
    assert inventory.conditions("w1")["InventoryComplete"] == ("False", "AttributesMissing")


def test_the_agents_facts_win_and_labels_supply_the_rest() -> None:
    inventory = recorded(("w1", observed("2203", **A100)), ("w1", cards_seen(card("GPU-a", product="NVIDIA A100"))))
    (device,) = inventory.devices()
    assert (device.product, device.memory_mib, device.compute_major) == ("NVIDIA A100", 40960, 8)


def test_labels_do_not_describe_cards_that_they_may_not_mean() -> None:
    inventory = recorded(("w1", observed("2203", "20b5", **A100)))
    assert [row.product for row in inventory.devices()] == [None, None]


def test_nodefeature_and_labels_are_one_list() -> None:
    inventory = recorded(("w1", observed("2203")), ("w1", features("2203", "2203")))
    assert inventory.names() == ["w1-0-10de-2203", "w1-1-10de-2203"]


def test_other_pci_devices_are_no_gpus() -> None:
    audio = PciDevice(index=0, pci_vendor="0x10DE", pci_device="22ba", pci_class="0403")
    nic = PciDevice(index=1, pci_vendor="15b3", pci_device="1017", pci_class="0200")
    gpu = PciDevice(index=2, pci_vendor="0x10DE", pci_device="2330", pci_class="0x0302", pci_address="0000:17:00.0")
    inventory = recorded(("w1", NodeFeaturesObserved(devices=(audio, nic, gpu), nfd_version="v0.18.0")))
    (device,) = inventory.devices()
    assert (device.name, device.pci_vendor, device.pci_class) == ("w1-2-10de-2330", "10de", "0302")
    assert device.pci_address == "0000:17:00.0"


def test_devices_survive_the_loss_of_labels_and_a_condition_of_the_node_shows_it() -> None:
    inventory = recorded(("cpu", observed()), ("w1", observed("2203", **A100)), ("w1", NodeObserved(uid="u")))
    (device,) = inventory.devices()
    assert (device.missing, device.memory_mib) == (False, 40960)
    assert inventory.conditions("w1")["InventoryComplete"] == ("False", "NoDevicesDiscovered")
    assert inventory.node("w1").present is False
    assert kinds(inventory.record(9, "w1", observed("2203", **A100))) == ["node.inventory-changed"]
    assert inventory.node("w1").present is True


def test_labels_without_a_nodefeature_or_devices_are_reported() -> None:
    inventory = recorded(("w1", observed(gpu_present="true")))
    assert inventory.names() == []
    assert inventory.conditions("w1")["InventoryComplete"] == ("False", "NodeFeatureMissing")
    inventory.record(5, "w1", features("2203"))
    assert inventory.conditions("w1")["InventoryComplete"] == ("True", "AllDevicesDescribed")
    inventory.record(6, "w1", NodeFeaturesGone())
    assert inventory.names() == ["w1-0-10de-2203"]
    assert inventory.conditions("w1")["InventoryComplete"] == ("False", "NodeFeatureMissing")


@pytest.mark.parametrize(
    "lacking",
    [{"gpu.deckhouse.io/device-count": "2"}, {"gpu.deckhouse.io/device.01.vendor": "10de"}],
    ids=["counted", "listed"],
)
def test_a_device_that_the_rule_left_incomplete_makes_the_inventory_so(lacking: dict[str, str]) -> None:
    inventory = recorded(("w1", NodeObserved(uid="u", labels={**labels("2203"), **lacking}, nfd_version="v0.17.0")))
    assert inventory.names() == ["w1-0-10de-2203"]
    assert inventory.conditions("w1")["InventoryComplete"] == ("False", "AttributesMissing")


def test_a_node_without_gpus_has_no_state() -> None:
    inventory = recorded(("cpu", observed()))
    assert inventory.state.node.rows == {}


def test_devices_go_with_their_node_and_with_nothing_else() -> None:
    inventory = recorded(("w1", observed("2203")), ("w1", cards_seen(card("GPU-a"))), ("w1", cards_seen()))
    (device,) = inventory.devices()
    assert device.missing
    decided = inventory.record(4, "w1", NodeGone(uid="u"))
    assert kinds(decided) == ["device.detached", "device.withdrawn", "node.inventory-withdrawn"]
    assert (inventory.devices(), inventory.state.node.rows, inventory.state.condition.rows) == ([], {}, {})
    assert inventory.state.report.rows == {}


def test_a_node_that_comes_back_has_its_agents_last_report() -> None:
    inventory = recorded(
        ("w1", observed("2203")), ("w1", cards_seen(card("GPU-a"))), ("w1", NodeGone()), ("w1", observed())
    )
    assert [(row.uuid, row.missing) for row in inventory.devices()] == [("GPU-a", False)]


def test_a_moved_card_is_withdrawn_here_detected_there_and_keeps_its_passport() -> None:
    inventory = recorded(("cpu", observed()), ("w1", cards_seen(card("GPU-a"))))
    decided = inventory.record(5, "w2", cards_seen(card("GPU-a", 3)))
    assert kinds(decided) == [
        "device.detached",
        "device.withdrawn",
        "node.inventory-changed",
        "device.detected",
        "device.attached",
        "node.inventory-changed",
    ]
    assert [decided[0].subject, decided[4].subject] == ["GPU-a", "GPU-a"]
    assert decided[1].data == DeviceWithdrawn(moved_to="w2")
    assert inventory.names() == ["w2-0000-1a-00-0"]
    assert inventory.record(6, "w1", cards_seen()) == []
    inventory.record(7, "w1", cards_seen(card("GPU-a")))
    assert inventory.names() == ["w1-0000-17-00-0"]


def test_a_card_that_went_to_another_slot_keeps_its_name() -> None:
    inventory = recorded(("cpu", observed()), ("w1", cards_seen(card("GPU-a"))))
    assert kinds(inventory.record(5, "w1", cards_seen(card("GPU-a", 2)))) == [
        "device.described",
        "device.detached",
        "device.attached",
    ]
    assert inventory.names() == ["w1-0000-17-00-0"]


def test_an_inventory_id_is_given_once_and_stays() -> None:
    inventory = recorded(("w1", observed("2203")))
    assert [row.inventory_id for row in inventory.devices()] == [""], "its place is not known yet"
    inventory.record(5, "w1", cards_seen(card("GPU-a")))
    assert [(row.name, row.inventory_id) for row in inventory.devices()] == [("w1-0-10de-2203", "w1-0000:17:00.0")]
    inventory.record(6, "w1", cards_seen(card("GPU-a", 2)))
    assert [row.inventory_id for row in inventory.devices()] == ["w1-0000:17:00.0"]


def test_no_two_devices_have_one_inventory_id() -> None:
    inventory = recorded(("cpu", observed()), ("w1", cards_seen(card("GPU-a"))))
    inventory.record(5, "w1", cards_seen(card("GPU-b"), card("GPU-a", 2)))
    ids = {row.uuid: row.inventory_id for row in inventory.devices()}
    assert ids["GPU-a"] == "w1-0000:17:00.0"
    assert ids["GPU-b"].startswith("w1-0000:17:00.0-")


def test_a_card_without_uuid_is_its_address_until_it_has_one() -> None:
    inventory = recorded(("cpu", observed()), ("w1", cards_seen(card(None))))
    assert [row.card for row in inventory.devices()] == ["w1/0000:17:00.0"]
    inventory.record(5, "w1", cards_seen(card("GPU-a")))
    assert [(row.name, row.card) for row in inventory.devices()] == [("w1-0000-17-00-0", "GPU-a")]
    assert inventory.record(6, "w1", cards_seen(card(None))) == []


def test_an_agent_reports_on_its_own_node_only() -> None:
    inventory = recorded(("cpu", observed()))
    assert inventory.record(5, "w2", cards_seen(card("GPU-a")), source="/nodes/w1/agent") == []
    assert inventory.names() == []


def test_a_late_report_adds_its_cards_and_turns_nothing_back() -> None:
    inventory = recorded(("cpu", observed()))
    inventory.record(9, "w1", cards_seen(card("GPU-b", 1)))
    inventory.record(5, "w1", cards_seen(card("GPU-a", 0)))
    assert [(row.uuid, row.missing) for row in inventory.devices()] == [("GPU-a", True), ("GPU-b", False)]
    reports = inventory.state.node_facts.rows["w1"]
    assert [is_current(reports, row) for row in inventory.state.report.where("node", "w1")] == [True, False]


def test_of_two_reports_of_one_time_the_later_one_holds() -> None:
    inventory = recorded(("cpu", observed()))
    inventory.record(5, "w1", cards_seen(card("GPU-a")))
    inventory.record(5, "w1", cards_seen())
    assert [row.missing for row in inventory.devices()] == [True]


def test_a_label_takes_a_node_out_of_management_and_only_flags_move() -> None:
    inventory = recorded(("w1", observed("2203")))
    off = NodeObserved(uid="u", labels={**labels("2203"), "gpu.deckhouse.io/enabled": "false"}, nfd_version="v0.17.0")
    assert kinds(inventory.record(5, "w1", off)) == ["device.described", "node.inventory-changed"]
    (device,) = inventory.devices()
    assert (device.managed, device.managed_at, device.ignored_at) == (False, hour(5), hour(0))
    assert inventory.conditions("w1")["ManagedDisabled"] == ("True", "DisabledByLabel")
    times = {one["type"]: one["lastTransitionTime"] for one in inventory.status("w1")["conditions"]}
    assert times == {"InventoryComplete": "2026-01-01T00:00:00Z", "ManagedDisabled": "2026-01-01T05:00:00Z"}


def test_the_key_and_the_default_of_management_are_settings() -> None:
    inventory = recorded(("w1", observed("2203")))
    inventory.record(5, MODULE, SettingsChanged(enabled_by_default=False))
    assert inventory.conditions("w1")["ManagedDisabled"] == ("True", "NotEnabledByDefault")
    own = NodeObserved(uid="u", labels={**labels("2203"), "acme.io/gpus": "true"}, nfd_version="v0.17.0")
    assert inventory.record(6, "w1", own) == []
    inventory.record(7, MODULE, SettingsChanged(enabled_by_default=False, managed_label_key="acme.io/gpus"))
    assert inventory.conditions("w1")["ManagedDisabled"] == ("False", "Enabled")


def test_an_ignored_device_stays_in_the_inventory() -> None:
    inventory = recorded(("w1", observed("2203")))
    marked = DeviceMarked(labels={"gpu.deckhouse.io/ignore": "true"}, annotations={"gpu.deckhouse.io/assignment": "p"})
    assert kinds(inventory.record(5, "w1-0-10de-2203", marked)) == ["device.described"]
    (device,) = inventory.devices()
    assert (device.ignored, device.ignored_at) == (True, hour(5))
    assert kinds(inventory.record(6, "w1-0-10de-2203", DeviceMarked())) == ["device.described"]


def test_disabled_decides_nothing_and_enabled_makes_up_for_it() -> None:
    inventory = RecordedInventory()
    assert inventory.record(0, MODULE, SettingsChanged(enabled=False)) == []
    assert inventory.record(1, "w1", observed("2203")) == []
    decided = inventory.record(2, MODULE, SettingsChanged())
    assert kinds(decided) == ["module.prerequisite-changed", "device.detected", "node.inventory-changed"]
    inventory.record(3, MODULE, SettingsChanged(enabled=False))
    assert inventory.record(4, "w1", NodeGone()) == []
    assert kinds(inventory.record(5, MODULE, SettingsChanged())) == ["device.withdrawn", "node.inventory-withdrawn"]


def test_with_an_old_node_feature_discovery_nothing_else_happens_whatever_agents_find() -> None:
    inventory = RecordedInventory()
    assert kinds(inventory.record(0, "w1", observed("2203", nfd_version="v0.16.6"))) == ["module.prerequisite-changed"]
    assert inventory.record(1, "w1", cards_seen(card("GPU-a"))) == []
    assert module_of(inventory) == (False, "NodeFeatureDiscoveryTooOld")
    decided = inventory.record(2, "w1", observed("2203"))
    assert kinds(decided)[:2] == ["module.prerequisite-changed", "device.detected"]
    assert inventory.state.module.rows[MODULE].changed_at == hour(2)


def module_of(inventory: RecordedInventory) -> tuple[bool, str]:
    """Whether the module's prerequisites are met, and why."""
    (module,) = inventory.state.module.rows.values()
    return module.met, module.reason


def test_without_node_feature_discovery_and_agents_nothing_else_happens() -> None:
    inventory = RecordedInventory()
    labels_alone = NodeObserved(uid="u", labels={"nvidia.com/gpu.present": "true"})
    assert kinds(inventory.record(0, "w1", labels_alone)) == ["module.prerequisite-changed"]
    assert inventory.record(1, "w2", NodeObserved(uid="v")) == []
    assert module_of(inventory) == (False, "NodeFeatureDiscoveryMissing")


def test_an_agent_stands_in_for_node_feature_discovery() -> None:
    inventory = recorded(("w1", NodeObserved(uid="u")), ("cpu", NodeObserved(uid="v")))
    decided = inventory.record(2, "w1", cards_seen(card("GPU-a"), card(None, 1)))
    assert kinds(decided) == [
        "module.prerequisite-changed",
        *("device.detected", "device.detected", "device.attached", "device.attached"),
        "node.inventory-changed",
    ]
    assert module_of(inventory) == (True, "NodesSurveyedByAgents")
    assert inventory.names() == ["w1-0000-17-00-0", "w1-0000-18-00-0"]
    assert inventory.conditions("w1")["InventoryComplete"] == ("True", "AllDevicesDescribed")


def test_a_node_whose_agent_finds_no_card_has_no_inventory() -> None:
    inventory = recorded(("cpu", NodeObserved(uid="v")))
    assert kinds(inventory.record(1, "cpu", cards_seen())) == ["module.prerequisite-changed"]
    assert module_of(inventory) == (True, "NodesSurveyedByAgents")
    assert (inventory.devices(), inventory.state.node.rows) == ([], {})


def test_once_the_only_agents_node_is_gone_the_prerequisite_is_missing_until_an_agent_surveys_again() -> None:
    inventory = recorded(("w1", NodeObserved(uid="u")), ("cpu", NodeObserved(uid="v")))
    inventory.record(2, "w1", cards_seen(card("GPU-a")))
    assert kinds(inventory.record(3, "w1", NodeGone())) == [
        *("module.prerequisite-changed", "device.detached", "device.withdrawn", "node.inventory-withdrawn"),
    ]
    assert inventory.record(4, "w1", NodeObserved(uid="w")) == []
    assert module_of(inventory) == (False, "NodeFeatureDiscoveryMissing")
    decided = inventory.record(5, "w1", cards_seen(card("GPU-a")))
    assert kinds(decided)[:2] == ["module.prerequisite-changed", "device.detected"]


def test_node_feature_discovery_that_comes_later_takes_over_and_adds_no_device() -> None:
    inventory = recorded(("w1", cards_seen(card("GPU-a"))))
    assert module_of(inventory) == (True, "NodesSurveyedByAgents")
    decided = inventory.record(1, "w1", observed("2203"))
    assert "device.detected" not in kinds(decided)
    assert module_of(inventory) == (True, "PrerequisitesMet")
    inventory.record(2, "w1", NodeObserved(uid="u"))
    assert module_of(inventory) == (True, "NodesSurveyedByAgents")
    assert inventory.names() == ["w1-0000-17-00-0"]


def test_a_device_of_a_gone_node_goes_even_while_node_feature_discovery_is_missing() -> None:
    inventory = recorded(("cpu", NodeObserved(uid="u")), ("w1", observed("2203")))
    assert kinds(inventory.record(5, "w1", NodeGone())) == [
        "module.prerequisite-changed",
        "device.withdrawn",
        "node.inventory-withdrawn",
    ]


def test_decisions_about_a_node_never_go_back_in_time() -> None:
    inventory = recorded(("cpu", observed()))
    inventory.record(9, "w1", cards_seen(card("GPU-b", 1)))
    (late, *_) = inventory.record(5, "w1", cards_seen(card("GPU-a", 0)))
    assert late.time == hour(9)
