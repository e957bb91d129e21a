"""Desired objects, withdrawals, occurrences and metrics that follow from decisions."""

from typing import Any

import pytest

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.api.reasons import EventReason
from gpuledger.edge.kube.crds import node_feature_rule, shipped
from gpuledger.edge.statuswriter.desired.fold import DesiredProjection
from gpuledger.edge.statuswriter.desired.state import DesiredState, desired_object
from gpuledger.edge.statuswriter.objects import DesiredObject, Document, Key, Kind
from gpuledger.edge.statuswriter.reconcile.planner import Planner
from gpuledger.events.device import DeviceDetected, DeviceWithdrawn, Hardware
from gpuledger.events.node import NodeInventoryChanged, NodeInventoryWithdrawn
from support.events import event, folded, log_of
from support.gpu_states import COMPLETE, INCOMPLETE, samples
from support.statuswriter_parts import DEVICE, NODE

INVENTORY = "/services/inventory"
FULL = Hardware(
    uuid="GPU-1", serial="1", pci_address="0000:17:00.0", pci_vendor="10de", pci_device="20b5", pci_class="0302",
    product="NVIDIA A100-PCIE-40GB", memory_mib=40960, compute_major=8, compute_minor=0, precision=("fp16", "bf16"),
    mig_capable=True, mig_strategy="mixed", mig_profiles=("1g.5gb", "2g.10gb"),
)  # fmt: skip


def detected(node: str = "w1", **more: Any) -> DeviceDetected:
    return DeviceDetected(hardware=FULL, managed=True, node=node, card="GPU-1", **more)


def desired_state(*facts: tuple[str, Any]) -> DesiredState:
    events = [event(data, name, number=at, at=at, source=INVENTORY) for at, (name, data) in enumerate(facts, 1)]
    state = folded(DesiredProjection(), log_of(events)).state
    assert isinstance(state, DesiredState)
    return state


def test_a_node_is_shown_once_something_was_decided_of_it() -> None:
    rule = node_feature_rule()
    assert desired_object(desired_state(("w1-0", detected())), NODE, rule) is None
    state = desired_state(("w1-0", detected()), ("w1", NodeInventoryChanged(present=True, conditions=(COMPLETE,))))
    shown = desired_object(state, NODE, rule)
    assert shown is not None
    assert shown.main == {"spec": {"nodeName": "w1"}}
    assert [one["type"] for one in shown.status["conditions"]] == ["InventoryComplete"]


def test_what_changed_and_what_was_withdrawn() -> None:
    state = desired_state(("w1-0", detected()), ("w1", NodeInventoryChanged(present=True, conditions=(COMPLETE,))))
    assert set(state.take_changed()) == {DEVICE, NODE, Key(Kind.KUBE_NODE, "w1")}
    assert state.take_changed() == {}
    state = desired_state(
        ("w1-0", detected()), ("w1", NodeInventoryChanged(present=True, conditions=(COMPLETE,))),
        ("w1-0", DeviceWithdrawn(moved_to="w2")), ("w1", NodeInventoryWithdrawn()),
    )  # fmt: skip
    assert set(state.take_changed()) == set(state.withdrawn()) == {DEVICE, NODE}
    state = desired_state(("w1-0", detected()), ("w1-0", DeviceWithdrawn()), ("w1-0", detected()))
    assert not state.withdrawn()


@pytest.mark.parametrize(("present", "labels"), [(True, {"gpu.deckhouse.io/detected": "true"}), (False, {})])
def test_a_node_with_gpus_has_our_label(present: bool, labels: dict[str, str]) -> None:
    state = desired_state(("w1", NodeInventoryChanged(present=present, conditions=(COMPLETE,))))
    key = Key(Kind.KUBE_NODE, "w1")
    assert desired_object(state, key, node_feature_rule()) == DesiredObject({"labels": labels, "annotations": {}}, {})
    assert desired_object(state, key._replace(name="cpu"), node_feature_rule()) is None, "it is nobody's business"


def test_what_is_news() -> None:
    inventory = NodeInventoryChanged(present=False, conditions=(INCOMPLETE,))
    state = desired_state(
        ("w1-0", detected()), ("w1", NodeInventoryChanged(present=True, conditions=(COMPLETE,))),
        ("w1", inventory), ("w1", inventory), ("w1-0", DeviceWithdrawn(moved_to="w2")),
    )  # fmt: skip
    assert [(one.reason, one.is_warning) for one in state.take_occurrences()] == [
        (EventReason.DEVICE_DETECTED, False),
        (EventReason.CONDITION_CHANGED, True),
        (EventReason.DEVICE_REMOVED, False),
    ]
    assert state.take_occurrences() == []


@pytest.mark.parametrize(
    ("withdrawn", "why"),
    [
        (DeviceWithdrawn(reason="Replaced"), "another card is in its slot"),
        (DeviceWithdrawn(reason="Retired"), "its card is missing, and it was retired"),
        (DeviceWithdrawn(moved_to="w2"), "it sits in node w2 now"),
        (DeviceWithdrawn(), "its node is gone"),
    ],
)
def test_why_a_device_was_withdrawn(withdrawn: DeviceWithdrawn, why: str) -> None:
    state = desired_state(("w1-0", detected()), ("w1-0", withdrawn))
    last = state.take_occurrences()[-1]
    assert last.note == f"NVIDIA A100-PCIE-40GB in node w1 at 0000:17:00.0 was removed: {why}."


def _unknown_fields(value: Any, schema: Document, path: str) -> list[str]:
    if isinstance(value, list):
        return [name for one in value for name in _unknown_fields(one, schema["items"], f"{path}[]")]
    if not isinstance(value, dict):
        return []
    properties = schema.get("properties", {})
    unknown = [f"{path}.{name}" for name in value if name not in properties]
    listed = [(name, one) for name, one in value.items() if name in properties]
    return unknown + [name for key, one in listed for name in _unknown_fields(one, properties[key], f"{path}.{key}")]


def test_every_field_that_is_written_is_one_that_the_crd_keeps() -> None:
    state = desired_state(("w1-0", detected()), ("w1", NodeInventoryChanged(present=True, conditions=(INCOMPLETE,))))
    crds = {crd["spec"]["names"]["kind"]: crd for crd in shipped()}
    for key in (DEVICE, NODE):
        schema = crds[key.kind]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
        shown = desired_object(state, key, node_feature_rule())
        assert shown is not None
        assert _unknown_fields(shown.status, schema, "status") == []


def test_metrics_have_the_names_that_dashboards_know() -> None:
    state = desired_state(
        ("w1-0", detected()), ("w1-1", detected(missing=True)),
        ("w1", NodeInventoryChanged(present=True, conditions=(COMPLETE,))),
    )  # fmt: skip
    assert samples(state) == {
        ("gpu_inventory_devices_total", "w1"): 1,
        ("gpu_inventory_devices_state", "w1", "Discovered"): 1,
        ("gpu_inventory_condition", "w1", "InventoryComplete"): 1,
        ("gpu_device_unassigned_total",): 0,
    }
    gone = ("w1", NodeInventoryChanged(present=False, conditions=(INCOMPLETE,)))
    assert samples(desired_state(("w1-0", detected()), gone))["gpu_inventory_devices_total", "w1"] == 0


def test_a_disabled_module_has_no_metrics() -> None:
    state = desired_state(("w1-0", detected()))
    state.settings.put(state.settings_in_force()._replace(enabled=False, module=MODULE_CONFIG))
    assert samples(state) == {}


def test_an_object_that_is_not_cached_is_gone_only_where_its_kind_is_kept_and_listed() -> None:
    state = desired_state(("w1-0", detected()), ("w1-0", DeviceWithdrawn()))
    planner = Planner(state, node_feature_rule())
    assert not planner.is_shown(Kind.DEVICE)
    planner.cache.kinds[Kind.DEVICE].listed([], "1", 0.0)
    assert planner.is_shown(Kind.DEVICE)
    state.settings.put(state.settings_in_force()._replace(enabled=False, module=MODULE_CONFIG))
    assert not planner.is_shown(Kind.DEVICE)
