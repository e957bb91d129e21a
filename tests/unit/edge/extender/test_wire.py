"""What kube-scheduler sends, in the form that Go gives it, and the answers in the form that Go reads."""

from typing import Any

import pytest

from gpuledger.edge.extender.errors import ArgumentsError
from gpuledger.edge.extender.wire import (
    BindingArgs,
    FilterResult,
    Victims,
    binding_document,
    filter_document,
    filter_error,
    preemption_document,
    priorities_document,
    read_args,
    read_binding,
    read_preemption,
)

POD = {"metadata": {"name": "p", "namespace": "default", "uid": "u"}}
NODES = [{"metadata": {"name": name, "labels": {"zone": name}}} for name in ("n1", "n2")]


@pytest.mark.parametrize(
    ("document", "names", "nodes"),
    [
        ({"Pod": POD, "Nodes": None, "NodeNames": ["n1", "n2"]}, ("n1", "n2"), None),
        ({"Pod": POD, "NodeNames": []}, (), None),
        ({"Pod": POD, "Nodes": {"metadata": {}, "items": NODES}, "NodeNames": None}, ("n1", "n2"), tuple(NODES)),
        ({"Pod": POD, "Nodes": {"metadata": {}, "items": None}, "NodeNames": None}, (), ()),
        ({"Pod": POD, "Nodes": None, "NodeNames": None}, (), ()),
    ],
)
def test_arguments_name_nodes_or_have_them(
    document: Any, names: tuple[str, ...], nodes: tuple[Any, ...] | None
) -> None:
    args = read_args(document)
    assert (args.pod, args.names, args.nodes) == (POD, names, nodes)


@pytest.mark.parametrize("document", [None, [], 7, {}, {"Pod": None}, {"pod": POD, "NodeNames": []}, {"Pod": "p"}])
def test_what_has_no_pod_is_refused(document: Any) -> None:
    with pytest.raises(ArgumentsError, match="no Pod"):
        read_args(document)
    with pytest.raises(ArgumentsError, match="no Pod"):
        read_preemption(document)


def test_names_are_answered_with_names_and_nodes_with_nodes() -> None:
    result = FilterResult(["n2"], {"n1": "full"}, {"n3": "none"})
    by_name = filter_document(read_args({"Pod": POD, "NodeNames": ["n1", "n2", "n3"]}), result)
    assert by_name == {
        "Nodes": None, "NodeNames": ["n2"], "FailedNodes": {"n1": "full"}, "FailedAndUnresolvableNodes": {"n3": "none"},
        "Error": "",
    }  # fmt: skip
    by_node = filter_document(read_args({"Pod": POD, "Nodes": {"items": NODES}}), result)
    assert by_node["Nodes"] == {"metadata": {}, "items": [NODES[1]]}
    assert by_node["NodeNames"] is None
    assert filter_error("no")["Error"] == "no"
    assert filter_error("no").keys() == by_name.keys()


def test_priorities_and_bindings_have_the_names_of_go_fields() -> None:
    assert priorities_document([("n1", 10), ("n2", 0)]) == [{"Host": "n1", "Score": 10}, {"Host": "n2", "Score": 0}]
    assert binding_document() == {"Error": ""}
    assert binding_document("full") == {"Error": "full"}
    binding = {"PodName": "p", "PodNamespace": "default", "PodUID": "u", "Node": "n1"}
    assert read_binding(binding) == BindingArgs("default", "p", "u", "n1")
    assert read_binding(binding).pod == "default/p"


@pytest.mark.parametrize("missing", ["PodName", "PodNamespace", "PodUID", "Node"])
def test_a_binding_without_one_of_its_names_is_refused(missing: str) -> None:
    binding: dict[str, Any] = {"PodName": "p", "PodNamespace": "default", "PodUID": "u", "Node": "n1"}
    for value in (None, "", 7):
        with pytest.raises(ArgumentsError, match="ExtenderBindingArgs"):
            read_binding(binding | {missing: value})


def test_victims_come_as_pods_or_as_uids_and_go_as_uids() -> None:
    whole = {"n1": {"Pods": [POD, None], "NumPDBViolations": 2}, "n3": None}
    meta = {"n2": {"Pods": [{"UID": "v"}, {"UID": ""}], "NumPDBViolations": None}}
    found = read_preemption({"Pod": POD, "NodeNameToVictims": whole, "NodeNameToMetaVictims": meta}).victims
    assert found == {"n1": Victims(("u",), 2), "n2": Victims(("v",)), "n3": Victims(())}
    assert preemption_document({"n1": found["n1"]}) == {
        "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "u"}], "NumPDBViolations": 2}}
    }
