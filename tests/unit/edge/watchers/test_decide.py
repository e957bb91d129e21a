"""What watchers make of objects, and which differences they see: values in, values out."""

import tracemalloc
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.api.labels import ANNOTATION_ASSIGNMENT, ANNOTATION_RETIRED, LABEL_ENABLED, LABEL_IGNORE
from gpuledger.edge.watchers.decide import (
    AnyKind,
    LastRecord,
    NewFact,
    WatchedObjects,
    differences,
    facts_about,
    note,
    subjects_to_compare,
)
from gpuledger.edge.watchers.fields import packed
from gpuledger.edge.watchers.resources import gpudevices, moduleconfig, nodefeatures, nodes
from gpuledger.events.device import DeviceMarked
from gpuledger.events.node import NodeFeaturesGone, NodeFeaturesObserved, NodeGone, NodeObserved, PciDevice
from support.events import START, hour

NODES = nodes.kind(LABEL_ENABLED)
KINDS = (NODES, nodefeatures.KIND, gpudevices.KIND, moduleconfig.KIND)
SECOND = timedelta(seconds=1)


def node(name: str = "w1", uid: str = "u1", **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": uid, "labels": {f"nvidia.com/{key}": value for key, value in labels.items()}}
    }


def feature(
    name: str, *devices: dict[str, str], node_name: str = "w1", version: str | None = None, **labels: str
) -> dict[str, Any]:
    annotations = {"nfd.node.kubernetes.io/worker.version": version} if version else {}
    elements = [{"attributes": device} for device in devices]
    return {
        "metadata": {
            "name": name,
            "namespace": "nfd",
            "labels": {"nfd.node.kubernetes.io/node-name": node_name},
            "annotations": annotations,
        },
        "spec": {
            "labels": {f"nvidia.com/{key}": value for key, value in labels.items()},
            "features": {"instances": {"pci.device": {"elements": elements}}},
        },
    }


def marked(labels: dict[str, str], annotations: dict[str, str], *managed: dict[str, Any]) -> DeviceMarked | None:
    metadata = {"name": "d0", "labels": labels, "annotations": annotations, "managedFields": list(managed)}
    watched = WatchedObjects(gpudevices.KIND, [gpudevices.read({"metadata": metadata, "status": {"state": "Ready"}})])
    payload = watched.payload("d0")
    assert payload is None or isinstance(payload, DeviceMarked)
    return payload


def seen(kind: AnyKind, subject: str, *objects: dict[str, Any]) -> Any:
    return WatchedObjects(kind, map(kind.read, objects)).payload(subject)


def known_of(kind: AnyKind, *facts: NewFact) -> dict[str, LastRecord]:
    recorded: dict[str, LastRecord] = {}
    for fact in facts:
        note(kind, recorded, fact)
    return recorded


def compared(kind: AnyKind, recorded: dict[str, LastRecord], *objects: dict[str, Any]) -> list[NewFact]:
    watched = WatchedObjects(kind, map(kind.read, objects))
    return differences(kind, recorded, watched, subjects_to_compare(recorded, watched), START)


def test_only_a_nodes_labels_about_gpus_and_management_are_relevant() -> None:
    labels = {
        "gpu.deckhouse.io/present": "true",
        "gpu.deckhouse.io/detected": "true",
        "nvidia.com/gpu.product": "A100",
        "nvidia.com/gfd.timestamp": "1",
        "feature.node.kubernetes.io/pci-10de.present": "true",
        "feature.node.kubernetes.io/cpu-cpuid.AVX": "true",
        "kubernetes.io/hostname": "w1",
        "example.com/gpu": "false",
    }
    annotations = {"nfd.node.kubernetes.io/worker.version": "v0.16.1", "other": "x"}
    obj = {"metadata": {"name": "w1", "uid": "u", "labels": labels, "annotations": annotations}, "status": {"x": 1}}
    kept = {
        "gpu.deckhouse.io/present": "true",
        "nvidia.com/gpu.product": "A100",
        "feature.node.kubernetes.io/pci-10de.present": "true",
    }
    assert seen(NODES, "w1", obj) == NodeObserved(uid="u", labels=kept, nfd_version="v0.16.1")
    other = nodes.kind("example.com/gpu")
    assert seen(other, "w1", obj).labels == kept | {"example.com/gpu": "false"}


def test_a_node_feature_lists_gpus_in_their_order() -> None:
    obj = feature(
        "w1",
        {"vendor": "1a03", "device": "2000", "class": "0300"},
        {"vendor": "10de", "device": "20b0", "class": "0302"},
        {"vendor": "10de", "device": "1aef", "class": "0403"},
        {"vendor": "15b3", "device": "1017", "class": "0200"},
        {"vendor": "10de", "device": "20b5", "class": ""},
        version="v0.17.1",
        product="A100",
    )
    assert seen(nodefeatures.KIND, "w1", obj) == NodeFeaturesObserved(
        devices=(
            PciDevice(index=0, pci_vendor="10de", pci_device="20b0", pci_class="0302"),
            PciDevice(index=1, pci_vendor="10de", pci_device="20b5"),
        ),
        labels={"nvidia.com/product": "A100"},
        nfd_version="v0.17.1",
    )


def test_the_node_features_of_a_node_are_one_fact_and_the_last_one_ends_it() -> None:
    gpu = {"vendor": "10de", "device": "20b0", "class": "0302"}
    watched = WatchedObjects(nodefeatures.KIND)
    assert watched.put(nodefeatures.read(feature("b", a="2"))) == ("w1",)
    assert watched.put(nodefeatures.read(feature("a", gpu, version="v0.17.0", a="1"))) == ("w1",)
    both = watched.payload("w1")
    assert isinstance(both, NodeFeaturesObserved)
    assert (len(both.devices), both.labels, both.nfd_version) == (1, {"nvidia.com/a": "2"}, "v0.17.0")
    assert watched.put(nodefeatures.read(feature("a", gpu, node_name="w2"))) == ("w1", "w2")
    assert watched.drop("nfd/b") == ("w1",)
    assert watched.payload("w1") is None
    assert watched.drop("nfd/b") == ()
    assert watched.subjects() == {"w2"}


def test_a_node_feature_without_a_node_is_skipped() -> None:
    obj = feature("a")
    del obj["metadata"]["labels"]
    assert WatchedObjects(nodefeatures.KIND, [nodefeatures.read(obj)]).subjects() == set()


def test_of_a_device_only_what_people_put_on_it_matters() -> None:
    ours = {"gpu.deckhouse.io/product": "a100", "gpu.deckhouse.io/vendor": "x", "gpu.deckhouse.io/precision.fp16": "1"}
    assert marked(ours, {"kubectl.kubernetes.io/last-applied-configuration": "{}"}) is None
    assert marked(ours | {LABEL_IGNORE: "true", "team": "a"}, {ANNOTATION_ASSIGNMENT: "pool", "note": "x"}) == (
        DeviceMarked(labels={LABEL_IGNORE: "true", "team": "a"}, annotations={ANNOTATION_ASSIGNMENT: "pool"})
    )
    assert marked(ours, {ANNOTATION_RETIRED: "true"}) == DeviceMarked(annotations={ANNOTATION_RETIRED: "true"})


def owned(manager: str) -> dict[str, Any]:
    return {"manager": manager, "fieldsV1": {"f:metadata": {"f:annotations": {f"f:{ANNOTATION_ASSIGNMENT}": {}}}}}


@pytest.mark.parametrize(
    ("managers", "is_peoples"),
    [
        ((), True),
        (("kubectl",), True),
        (("gpuledger-auto-approval",), False),
        (("gpuledger", "gpuledger-auto-approval"), False),
        (("gpuledger-auto-approval", "kubectl"), True),
    ],
)
def test_an_assignment_that_we_wrote_ourselves_is_no_fact(managers: tuple[str, ...], is_peoples: bool) -> None:
    assert (marked({}, {ANNOTATION_ASSIGNMENT: "pool"}, *map(owned, managers)) is not None) == is_peoples


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
)
_odd = st.fixed_dictionaries(
    {},
    optional={
        "metadata": _json
        | st.fixed_dictionaries(
            {"name": st.text(max_size=3) | st.just(MODULE_CONFIG)},
            optional={
                "uid": _json,
                "labels": _json | st.just({"nfd.node.kubernetes.io/node-name": "w"}),
                "annotations": _json,
                "managedFields": _json,
            },
        ),
        "spec": _json
        | st.fixed_dictionaries(
            {},
            optional={
                "enabled": _json,
                "settings": st.dictionaries(
                    st.sampled_from(["managedNodes", "deviceApproval", "scheduling", "inventory", "bootstrap"]), _json
                ),
                "labels": _json,
                "features": st.just({"instances": {"pci.device": {"elements": [{"attributes": {"class": 3}}, 1]}}}),
            },
        ),
    },
)


@given(obj=_odd)
def test_any_object_can_be_read(obj: dict[str, Any]) -> None:
    for kind in KINDS:
        watched = WatchedObjects(kind, [kind.read(obj)])
        for subject in watched.subjects():
            watched.payload(subject)


def test_the_content_of_an_object_takes_no_more_memory_than_its_length() -> None:
    tracemalloc.start()
    kept = [packed({"number": number}) for number in range(100)]
    size_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size_bytes < 1024 * len(kept)


def test_a_recorded_fact_is_no_difference() -> None:
    first = compared(NODES, {}, node(product="a"), node("w2", "u2"))
    assert [fact.subject for fact in first] == ["w1", "w2"]
    recorded = known_of(NODES, *first)
    assert compared(NODES, recorded, node(product="a"), node("w2", "u2")) == []
    changed, gone = compared(NODES, recorded, node(product="b"))
    assert isinstance(changed.data, NodeObserved)
    assert gone.data == NodeGone(uid="u2")
    assert compared(NODES, known_of(NODES, *first, changed, gone), node(product="b")) == []


def test_a_node_with_another_uid_is_another_node() -> None:
    recorded = known_of(NODES, *compared(NODES, {}, node()))
    gone, come = compared(NODES, recorded, node(uid="u9"))
    assert (gone.data, come.data) == (NodeGone(uid="u1"), NodeObserved(uid="u9"))
    assert gone.time < come.time


def test_a_node_that_came_back_is_recorded_again() -> None:
    first = compared(NODES, {}, node())
    gone = compared(NODES, known_of(NODES, *first))
    assert [fact.data for fact in compared(NODES, known_of(NODES, *first, *gone), node())] == [NodeObserved(uid="u1")]


@pytest.mark.parametrize("kind", [nodefeatures.KIND, gpudevices.KIND])
def test_a_tombstone_is_recorded_once(kind: AnyKind) -> None:
    obj = feature("a", product="x") if kind is nodefeatures.KIND else {"metadata": {"name": "w1", "labels": {"a": "b"}}}
    first = compared(kind, {}, obj)
    (gone,) = compared(kind, known_of(kind, *first))
    assert gone.data == (NodeFeaturesGone() if kind is nodefeatures.KIND else DeviceMarked())
    assert compared(kind, known_of(kind, *first, gone)) == []


def test_a_clock_that_goes_back_puts_no_fact_before_the_last() -> None:
    recorded = known_of(NODES, NewFact("w1", hour(5), NodeObserved(uid="u1")))
    (fact,) = facts_about(NODES, "w1", recorded["w1"], NodeObserved(uid="u1", nfd_version="1"), hour(1))
    assert hour(5) < fact.time < hour(5) + SECOND
    note(NODES, recorded, fact)
    note(NODES, recorded, NewFact("w1", hour(2), NodeGone()))
    assert recorded["w1"].digest is not None


_states = st.dictionaries(
    st.sampled_from(["w1", "w2", "w3"]), st.tuples(st.sampled_from("uv"), st.sampled_from("abc")), max_size=3
)


@given(states=st.lists(_states, max_size=6))
def test_whatever_was_missed_the_ledger_ends_equal_to_the_objects(states: list[dict[str, tuple[str, str]]]) -> None:
    recorded: dict[str, LastRecord] = {}
    for at, state in enumerate(states):
        objects = [node(name, uid, product=product) for name, (uid, product) in state.items()]
        watched = WatchedObjects(NODES, map(NODES.read, objects))
        facts = differences(NODES, recorded, watched, subjects_to_compare(recorded, watched), hour(-at))
        for fact in facts:
            note(NODES, recorded, fact)
        assert compared(NODES, recorded, *objects) == []
        assert {name for name, last in recorded.items() if last.digest is not None} == set(state)
