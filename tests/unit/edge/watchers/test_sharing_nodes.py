"""What watchers make of Nodes with the label that gives their cards to sharing: values in, values out."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.api.sharing import SharingNames
from gpuledger.edge.watchers.resources.sharing_nodes import kind, read_node
from gpuledger.events.node_sharing import NodeSharingLabelled, NodeSharingUnlabelled
from support.odd_objects import a_map, an_object, texts

NAMES = SharingNames("gpu.example.com")
LABEL, POLICY = "node.gpu.example.com/gpu-sharing", "node.gpu.example.com/gpu-partition-policy"


def node(**labels: str) -> dict[str, Any]:
    return {"metadata": {"name": "n1", "uid": "u1", "labels": labels}}


@pytest.mark.parametrize(("policy", "read"), [(None, None), ("Honor", "Honor"), ("Prefer", "Prefer"), ("honor", None)])
def test_a_labelled_node(policy: str | None, read: Any) -> None:
    part = read_node(NAMES, node(**{LABEL: "enabled"}, **({} if policy is None else {POLICY: policy})))
    assert part.subject == "n1"
    assert kind(NAMES).combine([part.content]) == NodeSharingLabelled(uid="u1", partition_policy=read)
    assert bool(part.problems) == (policy == "honor")


@pytest.mark.parametrize("labels", [{}, {LABEL: "disabled"}, {"node.kooperator/gpu-sharing": "enabled"}])
def test_other_nodes_are_none(labels: dict[str, str]) -> None:
    assert read_node(NAMES, node(**labels)).subject is None


def test_only_labelled_nodes_are_asked_for() -> None:
    assert kind(NAMES).labels == f"{LABEL}=enabled"
    assert kind(NAMES).tombstone_of("u1") == NodeSharingUnlabelled(uid="u1")


@given(an_object(metadata=an_object(name=texts, uid=texts, labels=st.just({LABEL: "enabled"}) | a_map(texts))))
def test_no_object_is_too_odd(obj: Any) -> None:
    part = read_node(NAMES, obj)
    assert part.subject is None or orjson.loads(part.content)["uid"]
