"""What is written to a Node: what it lacks, and nothing that somebody else put there is ever undone."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.api.labels import ANNOTATION_ISOLATION
from gpuledger.edge.nodewriter.plan import Object, plan
from gpuledger.events.maintenance import Isolation

BROKEN = {"key": "gpu/broken", "effect": "NoSchedule"}
CORDON = Isolation(unschedulable=True)
EVERYTHING = Isolation.model_validate({"unschedulable": True, "taints": [BROKEN], "labels": {"state": "broken"}})
NOTHING = Isolation()


def node(*, cordoned: bool = False, taints: tuple[dict[str, str], ...] = (), **labels: str) -> Object:
    spec: Object = {**({"unschedulable": True} if cordoned else {}), **({"taints": list(taints)} if taints else {})}
    return {"metadata": {"name": "n1", "uid": "u", "resourceVersion": "1", "labels": labels}, "spec": spec}


def patched(obj: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    found = dict(obj) if isinstance(obj, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = patched(found.get(key), value)
    return found


def after(obj: Object, desired: Isolation) -> Object:
    """The Node once it is as desired; nothing is left to do then."""
    patch = plan(obj, desired).patch
    found: Object = obj if patch is None else patched(obj, patch)
    assert plan(found, desired).patch is None
    return found


def shown(obj: Object) -> tuple[bool, list[Any], dict[str, str]]:
    """What others see of a Node; the order of taints means nothing."""
    spec, labels = obj["spec"], obj["metadata"]["labels"]
    taints = sorted((one["key"], one.get("value", ""), one["effect"]) for one in spec.get("taints") or ())
    return spec.get("unschedulable", False), taints, dict(labels)


def test_a_node_is_set_aside_and_given_back_as_it_was() -> None:
    before = node(zone="a")
    aside = after(before, EVERYTHING)
    assert shown(aside) == (True, [("gpu/broken", "", "NoSchedule")], {"zone": "a", "state": "broken"})
    assert ANNOTATION_ISOLATION in aside["metadata"]["annotations"]
    back = after(aside, NOTHING)
    assert shown(back) == shown(before)
    assert ANNOTATION_ISOLATION not in back["metadata"]["annotations"]


def test_what_others_had_put_there_before_stays() -> None:
    before = node(cordoned=True, taints=({**BROKEN, "value": "theirs"},), state="theirs")
    found = plan(before, EVERYTHING)
    assert found.patch is None
    assert found.was.model_dump() == {
        "unschedulable": True, "taints": ({**BROKEN, "value": "theirs"},), "labels": {"state": "theirs"},
    }  # fmt: skip
    assert shown(after(after(before, EVERYTHING), NOTHING)) == shown(before)


def test_what_others_add_or_change_meanwhile_stays() -> None:
    aside = after(node(), EVERYTHING)
    other = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    aside["spec"]["taints"].append(other)
    aside["metadata"]["labels"]["state"] = "scrapped"
    back = after(aside, NOTHING)
    assert shown(back) == (False, [(other["key"], "", "NoSchedule")], {"state": "scrapped"})


def test_a_node_that_was_uncordoned_by_hand_is_cordoned_again_by_the_next_intent() -> None:
    aside = after(node(), CORDON)
    del aside["spec"]["unschedulable"]
    assert plan(aside, CORDON).patch is not None
    assert shown(after(aside, NOTHING)) == (False, [], {})


def managed(manager: str, **parts: Any) -> Object:
    """What the API server records of a manager's fields."""
    return {"manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": parts}


CORDONED: Object = {"f:spec": {"f:unschedulable": {}}}
LABELLED: Object = {"f:metadata": {"f:labels": {"f:state": {}}}}


def test_what_somebody_else_has_set_again_since_is_theirs() -> None:
    aside = after(node(), EVERYTHING)
    del aside["spec"]["unschedulable"]
    del aside["metadata"]["labels"]["state"]
    aside["spec"]["unschedulable"] = True
    aside["metadata"]["labels"]["state"] = "broken"
    ours = managed("gpuledger", **{"f:spec": {"f:taints": {}}})
    aside["metadata"]["managedFields"] = [ours, managed("kubectl", **CORDONED), managed("edit", **LABELLED)]
    found = plan(aside, EVERYTHING)
    assert (found.was.unschedulable, found.was.labels) == (True, {"state": "broken"})
    back = after(aside, NOTHING)
    assert shown(back) == (True, [], {"state": "broken"})
    assert ANNOTATION_ISOLATION not in back["metadata"]["annotations"]


def test_what_is_recorded_as_ours_or_of_nobody_is_ours() -> None:
    cases: list[list[Object]] = [
        [managed("gpuledger", **CORDONED, **LABELLED)],
        [{}],
        [managed("kubelet", **{"f:status": {}})],
    ]
    for entries in cases:
        aside = after(node(), EVERYTHING)
        aside["metadata"]["managedFields"] = entries
        assert shown(after(aside, NOTHING)) == (False, [], {})


def test_who_removes_the_annotation_or_breaks_it_takes_everything_over() -> None:
    for text in (None, "{", '{"taints": 1}'):
        aside = after(node(), EVERYTHING)
        aside["metadata"]["annotations"] = {} if text is None else {ANNOTATION_ISOLATION: text}
        assert shown(after(aside, NOTHING)) == shown(aside)


def test_a_patch_names_the_version_that_it_is_based_on() -> None:
    patch = plan(node(), CORDON).patch
    assert patch is not None
    assert patch["metadata"]["resourceVersion"] == "1"


keys, values = st.sampled_from(["a", "b"]), st.sampled_from(["", "x", "y"])
taint_lists = st.dictionaries(keys, values).map(
    lambda found: [{"key": key, "value": value, "effect": "NoSchedule"} for key, value in sorted(found.items())]
)
isolations = st.builds(
    lambda cordon, taints, labels: Isolation.model_validate(
        {"unschedulable": cordon, "taints": taints, "labels": labels}
    ),
    st.booleans(), taint_lists, st.dictionaries(keys, values),
)  # fmt: skip
nodes = st.builds(
    lambda cordoned, taints, labels: node(cordoned=cordoned, taints=tuple(taints), **labels),
    st.booleans(), taint_lists, st.dictionaries(keys, values),
)  # fmt: skip


@given(nodes, st.lists(isolations, max_size=5))
def test_however_often_it_changes_a_node_ends_as_it_was(before: Object, story: list[Isolation]) -> None:
    found = before
    for desired in story:
        found = after(found, desired)
        cordoned, taints, labels = shown(found)
        was_cordoned, was_taints, was_labels = shown(before)
        assert cordoned == (was_cordoned or desired.unschedulable)
        assert set(was_taints) <= set(taints)
        assert was_labels.items() <= labels.items()
        assert {one.key for one in desired.taints} <= {key for key, _, _ in taints}
    assert shown(after(found, NOTHING)) == shown(before)
