"""What the status writer decides, remembers and lets through, without any server."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpuledger.domain.inventory_names import MODULE
from gpuledger.events.device import DeviceDetected, DeviceWithdrawn, Hardware
from gpuledger.events.node import Condition, NodeInventoryChanged, NodeInventoryWithdrawn
from gpuledger.kube.crds import node_feature_rule, shipped
from gpuledger.kube.errors import TooManyRequestsError, UnavailableError
from gpuledger.kube.names import ANNOTATION_ASSIGNMENT, ASSIGNMENT_FIELD_MANAGER, POOL_FINALIZER, EventReason
from gpuledger.kube.watch import Backoff, Changed
from gpuledger.statuswriter.answers import removals
from gpuledger.statuswriter.decide import (
    POOL_KINDS,
    Action,
    Actual,
    Desired,
    Document,
    Key,
    Kind,
    actual_of,
    body,
    decide,
    digest,
    is_changed_by_others,
    key_of,
)
from gpuledger.statuswriter.differences import differing, first_difference
from gpuledger.statuswriter.folding import WantedProjection
from gpuledger.statuswriter.gate import Bucket, Gate
from gpuledger.statuswriter.gpumetrics import GpuMetrics
from gpuledger.statuswriter.known import Known, read
from gpuledger.statuswriter.news import Told, count_of, event_of, is_fresh, series_name
from gpuledger.statuswriter.queue import Queue
from gpuledger.statuswriter.undos import HOUR_S, Undos
from gpuledger.statuswriter.waiting import Waiting
from gpuledger.statuswriter.wanted import News, Wanted, desired
from support.events import event, folded, log_of

DEVICE, NODE = Key(Kind.DEVICE, "w1-0"), Key(Kind.NODE, "w1")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
INVENTORY = "/services/inventory"
FULL = Hardware(
    uuid="GPU-1", serial="1", pci_address="0000:17:00.0", pci_vendor="10de", pci_device="20b5", pci_class="0302",
    product="NVIDIA A100-PCIE-40GB", memory_mib=40960, compute_major=8, compute_minor=0, precision=("fp16", "bf16"),
    mig_capable=True, mig_strategy="mixed", mig_profiles=("1g.5gb", "2g.10gb"),
)  # fmt: skip


def obj(version: str = "5", uid: str = "u", **more: Any) -> Document:
    metadata = {"name": "w1-0", "uid": uid, "resourceVersion": version, "labels": {"team": "a"}}
    return {"metadata": metadata | more.pop("metadata", {}), "status": {"state": "Ready"}} | more


RIGHT = Desired({"labels": {}}, {"state": "Ready"})


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize(
    ("wanted", "withdrawn", "found", "action"),
    [
        (None, False, None, Action.NOTHING),
        (None, False, obj(), Action.NOTHING),
        (None, True, obj(), Action.DELETE),
        (None, True, obj(metadata={"deletionTimestamp": "now"}), Action.NOTHING),
        (RIGHT, False, None, Action.CREATE),
        (RIGHT, False, obj(), Action.NOTHING),
        (RIGHT, False, obj(metadata={"deletionTimestamp": "now"}, status={}), Action.NOTHING),
        (RIGHT, False, obj(status={"state": "Faulted"}), Action.STATUS),
        (RIGHT, False, obj(status={"state": "Ready", "poolRef": {"name": "x"}}), Action.STATUS),
        (RIGHT, False, obj(metadata={"labels": {"gpu.deckhouse.io/vendor": "amd"}}), Action.MAIN),
        (RIGHT._replace(main={"labels": {"gpu.deckhouse.io/precision.fp8": "true"}}), False, obj(), Action.MAIN),
    ],
)
def test_the_next_step(wanted: Desired | None, withdrawn: bool, found: Document | None, action: Action) -> None:
    actual = actual_of(Kind.DEVICE, found) if found else None
    assert decide(Kind.DEVICE, wanted, withdrawn=withdrawn, actual=actual) is action


FINALIZED = {"finalizers": ["theirs", POOL_FINALIZER]}
LEAVING = {"deletionTimestamp": "now"}
POOL = Desired({"finalizers": [POOL_FINALIZER]}, {"state": "Ready"}, uid="u")
RELEASED = POOL._replace(main={"finalizers": []})


@pytest.mark.parametrize(
    ("wanted", "found", "action"),
    [
        (POOL, None, Action.NOTHING),
        (None, obj(), Action.NOTHING),
        (POOL, obj(), Action.MAIN),
        (POOL, obj(uid="another"), Action.NOTHING),
        (POOL, obj(metadata=FINALIZED), Action.NOTHING),
        (POOL, obj(metadata=FINALIZED, status={}), Action.STATUS),
        (POOL, obj(metadata=LEAVING), Action.NOTHING),
        (POOL, obj(metadata=LEAVING | FINALIZED, status={}), Action.STATUS),
        (RELEASED, obj(metadata=LEAVING | FINALIZED), Action.MAIN),
        (RELEASED, obj(metadata=LEAVING | {"finalizers": ["theirs"]}), Action.NOTHING),
    ],
)
def test_the_next_step_with_a_pool(wanted: Desired | None, found: Document | None, action: Action) -> None:
    for kind in POOL_KINDS:
        actual = actual_of(kind, found) if found else None
        assert decide(kind, wanted, withdrawn=True, actual=actual) is action


def approved(pool: str, manager: str = ASSIGNMENT_FIELD_MANAGER) -> Document:
    """A device with an assignment annotation that a manager owns."""
    owned: Document = {"f:metadata": {"f:annotations": {f"f:{ANNOTATION_ASSIGNMENT}": {}}}}
    entry = {"manager": manager, "operation": "Apply", "fieldsV1": owned}
    return obj(metadata={"annotations": {ANNOTATION_ASSIGNMENT: pool, "other": "x"}, "managedFields": [entry]})


TAKEN = RIGHT._replace(approved={ANNOTATION_ASSIGNMENT: "a"})


@pytest.mark.parametrize(
    ("wanted", "found", "action"),
    [
        (TAKEN, obj(), Action.APPROVE),
        (TAKEN, approved("a"), Action.NOTHING),
        (TAKEN, approved("b"), Action.APPROVE),
        (TAKEN, approved("a", "kubectl"), Action.APPROVE),
        (RIGHT, approved("a"), Action.APPROVE),
        (RIGHT, approved("a", "kubectl"), Action.NOTHING),
    ],
)
def test_the_next_step_with_an_approval(wanted: Desired, found: Document, action: Action) -> None:
    assert decide(Kind.DEVICE, wanted, withdrawn=False, actual=actual_of(Kind.DEVICE, found)) is action


def test_an_approval_that_a_person_overrules_is_not_sent_again() -> None:
    theirs = actual_of(Kind.DEVICE, approved("b", "kubectl"))
    left = theirs._replace(sent_approved=digest(TAKEN.approved))
    assert decide(Kind.DEVICE, TAKEN, withdrawn=False, actual=left) is Action.NOTHING
    other = TAKEN._replace(approved={ANNOTATION_ASSIGNMENT: "c"})
    assert decide(Kind.DEVICE, other, withdrawn=False, actual=left) is Action.APPROVE


def test_objects_with_a_namespace_are_told_apart_by_it() -> None:
    one, other, none = Key(Kind.POOL, "a", "x"), Key(Kind.POOL, "a", "y"), Key(Kind.CLUSTER_POOL, "a")
    assert [key.id for key in (one, other, none)] == ["x/a", "y/a", "a"]
    assert [key_of(key.kind, key.id) for key in (one, other, none)] == [one, other, none]
    assert body(one, {"finalizers": ["f"]}, "u") == {
        "metadata": {"name": "a", "namespace": "x", "uid": "u", "finalizers": ["f"]}
    }
    assert read(Kind.POOL, obj(metadata={"namespace": "x"})).id == "x/w1-0"


def test_an_event_about_an_object_with_a_namespace_lies_there() -> None:
    told = Told(600)
    for key in (Key(Kind.POOL, "a", "x"), Key(Kind.POOL, "a", "y")):
        told.add(news()._replace(key=key), "u", NOW)
    written = [event_of(series, "here") for series in told]
    assert [one["metadata"]["namespace"] for one in written] == ["x", "y"]
    assert written[0]["regarding"]["namespace"] == "x"
    assert len({one["metadata"]["name"] for one in written}) == 2


def test_what_the_server_keeps_otherwise_is_not_sent_again() -> None:
    kept = actual_of(Kind.DEVICE, obj(status={}))
    assert decide(Kind.DEVICE, RIGHT, withdrawn=False, actual=kept) is Action.STATUS
    answered = kept._replace(sent_status=digest(RIGHT.status))
    assert decide(Kind.DEVICE, RIGHT, withdrawn=False, actual=answered) is Action.NOTHING


def test_a_module_is_not_created() -> None:
    assert decide(Kind.MODULE, Desired({}, {"conditions": []}), withdrawn=False, actual=None) is Action.NOTHING


def test_of_a_module_one_condition_is_ours() -> None:
    ours, theirs = {"type": "PrerequisiteNotMet", "status": "True"}, {"type": "Theirs", "status": "True"}
    found = actual_of(Kind.MODULE, obj(status={"conditions": [theirs, ours], "version": "1"}))
    assert decide(Kind.MODULE, Desired({}, {"conditions": [ours]}), withdrawn=False, actual=found) is Action.NOTHING


def test_the_order_of_conditions_and_sets_means_nothing() -> None:
    first = {"conditions": [{"type": "A"}, {"type": "B"}], "hardware": {"precision": {"supported": ["b", "a"]}}}
    other = {"hardware": {"precision": {"supported": ["a", "b"]}}, "conditions": [{"type": "B"}, {"type": "A"}]}
    assert actual_of(Kind.DEVICE, obj(status=first)).status == actual_of(Kind.DEVICE, obj(status=other)).status


def test_only_what_was_right_can_be_disturbed() -> None:
    right, wrong = actual_of(Kind.DEVICE, obj()), actual_of(Kind.DEVICE, obj(status={"state": "Faulted"}))
    assert is_changed_by_others(Kind.DEVICE, RIGHT, right, wrong)
    assert is_changed_by_others(Kind.DEVICE, RIGHT, right, None)
    assert not is_changed_by_others(Kind.DEVICE, RIGHT, wrong, None)
    assert not is_changed_by_others(Kind.DEVICE, RIGHT, right, right._replace(version="6"))
    assert not is_changed_by_others(Kind.DEVICE, None, right, None)


def test_what_others_added_is_removed() -> None:
    wanted = {"a": 1, "conditions": [{"type": "A", "status": "True"}], "set": ["x"]}
    theirs = {"type": "A", "status": "True", "message": "m"}
    found = {"a": 2, "b/c": 1, "conditions": [{"type": "B"}, theirs, {"type": "C"}], "set": ["x", "y"]}
    assert [one["path"] for one in removals(wanted, found, "/status")] == [
        "/status/b~1c", "/status/conditions/2", "/status/conditions/1/message", "/status/conditions/0", "/status/set/1",
    ]  # fmt: skip
    assert removals(wanted, wanted, "") == []


def test_of_the_rule_as_it_is_shipped_nothing_is_removed() -> None:
    spec = node_feature_rule()["spec"]
    assert removals(spec, spec, "/spec") == []
    assert [one["path"] for one in removals(spec, {**spec, "more": 1}, "/spec")] == ["/spec/more"]


def test_bodies_hold_what_is_applied_and_nothing_else() -> None:
    assert body(DEVICE, {"labels": {"a": "b"}}) == {"metadata": {"name": "w1-0", "labels": {"a": "b"}}}
    assert body(NODE, {"spec": {"nodeName": "w1"}}) == {"metadata": {"name": "w1"}, "spec": {"nodeName": "w1"}}


def test_so_many_undos_an_hour() -> None:
    undos = Undos(2)
    for at_s in (0.0, 10.0):
        assert undos.allowed_at(DEVICE, at_s) == at_s
        undos.note(DEVICE, at_s)
    assert undos.allowed_at(DEVICE, 20.0) == HOUR_S
    assert undos.allowed_at(NODE, 20.0) == 20.0
    assert undos.allowed_at(DEVICE, HOUR_S) == HOUR_S
    undos.note(DEVICE, HOUR_S)
    assert undos.allowed_at(DEVICE, HOUR_S + 1) == HOUR_S + 10.0


def test_differences_name_the_place() -> None:
    found = obj(status={"state": "Faulted"})
    actual = {DEVICE: actual_of(Kind.DEVICE, found), Key(Kind.DEVICE, "x"): actual_of(Kind.DEVICE, obj())}
    wanted = {DEVICE: RIGHT, NODE: Desired({"spec": {}}, {})}
    assert sorted(differing(wanted, actual)) == [DEVICE, Key(Kind.DEVICE, "x"), NODE]
    first = first_difference(DEVICE, RIGHT, found)
    assert first is not None
    assert (first.path, first.expected, first.found) == ("status.state", "Ready", "Faulted")
    assert first_difference(DEVICE, RIGHT, obj()) is None
    missing = first_difference(DEVICE, RIGHT, None)
    assert missing is not None
    assert missing.found is None


def change(kind: Any, found: Document) -> Changed[Any]:
    return Changed(kind, read(Kind.DEVICE, found))


def actual(version: str, uid: str = "u", **more: Any) -> Actual:
    return actual_of(Kind.DEVICE, obj(version, uid, **more))


def test_the_echo_of_an_earlier_write_is_passed_over() -> None:
    known = Known()
    known.written("w1-0", actual("7", status={"state": "Ready"}))
    step = known.changed(change("MODIFIED", obj("6", status={})))
    assert step.before is step.after
    assert known.objects["w1-0"].version == "7"
    assert known.changed(change("MODIFIED", obj("8"))).after == actual("8")


def test_an_answer_after_the_deletion_brings_nothing_back() -> None:
    known = Known()
    known.listed([read(Kind.DEVICE, obj("5"))], "5")
    known.changed(change("DELETED", obj("9")))
    known.written("w1-0", actual("8"))
    assert known.objects == {}
    known.written("w1-0", actual("10", "other"))
    known.changed(change("DELETED", obj("9")))
    assert known.objects["w1-0"].uid == "other"


def test_a_list_does_not_undo_what_was_written_after_it() -> None:
    known = Known()
    known.written("w1-0", actual("12"))
    known.listed([], "10")
    assert list(known.objects) == ["w1-0"]
    known.listed([], "12")
    assert known.objects == {}


def test_after_an_outage_a_list_is_all_there_is() -> None:
    known = Known()
    known.written("w1-0", actual("5000"))
    known.interrupted()
    known.listed([], "1001")
    assert known.objects == {}


async def test_a_key_is_looked_at_once_and_by_one() -> None:
    clock = Clock()
    queue = Queue(clock)
    queue.add(DEVICE)
    queue.add(DEVICE)
    queue.add(NODE, clock.now_s + 5)
    assert (len(queue), queue.waiting) == (2, 1)
    assert await queue.take() == DEVICE
    queue.add(DEVICE)
    taken = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    assert not taken.done()
    queue.done(DEVICE)
    assert await taken == DEVICE
    queue.done(DEVICE)
    clock.now_s += 5
    assert await queue.take() == NODE
    queue.done(NODE)
    assert len(queue) == 0


async def test_what_changed_goes_before_what_is_only_gone_through() -> None:
    queue = Queue(Clock())
    queue.add_patient(DEVICE)
    queue.add_patient(NODE)
    queue.add(NODE)
    queue.add_patient(NODE)
    assert (len(queue), queue.waiting) == (2, 2)
    assert await queue.take() == NODE
    queue.add_patient(NODE)
    assert await queue.take() == DEVICE
    queue.done(DEVICE)
    queue.done(NODE)
    assert len(queue) == 0


async def test_what_waits_for_later_is_not_looked_at_sooner() -> None:
    clock = Clock()
    queue = Queue(clock)
    queue.add(DEVICE, clock.now_s + 60)
    queue.add(DEVICE)
    assert (len(queue), queue.waiting) == (1, 0)
    queue.clear()
    assert len(queue) == 0


def test_a_bucket_gives_a_burst_and_then_a_rate() -> None:
    clock = Clock()
    bucket = Bucket(2.0, 3, clock)
    assert [bucket.reserve() for _ in range(3)] == [0.0, 0.0, 0.0]
    assert bucket.reserve() == 0.5
    clock.now_s += 100
    assert [bucket.reserve() for _ in range(3)] == [0.0, 0.0, 0.0]
    assert bucket.reserve() == 0.5


async def test_a_server_in_trouble_is_asked_by_one_at_a_time() -> None:
    clock = Clock()
    gate = Gate(Bucket(1000.0, 1000, clock), Backoff(first_s=0.01, max_s=0.01), lambda: 0.0, clock)
    with pytest.raises(UnavailableError):
        async with gate.passing():
            raise UnavailableError("no")
    inside = most = 0

    async def ask() -> None:
        nonlocal inside, most
        async with gate.passing():
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(ask() for _ in range(5)))
    assert most == 1


async def test_requests_that_fail_together_count_once_and_retry_after_is_kept() -> None:
    clock = Clock()
    gate = Gate(Bucket(1000.0, 1000, clock), Backoff(first_s=1.0, max_s=64.0), lambda: 0.0, clock)
    go = asyncio.Event()

    async def ask() -> None:
        async with gate.passing():
            await go.wait()
            clock.now_s += 1
            raise TooManyRequestsError("wait", 20.0)

    asked = [asyncio.create_task(ask()) for _ in range(5)]
    await asyncio.sleep(0.01)
    go.set()
    await asyncio.gather(*asked, return_exceptions=True)
    assert gate.open_at_s - 1001.0 == pytest.approx(20.0)


async def test_waiting_names_are_bounded() -> None:
    waiting = Waiting(2)
    assert [waiting.add(name) for name in "aabc"] == [None, None, None, "a"]
    assert [await waiting.take(), await waiting.take()] == ["b", "c"]


def news(at: datetime = NOW, recorded: datetime = NOW, about: str = "") -> News:
    recorded_ns = int(recorded.timestamp() * 1e9)
    return News(DEVICE, EventReason.DEVICE_DETECTED, about, "A GPU.", False, at, recorded_ns)


def test_only_what_is_young_in_both_times_is_news() -> None:
    late = NOW - timedelta(seconds=601)
    assert is_fresh(news(), NOW, 600)
    assert not is_fresh(news(late, NOW), NOW, 600)
    assert not is_fresh(news(NOW, late), NOW, 600)


def test_news_of_one_kind_is_one_event_that_counts() -> None:
    told = Told(600)
    names = {told.add(news(NOW + timedelta(seconds=index)), "u", NOW) for index in range(3)}
    assert len(names) == 1
    assert told.add(news(about="other"), "u", NOW) not in names
    (series, other) = told
    written = event_of(series, "here")
    assert (count_of(written), written["series"]["lastObservedTime"]) == (3, "2026-01-01T00:00:02.000000Z")
    assert written["regarding"] == {
        "apiVersion": "gpu.deckhouse.io/v1alpha1", "kind": "GPUDevice", "name": "w1-0", "uid": "u",
    }  # fmt: skip
    assert "series" not in event_of(other, "here")
    assert series_name(news(), 600) == series.name
    later = NOW + timedelta(hours=1)
    told.add(news(later, later), "u", later)
    assert len(list(told)) == 1


def detected(node: str = "w1", **more: Any) -> DeviceDetected:
    return DeviceDetected(hardware=FULL, managed=True, node=node, card="GPU-1", **more)


def wanted(*said: tuple[str, Any]) -> Wanted:
    events = [event(data, name, number=at, at=at, source=INVENTORY) for at, (name, data) in enumerate(said, 1)]
    state = folded(WantedProjection(), log_of(events)).state
    assert isinstance(state, Wanted)
    return state


COMPLETE = Condition(type="InventoryComplete", status="True", reason="AllDevicesDescribed")
INCOMPLETE = Condition(type="InventoryComplete", status="False", reason="NoDevicesDiscovered", message="None.")


def test_a_node_is_shown_once_something_was_decided_of_it() -> None:
    rule = node_feature_rule()
    assert desired(wanted(("w1-0", detected())), NODE, rule) is None
    state = wanted(("w1-0", detected()), ("w1", NodeInventoryChanged(present=True, conditions=(COMPLETE,))))
    shown = desired(state, NODE, rule)
    assert shown is not None
    assert shown.main == {"spec": {"nodeName": "w1"}}
    assert [one["type"] for one in shown.status["conditions"]] == ["InventoryComplete"]


def test_what_changed_and_what_was_withdrawn() -> None:
    state = wanted(("w1-0", detected()), ("w1", NodeInventoryChanged(present=True, conditions=(COMPLETE,))))
    assert set(state.take_changed()) == {DEVICE, NODE}
    assert state.take_changed() == {}
    state = wanted(
        ("w1-0", detected()), ("w1", NodeInventoryChanged(present=True, conditions=(COMPLETE,))),
        ("w1-0", DeviceWithdrawn(moved_to="w2")), ("w1", NodeInventoryWithdrawn()),
    )  # fmt: skip
    assert set(state.take_changed()) == set(state.withdrawn) == {DEVICE, NODE}
    state = wanted(("w1-0", detected()), ("w1-0", DeviceWithdrawn()), ("w1-0", detected()))
    assert not state.withdrawn


def test_what_is_news() -> None:
    inventory = NodeInventoryChanged(present=False, conditions=(INCOMPLETE,))
    state = wanted(
        ("w1-0", detected()), ("w1", NodeInventoryChanged(present=True, conditions=(COMPLETE,))),
        ("w1", inventory), ("w1", inventory), ("w1-0", DeviceWithdrawn(moved_to="w2")),
    )  # fmt: skip
    assert [(one.reason, one.is_warning) for one in state.take_news()] == [
        (EventReason.DEVICE_DETECTED, False),
        (EventReason.CONDITION_CHANGED, True),
        (EventReason.DEVICE_REMOVED, False),
    ]
    assert state.take_news() == []


def _unknown_fields(value: Any, schema: Document, path: str) -> list[str]:
    if isinstance(value, list):
        return [name for one in value for name in _unknown_fields(one, schema["items"], f"{path}[]")]
    if not isinstance(value, dict):
        return []
    properties = schema.get("properties", {})
    unknown = [f"{path}.{name}" for name in value if name not in properties]
    known = [(name, one) for name, one in value.items() if name in properties]
    return unknown + [name for key, one in known for name in _unknown_fields(one, properties[key], f"{path}.{key}")]


def test_every_field_that_is_written_is_one_that_the_crd_keeps() -> None:
    state = wanted(("w1-0", detected()), ("w1", NodeInventoryChanged(present=True, conditions=(INCOMPLETE,))))
    crds = {crd["spec"]["names"]["kind"]: crd for crd in shipped()}
    for key in (DEVICE, NODE):
        schema = crds[key.kind]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
        shown = desired(state, key, node_feature_rule())
        assert shown is not None
        assert _unknown_fields(shown.status, schema, "status") == []


def samples(state: Wanted) -> dict[tuple[str, ...], float]:
    return {
        (one.name, *one.labels.values()): one.value
        for family in GpuMetrics(lambda: state).collect()
        for one in family.samples
    }


def test_metrics_have_the_names_that_dashboards_know() -> None:
    state = wanted(
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
    assert samples(wanted(("w1-0", detected()), gone))["gpu_inventory_devices_total", "w1"] == 0


def test_a_disabled_module_has_no_metrics() -> None:
    state = wanted(("w1-0", detected()))
    state.settings.put(state.settings_in_force()._replace(enabled=False, module=MODULE))
    assert samples(state) == {}
