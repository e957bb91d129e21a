"""The inventory's parts: names, what labels say, and what statuses look like."""

import pytest

from gpuledger.deciders.inventory.conditions import prerequisite
from gpuledger.domain.inventory.device_names import NAME_MAX, device_name, free_name, place_of
from gpuledger.domain.inventory.facts import NfdCount
from gpuledger.domain.inventory.labels import (
    expected_devices,
    hardware_facts,
    is_new_enough,
    pci_address,
    pci_devices,
    pci_id,
)
from gpuledger.domain.inventory.status import device_labels, device_status, module_condition, product_label
from gpuledger.events.payload import NAME_LENGTH_MAX
from support.inventory import MODULE, RecordedInventory, card, cards_seen, observed


def test_names_are_those_of_the_rulings() -> None:
    assert device_name("worker-01", address="0000:17:00.0") == "worker-01-0000-17-00-0"
    assert device_name("w1", index=0, vendor="10de", device="2203") == "w1-0-10de-2203"
    assert device_name("ip-10-0-0-1.ec2.internal", address="0000:17:00.0") == "ip-10-0-0-1.ec2.internal-0000-17-00-0"


def test_two_gpus_of_one_node_with_a_long_name_have_two_names() -> None:
    node = "a-node-with-a-very-long-name-" * 3
    first, second = (device_name(node, address=f"0000:{bus}:00.0") for bus in ("17", "18"))
    assert first != second
    assert len(first) == len(second) == NAME_MAX
    assert first[: NAME_MAX - 9] == second[: NAME_MAX - 9]


def test_a_name_holds_only_what_kubernetes_takes() -> None:
    assert device_name("Node_1", index=1, vendor="10de", device="2203") == "node-1-1-10de-2203"
    assert device_name("узел", address="0000:17:00.0").isascii()


def test_a_taken_name_gets_a_hash_of_the_card() -> None:
    taken = {"w1-0000-17-00-0"}
    first = free_name("w1-0000-17-00-0", "GPU-a", taken.__contains__)
    assert first == free_name("w1-0000-17-00-0", "GPU-a", taken.__contains__)
    assert first.startswith("w1-0000-17-00-0-")
    assert free_name("w1-0000-17-00-0", "GPU-b", taken.__contains__) != first
    assert len(free_name("x" * NAME_MAX, "GPU-a", {"x" * NAME_MAX}.__contains__)) == NAME_MAX
    assert len(free_name("w", "GPU-a", {"w", free_name("w", "GPU-a", {"w"}.__contains__)}.__contains__)) == 18


def test_places_fit_into_ids_however_long_the_node_is_called() -> None:
    assert place_of("w1", "0000:17:00.0") == "w1/0000:17:00.0"
    assert len(place_of("n" * NAME_LENGTH_MAX, "0000:17:00.0")) == NAME_LENGTH_MAX
    assert place_of("у" * NAME_LENGTH_MAX, "0000:17:00.0").isascii()


def test_pci_ids_and_addresses_have_one_form() -> None:
    assert (pci_id("0x10DE"), pci_id("10de")) == ("10de", "10de")
    assert pci_address("00000000:17:00.0") == "0000:17:00.0"
    assert pci_address("00010000:AF:00.0") == "00010000:af:00.0"


def test_device_labels_are_read_by_index() -> None:
    labels = {
        "gpu.deckhouse.io/device.10.vendor": "10de",
        "gpu.deckhouse.io/device.02.vendor": "10de",
        "gpu.deckhouse.io/device.02.device": "2203",
        "gpu.deckhouse.io/device.02.class": "0300",
        "gpu.deckhouse.io/device.02.colour": "green",
        "gpu.deckhouse.io/device-count": "2",
    }
    assert [(one.index, one.pci_device) for one in pci_devices(labels)] == [(2, "2203"), (10, None)]
    assert expected_devices(labels) == 2


@pytest.mark.parametrize(
    ("labels", "facts"),
    [
        ({"gpu.product": "Tesla-T4", "gpu.memory": "15360"}, {"product": "Tesla-T4", "memory_mib": 15360}),
        ({"gpu.product": "NVIDIA-H200-SHARED"}, {"product": "NVIDIA-H200"}),
        ({"gpu.memory": "much", "gpu.compute.major": "²"}, {}),
        ({"gpu.memory": "0"}, {}),
        ({"gpu.memory": "81920MiB"}, {}),
        ({"gpu.memory": "16106127360"}, {"memory_mib": 15360}),
        ({"gpu.memory": "16777216"}, {"memory_mib": 16777216}),
        ({"gpu.product": "NVIDIA-H100-NVL-MIG-1g.12gb", "gpu.memory": "11008"}, {"product": "NVIDIA-H100-NVL"}),
        ({"gpu.product": "NVIDIA-A100-MIG-INVALID", "gpu.memory": "0"}, {"product": "NVIDIA-A100"}),
        ({"mig.capable": "false"}, {"mig_capable": False}),
        (
            {"gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", "mig.capable": "true", "mig.strategy": "single"},
            {
                "product": "NVIDIA-A100-SXM4-80GB",
                "mig_capable": True,
                "mig_strategy": "single",
                "mig_profiles": ["1g.10gb"],
            },
        ),
        (
            {
                "mig.capable": "true",
                "mig.strategy": "mixed",
                "mig-1g.10gb.count": "2",
                "mig-1g.10gb.memory": "9728",
                "mig-1g.10gb+me.count": "1",
                "mig-3g.40gb.count": "1",
            },
            {"mig_capable": True, "mig_strategy": "mixed", "mig_profiles": ["1g.10gb", "1g.10gb+me", "3g.40gb"]},
        ),
        (
            {"mig.strategy": "mixed", "mig-1g.10gb.me.count": "1", "mig-1g.10gb.me.memory": "9728"},
            {"mig_strategy": "mixed", "mig_profiles": ["1g.10gb+me"]},
        ),
        (
            {"gpu.product": "NVIDIA-H100-MIG-1g.12gb.me.all", "mig.strategy": "single"},
            {"product": "NVIDIA-H100", "mig_strategy": "single", "mig_profiles": ["1g.12gb+me.all"]},
        ),
        (
            {"gpu.product": "RTX-PRO-6000-MIG-1g.24gb-me-SHARED", "mig.strategy": "single", "mig-1g.79.count": "1"},
            {"product": "RTX-PRO-6000", "mig_strategy": "single", "mig_profiles": ["1g.24gb-me"]},
        ),
    ],
)
def test_gfd_labels_give_hardware_facts(labels: dict[str, str], facts: dict[str, object]) -> None:
    assert hardware_facts({f"nvidia.com/{name}": value for name, value in labels.items()}) == facts


@pytest.mark.parametrize(
    ("version", "will_do"),
    [("v0.17.0", True), ("0.18.2-dirty", True), ("v1.0.0", True), ("v0.16.9", False), (None, True), ("main", True)],
)
def test_nfd_versions(version: str | None, will_do: bool) -> None:
    assert is_new_enough(version) is will_do


@pytest.mark.parametrize(
    ("product", "label"),
    [
        ("NVIDIA A100-PCIE-40GB", "a100"),
        ("NVIDIA-H100-80GB-HBM3", "h100"),
        ("Tesla T4", "t4"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA TITAN V", "titan-v"),
        ("NVIDIA", ""),
    ],
)
def test_products_have_short_names(product: str, label: str) -> None:
    assert product_label(product) == label


def test_the_status_has_the_shape_of_the_resource() -> None:
    inventory = RecordedInventory()
    inventory.record(0, "worker-01", observed("2203"))
    complete = card(
        "GPU-3d45",
        product="NVIDIA A100-PCIE-40GB",
        pci_class="0300",
        memory_mib=40960,
        compute_major=8,
        compute_minor=0,
        precision=("fp32", "fp16", "bf16"),
        mig_capable=True,
        mig_profiles=("1g.5gb", "2g.10gb"),
    )
    inventory.record(1, "worker-01", cards_seen(complete))
    (device,) = inventory.devices()
    status = device_status(device)
    conditions = {one["type"]: one for one in status.pop("conditions")}
    assert status == {
        "nodeName": "worker-01",
        "inventoryID": "worker-01-0000:17:00.0",
        "managed": True,
        "state": "Discovered",
        "hardware": {
            "uuid": "GPU-3d45",
            "product": "NVIDIA A100-PCIE-40GB",
            "pci": {"vendor": "10de", "device": "2203", "class": "0300", "address": "0000:17:00.0"},
            "memoryMiB": 40960,
            "computeCapability": {"major": 8, "minor": 0},
            "precision": {"supported": ["fp32", "fp16", "bf16"]},
            "mig": {"capable": True, "profilesSupported": ["1g.5gb", "2g.10gb"]},
        },
    }
    assert set(conditions) == {"ManagedDisabled", "Ignored", "Missing"}
    assert conditions["ManagedDisabled"] == {
        "type": "ManagedDisabled",
        "status": "False",
        "reason": "Enabled",
        "message": "gpuledger manages the node.",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    assert device_labels(device) == {
        "gpu.deckhouse.io/product": "a100",
        "gpu.deckhouse.io/vendor": "nvidia",
        "gpu.deckhouse.io/precision.fp32": "true",
        "gpu.deckhouse.io/precision.fp16": "true",
        "gpu.deckhouse.io/precision.bf16": "true",
    }
    assert module_condition(inventory.state.module.rows[MODULE])["status"] == "False"


@pytest.mark.parametrize(
    ("nodes", "new_enough", "too_old", "surveyed", "reason"),
    [
        (0, 0, 0, 0, None),
        (3, 0, 0, 0, "NodeFeatureDiscoveryMissing"),
        (3, 0, 0, 1, "NodesSurveyedByAgents"),
        (3, 0, 1, 3, "NodeFeatureDiscoveryTooOld"),
        (3, 1, 2, 3, "PrerequisitesMet"),
        (3, 1, 0, 0, "PrerequisitesMet"),
    ],
)
def test_what_tells_which_nodes_have_gpus(
    nodes: int, new_enough: int, too_old: int, surveyed: int, reason: str | None
) -> None:
    found = prerequisite(NfdCount(MODULE, nodes, new_enough, too_old, surveyed))
    assert (None if found is None else str(found.reason)) == reason
    assert found is None or found.met == (reason in ("PrerequisitesMet", "NodesSurveyedByAgents"))
