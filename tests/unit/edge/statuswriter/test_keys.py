"""What is gone through when one kind was listed: its own objects, and not a whole fleet."""

from collections.abc import Iterator
from typing import Any

import pytest

from gpuledger.edge.kube.crds import node_feature_rule
from gpuledger.edge.statuswriter.desired.state import DesiredState
from gpuledger.edge.statuswriter.objects import Key, Kind
from gpuledger.edge.statuswriter.reconcile.planner import Planner
from support.gpu_states import CARD, CLUSTER_POOL, POOL, desired_state, found, ready

KEYS = {
    Kind.NODE: [Key(Kind.NODE, "w1")],
    Kind.KUBE_NODE: [Key(Kind.KUBE_NODE, "w1")],
    Kind.DEVICE: [Key(Kind.DEVICE, "d1"), Key(Kind.DEVICE, "d2")],
    Kind.POOL: [Key(Kind.POOL, "a", "team")],
    Kind.CLUSTER_POOL: [Key(Kind.CLUSTER_POOL, "c")],
    Kind.RULE: [Key(Kind.RULE, node_feature_rule()["metadata"]["name"])],
    Kind.SLICE: [Key(Kind.SLICE, "gone")],
    Kind.MODULE: [],
    Kind.RENDERED_CONFIG: [Key(Kind.RENDERED_CONFIG, "old")],
    Kind.CONFIG_POOL: [],
}


class Rows(dict[str, Any]):
    """Counts how often all of it is gone through."""

    walks = 0

    def __iter__(self) -> Iterator[str]:
        self.walks += 1
        return super().__iter__()


@pytest.fixture
def state() -> DesiredState:
    state = desired_state(*found("d1", "d2"), ("w1", ready()), (POOL, CARD), (CLUSTER_POOL, CARD))
    state.withdraw(Key(Kind.SLICE, "gone"))
    state.withdraw(Key(Kind.RENDERED_CONFIG, "old"))
    return state


def test_each_kind_has_its_own_objects_and_all_have_all(state: DesiredState) -> None:
    planner = Planner(state, node_feature_rule())
    assert {kind: list(planner.keys(kind)) for kind in KEYS} == KEYS
    assert sorted(planner.keys()) == sorted(key for keys in KEYS.values() for key in keys)


@pytest.mark.parametrize("kind", list(Kind))
def test_only_a_list_of_devices_goes_through_the_devices(state: DesiredState, kind: Kind) -> None:
    devices = state.device.rows = Rows(state.device.rows)
    list(Planner(state, node_feature_rule()).keys(kind))
    assert devices.walks == (kind is Kind.DEVICE)
