"""Who owns a field after updates and applies, what conflicts, and what an apply gives up."""

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.edge.kube.schema.shapes import Shape
from gpuledger.local.kubeapi.errors import ApiError
from gpuledger.local.kubeapi.managed import ANCIENT, UPDATERS_MAX, apply, record_update

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(seconds=1)
VERSION = "gpu.deckhouse.io/v1alpha1"
TEXT = Shape("string")
TAINT = Shape("object", fields={"key": TEXT, "value": TEXT, "ports": Shape("array", items=TEXT, list_type="set")})
SPEC = Shape(
    "object",
    fields={
        "a": Shape("integer"),
        "b": TEXT,
        "free": Shape("object", preserves=True),
        "either": Shape("any", int_or_string=True),
        "when": Shape("string", format="date-time"),
        "vendors": Shape("array", items=TEXT),
        "set": Shape("array", items=TEXT, list_type="set"),
        "taints": Shape("array", items=TAINT, list_type="map", keys=("key",)),
        "deep": Shape("object", fields={"x": TEXT, "y": TEXT}),
    },
)
SHAPE = Shape("object", fields={"spec": SPEC, "status": Shape("object", fields={"state": TEXT})})


def thing(spec: Any = None, **rest: Any) -> Any:
    body = {"apiVersion": VERSION, "kind": "Thing", "metadata": {"name": "t"}, **rest}
    return body if spec is None else body | {"spec": spec}


def applied(
    current: Any,
    spec: Any = None,
    manager: Any = "alice",
    *,
    force: Any = False,
    now: Any = NOW,
    subresource: Any = "",
    **rest: Any,
) -> Any:
    config = thing(spec, **rest)
    kept = copy.deepcopy((current, config))
    result = apply(
        current,
        config,
        manager=manager,
        force=force,
        subresource=subresource,
        api_version=VERSION,
        shape=SHAPE,
        now=now,
    )
    assert (current, config) == kept
    return result


def updated(
    old: Any,
    spec: Any,
    manager: Any = "kubectl",
    *,
    now: Any = NOW,
    subresource: Any = "",
    version: Any = VERSION,
    **rest: Any,
) -> Any:
    new = copy.deepcopy(old) if old else thing()
    new |= {"spec": spec, **rest}
    record_update(new, old, manager=manager, subresource=subresource, api_version=version, shape=SHAPE, now=now)
    return new


def owners(obj: Any) -> Any:
    """Fields of the spec (else of all) by manager."""
    entries = obj["metadata"].get("managedFields", [])
    return {entry["manager"]: entry["fieldsV1"].get("f:spec", entry["fieldsV1"]) for entry in entries}


def refusal(current: Any, spec: Any = None, **more: Any) -> Any:
    with pytest.raises(ApiError) as caught:
        applied(current, spec, **more)
    return caught.value


def conflicts(current: Any, spec: Any, manager: Any = "bob") -> Any:
    error = refusal(current, spec, manager=manager)
    assert (error.code, error.reason, list(error.details)) == (409, "Conflict", ["causes"])
    return [cause["field"] for cause in error.details["causes"]]


def test_creating_gives_everything_to_the_creator() -> None:
    obj = updated(None, {"a": 1, "taints": [{"key": "k"}], "deep": {}})
    assert obj["metadata"]["managedFields"] == [
        {
            "manager": "kubectl",
            "operation": "Update",
            "apiVersion": VERSION,
            "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:spec": {
                    ".": {},
                    "f:a": {},
                    "f:deep": {},
                    "f:taints": {".": {}, 'k:{"key":"k"}': {".": {}, "f:key": {}}},
                }
            },
        }
    ]


def test_an_update_takes_what_it_changes_and_frees_what_it_removes() -> None:
    obj = updated(None, {"a": 1, "b": "x", "set": ["p", "q"]}, "one")
    obj = updated(obj, {"a": 2, "set": ["q", "r"]}, "two", now=LATER)
    assert owners(obj) == {
        "one": {".": {}, "f:set": {".": {}, 'v:"q"': {}}},
        "two": {"f:a": {}, "f:set": {'v:"r"': {}}},
    }
    assert [entry["time"][-3:] for entry in obj["metadata"]["managedFields"]] == ["00Z", "01Z"]


def test_an_update_of_nothing_changes_no_entry() -> None:
    obj = updated(None, {"a": 1})
    assert updated(obj, {"a": 1}, "other", now=LATER) == obj


def test_an_entry_that_becomes_empty_vanishes() -> None:
    obj = applied(applied(None, {"a": 1}), {"b": "x"}, "bob")
    assert owners(updated(obj, {"a": 2, "b": "x"})) == {"bob": {"f:b": {}}, "kubectl": {"f:a": {}}}


def test_fields_of_the_server_and_of_another_endpoint_have_no_owner() -> None:
    obj = updated(None, {"a": 1}, status={"state": "x"})
    obj["metadata"] |= {"uid": "u", "resourceVersion": "1", "generation": 1, "labels": {"l": "1"}}
    obj = updated(obj, {"a": 1}, "status-writer", subresource="status", status={"state": "y"})
    assert obj["metadata"]["managedFields"][1]["subresource"] == "status"
    assert obj["metadata"]["managedFields"][1]["fieldsV1"] == {"f:status": {"f:state": {}}}
    assert owners(obj)["kubectl"] == {".": {}, "f:a": {}}


@pytest.mark.parametrize("cleared", [[], [{}]])
def test_clearing_stops_tracking_until_the_next_apply(cleared: Any) -> None:
    obj = updated(None, {"a": 1})
    obj["metadata"]["managedFields"] = cleared
    obj = updated(obj, {"a": 1})
    obj = updated(obj, {"a": 2})
    assert owners(obj) == {}
    assert owners(applied(obj, {"b": "x"})) == {"before-first-apply": {".": {}, "f:a": {}}, "alice": {"f:b": {}}}


@pytest.mark.parametrize(
    "config", [None, [{"manager": "x"}], ["x"], [{"operation": "Update", "apiVersion": "v1", "fieldsType": "V2"}]]
)
def test_malformed_managed_fields_are_ignored(config: Any) -> None:
    obj = updated(None, {"a": 1})
    new = copy.deepcopy(obj)
    new["metadata"]["managedFields"] = config
    record_update(new, obj, manager="x", subresource="", api_version=VERSION, shape=SHAPE, now=LATER)
    assert new == obj


def test_a_client_may_rewrite_managed_fields_but_not_through_a_subresource() -> None:
    obj = updated(None, {"a": 1})
    new = copy.deepcopy(obj)
    new["metadata"]["managedFields"][0]["manager"] = "renamed"
    through_status = copy.deepcopy(new)
    for target, subresource in ((new, ""), (through_status, "status")):
        record_update(target, obj, manager="x", subresource=subresource, api_version=VERSION, shape=SHAPE, now=NOW)
    assert list(owners(new)) == ["renamed"]
    assert through_status == obj


def test_the_oldest_updaters_are_merged() -> None:
    obj = updated(None, {"free": {}}, "m00")
    for index in range(1, UPDATERS_MAX + 3):
        free = obj["spec"]["free"] | {f"k{index}": index}
        obj = updated(obj, {"free": free}, f"m{index:02}", now=NOW + timedelta(seconds=index))
    names = [entry["manager"] for entry in obj["metadata"]["managedFields"]]
    assert len(names) == UPDATERS_MAX
    assert names[0] == ANCIENT
    assert owners(obj)[ANCIENT]["f:free"] == {".": {}, "f:k1": {}, "f:k2": {}, "f:k3": {}}


def test_applying_again_changes_nothing() -> None:
    spec = {"a": 1, "set": ["x"], "taints": [{"key": "k", "value": "v"}], "free": {"p": {"q": [1]}}}
    obj = applied(None, spec)
    assert applied(obj, spec, now=LATER) == obj


def test_an_object_that_is_applied_as_it_is_is_made_anew() -> None:
    current = {"metadata": {"name": "t"}, "spec": {"a": 1}}
    assert applied(current, {"a": 1})["spec"] is current["spec"]


def test_fields_keep_the_order_of_the_last_configuration() -> None:
    obj = applied(applied(None, {"a": 1, "b": "x"}), {"b": "y", "a": 1})
    assert list(owners(obj)["alice"]) == ["f:b", "f:a"]


def test_a_value_can_be_shared_but_not_changed() -> None:
    obj = applied(applied(None, {"a": 1, "b": "x"}), {"a": 1}, "bob", now=LATER)
    assert owners(obj) == {"alice": {"f:a": {}, "f:b": {}}, "bob": {"f:a": {}}}
    assert "time" not in obj["metadata"]["managedFields"][0]
    assert conflicts(obj, {"a": 2}, "carol") == [".spec.a", ".spec.a"]


def test_force_takes_ownership() -> None:
    obj = applied(applied(None, {"a": 1, "b": "x"}), {"a": 2}, "bob", force=True)
    assert obj["spec"] == {"a": 2, "b": "x"}
    assert owners(obj) == {"alice": {"f:b": {}}, "bob": {"f:a": {}}}


def test_conflicts_name_the_manager_and_the_field() -> None:
    obj = applied(None, {"a": 1, "taints": [{"key": "k", "value": "v"}]})
    assert conflicts(obj, {"taints": [{"key": "k", "value": "w"}]}) == ['.spec.taints[key="k"].value']
    error = refusal(obj, {"a": 2}, manager="bob")
    assert error.message == 'Apply failed with 1 conflict: conflict with "alice": .spec.a'
    obj = updated(None, {"a": 1, "b": "x"})
    error = refusal(obj, {"a": 2, "b": "y"})
    assert error.message == (
        f'Apply failed with 2 conflicts: conflicts with "kubectl" using {VERSION}:\n- .spec.a\n- .spec.b'
    )


def test_what_is_no_longer_applied_goes_unless_another_owns_it() -> None:
    obj = applied(None, {"a": 1, "b": "x", "deep": {"x": "1", "y": "2"}})
    obj = applied(obj, {"b": "x", "deep": {"y": "2"}}, "bob")
    obj = applied(obj, {"deep": {"x": "1"}})
    assert obj["spec"] == {"b": "x", "deep": {"x": "1", "y": "2"}}
    assert applied(obj)["spec"] == {"b": "x", "deep": {"y": "2"}}
    assert "spec" not in applied(applied(obj), None, "bob")


def test_what_an_updater_added_stays() -> None:
    obj = updated(applied(None, {"set": ["x"], "a": 1}), {"set": ["x", "y"], "a": 1})
    assert applied(obj, {"a": 1})["spec"] == {"set": ["y"], "a": 1}


def test_what_an_updater_added_below_an_item_goes_with_it() -> None:
    obj = applied(None, {"taints": [{"key": "k"}], "free": {"p": {"q": 1}}, "a": 1})
    obj = updated(obj, {"taints": [{"key": "k", "value": "v"}], "free": {"p": {"q": 1, "r": 2}}, "a": 1})
    obj = applied(obj, {"a": 1})
    assert obj["spec"] == {"a": 1}
    assert owners(obj) == {"alice": {"f:a": {}}}


@pytest.mark.parametrize(
    ("live", "config", "order"),
    [
        ("ab", "c", "abc"),
        ("abc", "ca", "bca"),
        ("abc", "cb", "acb"),
        ("ab", "xa", "xab"),
        ("ab", "bx", "abx"),
        ("abcd", "dxb", "acdxb"),
    ],
)
def test_items_merge_in_kubernetes_order(live: Any, config: Any, order: Any) -> None:
    obj = updated(None, {"set": list(live), "taints": [{"key": key} for key in live]})
    obj = applied(obj, {"set": list(config), "taints": [{"key": key} for key in config]})
    assert obj["spec"]["set"] == list(order)
    assert [taint["key"] for taint in obj["spec"]["taints"]] == list(order)


def test_labels_and_finalizers_merge_and_the_name_stays() -> None:
    first = thing({"a": 1})
    first["metadata"] |= {"labels": {"a": "1"}, "finalizers": ["f/a"]}
    options: Any = {"force": False, "subresource": "", "api_version": VERSION, "shape": SHAPE, "now": NOW}
    obj = apply(None, first, manager="alice", **options)
    second = {"apiVersion": VERSION, "kind": "Thing", "metadata": {"labels": {"b": "2"}, "finalizers": ["f/b"]}}
    obj = apply(obj, second, manager="bob", **options)
    obj = apply(obj, {"apiVersion": VERSION, "kind": "Thing"}, manager="alice", **options)
    meta = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    assert meta == {"name": "t", "labels": {"b": "2"}, "finalizers": ["f/b"]}


def test_a_subresource_has_entries_of_its_own() -> None:
    obj = applied(applied(None, {"a": 1}), None, subresource="status", status={"state": "x"})
    entries = obj["metadata"]["managedFields"]
    assert [(entry["manager"], entry.get("subresource")) for entry in entries] == [("alice", None), ("alice", "status")]
    assert entries[1]["fieldsV1"] == {"f:status": {"f:state": {}}}


def test_managed_fields_cannot_be_applied() -> None:
    config = thing({"a": 1})
    config["metadata"]["managedFields"] = []
    with pytest.raises(ApiError) as caught:
        apply(None, config, manager="a", force=False, subresource="", api_version=VERSION, shape=SHAPE, now=NOW)
    assert caught.value.code == 400


@pytest.mark.parametrize(
    "spec",
    [
        {"bogus": 1},
        {"a": "1"},
        {"a": True},
        {"b": 1},
        {"deep": "x"},
        {"vendors": "x"},
        {"vendors": [{}]},
        {"either": {}},
        {"set": ["x", "x"]},
        {"set": [None]},
        {"taints": [{"key": "k"}, {"key": "k"}]},
        {"taints": [{"value": "v"}]},
        {"taints": [{"key": "k", "bogus": 1}]},
    ],
)
def test_a_configuration_that_does_not_fit_is_a_plain_500(spec: Any) -> None:
    error = refusal(None, spec)
    assert (error.code, error.reason, error.details) == (500, "", None)


def test_what_fits_loosely_is_taken() -> None:
    spec = {"either": "x", "when": "2026-01-01T00:00:00Z", "free": {"any": [1, {}]}, "a": 1.5, "b": None}
    assert applied(None, spec)["spec"] == spec


SPECS = st.fixed_dictionaries(
    {},
    optional={
        "a": st.integers(0, 2),
        "b": st.sampled_from("xy"),
        "set": st.lists(st.sampled_from("pqr"), unique=True),
        "deep": st.dictionaries(st.sampled_from("xy"), st.sampled_from("12")),
        "taints": st.lists(st.sampled_from("klm"), unique=True).map(lambda keys: [{"key": key} for key in keys]),
        "free": st.dictionaries(st.sampled_from("xy"), st.none() | st.booleans() | st.integers(0, 1)),
    },
)
STEPS = st.lists(st.tuples(st.sampled_from(["alice", "bob"]), st.booleans(), SPECS), max_size=4)


@given(STEPS, SPECS)
def test_an_apply_holds_and_repeats(steps: Any, spec: Any) -> None:
    obj = thing({})
    for manager, applies, config in steps:
        obj = applied(obj, config, manager, force=True) if applies else updated(obj, config, manager)
    obj = applied(obj, spec, "carol", force=True)
    assert applied(obj, spec, "carol", now=LATER) == obj
    for name in ("a", "b"):
        if name in spec:
            assert obj["spec"][name] == spec[name]
    assert set(spec.get("set", [])) <= set(obj.get("spec", {}).get("set", []))
