"""What metrics and Events make of nodes that share their devices, and which resources of a Node are ours."""

from typing import Any

import pytest

from gpuledger.api.sharing import SharingNames
from gpuledger.edge.kube.crds import node_feature_rule
from gpuledger.edge.statuswriter.desired.state import desired_object
from gpuledger.edge.statuswriter.node_resources import node_resources, resources_of
from gpuledger.edge.statuswriter.objects import Key, Kind
from gpuledger.events.device import DeviceAssignmentChanged, DeviceDescribed, Hardware
from gpuledger.events.node_sharing import NodeSharingLabelled
from gpuledger.events.sharing import NodeDevicesShared, NotSharedCard, SharedDevice
from support.events import SubjectFact
from support.gpu_states import desired_state, found, prepared, ready, samples

NAMES = SharingNames("gpu.example.com")
CORE = "gpu.example.com/gpu-core"


def gpu(minor: int, *, healthy: bool = True) -> SharedDevice:
    return SharedDevice(type="gpu", minor=minor, id=f"GPU-{minor}", healthy=healthy, resources={"gpu-core": 100})


def sharing(*devices: SharedDevice) -> NodeDevicesShared:
    left_out = NotSharedCard(id="GPU-9", owner="pool", reason="InPool")
    return NodeDevicesShared(devices=devices, not_shared=(left_out,))


def facts() -> list[SubjectFact]:
    """A node whose two cards are ready, and belong to no pool."""
    described = DeviceDescribed(hardware=Hardware(uuid="GPU-0"), managed=True)
    names = ("w1-0", "w1-1")
    return [*found(*names), ("w1-0", described), *((name, prepared("Ready")) for name in names), ("w1", ready())]


def test_shared_devices_are_counted_and_are_not_unassigned() -> None:
    labelled = ("w1", NodeSharingLabelled(uid="u1"))
    state = desired_state(*facts(), labelled, ("w1", sharing(gpu(0), gpu(1, healthy=False))))
    seen = samples(state)
    assert seen["gpu_shared_devices", "w1", "gpu", "true"] == seen["gpu_shared_devices", "w1", "gpu", "false"] == 1
    assert seen["gpu_not_shared_cards", "w1", "InPool"] == 1
    assert seen["gpu_device_unassigned_total",] == 1
    assert samples(desired_state(*facts()))["gpu_device_unassigned_total",] == 2


def test_a_node_that_shares_does_not_lack_a_pool() -> None:
    assert "w1" in desired_state(*facts()).without_pool.rows
    shares = ("w1", sharing(gpu(0)))
    assert "w1" not in desired_state(*facts(), shares).without_pool.rows
    assert "w1" in desired_state(*facts(), shares, ("w1", NodeDevicesShared(enabled=False))).without_pool.rows


def test_the_condition_of_a_device_says_that_it_is_left_to_sharing() -> None:
    left = DeviceAssignmentChanged(reason="LeftToSharing", message="A label of the node.")
    shown = desired_object(desired_state(*facts(), ("w1-0", left)), Key(Kind.DEVICE, "w1-0"), node_feature_rule())
    assert shown is not None
    (configured,) = (one for one in shown.status["conditions"] if one["type"] == "Configured")
    assert (configured["status"], configured["reason"]) == ("False", "LeftToSharing")
    assert (configured["message"], shown.status["state"]) == ("A label of the node.", "Ready")


@pytest.mark.parametrize(
    ("capacity", "ours"),
    [
        ({"cpu": "8", "other/gpu-core": "100"}, None),
        ({CORE: "1k"}, {CORE: "1000"}),
        ({CORE: "400", "gpu.example.com/others": "1"}, {CORE: "400"}),
        ({CORE: "odd"}, {CORE: "odd"}),
    ],
)
def test_which_resources_are_ours(capacity: dict[str, str], ours: dict[str, str] | None) -> None:
    node: dict[str, Any] = {"metadata": {"name": "w1"}, "status": {"capacity": capacity, "allocatable": capacity}}
    expected = {} if ours is None else {"capacity": ours, "allocatable": ours}
    assert node_resources(node, NAMES) == expected


def test_what_we_wrote_once_is_ours_still() -> None:
    fields: dict[str, Any] = {"f:status": {"f:capacity": {"f:gpu.example.com/fpga": {}, "f:cpu": {}}}}
    entry = {"manager": "gpuledger", "subresource": "status", "fieldsV1": fields}
    node = {"metadata": {"managedFields": [entry]}, "status": {"capacity": {"gpu.example.com/fpga": "1", "cpu": "8"}}}
    assert node_resources(node, NAMES) == {"capacity": {"gpu.example.com/fpga": "1"}, "allocatable": {}}


def test_totals_are_written_as_whole_numbers() -> None:
    amounts = {CORE: "200", "gpu.example.com/gpu-memory": "1024"}
    assert resources_of({"gpu-core": 200, "gpu-memory": 1024}, NAMES) == {"capacity": amounts, "allocatable": amounts}
    assert resources_of({}, NAMES) == {}
