"""The simulated fleet's make-up: specs, and nodes and cards that follow from a seed."""

from collections import Counter
from datetime import UTC, datetime

import pytest

from gpuledger.api.kinds import NFD_VERSION_MIN
from gpuledger.domain.inventory.labels import expected_devices, gpus_among, hardware_facts, mention_gpus, pci_devices
from gpuledger.events.device import Card
from gpuledger.tools.simulation import labels, objects
from gpuledger.tools.simulation.fleet import (
    FAILURES_MAX,
    GPUS_MAX,
    NODES_MAX,
    Fleet,
    FleetNode,
    FleetSpec,
    FleetSpecError,
    SlotId,
)
from gpuledger.tools.simulation.hardware import GPU_RESOURCE, NFD_VERSION, PROFILES, WHOLE_MILLI

Cards = dict[int, Card]
_NOW = datetime(2026, 1, 1, tzinfo=UTC)


def fleet_of(spec: str, seed: int = 1) -> Fleet:
    return Fleet(FleetSpec.parse(spec), seed)


def node_and_cards(spec: str, index: int = 0) -> tuple[FleetNode, Cards]:
    fleet = fleet_of(spec)
    node = list(fleet.nodes.values())[index]
    return node, {slot: fleet.card(SlotId(node.name, slot), 0) for slot in range(len(node.addresses))}


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("nodes=16,gpus=8,profile=h200", FleetSpec(16, 8, "h200")),
        (" profile = mixed , nodes = 2 ", FleetSpec(2, 8, "mixed")),
        ("gpus=1", FleetSpec(4, 1, "h200")),
        (f"nodes={NODES_MAX},gpus={GPUS_MAX},profile=t4", FleetSpec(NODES_MAX, GPUS_MAX, "t4")),
        ("failures=5000,nodes=2", FleetSpec(2, 8, "h200", 5000)),
    ],
)
def test_a_spec_is_read_and_written(text: str, spec: FleetSpec) -> None:
    assert FleetSpec.parse(text) == spec
    assert FleetSpec.parse(str(spec)) == spec


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not `key=value`; give, for example, nodes=16,gpus=8,profile=h200"),
        ("nodes=1,", "'' is not `key=value`"),
        ("nodes", "'nodes' is not `key=value`"),
        ("nodes=", "'nodes=' is not `key=value`"),
        ("cpus=1", "there is no 'cpus'; known are nodes, gpus, profile, failures"),
        ("nodes=1,nodes=2", "nodes is given twice"),
        ("nodes=0", f"nodes=0 is out of bounds; give a whole number from 1 to {NODES_MAX}"),
        (f"nodes={NODES_MAX + 1}", "out of bounds"),
        ("gpus=17", f"gpus=17 is out of bounds; give a whole number from 1 to {GPUS_MAX}"),
        ("gpus=-1", "out of bounds"),
        ("failures=0", f"failures=0 is out of bounds; give a whole number from 1 to {FAILURES_MAX}"),
        ("gpus=1.5", "out of bounds"),
        ("gpus=²", "out of bounds"),
        ("nodes=" + "9" * 5000, "out of bounds"),
        ("profile=b300", "there is no profile 'b300'; known are h200, a100, mig-a100, t4, mixed"),
    ],
)
def test_an_invalid_spec_is_refused(text: str, message: str) -> None:
    with pytest.raises(FleetSpecError) as caught:
        FleetSpec.parse(text)
    assert str(caught.value).startswith("--fleet: ")
    assert message in str(caught.value)


@pytest.mark.parametrize("profile", PROFILES)
def test_the_same_seed_gives_the_same_fleet(profile: str) -> None:
    spec = f"nodes=5,gpus=8,profile={profile}"
    one, same, other = fleet_of(spec, 1), fleet_of(spec, 1), fleet_of(spec, 2)
    assert list(one.nodes.values()) == list(same.nodes.values())
    assert one.hot_slots() == same.hot_slots()
    assert not set(one.nodes) & set(other.nodes)
    cards = [one.card(slot_id, life) for slot_id in one.slot_ids() for life in range(3)]
    assert cards == [same.card(slot_id, life) for slot_id in same.slot_ids() for life in range(3)]
    assert len({card.uuid for card in cards}) == len({card.serial for card in cards}) == len(cards)
    assert not {card.uuid for card in cards} & {other.card(slot_id, 0).uuid for slot_id in other.slot_ids()}


def test_a_larger_fleet_has_the_cards_of_a_smaller_one() -> None:
    small, large = fleet_of("nodes=11"), fleet_of("nodes=99")
    assert set(small.nodes) < set(large.nodes)
    assert [small.card(slot_id, 0) for slot_id in small.slot_ids()] == [
        large.card(slot_id, 0) for slot_id in small.slot_ids()
    ]


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("gpus", [1, 8, GPUS_MAX])
def test_every_slot_has_an_address_of_its_own(profile: str, gpus: int) -> None:
    for node in fleet_of(f"nodes=4,gpus={gpus},profile={profile}").nodes.values():
        assert len(set(node.addresses)) == gpus
        assert list(node.addresses) == sorted(node.addresses)
        for slot in range(gpus):
            assert sum(unit.gpu_milli for unit in node.units(slot)) <= WHOLE_MILLI


def test_the_life_of_a_card_can_be_read_from_its_uuid() -> None:
    fleet = fleet_of("nodes=1,gpus=2")
    slot_id, other = fleet.slot_ids()
    assert fleet.life_of(slot_id, str(fleet.card(slot_id, 7).uuid)) == 7
    assert fleet.life_of(slot_id, str(fleet.card(other, 7).uuid)) is None


@pytest.mark.parametrize("profile", PROFILES)
def test_labels_describe_the_cards(profile: str) -> None:
    node, cards = node_and_cards(f"nodes=4,gpus=4,profile={profile}")
    features = labels.feature_labels(node, cards)
    gpus = gpus_among(pci_devices(features))
    assert [(gpu.pci_vendor, gpu.pci_device) for gpu in gpus.gpus] == [("10de", node.model.pci_device)] * 4
    assert gpus.incomplete == 0
    assert expected_devices(features) == 4
    facts = hardware_facts(features)
    first = cards[0]
    assert facts["product"] == str(first.product).replace(" ", "-")
    assert (facts["memory_mib"], facts["compute_major"]) == (first.memory_mib, first.compute_major)
    assert facts["mig_capable"] == first.mig_capable
    assert all(len(value) <= 63 for value in features.values())


def test_labels_of_a_node_without_cards_describe_none() -> None:
    node, _ = node_and_cards("nodes=1,gpus=1")
    features = labels.feature_labels(node, {})
    assert not mention_gpus(features)
    assert [key for key in features if key.startswith("nvidia.com/")] == []


def test_mig_instances_are_labelled_and_offered() -> None:
    node, cards = node_and_cards("nodes=1,gpus=4,profile=mig-a100")
    features = labels.feature_labels(node, cards)
    assert (features["nvidia.com/mig.strategy"], features["nvidia.com/mig-1g.10gb.count"]) == ("mixed", "14")
    assert features["nvidia.com/mig-3g.40gb.product"] == "NVIDIA-A100-SXM4-80GB-MIG-3g.40gb"
    assert hardware_facts(features)["mig_profiles"] == ["1g.10gb", "3g.40gb"]
    offered = objects.node_status(node, cards, [0], objects.Boot("first", _NOW), _NOW)["status"]
    assert {key: value for key, value in offered["capacity"].items() if "nvidia" in key} == {
        GPU_RESOURCE: "0",
        "nvidia.com/mig-1g.10gb": "14",
        "nvidia.com/mig-3g.40gb": "4",
    }
    assert offered["allocatable"]["nvidia.com/mig-1g.10gb"] == "7"
    assert offered["allocatable"]["nvidia.com/mig-3g.40gb"] == "0"


def test_features_list_what_else_sits_in_the_machine() -> None:
    node, cards = node_and_cards("nodes=1,profile=h200")
    feature = objects.node_feature(node, cards)
    elements = feature["spec"]["features"]["instances"]["pci.device"]["elements"]
    assert Counter(one["attributes"]["class"] for one in elements) == {"0302": 8, "0680": 4, "0207": 8}
    major, minor = NFD_VERSION.removeprefix("v").split(".")[:2]
    assert (int(major), int(minor)) >= NFD_VERSION_MIN
