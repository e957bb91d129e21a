"""Reads the hints of pods, and says exactly what is wrong with those that it cannot read."""

import json

import pytest

from gpuledger.domain.sharing.hints import NO_HINTS, PodHints, hints_of
from gpuledger.domain.sharing.model import (
    Hint,
    JointAllocate,
    LabelRequirement,
    LabelSelector,
    PartitionSpec,
    Refusal,
    Scope,
)
from gpuledger.domain.sharing.selectors import read_selector, selects


def test_no_annotation_is_no_hint() -> None:
    assert hints_of(None, None, None) == NO_HINTS
    assert NO_HINTS.of("gpu") == Hint()


def test_all_fields_of_a_hint() -> None:
    text = json.dumps(
        {
            "rdma": {
                "selector": {"matchLabels": {"type": "nic"}},
                "vfSelector": {"matchExpressions": [{"key": "type", "operator": "In", "values": ["general", "gpu"]}]},
                "allocateStrategy": "RequestsAsCount",
                "exclusivePolicy": "DeviceLevel",
            },
            "gpu": {"requiredTopologyScope": "NUMANode", "exclusivePolicy": "", "selector": None},
        }
    )
    found = hints_of(text, None, None)
    assert isinstance(found, PodHints)
    nic = LabelSelector((LabelRequirement("type", "In", frozenset({"nic"})),))
    functions = LabelSelector((LabelRequirement("type", "In", frozenset({"general", "gpu"})),))
    assert found.of("rdma") == Hint(nic, functions, "RequestsAsCount", "DeviceLevel")
    assert found.of("gpu") == Hint(required_scope=Scope.NUMA)
    assert found.of("fpga") == Hint()


@pytest.mark.parametrize(
    ("text", "joint"),
    [
        ('{"deviceTypes":["gpu","rdma"]}', JointAllocate(("gpu", "rdma"))),
        ('{"deviceTypes":["gpu","rdma"],"requiredScope":""}', JointAllocate(("gpu", "rdma"))),
        ('{"deviceTypes":["gpu","rdma"],"requiredScope":"SamePCIe"}', JointAllocate(("gpu", "rdma"), same_pcie=True)),
    ],
)
def test_joint_allocation(text: str, joint: JointAllocate) -> None:
    assert hints_of(None, text, None) == PodHints({}, joint)


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("{}", PartitionSpec()),
        ('{"allocatePolicy":"BestEffort"}', PartitionSpec()),
        ('{"allocatePolicy":"Restricted","ringBusBandwidth":"200Gi"}', PartitionSpec(True, 200 * 2**30)),
    ],
)
def test_partition_spec(text: str, spec: PartitionSpec) -> None:
    assert hints_of(None, None, text) == PodHints({}, None, spec)


@pytest.mark.parametrize(
    ("hint", "joint", "partition", "reason"),
    [
        ("{", None, None, "The annotation device-allocate-hint is invalid: it is not JSON ("),
        ("[]", None, None, "device-allocate-hint is invalid: it has to be a JSON object, and is []."),
        ('{"rdma":3}', None, None, "rdma has to be a JSON object, and is 3"),
        (
            '{"rdma":{"allocateStratgey":"x"}}',
            None,
            None,
            "rdma has the field 'allocateStratgey'; allowed are selector",
        ),
        ('{"rdma":{"allocateStrategy":"All"}}', None, None, "rdma.allocateStrategy is 'All'; allowed are ApplyForAll"),
        ('{"gpu":{"allocateStrategy":"ApplyForAll"}}', None, None, "it is for other types of devices only"),
        ('{"rdma":{"exclusivePolicy":"PCIeLevel"}}', None, None, "allowed are DeviceLevel"),
        ('{"gpu":{"requiredTopologyScope":"Rack"}}', None, None, "allowed are Device, PCIe, NUMANode, Node"),
        ('{"gpu":{"selector":{"matchLabel":{}}}}', None, None, "gpu.selector has the field 'matchLabel'"),
        ('{"gpu":{"selector":{"matchLabels":{"a":1}}}}', None, None, "gpu.selector.matchLabels.a has to be a text"),
        (
            '{"gpu":{"selector":{"matchExpressions":[{"key":"a","operator":"Near"}]}}}',
            None,
            None,
            "gpu.selector.matchExpressions[0].operator is 'Near'; allowed are In, NotIn, Exists, DoesNotExist",
        ),
        (
            '{"gpu":{"vfSelector":{"matchExpressions":[{"key":"a","operator":"In"}]}}}',
            None,
            None,
            "gpu.vfSelector.matchExpressions[0]: the operator In needs values",
        ),
        (
            '{"gpu":{"vfSelector":{"matchExpressions":[{"key":"a","operator":"Exists","values":["b"]}]}}}',
            None,
            None,
            "the operator Exists has no values",
        ),
        (None, "{}", None, "device-joint-allocate is invalid: deviceTypes is empty"),
        (None, '{"deviceTypes":"gpu"}', None, "deviceTypes has to be a list"),
        (None, '{"deviceTypes":[""]}', None, "deviceTypes[0] has to be a text"),
        (None, '{"deviceTypes":["gpu"],"requiredScope":"Rack"}', None, "requiredScope is 'Rack'; allowed are SamePCIe"),
        (None, None, "invalid GPU Partition Spec", "gpu-partition-spec is invalid: it is not JSON"),
        (None, None, '{"allocatePolicy":"Strict"}', "allocatePolicy is 'Strict'; allowed are Restricted, BestEffort"),
        (None, None, '{"ringBusBandwidth":"fast"}', "ringBusBandwidth is 'fast', which is no quantity"),
    ],
)
def test_refusals_name_the_annotation_and_the_place(
    hint: str | None, joint: str | None, partition: str | None, reason: str
) -> None:
    found = hints_of(hint, joint, partition)
    assert isinstance(found, Refusal)
    assert found.unresolvable
    assert reason in found.reason


@pytest.mark.parametrize(
    ("expression", "selected"),
    [
        ({"operator": "In", "values": ["nic", "disk"]}, True),
        ({"operator": "In", "values": ["disk"]}, False),
        ({"operator": "NotIn", "values": ["disk"]}, True),
        ({"operator": "NotIn", "values": ["nic"]}, False),
        ({"operator": "Exists"}, True),
        ({"operator": "DoesNotExist"}, False),
    ],
)
def test_operators_of_selectors(expression: dict[str, object], selected: bool) -> None:
    selector = read_selector({"matchExpressions": [{"key": "type", **expression}]}, "selector")
    assert selects(selector, {"type": "nic"}) is selected
    absent = expression["operator"] in {"NotIn", "DoesNotExist"}
    assert selects(selector, {"other": "nic"}) is absent


def test_all_requirements_have_to_hold() -> None:
    selector = read_selector({"matchLabels": {"a": "1", "b": ""}}, "selector")
    assert selects(selector, {"a": "1", "b": ""})
    assert not selects(selector, {"a": "1"})
    assert selects(LabelSelector(), {})
