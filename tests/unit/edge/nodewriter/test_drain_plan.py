"""Which pods leave a node, and when."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.maintenance.drain_modes import SYSTEM_NAMESPACES, mode_of
from gpuledger.edge.nodewriter.drain_plan import (
    MAY_HOLD,
    OF_A_FILE,
    OF_DAEMON_SET,
    UNTOUCHED,
    Leaving,
    leaving,
    staying,
    times_out_at,
)
from gpuledger.events.maintenance import PODS_LISTED_MAX, Drain, OwnedDrain

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
OWN = ("gpuledger", "infra-*")


def pod(name: str = "p", namespace: str = "team", **parts: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", **parts.pop("metadata", {})}
    return {"metadata": metadata, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}, **parts}


def owned(owner: str = "a", since: datetime = NOW, **drain: Any) -> OwnedDrain:
    return OwnedDrain(owner=owner, since=since, drain=Drain.model_validate(drain))


def of(kind: str, *, controller: bool = True) -> dict[str, Any]:
    return {"metadata": {"ownerReferences": [{"kind": kind, "name": "x", "controller": controller}]}}


def patterned(namespaces: str, mode: str) -> dict[str, str]:
    return {"namespaces": namespaces, "mode": mode}


IMMEDIATE = owned(mode="Immediate")
HELD_BY: dict[str, bool | None] = {"holder": True, "other": False, "unclear": None}


def of_device(found: Any, devices: Any) -> bool | None:
    return HELD_BY[found["metadata"]["name"]] if set(devices) == {"GPU-a"} else False


@pytest.mark.parametrize(
    ("found", "leaves"),
    [
        (pod(), True),
        (pod(**of("ReplicaSet")), True),
        (pod(**of("DaemonSet")), False),
        (pod(**of("DaemonSet", controller=False)), True),
        (pod(metadata={"annotations": {"kubernetes.io/config.mirror": "h"}}), False),
        (pod(status={"phase": "Succeeded"}), False),
        (pod(status={"phase": "Failed"}), False),
        (pod(status={"phase": "Pending"}), True),
        (pod(status={}), True),
        (pod(spec={"nodeName": "n2"}), False),
        (pod(spec={}), False),
        (pod(namespace="kube-system"), False),
        (pod(namespace="machine-config-system"), False),
        (pod(namespace="gpuledger"), False),
        (pod(namespace="infra-dns"), False),
        (pod(namespace="infra"), True),
    ],
)
def test_these_pods_leave(found: dict[str, Any], leaves: bool) -> None:
    assert bool(leaving([found], "n1", [IMMEDIATE], OWN)) == leaves


@pytest.mark.parametrize(
    ("drains", "after_s"),
    [
        ([owned(mode="Immediate")], 0),
        ([owned(mode="AllowCompletion")], None),
        ([owned(mode="DeleteAfterTimeout", timeout_s=60)], 60),
        ([owned(mode="AllowCompletion"), owned("b", mode="DeleteAfterTimeout", timeout_s=60)], 60),
        ([owned(mode="DeleteAfterTimeout", timeout_s=60), owned("b", mode="DeleteAfterTimeout", timeout_s=30)], 30),
        ([owned(mode="DeleteAfterTimeout", timeout_s=60), owned("b", mode="Immediate")], 0),
        ([owned(mode="Immediate", namespaces=[patterned("te*", "AllowCompletion")])], None),
        ([owned(namespaces=[patterned("other", "Immediate")])], None),
        ([owned(namespaces=[patterned("t*", "Immediate"), patterned("team", "AllowCompletion")])], 0),
    ],
)
def test_the_earliest_eviction_of_all_owners_holds(drains: list[OwnedDrain], after_s: int | None) -> None:
    expected = None if after_s is None else NOW + timedelta(seconds=after_s)
    for order in (drains, drains[::-1]):
        (found,) = leaving([pod()], "n1", order, ())
        assert found._replace(delete_at=None) == Leaving("team", "p", "uid-p", expected, False)


@pytest.mark.parametrize(
    ("drains", "after_s"),
    [
        ([owned(mode="Immediate", timeout_s=60)], None),
        ([owned(mode="AllowCompletion", timeout_s=60)], None),
        ([owned(mode="DeleteAfterTimeout", timeout_s=60)], 120),
        ([owned(mode="DeleteAfterTimeout", timeout_s=60), owned("b", mode="Immediate")], 120),
        ([owned(mode="DeleteAfterTimeout", timeout_s=60), owned("b", mode="DeleteAfterTimeout", timeout_s=30)], 60),
        ([owned(mode="Immediate", namespaces=[patterned("te*", "DeleteAfterTimeout")], timeout_s=5)], 10),
        ([owned(mode="DeleteAfterTimeout", namespaces=[patterned("te*", "Immediate")], timeout_s=5)], None),
    ],
)
def test_a_pod_is_deleted_in_one_mode_alone(drains: list[OwnedDrain], after_s: int | None) -> None:
    expected = None if after_s is None else NOW + timedelta(seconds=after_s)
    for order in (drains, drains[::-1]):
        assert [one.delete_at for one in leaving([pod()], "n1", order, ())] == [expected]


def test_pods_of_untouched_namespaces_stay_and_are_shown() -> None:
    found = [pod("b", "gpuledger"), pod("a", "gpuledger"), pod("c"), pod("d", "gpuledger", **of("DaemonSet"))]
    assert [(one.pod, one.state) for one in staying(found, "n1", [IMMEDIATE], OWN)] == [
        ("a", UNTOUCHED),
        ("b", UNTOUCHED),
    ]
    many = [pod(f"p{number}", "gpuledger") for number in range(40)]
    assert len(staying(many, "n1", [IMMEDIATE], OWN)) == PODS_LISTED_MAX


GPU: dict[str, Any] = {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
ON_N1: dict[str, Any] = {"spec": {"nodeName": "n1", **GPU}}


@pytest.mark.parametrize(
    ("found", "drain", "state"),
    [
        (pod("p", **ON_N1, **of("DaemonSet")), IMMEDIATE, OF_DAEMON_SET),
        (pod("p", "kube-system", **ON_N1, **of("DaemonSet")), IMMEDIATE, OF_DAEMON_SET),
        (pod("p", **of("DaemonSet")), IMMEDIATE, None),
        (pod("p", **ON_N1), IMMEDIATE, None),
        (pod("p", **ON_N1, **of("DaemonSet"), status={"phase": "Failed"}), IMMEDIATE, None),
        (pod("p", **ON_N1, metadata={"annotations": {"kubernetes.io/config.mirror": "h"}}), IMMEDIATE, OF_A_FILE),
        (pod("holder", **of("DaemonSet")), owned(devices=["GPU-a"]), OF_DAEMON_SET),
        (pod("unclear", **of("DaemonSet")), owned(devices=["GPU-a"]), MAY_HOLD),
        (pod("other", **ON_N1, **of("DaemonSet")), owned(devices=["GPU-a"]), None),
    ],
)
def test_a_pod_that_comes_back_and_holds_a_drained_device_is_shown(
    found: dict[str, Any], drain: OwnedDrain, state: str | None
) -> None:
    shown = staying([found], "n1", [drain], OWN, of_device)
    assert [one.state for one in shown] == ([] if state is None else [state])
    assert [one.uid for one in leaving([found], "n1", [drain], OWN, of_device) if state] == []


@pytest.mark.parametrize(
    ("drains", "expected"),
    [
        ([owned(mode="Immediate", devices=["GPU-a"])], {"holder": False, "unclear": True}),
        ([owned(mode="Immediate", devices=["GPU-b"])], {}),
        ([owned(devices=["GPU-a"]), owned("b")], {"holder": False, "other": False, "unclear": False}),
    ],
)
def test_of_a_device_those_leave_who_hold_it_and_who_may_is_shown(
    drains: list[OwnedDrain], expected: dict[str, bool]
) -> None:
    for order in (drains, drains[::-1]):
        found = leaving([pod(name) for name in HELD_BY], "n1", order, (), of_device)
        assert {one.pod: one.is_unclear for one in found} == expected
        assert all(one.evict_at is None for one in found if one.is_unclear)


def test_what_a_pod_waits_for_by_its_device_weakens_no_drain_of_its_node() -> None:
    drains = [owned(devices=["GPU-a"]), owned("b", mode="Immediate")]
    assert {one.evict_at for one in leaving([pod(name) for name in HELD_BY], "n1", drains, (), of_device)} == {NOW}


def test_a_pod_that_terminates_is_left_until_it_is_gone() -> None:
    going = pod(metadata={"deletionTimestamp": "2026-01-02T03:04:05Z"})
    assert [one.is_terminating for one in leaving([going], "n1", [IMMEDIATE], ())] == [True]


def test_pods_that_were_evicted_after_a_time_out_get_the_same_time_to_go() -> None:
    assert times_out_at([owned(timeout_s=60)]) == NOW + timedelta(seconds=60)
    assert times_out_at([owned(timeout_s=60, mode="DeleteAfterTimeout")]) == NOW + timedelta(seconds=120)
    both = [owned(timeout_s=60), owned("b", timeout_s=90)]
    assert times_out_at(both) == NOW + timedelta(seconds=90)


@pytest.mark.parametrize(("begun_s", "deleted_s"), [(0, 120), (30, 120), (60, 120), (90, 150), (1000, 1060)])
def test_a_budget_has_its_time_from_when_the_drain_began(begun_s: int, deleted_s: int) -> None:
    drains = [owned(mode="DeleteAfterTimeout", timeout_s=60)]
    begun = {"a": NOW + timedelta(seconds=begun_s)}
    (found,) = leaving([pod()], "n1", drains, (), begun=begun)
    assert found.evict_at == NOW + timedelta(seconds=60)
    assert found.delete_at == times_out_at(drains, begun) == NOW + timedelta(seconds=deleted_s)


MIRROR_POD = {"metadata": {"annotations": {"kubernetes.io/config.mirror": ""}}}
modes = st.sampled_from(["Immediate", "AllowCompletion", "DeleteAfterTimeout"])
namespaces = st.sampled_from([*SYSTEM_NAMESPACES, *OWN, "infra-1", "team", "other"])
drains = st.lists(
    st.builds(
        lambda mode, pattern, other, timeout_s, after_s: owned(
            since=NOW + timedelta(seconds=after_s), mode=mode, timeout_s=timeout_s,
            namespaces=[patterned(pattern, other)],
        ),
        modes, namespaces, modes, st.integers(1, 100), st.integers(0, 50),
    ), min_size=1, max_size=4,
)  # fmt: skip
pods = st.builds(
    lambda number, namespace, parts: pod(f"p{number}", namespace, **parts),
    st.integers(0, 9),
    namespaces,
    st.sampled_from([{}, of("DaemonSet"), of("Job"), MIRROR_POD]),
)


@given(st.lists(pods, max_size=8), drains)
def test_nothing_untouched_ever_leaves_and_more_owners_only_evict_earlier(
    found: list[dict[str, Any]], wishes: list[OwnedDrain]
) -> None:
    left = leaving(found, "n1", wishes, OWN)
    assert all(one.namespace in ("team", "other") for one in left)
    metadata = [one["metadata"] for one in found]
    kinds = [{owner["kind"] for owner in one.get("ownerReferences", ())} for one in metadata]
    spared = ["annotations" in one or "DaemonSet" in kind for one, kind in zip(metadata, kinds, strict=True)]
    open_to_it = [one["namespace"] in ("team", "other") for one in metadata]
    assert len(left) == sum(here and not is_spared for here, is_spared in zip(open_to_it, spared, strict=True))
    assert left == leaving(found, "n1", wishes[::-1], OWN)
    fewer = leaving(found, "n1", wishes[:1], OWN)
    for all_of_them, first in zip(left, fewer, strict=True):
        assert first.evict_at is None or (all_of_them.evict_at is not None and all_of_them.evict_at <= first.evict_at)
        if all_of_them.evict_at is None:
            assert {mode_of(one.drain, all_of_them.namespace) for one in wishes} == {"AllowCompletion"}
