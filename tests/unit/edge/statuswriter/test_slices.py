"""ResourceSliceStatuses as they have to be, and how soon they are written again, without any server."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpuledger.api.kinds import MODULE_CONFIG, MODULE_CONFIGS
from gpuledger.domain.fact import Fact
from gpuledger.edge.kube.crds import node_feature_rule, shipped
from gpuledger.edge.kube.work_queue import WorkQueue
from gpuledger.edge.statuswriter.cache.objects import ObjectCache, read
from gpuledger.edge.statuswriter.desired.fold import DesiredProjection
from gpuledger.edge.statuswriter.desired.slices import ERRORS_SHOWN_MAX, bounded
from gpuledger.edge.statuswriter.desired.state import DesiredState, desired_object
from gpuledger.edge.statuswriter.fields import body, canonical, observe
from gpuledger.edge.statuswriter.objects import DesiredObject, Key, Kind, ObservedObject
from gpuledger.edge.statuswriter.reconcile.decide import Action, decide
from gpuledger.edge.statuswriter.reconcile.planner import STATUSES_MEMOIZED_MAX, Planner
from gpuledger.edge.statuswriter.throttle.lag import Lag
from gpuledger.edge.watchers.resources import moduleconfig
from gpuledger.events.payload import Payload
from gpuledger.events.settings import SettingsChanged
from support.dra_facts import allocated, device, events_of, fact_at, published, released, withdrawn
from support.events import folded, log_of
from support.statuswriter_parts import Clock

SLICE, OTHER, DEVICE = Key(Kind.SLICE, "s1"), Key(Kind.SLICE, "s2"), Key(Kind.DEVICE, "s1")
PAUSE_S = 0.2


def desired_state(*facts: tuple[str, Payload]) -> DesiredState:
    state = folded(DesiredProjection(), log_of(events_of([fact_at(at, *fact) for at, fact in enumerate(facts)]))).state
    assert isinstance(state, DesiredState)
    return state


def shown(state: DesiredState, key: Key = SLICE) -> DesiredObject:
    found = desired_object(state, key, node_feature_rule())
    assert found is not None
    return found


PUBLISHED = ("s1", published("p", [device("gpu-0"), device("gpu-1")], node="n1"))
HELD = ("a/c", allocated(("p", "gpu-0", None), ("p", "gone", None)))
NAMING = (MODULE_CONFIG, SettingsChanged(claim_references="Full"))


def test_an_object_is_named_after_its_slice_and_goes_with_it() -> None:
    found = shown(desired_state(PUBLISHED))
    owner = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "name": "s1", "uid": "u"}
    spec = {"sliceName": "s1", "sliceUID": "u", "driver": "gpu.example.com", "pool": "p", "nodeName": "n1"}
    assert found.main == {"spec": spec, "ownerReferences": [owner]}
    assert body(SLICE, found.main) == {"metadata": {"name": "s1", "ownerReferences": [owner]}, "spec": spec}
    assert "nodeName" not in shown(desired_state(("s1", published("p", [])))).main["spec"]


def kept(found: DesiredObject, **metadata: Any) -> ObservedObject:
    """The cache of an object that is as desired."""
    owners = found.main["ownerReferences"]
    about = {"name": "s1", "uid": "o", "resourceVersion": "1", "ownerReferences": owners} | metadata
    return observe(Kind.SLICE, {"metadata": about, "spec": found.main["spec"], "status": found.status})


def test_what_is_about_another_slice_is_replaced() -> None:
    found = shown(desired_state(PUBLISHED))
    another = shown(desired_state(("s1", published("p", [device("gpu-0")]).model_copy(update={"uid": "v"}))))
    actions = [decide(Kind.SLICE, one, withdrawn=False, observed=kept(found)) for one in (found, another)]
    assert actions == [Action.NOTHING, Action.DELETE]
    assert decide(Kind.SLICE, another, withdrawn=False, observed=kept(found)._replace(deleting=True)) is Action.NOTHING
    assert decide(Kind.SLICE, found, withdrawn=False, observed=kept(found, ownerReferences=[])) is Action.MAIN


def test_owners_that_others_gave_it_are_theirs() -> None:
    found = shown(desired_state(PUBLISHED))
    theirs = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n"}
    more = kept(found, ownerReferences=[theirs, *found.main["ownerReferences"]])
    assert decide(Kind.SLICE, found, withdrawn=False, observed=more) is Action.NOTHING


def test_lists_of_a_status_are_alike_on_both_sides() -> None:
    share = allocated(("p", "gpu-0", "s"), consumed={"memory": "1Gi"})
    held = [(f"{namespace}/c{number}", share) for namespace in "ba" for number in (10, 9)]
    state = desired_state(("s1", published("p", [device("gpu-1"), device("gpu-0", memory="16Gi")])), *held, NAMING)
    found = shown(state)
    assert [one["name"] for one in found.status["devices"]] == ["gpu-0", "gpu-1"]
    allocations = found.status["devices"][0]["allocations"]
    claims = [(one["claimNamespace"], one["claimName"]) for one in allocations]
    assert claims == [("a", "c10"), ("a", "c9"), ("b", "c10"), ("b", "c9")]
    assert canonical(found.status) == found.status
    turned = found.status | {"devices": found.status["devices"][::-1]}
    assert decide(Kind.SLICE, found, withdrawn=False, observed=kept(found._replace(status=turned))) is Action.NOTHING
    mixed = [found.status["devices"][0] | {"allocations": allocations[::-1]}, found.status["devices"][1]]
    changed = kept(found._replace(status=found.status | {"devices": mixed}))
    assert decide(Kind.SLICE, found, withdrawn=False, observed=changed) is Action.STATUS


def test_changed_objects_are_reconciled() -> None:
    state = desired_state(PUBLISHED, ("s2", published("q", [])))
    assert set(state.take_changed()) == {SLICE, OTHER}
    assert state.take_changed() == {}
    state = desired_state(PUBLISHED, ("s1", withdrawn()))
    assert set(state.take_changed()) == set(state.withdrawn()) == {SLICE}
    assert not desired_state(PUBLISHED, ("s1", withdrawn()), PUBLISHED).withdrawn()
    assert not desired_state(("s1", withdrawn())).withdrawn()


def test_what_has_ended_leaves_at_once() -> None:
    state = desired_state(PUBLISHED, HELD, ("a/c", released())).slices
    assert not state.allocation.rows
    assert [row.valid_to for row in state.availability.rows.values()] == [None]


def test_settings_change_how_every_slice_is_shown() -> None:
    others = (("s2", published("q", [])), ("s3", published("r", [])), ("s3", withdrawn()))
    state = desired_state(PUBLISHED, HELD, *others, NAMING)
    state.take_changed()
    full = shown(state).status
    put = state.settings_in_force()._replace(module=MODULE_CONFIG)
    state.settings.put(put._replace(resync_period_s=7))
    assert state.take_changed() == {}
    state.settings.put(put._replace(claim_references="Redacted"))
    assert set(state.take_changed()) == {SLICE, OTHER, Key(Kind.SLICE, "s3")}
    assert "'a'" in str(full)
    assert "'a'" not in str(shown(state).status)
    assert "a/c" not in str(shown(state).status)


def test_where_nobody_has_set_anything_claims_are_counted_and_not_named() -> None:
    status = shown(desired_state(PUBLISHED, HELD)).status
    assert status["devices"][0]["allocations"] == [{"claimNamespace": "", "claimName": "", "claimUID": ""}]
    assert status["summary"]["allocatedDevices"] == 1
    assert "a/c" not in str(status)


def test_a_closed_feature_gate_leaves_objects_as_they_are() -> None:
    state = desired_state(PUBLISHED)
    planner = Planner(state, node_feature_rule())
    other = {"metadata": {"name": "x", "uid": "u", "resourceVersion": "1"}}
    planner.cache.kinds[Kind.SLICE].listed([read(Kind.SLICE, other)], "1", 0.0)
    assert planner.step(SLICE).action is Action.CREATE
    state.settings.put(state.settings_in_force()._replace(module=MODULE_CONFIG, dra_availability=False))
    assert planner.step(SLICE).action is Action.NOTHING
    assert (state.keeps(Kind.SLICE), state.keeps(Kind.DEVICE)) == (False, True)


def test_a_status_is_made_up_anew_when_something_changed() -> None:
    state = desired_state(PUBLISHED)
    planner = Planner(state, node_feature_rule())
    before = planner.desired(SLICE)
    assert before is not None
    assert planner.desired(SLICE) is before
    assert planner.desired(OTHER) is None
    (fact,) = events_of([fact_at(9, *HELD)])
    DesiredProjection().handlers[type(fact.data)](state, Fact(fact, 9, 9), fact.data)
    planner.desired_changed(state.take_changed())
    after = planner.desired(SLICE)
    assert after is not None
    assert after.status["summary"]["allocatedDevices"] == 1


def test_only_so_many_statuses_are_kept() -> None:
    facts = [(f"s{number}", published(f"p{number}", [])) for number in range(STATUSES_MEMOIZED_MAX + 1)]
    planner = Planner(desired_state(*facts), node_feature_rule())
    first = planner.desired(Key(Kind.SLICE, "s0"))
    for name, _ in facts:
        planner.desired(Key(Kind.SLICE, name))
    assert first == planner.desired(Key(Kind.SLICE, "s0"))
    assert first is not planner.desired(Key(Kind.SLICE, "s0"))


def test_the_past_does_not_stay_in_memory() -> None:
    rounds = [fact for _ in range(50) for fact in (HELD, ("a/c", released()))]
    state = desired_state(PUBLISHED, *rounds)
    assert (len(state.slices.allocation), len(state.slices.availability), len(state.slices.claim)) == (0, 1, 0)


def _unknown_fields(value: Any, schema: dict[str, Any], path: str) -> list[str]:
    if isinstance(value, list):
        return [name for one in value for name in _unknown_fields(one, schema["items"], f"{path}[]")]
    if not isinstance(value, dict) or "additionalProperties" in schema:
        return []
    properties = schema.get("properties", {})
    below = [
        _unknown_fields(one, properties[name], f"{path}.{name}") for name, one in value.items() if name in properties
    ]
    return [f"{path}.{name}" for name in value if name not in properties] + [name for names in below for name in names]


def test_every_field_that_is_written_is_one_that_the_crd_keeps() -> None:
    share = ("b/c", allocated(("p", "gpu-1", "s"), consumed={"memory": "1Gi"}))
    found = shown(desired_state(("s1", published("p", [device("gpu-0"), device("gpu-1", memory="2Gi")])), HELD, share))
    (crd,) = (crd for crd in shipped() if crd["spec"]["names"]["kind"] == Kind.SLICE)
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    assert _unknown_fields(found.status, schema["status"], "status") == []
    assert _unknown_fields(found.main["spec"], schema["spec"], "spec") == []
    assert found.status["poolStatus"]["validationErrors"]
    assert found.status["devices"][1]["allocations"][0]["capacity"] == {"memory": "1Gi"}


def test_however_much_is_wrong_the_crd_takes_it() -> None:
    errors = [f"{number}: {'x' * 5_000}" for number in range(ERRORS_SHOWN_MAX + 10)]
    pool = {"conditions": [{"type": "Valid", "message": "y" * 50_000}], "validationErrors": errors}
    found = bounded({"poolStatus": pool})["poolStatus"]
    (crd,) = (crd for crd in shipped() if crd["spec"]["names"]["kind"] == Kind.SLICE)
    status = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    schema = status["properties"]["poolStatus"]["properties"]
    assert len(found["validationErrors"]) == schema["validationErrors"]["maxItems"]
    assert max(map(len, found["validationErrors"])) == schema["validationErrors"]["items"]["maxLength"]
    assert found["validationErrors"][-1] == "10 more are not shown"
    message = schema["conditions"]["items"]["properties"]["message"]
    assert len(found["conditions"][0]["message"]) == message["maxLength"]
    assert bounded({"devices": []}) == {"devices": []}


def test_what_comes_while_it_is_written_counts_by_itself() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    now = start
    lag = Lag(ObjectCache(), lambda: now)
    lag.note(SLICE, int(start.timestamp() * 1e9))
    now = start + timedelta(seconds=3)
    assert (lag.seconds(SLICE), lag.seconds(OTHER)) == (3.0, 0.0)
    with lag.catching_up(SLICE):
        lag.note(SLICE)
        now = start + timedelta(seconds=5)
        assert lag.seconds(SLICE) == 5.0
    assert lag.seconds(SLICE) == 2.0
    with pytest.raises(OSError, match="no"), lag.catching_up(SLICE):
        raise OSError("no")
    assert lag.seconds(SLICE) == 2.0
    lag.settled(SLICE, has_written=False)
    assert lag.seconds(SLICE) == 0.0


def depth(queue: WorkQueue[Key], kind: Kind) -> int:
    """How many keys of a kind are ready."""
    return queue.depth(lambda key: key.kind is kind)


async def test_the_depth_counts_what_is_to_be_taken_now() -> None:
    clock = Clock()
    queue = WorkQueue[Key](clock)
    queue.add(SLICE)
    queue.add_background(OTHER)
    queue.add(DEVICE)
    queue.add(Key(Kind.SLICE, "s3"), clock.now_s + 5)
    assert (depth(queue, Kind.SLICE), depth(queue, Kind.DEVICE), depth(queue, Kind.NODE)) == (2, 1, 0)
    assert await queue.take() == SLICE
    assert depth(queue, Kind.SLICE) == 1


UNSET = SettingsChanged(claim_references="Redacted")


def settings(given: dict[str, Any]) -> tuple[SettingsChanged, tuple[str, ...]]:
    part = moduleconfig.KIND.read(
        {
            "apiVersion": MODULE_CONFIGS.api_version,
            "kind": MODULE_CONFIGS.kind,
            "metadata": {"name": MODULE_CONFIG},
            "spec": {"enabled": True, "settings": given},
        }
    )
    return moduleconfig.KIND.combine([part.content]).model_copy(update={"not_in_force": ()}), part.problems


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        ({"dra": {"claimReferences": "Full"}}, {"claim_references": "Full"}),
        ({"dra": {"claimReferences": "Redacted"}}, {}),
        ({"featureGates": {"DRAResourceAvailabilityVisibility": False}}, {"dra_availability": False}),
        ({"featureGates": {"DRAResourceAvailabilityVisibility": True}}, {}),
    ],
)
def test_the_module_config_sets_how_slices_are_shown(given: dict[str, Any], expected: Any) -> None:
    assert settings(given) == (UNSET.model_copy(update=expected), ())


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"featureGates": {"Other": True}}, "featureGates.Other is no setting"),
        ({"dra": {"claimReferences": "full"}}, "dra.claimReferences is 'full'"),
        ({"dra": {"claimReferences": []}}, "dra.claimReferences is a list"),
        (
            {"featureGates": {"DRAResourceAvailabilityVisibility": "no"}},
            "featureGates.DRAResourceAvailabilityVisibility is 'no'",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_understood_names_no_claims(given: dict[str, Any], problem: str) -> None:
    found, (first,) = settings(given)
    assert found == UNSET
    assert first.startswith(problem)
