"""The next step for an object, the requests that it needs, and the differences that verification shows."""

import pytest

from gpuledger.api.kinds import ASSIGNMENT_FIELD_MANAGER
from gpuledger.api.labels import ANNOTATION_ASSIGNMENT, POOL_FINALIZER
from gpuledger.edge.kube.crds import node_feature_rule
from gpuledger.edge.statuswriter.cache.objects import read
from gpuledger.edge.statuswriter.fields import body, digest, observe
from gpuledger.edge.statuswriter.objects import POOL_KINDS, DesiredObject, Document, Key, Kind, key_of
from gpuledger.edge.statuswriter.reconcile.decide import Action, decide, is_drift
from gpuledger.edge.statuswriter.reconcile.responses import removals
from gpuledger.edge.statuswriter.reconcile.verify import differing, first_difference
from support.statuswriter_parts import DEVICE, NODE, RIGHT, obj


@pytest.mark.parametrize(
    ("desired", "withdrawn", "found", "action"),
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
def test_the_next_step(desired: DesiredObject | None, withdrawn: bool, found: Document | None, action: Action) -> None:
    actual = observe(Kind.DEVICE, found) if found else None
    assert decide(Kind.DEVICE, desired, withdrawn=withdrawn, observed=actual) is action


FINALIZED = {"finalizers": ["theirs", POOL_FINALIZER]}
LEAVING = {"deletionTimestamp": "now"}
POOL = DesiredObject({"finalizers": [POOL_FINALIZER]}, {"state": "Ready"}, uid="u")
RELEASED = POOL._replace(main={"finalizers": []})


@pytest.mark.parametrize(
    ("desired", "found", "action"),
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
def test_the_next_step_with_a_pool(desired: DesiredObject | None, found: Document | None, action: Action) -> None:
    for kind in POOL_KINDS:
        actual = observe(kind, found) if found else None
        assert decide(kind, desired, withdrawn=True, observed=actual) is action


def approved(pool: str, manager: str = ASSIGNMENT_FIELD_MANAGER) -> Document:
    """A device with an assignment annotation that a manager owns."""
    owned: Document = {"f:metadata": {"f:annotations": {f"f:{ANNOTATION_ASSIGNMENT}": {}}}}
    entry = {"manager": manager, "operation": "Apply", "fieldsV1": owned}
    return obj(metadata={"annotations": {ANNOTATION_ASSIGNMENT: pool, "other": "x"}, "managedFields": [entry]})


TAKEN = RIGHT._replace(approved={ANNOTATION_ASSIGNMENT: "a"})


@pytest.mark.parametrize(
    ("desired", "found", "action"),
    [
        (TAKEN, obj(), Action.APPROVE),
        (TAKEN, approved("a"), Action.NOTHING),
        (TAKEN, approved("b"), Action.APPROVE),
        (TAKEN, approved("a", "kubectl"), Action.APPROVE),
        (RIGHT, approved("a"), Action.APPROVE),
        (RIGHT, approved("a", "kubectl"), Action.NOTHING),
    ],
)
def test_the_next_step_with_an_approval(desired: DesiredObject, found: Document, action: Action) -> None:
    assert decide(Kind.DEVICE, desired, withdrawn=False, observed=observe(Kind.DEVICE, found)) is action


def test_an_approval_that_a_person_overrules_is_not_sent_again() -> None:
    theirs = observe(Kind.DEVICE, approved("b", "kubectl"))
    left = theirs._replace(sent_approved=digest(TAKEN.approved))
    assert decide(Kind.DEVICE, TAKEN, withdrawn=False, observed=left) is Action.NOTHING
    other = TAKEN._replace(approved={ANNOTATION_ASSIGNMENT: "c"})
    assert decide(Kind.DEVICE, other, withdrawn=False, observed=left) is Action.APPROVE


def test_a_namespace_is_part_of_an_objects_id() -> None:
    one, other, none = Key(Kind.POOL, "a", "x"), Key(Kind.POOL, "a", "y"), Key(Kind.CLUSTER_POOL, "a")
    assert [key.id for key in (one, other, none)] == ["x/a", "y/a", "a"]
    assert [key_of(key.kind, key.id) for key in (one, other, none)] == [one, other, none]
    assert body(one, {"finalizers": ["f"]}, "u") == {
        "metadata": {"name": "a", "namespace": "x", "uid": "u", "finalizers": ["f"]}
    }
    assert read(Kind.POOL, obj(metadata={"namespace": "x"})).id == "x/w1-0"


def test_what_the_server_keeps_otherwise_is_not_sent_again() -> None:
    kept = observe(Kind.DEVICE, obj(status={}))
    assert decide(Kind.DEVICE, RIGHT, withdrawn=False, observed=kept) is Action.STATUS
    answered = kept._replace(sent_status=digest(RIGHT.status))
    assert decide(Kind.DEVICE, RIGHT, withdrawn=False, observed=answered) is Action.NOTHING


def test_a_module_is_not_created() -> None:
    assert decide(Kind.MODULE, DesiredObject({}, {"conditions": []}), withdrawn=False, observed=None) is Action.NOTHING


def test_of_a_module_one_condition_is_ours() -> None:
    ours, theirs = {"type": "PrerequisiteNotMet", "status": "True"}, {"type": "Theirs", "status": "True"}
    found = observe(Kind.MODULE, obj(status={"conditions": [theirs, ours], "version": "1"}))
    assert (
        decide(Kind.MODULE, DesiredObject({}, {"conditions": [ours]}), withdrawn=False, observed=found)
        is Action.NOTHING
    )


def test_the_order_of_conditions_and_sets_means_nothing() -> None:
    first = {"conditions": [{"type": "A"}, {"type": "B"}], "hardware": {"precision": {"supported": ["b", "a"]}}}
    other = {"hardware": {"precision": {"supported": ["a", "b"]}}, "conditions": [{"type": "B"}, {"type": "A"}]}
    assert observe(Kind.DEVICE, obj(status=first)).status == observe(Kind.DEVICE, obj(status=other)).status


def test_only_what_was_right_can_be_disturbed() -> None:
    right, wrong = observe(Kind.DEVICE, obj()), observe(Kind.DEVICE, obj(status={"state": "Faulted"}))
    assert is_drift(Kind.DEVICE, RIGHT, right, wrong)
    assert is_drift(Kind.DEVICE, RIGHT, right, None)
    assert not is_drift(Kind.DEVICE, RIGHT, wrong, None)
    assert not is_drift(Kind.DEVICE, RIGHT, right, right._replace(version="6"))
    assert not is_drift(Kind.DEVICE, None, right, None)


def test_what_others_added_is_removed() -> None:
    desired = {"a": 1, "conditions": [{"type": "A", "status": "True"}], "set": ["x"]}
    theirs = {"type": "A", "status": "True", "message": "m"}
    found = {"a": 2, "b/c": 1, "conditions": [{"type": "B"}, theirs, {"type": "C"}], "set": ["x", "y"]}
    assert [one["path"] for one in removals(desired, found, "/status")] == [
        "/status/b~1c", "/status/conditions/2", "/status/conditions/1/message", "/status/conditions/0", "/status/set/1",
    ]  # fmt: skip
    assert removals(desired, desired, "") == []


def test_of_the_rule_as_it_is_shipped_nothing_is_removed() -> None:
    spec = node_feature_rule()["spec"]
    assert removals(spec, spec, "/spec") == []
    assert [one["path"] for one in removals(spec, {**spec, "more": 1}, "/spec")] == ["/spec/more"]


def test_bodies_hold_what_is_applied_and_nothing_else() -> None:
    assert body(DEVICE, {"labels": {"a": "b"}}) == {"metadata": {"name": "w1-0", "labels": {"a": "b"}}}
    assert body(NODE, {"spec": {"nodeName": "w1"}}) == {"metadata": {"name": "w1"}, "spec": {"nodeName": "w1"}}


def test_differences_name_the_place() -> None:
    found = obj(status={"state": "Faulted"})
    actual = {DEVICE: observe(Kind.DEVICE, found), Key(Kind.DEVICE, "x"): observe(Kind.DEVICE, obj())}
    desired = {DEVICE: RIGHT, NODE: DesiredObject({"spec": {}}, {})}
    assert sorted(differing(desired, actual)) == [DEVICE, Key(Kind.DEVICE, "x"), NODE]
    first = first_difference(DEVICE, RIGHT, found)
    assert first is not None
    assert (first.path, first.expected, first.found) == ("status.state", "Ready", "Faulted")
    assert first_difference(DEVICE, RIGHT, obj()) is None
    missing = first_difference(DEVICE, RIGHT, None)
    assert missing is not None
    assert missing.found is None
