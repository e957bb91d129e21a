"""What GPUDevices, GPUNodeStates and pools show of preparation and assignments, without any server."""

from typing import Any

import pytest

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.api.labels import POOL_FINALIZER
from gpuledger.api.phases import DeviceState
from gpuledger.api.reasons import EventReason
from gpuledger.domain.inventory.status import shown_state
from gpuledger.domain.pools.status import capacity
from gpuledger.edge.kube.crds import node_feature_rule, shipped
from gpuledger.edge.statuswriter.desired.fold import DesiredProjection
from gpuledger.edge.statuswriter.desired.pools import pool_key
from gpuledger.edge.statuswriter.desired.state import DesiredState, desired_object
from gpuledger.edge.statuswriter.desired.unpooled import UnpooledNodes
from gpuledger.edge.statuswriter.objects import DesiredObject, Document, Key, Kind
from gpuledger.events.device import DeviceDescribed, DeviceDetected, DevicePoolApplied, DeviceWithdrawn, Hardware
from gpuledger.events.node import NodeBootstrapWithdrawn, NodeInventoryWithdrawn
from gpuledger.events.pod import PodGone, PodObserved
from gpuledger.events.pool import PoolGone, PoolReleased
from gpuledger.events.settings import SettingsChanged
from support.events import RecordedFact, folded, hour, log_of, numbered
from support.gpu_states import (
    CARD,
    CLUSTER_POOL,
    MIG,
    POOL,
    assigned,
    desired_state,
    found,
    offers,
    phase,
    prepared,
    ready,
    samples,
    source_of,
)

DEVICE, NODE = Key(Kind.DEVICE, "w1-0"), Key(Kind.NODE, "w1")
POOL_KEY = Key(Kind.POOL, "a", "team")
AGAIN = CARD.model_copy(update={"uid": "u2"})


def shown(state: DesiredState, key: Key = DEVICE) -> DesiredObject:
    desired_state = desired_object(state, key, node_feature_rule())
    assert desired_state is not None
    return desired_state


def conditions(state: DesiredState, key: Key = DEVICE) -> dict[str, tuple[str, str]]:
    return {one["type"]: (one["status"], one["reason"]) for one in shown(state, key).status["conditions"]}


@pytest.mark.parametrize(
    ("so_far", "assignment", "state"),
    [
        ("Discovered", None, "Discovered"),
        ("Validating", None, "Validating"),
        ("Ready", None, "Ready"),
        ("Faulted", None, "Faulted"),
        ("Ready", "Pending", "PendingAssignment"),
        ("Ready", "Assigned", "Assigned"),
        ("Ready", "Unassigning", "Assigned"),
        ("Validating", "Pending", "Validating"),
        ("Faulted", "Assigned", "Faulted"),
        ("Discovered", "Unassigning", "Discovered"),
    ],
)
def test_the_state_follows_from_preparation_and_assignment(so_far: str, assignment: str | None, state: str) -> None:
    assert shown_state(so_far, assignment, was_assigned=assignment == "Unassigning") == state
    assert state in set(DeviceState)


@pytest.mark.parametrize(
    ("phases", "state"),
    [
        (("Pending", "Assigned", "Unassigning"), "Assigned"),
        (("Pending", "Assigned", "Unassigning", "Unassigning"), "Assigned"),
        (("Pending", "Unassigning"), "PendingAssignment"),
        (("Pending", "Assigned", "Pending", "Unassigning"), "PendingAssignment"),
    ],
)
def test_a_device_that_leaves_its_pool_shows_what_it_showed_before(phases: tuple[str, ...], state: str) -> None:
    facts = [*found("w1-0"), ("w1-0", prepared("Ready")), *(("w1-0", assigned(phase)) for phase in phases)]
    assert shown(desired_state(*facts)).status["state"] == state


def test_a_device_shows_its_pool_and_how_far_it_is_in_it() -> None:
    facts = [*found("w1-0"), ("w1-0", prepared("Ready"))]
    assert "poolRef" not in shown(desired_state(*facts)).status
    assert conditions(desired_state(*facts)).keys() == {"Ignored", "ManagedDisabled", "Missing"}

    facts += [("w1-0", assigned("Pending", automatic=True))]
    status = shown(desired_state(*facts)).status
    assert (status["state"], status["poolRef"], status["autoAttach"]) == (
        "PendingAssignment", {"name": "a", "namespace": "team"}, True,
    )  # fmt: skip
    assert conditions(desired_state(*facts))["Configured"] == ("False", "AskedFor")

    facts += [("w1-0", assigned("Assigned", reason="ConfirmedByAgent"))]
    assert shown(desired_state(*facts)).status["autoAttach"] is False
    assert conditions(desired_state(*facts))["Configured"] == ("True", "ConfirmedByAgent")

    facts += [("w1-0", assigned("Unassigning", reason="NotAskedFor"))]
    assert conditions(desired_state(*facts))["Unassigning"] == ("True", "NotAskedFor")
    assert shown(desired_state(*facts)).status["poolRef"]["name"] == "a"

    facts += [("w1-0", assigned(None, reason="NotAskedFor"))]
    status = shown(desired_state(*facts)).status
    assert (status["state"], "poolRef" in status, "autoAttach" in status) == ("Ready", False, False)
    assert conditions(desired_state(*facts)).keys() == {"Ignored", "ManagedDisabled", "Missing"}


def test_a_cluster_pool_has_no_namespace() -> None:
    assert (pool_key(CLUSTER_POOL), pool_key(POOL)) == (Key(Kind.CLUSTER_POOL, "c"), POOL_KEY)


def test_a_fault_has_its_reason_and_its_time() -> None:
    state = desired_state(
        *found("w1-0"), ("w1-0", prepared("Faulted", "HardwareFault", "XID 79")), ("w1-0", prepared("Faulted", "Other"))
    )
    (fault,) = (one for one in shown(state).status["conditions"] if one["type"] == "Faulted")
    assert (fault["status"], fault["reason"], fault["lastTransitionTime"]) == ("True", "Other", "2026-01-01T03:00:00Z")
    state = desired_state(*found("w1-0"), ("w1-0", prepared("Faulted")), ("w1-0", prepared("Validating")))
    assert "Faulted" not in conditions(state)


def test_a_node_shows_inventory_and_preparation_together() -> None:
    facts = [*found("w1-0"), ("w1", phase("Validating", ("DriverMissing", "Unknown"), ("ReadyForPooling", "False")))]
    assert conditions(desired_state(*facts), NODE) == {
        "InventoryComplete": ("True", "AllDevicesDescribed"),
        "DriverMissing": ("Unknown", "DriverMissingIsUnknown"),
        "ReadyForPooling": ("False", "ReadyForPoolingIsFalse"),
    }
    facts += [("w1", phase("Disabled", ("ReadyForPooling", "False")))]
    assert conditions(desired_state(*facts), NODE).keys() == {"InventoryComplete", "ReadyForPooling"}


@pytest.mark.parametrize(
    ("what", "key"),
    [
        (("w1-0", prepared("Ready")), DEVICE),
        (("w1-0", assigned("Pending")), DEVICE),
        (("w1", phase("GFD", ("GFDReady", "False"))), NODE),
        (("w1", NodeBootstrapWithdrawn()), NODE),
        ((POOL, offers(4)), POOL_KEY),
        ((POOL, offers(4, ("Supported", "True"))), POOL_KEY),
        ((POOL, PoolReleased()), POOL_KEY),
        ((CLUSTER_POOL, CARD), Key(Kind.CLUSTER_POOL, "c")),
        (("team/p", PodObserved(uid="p", node="w1", requests={"gpu.deckhouse.io/a": 1})), POOL_KEY),
    ],
)
def test_changed_objects_are_reconciled(what: Any, key: Key) -> None:
    before = [*found("w1-0"), (POOL, CARD), ("w1", phase("Validating", ("GFDReady", "Unknown")))]
    state = desired_state(*before, what)
    assert key in state.take_changed()
    assert state.take_changed() == {}
    others = desired_state(*before)
    others.take_changed()
    assert key not in others.take_changed()


def test_capacity_is_shown_once_it_is_decided() -> None:
    assert capacity(None, 3) == {"used": 3}
    assert capacity(8, 3) == {"total": 8, "used": 3, "available": 5}
    assert capacity(2, 3) == {"total": 2, "used": 3, "available": 0}


def test_a_pool_shows_what_was_decided_and_what_pods_use() -> None:
    pods = [
        ("team/one", PodObserved(uid="1", node="w1", requests={"gpu.deckhouse.io/a": 2})),
        ("team/waits", PodObserved(uid="2", requests={"gpu.deckhouse.io/a": 4})),
        ("other/one", PodObserved(uid="3", node="w1", requests={"gpu.deckhouse.io/a": 8})),
        ("team/two", PodObserved(uid="4", node="w1", requests={"cluster.gpu.deckhouse.io/a": 16, "cpu": 32})),
    ]
    state = desired_state((POOL, CARD), *pods, (POOL, offers(8, ("Supported", "True"), generation=3)))
    pool = shown(state, POOL_KEY)
    assert (pool.main, pool.uid, pool.approved) == ({"finalizers": [POOL_FINALIZER]}, "u1", None)
    assert pool.status == {
        "capacity": {"total": 8, "used": 2, "available": 6},
        "conditions": [
            {
                "type": "Supported", "status": "True", "reason": "SupportedIsTrue", "observedGeneration": 3,
                "lastTransitionTime": "2026-01-01T06:00:00Z",
                "message": "The reason is SupportedIsTrue; nothing more is recorded.",
            }
        ],
    }  # fmt: skip


def test_pods_that_move_end_or_ask_for_something_else_use_nothing_twice() -> None:
    def used(*facts: Any) -> dict[str, int]:
        return dict(desired_state(*facts).pool_usage.used)

    requesting = ("team/p", PodObserved(uid="p", node="w1", requests={"gpu.deckhouse.io/a": 2}))
    other = ("team/p", PodObserved(uid="q", node="w2", requests={"cluster.gpu.deckhouse.io/c": 1}))
    assert used(requesting, requesting) == {POOL: 2}
    assert used(requesting, other) == {CLUSTER_POOL: 1}
    assert used(requesting, ("team/p", PodGone())) == {}
    assert used(("team/p", PodGone())) == {}


def test_a_pool_that_is_released_loses_its_finalizer_and_one_that_comes_again_gets_it() -> None:
    deleting = CARD.model_copy(update={"deleting": True})
    facts = [(POOL, deleting), (POOL, PoolReleased())]
    assert shown(desired_state(*facts), POOL_KEY).main == {"finalizers": []}
    assert shown(desired_state(*facts, (POOL, deleting)), POOL_KEY).main == {"finalizers": []}
    assert shown(desired_state(*facts, (POOL, AGAIN)), POOL_KEY).main["finalizers"]
    assert desired_object(desired_state(*facts, (POOL, PoolGone())), POOL_KEY, node_feature_rule()) is None


@pytest.mark.parametrize(
    ("facts", "uid"),
    [([(1, CARD), (3, PoolGone()), (2, CARD)], None), ([(2, CARD), (3, AGAIN), (1, PoolGone())], "u2")],
    ids=["defined", "gone"],
)
def test_what_is_recorded_late_of_a_pools_object_changes_nothing(facts: list[tuple[int, Any]], uid: str | None) -> None:
    log = log_of(numbered([RecordedFact(source_of(data), POOL, at, data) for at, data in facts]))
    state = folded(DesiredProjection(), log).state
    assert isinstance(state, DesiredState)
    kept = desired_object(state, POOL_KEY, node_feature_rule())
    assert (kept.uid if kept else None) == uid


def test_what_was_decided_of_a_pool_outlives_an_end_that_is_recorded_late() -> None:
    facts = [(2, CARD), (3, offers(8)), (1, PoolGone())]
    state = folded(
        DesiredProjection(), log_of(numbered(RecordedFact(source_of(data), POOL, at, data) for at, data in facts))
    )
    assert shown(state.state, POOL_KEY).status["capacity"]["total"] == 8  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("assignment", "annotation"),
    [
        (assigned("Pending", automatic=True), {"gpu.deckhouse.io/assignment": "a"}),
        (assigned("Assigned", CLUSTER_POOL, automatic=True), {"cluster.gpu.deckhouse.io/assignment": "c"}),
        (assigned("Unassigning", automatic=True), None),
        (assigned("Assigned"), None),
        (assigned(None), None),
    ],
)
def test_a_pool_that_approves_automatically_annotates_its_devices(assignment: Any, annotation: Document | None) -> None:
    state = desired_state(*found("w1-0"), ("w1-0", prepared("Ready")), ("w1-0", assignment))
    assert shown(state).approved == annotation


def events(*facts: Any) -> list[tuple[EventReason, str, bool]]:
    notes = desired_state(*found("w1-0"), *facts).take_occurrences()
    return [(one.reason, one.key.id, one.is_warning) for one in notes if one.reason != EventReason.DEVICE_DETECTED]


def test_occurrences_that_become_events() -> None:
    assert events(("w1", phase("Validating")), ("w1", phase("GFD")), ("w1", phase("GFD"))) == [
        (EventReason.PHASE_CHANGED, "w1", False)
    ]
    assert events(("w1", phase("ValidatingFailed", ("DriverMissing", "True")))) == [
        (EventReason.PHASE_CHANGED, "w1", True)
    ]
    assert events(("w1-0", prepared("Faulted")), ("w1-0", prepared("Faulted", "Still"))) == [
        (EventReason.DEVICE_FAULTED, "w1-0", True)
    ]
    assert events(("w1-0", assigned(None, reason="AnnotationMismatch")), ("w1-0", assigned(None, reason="Other"))) == [
        (EventReason.ANNOTATION_MISMATCH, "w1-0", True)
    ]
    low, off = ("CapacityLow", "True"), ("Maintenance", "False")
    on = ("Maintenance", "True")
    assert events((POOL, CARD), (POOL, offers(0, low, off)), (POOL, offers(0, low, on)), (POOL, offers(0, off))) == [
        (EventReason.MAINTENANCE, POOL, True), (EventReason.MAINTENANCE, POOL, False),
    ]  # fmt: skip


def test_a_node_that_stays_without_a_pool_is_announced_once() -> None:
    facts = [*found("w1-0", "w1-1"), ("w1-0", prepared("Ready")), ("w1", ready())]
    began = hour(len(facts))
    state = desired_state(*facts)
    now = [began]
    unpooled = UnpooledNodes(state, lambda: now[0], 60.0)
    assert list(unpooled.take_occurrences()) == []
    now[0] = hour(len(facts) + 1)
    (notes,) = unpooled.take_occurrences()
    assert (notes.key, notes.reason, notes.is_warning, notes.happened_at) == (
        NODE, EventReason.NODE_WITHOUT_POOL, True, began,
    )  # fmt: skip
    assert list(unpooled.take_occurrences()) == []
    state.without_pool.delete("w1")
    assert list(unpooled.take_occurrences()) == []
    state.without_pool.load(desired_state(*facts).without_pool.rows.values())
    assert len(list(unpooled.take_occurrences())) == 1


@pytest.mark.parametrize(
    "facts",
    [
        [("w1-0", prepared("Ready"))],
        [("w1", ready())],
        [("w1-0", prepared("Ready")), ("w1", phase("Ready", ("ReadyForPooling", "False")))],
        [("w1-0", prepared("Ready")), ("w1-1", prepared("Ready")), ("w1-1", assigned("Pending")), ("w1", ready())],
        [("w1-0", prepared("Ready")), ("w1", ready()), ("w1-0", assigned("Pending"))],
        [("w1-0", prepared("Ready")), ("w1", ready()), ("w1-0", DeviceWithdrawn())],
        [("w1-0", prepared("Ready")), ("w1", ready()), ("w1-0", prepared("Faulted"))],
        [
            ("w1-0", prepared("Ready")),
            ("w1", ready()),
            ("w1", NodeBootstrapWithdrawn()),
            ("w1", NodeInventoryWithdrawn()),
        ],
    ],
)
def test_a_node_that_has_a_pool_or_nothing_to_give_is_none_without_a_pool(facts: list[Any]) -> None:
    assert desired_state(*found("w1-0", "w1-1"), *facts).without_pool.rows == {}


def test_metrics_have_the_names_that_dashboards_know() -> None:
    facts = [
        *found("w1-0", "w1-1", "w1-2"), *found("w2-0", node="w2"), ("w1", ready()),
        *((name, prepared("Ready")) for name in ("w1-0", "w1-1", "w1-2", "w2-0")),
        (POOL, CARD), (POOL, offers(8)), (CLUSTER_POOL, MIG), (CLUSTER_POOL, offers(None)),
        ("w1-0", assigned("Assigned")), ("w2-0", assigned("Pending")), ("w1-1", assigned("Assigned", CLUSTER_POOL)),
        ("w1-1", DevicePoolApplied(pool=CLUSTER_POOL, partitions=7)),
    ]  # fmt: skip
    notes = samples(desired_state(*facts))
    assert {key: value for key, value in notes.items() if not key[0].startswith("gpu_inventory")} == {
        ("gpu_bootstrap_node_phase", "w1", "Ready"): 1,
        ("gpu_bootstrap_ready", "w1"): 1,
        ("gpu_bootstrap_condition", "w1", "ReadyForPooling"): 1,
        ("gpu_bootstrap_condition", "w1", "DriverMissing"): 0,
        ("gpu_device_unassigned_total",): 1,
        ("gpupool_capacity_total", "a", "team"): 8,
        ("gpupool_assignments", "a", "team"): 2,
        ("gpupool_assignments", "c", ""): 1,
        ("gpupool_node_slots", "a", "team", "w1"): 4,
        ("gpupool_node_slots", "c", "", "w1"): 14,
    }
    assert notes["gpu_inventory_devices_state", "w1", "Assigned"] == 2
    capped = desired_state(*facts, (MODULE_CONFIG, SettingsChanged(max_slices_per_device=1)))
    assert samples(capped)["gpupool_node_slots", "c", "", "w1"] == 7
    assert samples(desired_state(*facts, (MODULE_CONFIG, SettingsChanged(enabled=False)))) == {}


@pytest.mark.parametrize("facts", [{"ignored": True}, {"missing": True}], ids=str)
def test_a_device_that_no_pool_may_take_is_none_without_a_pool(facts: dict[str, bool]) -> None:
    hardware = Hardware(pci_vendor="10de", pci_device="20b5")
    detected = DeviceDetected(hardware=hardware, managed=True, node="w1", card="GPU-9", **facts)
    notes = samples(
        desired_state(*found("w1-0"), ("w1-9", detected), *((name, prepared("Ready")) for name in ("w1-0", "w1-9")))
    )
    assert notes["gpu_device_unassigned_total",] == 1


def test_a_card_that_its_agent_misses_is_counted_as_faulted_and_is_not_in_sight() -> None:
    lost = DeviceDescribed(hardware=Hardware(pci_vendor="10de", pci_device="20b5"), managed=True, missing=True)
    states_of = (("w1-0", prepared("Ready")), ("w1-1", prepared("Faulted")))
    notes = samples(desired_state(*found("w1-0", "w1-1"), ("w1-1", lost), *states_of))
    states = {key[2]: value for key, value in notes.items() if key[0] == "gpu_inventory_devices_state"}
    assert (notes["gpu_inventory_devices_total", "w1"], states) == (1, {"Ready": 1, "Faulted": 1})


def test_an_agent_is_heard_about_the_pool_that_a_device_belongs_to_only() -> None:
    facts = [*found("w1-0"), (POOL, MIG), (CLUSTER_POOL, MIG), ("w1-0", assigned("Pending"))]
    facts += [
        ("w1-0", DevicePoolApplied(pool=pool, partitions=number)) for pool, number in ((POOL, 7), (CLUSTER_POOL, 2))
    ]
    assert samples(desired_state(*facts, ("w1-0", assigned("Assigned"))))["gpupool_node_slots", "a", "team", "w1"] == 14


def _unknown(value: Any, schema: Document, path: str) -> list[str]:
    if isinstance(value, list):
        return [name for one in value for name in _unknown(one, schema["items"], path)]
    if not isinstance(value, dict):
        return []
    missing = [f"{path}.{name}" for name in value if name not in schema["properties"]]
    return missing + [
        name
        for key, one in value.items()
        if key in schema["properties"]
        for name in _unknown(one, schema["properties"][key], f"{path}.{key}")
    ]


def test_every_field_that_is_written_is_one_that_the_crd_keeps() -> None:
    state = desired_state(
        *found("w1-0"), ("w1-0", prepared("Ready")), ("w1-0", assigned("Unassigning", automatic=True)), ("w1", ready()),
        (POOL, CARD), (POOL, offers(3, ("Supported", "True"))),
    )  # fmt: skip
    crds = {crd["spec"]["names"]["kind"]: crd for crd in shipped()}
    for key in (DEVICE, NODE, POOL_KEY):
        schema = crds[key.kind]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
        assert _unknown(shown(state, key).status, schema, "status") == []
