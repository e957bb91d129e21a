"""What objects show of machine configuration, which they are, and which annotations of a Node are ours."""

from typing import Any

import pytest

from gpuledger.edge.kube.crds import node_feature_rule
from gpuledger.edge.statuswriter.desired.state import DesiredState, desired_object
from gpuledger.edge.statuswriter.fields import config_annotations, digest, for_object, observe, rendered_identity
from gpuledger.edge.statuswriter.objects import DesiredObject, Document, Key, Kind
from gpuledger.edge.statuswriter.reconcile.decide import Action, decide
from gpuledger.edge.statuswriter.reconcile.responses import extra_of
from gpuledger.events.machine_config import (
    ConfigSource,
    MachineConfigPoolGone,
    MachineConfigPoolWithdrawn,
    MachineConfigRenderedWithdrawn,
    NodeConfigChanged,
    NodeConfigReported,
)
from gpuledger.events.node import NodeGone, NodeInventoryChanged
from gpuledger.projection.errors import ProjectionError
from support.config_decisions import (
    CONTENT,
    NODE,
    PATH,
    POOL,
    RENDERED,
    SET_AT,
    UID,
    changed,
    config_changes,
    config_state,
    configured,
    defined,
    rendered,
)
from support.events import SubjectFact, hour
from support.gpu_states import COMPLETE

RENDERED_KEY = Key(Kind.RENDERED_CONFIG, RENDERED.name)
POOL_KEY, NODE_KEY = Key(Kind.CONFIG_POOL, POOL), Key(Kind.KUBE_NODE, NODE)
MCO = "mco.in-cloud.io"
SET_AT_TEXT = "2026-01-09T10:00:00Z"


def shown(state: DesiredState, key: Key) -> DesiredObject | None:
    return desired_object(state, key, node_feature_rule())


def rendered_object(spec: Document | None = None, **more: Any) -> Document:
    """The object as the API server has it, with parts of the spec replaced."""
    found = shown(config_state((POOL, defined()), (POOL, RENDERED)), RENDERED_KEY)
    assert found is not None
    metadata = {"name": RENDERED.name, "uid": "r", "resourceVersion": "1", "labels": found.main["labels"]}
    return {"metadata": metadata, "spec": found.main["spec"] | (spec or {})} | more


def test_a_rendered_config_is_written_with_contents_and_policy() -> None:
    found = shown(config_state((POOL, defined()), (POOL, RENDERED)), RENDERED_KEY)
    assert found is not None
    assert found.main == {
        "labels": {f"{MCO}/pool": POOL},
        "spec": {
            "poolName": POOL,
            "revision": RENDERED.revision,
            "configHash": RENDERED.config_hash,
            "config": {
                "files": [
                    {"path": PATH, "content": CONTENT, "mode": 420, "owner": "root:root", "state": "present"},
                ],
                "systemd": {"units": [{"name": "chronyd.service", "enabled": True, "mask": False}]},
            },
            "sources": [{"name": "chrony", "priority": 50}],
            "reboot": {"required": True, "strategy": "Never", "minIntervalSeconds": 1800},
        },
    }
    assert found.status == {}


@pytest.mark.parametrize(
    "facts",
    [
        [(POOL, RENDERED), (POOL, defined(reboot_strategy="IfRequired", reboot_min_interval_s=60))],
        [(POOL, defined(reboot_strategy="IfRequired", reboot_min_interval_s=60)), (POOL, RENDERED)],
        [
            (POOL, defined(reboot_strategy="IfRequired", reboot_min_interval_s=60)), (POOL, RENDERED),
            (POOL, MachineConfigPoolGone(uid="p1")),
        ],
    ],
)  # fmt: skip
def test_its_reboot_policy_is_its_pools(facts: list[SubjectFact]) -> None:
    found = shown(config_state(*facts), RENDERED_KEY)
    assert found is not None
    policy = {"required": True, "strategy": "IfRequired", "minIntervalSeconds": 60}
    assert found.main["spec"]["reboot"] == policy
    assert found.about == rendered_identity(rendered_object()), "another policy makes no other configuration"


def test_one_that_is_withdrawn_goes_and_may_come_back() -> None:
    facts: list[SubjectFact] = [(POOL, defined()), (POOL, RENDERED)]
    gone: SubjectFact = (POOL, MachineConfigRenderedWithdrawn(name=RENDERED.name))
    state = config_state(*facts, gone)
    assert shown(state, RENDERED_KEY) is None
    assert state.withdrawn() == [RENDERED_KEY]
    assert list(state.keys(Kind.RENDERED_CONFIG)) == [RENDERED_KEY]
    assert RENDERED_KEY in state.take_changed()
    assert config_state(*facts, gone, facts[1]).withdrawn() == []
    assert config_state(facts[0], gone).withdrawn() == [], "nobody ever wrote it"


def test_one_that_is_rendered_again_keeps_its_object() -> None:
    again = rendered(sources=(ConfigSource(name="other", priority=1),))
    facts: list[SubjectFact] = [(POOL, defined()), (POOL, RENDERED)]
    found = shown(config_state(*facts, (POOL, again)), RENDERED_KEY)
    assert found == shown(config_state(*facts), RENDERED_KEY)


def test_a_decision_whose_content_is_not_what_its_hash_says_stops_the_fold() -> None:
    wrong = RENDERED.files[0].model_copy(update={"hash": "0" * 64})
    with pytest.raises(ProjectionError, match="hash"):
        config_state((POOL, defined()), (POOL, RENDERED.model_copy(update={"files": (wrong,)})))


OTHER = rendered("server other\n")


@pytest.mark.parametrize(
    ("found", "action"),
    [
        (None, Action.CREATE),
        (rendered_object(), Action.NOTHING),
        (rendered_object({"reboot": {"required": True, "strategy": "Never", "minIntervalSeconds": 9}}), Action.MAIN),
        (rendered_object({"sources": []}), Action.DELETE),
        (rendered_object({"config": {"files": [], "systemd": {"units": []}}}), Action.DELETE),
        (rendered_object({"configHash": OTHER.config_hash}), Action.DELETE),
        (rendered_object({"poolName": "other"}), Action.DELETE),
        ({"metadata": {"name": RENDERED.name, "uid": "r", "resourceVersion": "1"}, "spec": {}}, Action.DELETE),
    ],
)
def test_what_never_changes_is_replaced_and_the_policy_is_applied(found: Document | None, action: Action) -> None:
    desired = shown(config_state((POOL, defined()), (POOL, RENDERED)), RENDERED_KEY)
    actual = observe(Kind.RENDERED_CONFIG, found) if found else None
    assert decide(Kind.RENDERED_CONFIG, desired, withdrawn=False, observed=actual) is action


STATE: list[SubjectFact] = [
    (POOL, defined()),
    (POOL, changed(("Updating", "True", "NodesPending"), ("Ready", "False", "NodesPending"), updated_count=1)),
]


def test_the_status_of_a_pool_has_all_counters_and_conditions_with_their_times() -> None:
    later = changed(
        ("Updating", "True", "Paused"), ("Ready", "True", "AllUpdated"),
        current_revision="rendered-worker-1", last_successful_revision="rendered-worker-0", ready_count=1,
        updated_count=2, updating_count=3, degraded_count=4, cordoned_count=5, draining_count=6, pending_reboot_count=7,
        unavailable=8, max_unavailable=9,
    )  # fmt: skip
    found = shown(config_state(*STATE, (POOL, later)), POOL_KEY)
    assert found is not None
    assert (found.main, found.uid) == ({}, "p1")
    ready, updating = found.status.pop("conditions")
    assert found.status == {
        "targetRevision": RENDERED.name, "currentRevision": "rendered-worker-1",
        "lastSuccessfulRevision": "rendered-worker-0", "machineCount": 3, "readyMachineCount": 1,
        "updatedMachineCount": 2, "updatingMachineCount": 3, "degradedMachineCount": 4, "cordonedMachineCount": 5,
        "drainingMachineCount": 6, "pendingRebootCount": 7, "unavailableMachineCount": 8, "maxUnavailable": 9,
        "observedGeneration": 4,
    }  # fmt: skip
    assert (ready["type"], ready["status"], ready["reason"]) == ("Ready", "True", "AllUpdated")
    assert (updating["reason"], updating["observedGeneration"]) == ("Paused", 4)
    assert updating["lastTransitionTime"] < ready["lastTransitionTime"], "its status did not change"


@pytest.mark.parametrize(
    "facts",
    [
        STATE[:1],
        STATE[1:],
        [*STATE, (POOL, MachineConfigPoolGone(uid="p1"))],
        [*STATE, (POOL, MachineConfigPoolWithdrawn())],
        [STATE[0], (POOL, MachineConfigPoolGone(uid="p1")), STATE[1]],
        [*STATE, (POOL, defined("p2"))],
        [STATE[1], STATE[0]],
    ],
)
def test_a_pool_without_an_object_or_a_decision_has_no_status(facts: list[SubjectFact]) -> None:
    assert shown(config_state(*facts), POOL_KEY) is None


@pytest.mark.parametrize(
    ("facts", "keys"),
    [
        ([(POOL, defined())], {POOL_KEY}),
        ([(POOL, defined()), (POOL, RENDERED)], {RENDERED_KEY}),
        ([(POOL, defined()), (POOL, RENDERED), (POOL, RENDERED)], set()),
        ([(POOL, RENDERED), (POOL, defined(reboot_strategy="IfRequired"))], {POOL_KEY, RENDERED_KEY}),
        ([(POOL, RENDERED), (POOL, defined())], {POOL_KEY}),
        ([(POOL, defined()), (POOL, changed())], {POOL_KEY}),
        ([(POOL, defined()), (POOL, changed()), (POOL, MachineConfigPoolWithdrawn())], {POOL_KEY}),
        ([(NODE, configured())], {NODE_KEY}),
        ([(NODE, configured()), (NODE, NodeConfigReported(state="done"))], set()),
    ],
)
def test_only_what_may_differ_is_written(facts: list[SubjectFact], keys: set[Key]) -> None:
    assert config_changes(*facts) == keys


def test_a_condition_that_the_rollout_lists_no_more_is_gone() -> None:
    found = shown(config_state(*STATE, (POOL, changed(("Ready", "False", "NodesPending")))), POOL_KEY)
    assert found is not None
    assert [one["type"] for one in found.status["conditions"]] == ["Ready"]


@pytest.mark.parametrize(
    ("decided", "annotations"),
    [
        (
            configured(),
            {"pool": POOL, "desired-revision": RENDERED.name, "desired-revision-set-at": SET_AT_TEXT},
        ),
        (configured("Idle", None), {"pool": POOL}),
        (
            configured(desired_set_at=SET_AT.replace(microsecond=250)),
            {
                "pool": POOL, "desired-revision": RENDERED.name,
                "desired-revision-set-at": "2026-01-09T10:00:00.000250Z",
            },
        ),
        (
            configured("Draining", None, cordoned=True, drain_started_at=SET_AT, drain_retries=3),
            {"pool": POOL, "cordoned": "true", "drain-started-at": SET_AT_TEXT, "drain-retry-count": "3"},
        ),
        (configured(cordoned=False, drain_retries=0, pool=None), {}),
    ],
)  # fmt: skip
def test_the_annotations_of_a_node(decided: NodeConfigChanged, annotations: dict[str, str]) -> None:
    found = shown(config_state((NODE, decided)), NODE_KEY)
    assert found is not None
    assert found.main == {"labels": {}, "annotations": {f"{MCO}/{key}": value for key, value in annotations.items()}}
    assert (found.status, found.configured) == ({}, UID)


def test_a_node_that_no_pool_has_stays_in_sight_until_its_annotations_are_gone() -> None:
    state = config_state((NODE, configured()), (NODE, NodeConfigChanged(uid=UID)))
    assert list(state.keys(Kind.KUBE_NODE)) == [NODE_KEY]
    assert NODE_KEY in state.take_changed()


def test_the_label_of_a_node_is_as_without_a_configuration() -> None:
    state = config_state((NODE, NodeInventoryChanged(present=True, conditions=(COMPLETE,))), (NODE, configured()))
    found = shown(state, NODE_KEY)
    assert found is not None
    assert found.main["labels"] == {"gpu.deckhouse.io/detected": "true"}
    state.labels_nodes = False
    found = shown(state, NODE_KEY)
    assert found is not None
    assert found.main["labels"] == {}
    assert found.main["annotations"][f"{MCO}/pool"] == POOL


def test_what_was_decided_about_a_node_that_is_gone_has_ended() -> None:
    state = config_state((NODE, configured()), (NODE, NodeGone(uid="another")))
    assert state.machine_configs.node.rows[NODE].pool == POOL
    state = config_state((NODE, configured()), (NODE, NodeGone(uid=UID)))
    row = state.machine_configs.node.rows[NODE]
    assert (row.pool, row.shown, row.ended_at) == (None, {}, hour(2))


def test_a_report_of_the_agent_changes_no_object() -> None:
    state = config_state((NODE, configured()))
    state.take_changed()
    before = shown(state, NODE_KEY)
    state = config_state((NODE, configured()), (NODE, NodeConfigReported(state="done")))
    assert shown(state, NODE_KEY) == before


def node(annotations: dict[str, str], ours: tuple[str, ...], uid: str = UID) -> Document:
    """A Node with these annotations, of which we own some."""
    owned: Document = {f"f:{name}": {} for name in ours}
    fields = [{"manager": "gpuledger", "fieldsV1": {"f:metadata": {"f:annotations": owned}}}]
    metadata = {"name": NODE, "uid": uid, "resourceVersion": "1", "annotations": annotations, "managedFields": fields}
    return {"metadata": metadata}


AGENTS, FOREIGN = f"{MCO}/current-revision", f"{MCO}/desired-revision"
MINE = f"{MCO}/pool"


@pytest.mark.parametrize(
    ("annotations", "ours", "found"),
    [
        ({}, (), {}),
        ({FOREIGN: "x", MINE: "y"}, (), {}),
        ({FOREIGN: "x", MINE: "y", AGENTS: "z", "team": "a"}, (MINE,), {FOREIGN: "x", MINE: "y"}),
        ({AGENTS: "z"}, (AGENTS,), {}),
    ],
)
def test_which_annotations_are_ours(annotations: dict[str, str], ours: tuple[str, ...], found: Document) -> None:
    assert config_annotations(node(annotations, ours)["metadata"]) == found


def test_what_somebody_adds_to_ours_is_removed() -> None:
    found = node({FOREIGN: "x", MINE: POOL, AGENTS: "z"}, (MINE,))
    part = {"labels": {}, "annotations": {MINE: POOL}}
    path = "/metadata/annotations/mco.in-cloud.io~1desired-revision"
    assert extra_of(NODE_KEY, part, found) == [{"op": "remove", "path": path}]


def test_another_node_of_the_same_name_gets_no_annotation_of_the_one_before() -> None:
    desired = shown(config_state((NODE, configured())), NODE_KEY)
    for uid, action in ((UID, Action.MAIN), ("u2", Action.NOTHING)):
        actual = observe(Kind.KUBE_NODE, node({}, (), uid))
        complete = for_object(Kind.KUBE_NODE, desired, actual)
        assert decide(Kind.KUBE_NODE, complete, withdrawn=False, observed=actual) is action
    stale = observe(Kind.KUBE_NODE, node({MINE: POOL}, (MINE,), "u2"))
    complete = for_object(Kind.KUBE_NODE, desired, stale)
    assert complete is not None
    assert digest(complete.main) == digest({"labels": {}, "annotations": {}}) != stale.main
