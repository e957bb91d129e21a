"""Who held what of shared devices agrees with a fold of what had happened by then, and use with who holds what."""

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.sharing.node_states import NodeStates
from gpuledger.domain.sharing.rows import NO_ALLOCATION, SharedAllocation, SharedDeviceUse
from gpuledger.domain.sharing.state import Sharing
from gpuledger.domain.sharing.texts import allocation_of
from gpuledger.events.envelope import Decoded
from gpuledger.events.sharing import Allocation
from gpuledger.projection.fold import Fold
from gpuledger.readmodels.projections import SharesProjection
from support.events import RecordedFact, folded, hour, log_of, numbered, rows_of
from support.sharing import (
    TYPES,
    bound,
    gone,
    gpu,
    observed,
    of_gpus,
    released,
    reserved,
    share,
    shared,
    sharings,
    story,
)

Held = set[tuple[str, str, int, int]]
"""Pod, node, minor, and the percentage of its cores."""

POD = "ml/a"


def fold_of(events: Sequence[Decoded]) -> Fold:
    return folded(SharesProjection(), log_of(events), types=TYPES)


def held_at(fold: Fold, at: float) -> Held:
    rows = fold.state.tables()["shared_allocation"].rows.values()
    held = [one for one in rows if one.valid_from <= hour(at) and (one.valid_to is None or one.valid_to > hour(at))]
    return {(one.uid, one.node, one.minor, one.core) for one in held}


def held_now(fold: Fold) -> Held:
    found: Held = set()
    for row in fold.state.tables()["shared_pod"].rows.values():
        for one in allocation_of(row.allocation).get("gpu", ()):
            found.add((row.uid, row.node, one.minor, one.resources["gpu-core"]))
    return found


@given(recorded=sharings, at=st.integers(-1, 10))
def test_what_pods_held_is_what_a_fold_of_all_before_has(recorded: list[RecordedFact], at: int) -> None:
    events = numbered(recorded)
    by_then = sorted((one for one in events if one.time <= hour(at)), key=lambda one: one.time)
    assert held_at(fold_of(events), at) == held_now(fold_of(by_then))


@given(recorded=sharings)
def test_ranges_of_a_pod_and_device_neither_overlap_nor_touch_with_the_same_amounts(
    recorded: list[RecordedFact],
) -> None:
    rows = fold_of(numbered(recorded)).state.tables()["shared_allocation"].rows.values()
    by_device: dict[tuple[object, ...], list[SharedAllocation]] = {}
    for row in rows:
        by_device.setdefault((row.uid, row.node, row.type, row.minor), []).append(row)
    for ones in by_device.values():
        ones.sort(key=lambda one: one.valid_from)
        for one, following in pairwise(ones):
            assert one.valid_to is not None
            assert one.valid_to <= following.valid_from
            assert one.valid_to < following.valid_from or (one.core, one.id) != (following.core, following.id)
        assert all(one.valid_to is None or one.valid_from < one.valid_to for one in ones)


@given(recorded=sharings)
def test_devices_are_used_as_pods_hold_them(recorded: list[RecordedFact]) -> None:
    fold = fold_of(numbered(recorded))
    assert isinstance(fold.state, Sharing)
    pods = {one.uid: one.pod for one in fold.state.tables()["shared_pod"].rows.values()}
    expected = {}
    states = NodeStates(fold.state)
    for name, node in states.nodes.items():
        for minor, device in node.devices.get("gpu", {}).items():
            on = [uid for uid, one in node.holders.items() if minor in {of.minor for of in one["gpu"]}]
            used = sum(of.resources["gpu-core"] for uid in on for of in node.holders[uid]["gpu"] if of.minor == minor)
            names = sorted(uid if states.has_without_allocation(name, uid) else pods[uid] for uid in on)
            expected[name, "gpu", minor] = (device.healthy, used, ",".join(names))
    found = fold.state.tables()["shared_device"].rows
    assert {key: (one.healthy, one.core_used, one.holders) for key, one in found.items()} == expected


def test_the_story_of_a_pod_in_the_past() -> None:
    seen = observed(node="n1", allocation=of_gpus(share(0, 25)))
    events = story(
        ("n1", 0, shared(gpu(0), gpu(1))),
        (POD, 1, observed()),
        (POD, 2, reserved()),
        (POD, 3, released()),
        (POD, 4, reserved("u1", share(1))),
        (POD, 5, bound()),
        (POD, 6, seen),
        (POD, 9, gone()),
    )
    fold = fold_of(events)
    held = [held_at(fold, at) for at in (1, 2, 3, 4, 5, 6, 8.9, 9)]
    assert held == [
        set(),
        {("u1", "n1", 0, 50)},
        set(),
        {("u1", "n1", 1, 50)},
        {("u1", "n1", 1, 50)},
        {("u1", "n1", 0, 25)},
        {("u1", "n1", 0, 25)},
        set(),
    ]
    assert all(one.over_at == hour(9) for one in fold.state.tables()["shared_allocation"].rows.values())
    (pod,) = fold.state.tables()["shared_pod"].rows.values()
    assert (pod.state, pod.allocation) == ("gone", NO_ALLOCATION)


def test_other_devices_are_used_in_percent_of_themselves() -> None:
    nic = gpu(3).model_copy(update={"type": "rdma", "id": "0000:09:00.0", "resources": {"rdma": 100}})
    held: Allocation = {"rdma": (share(3).model_copy(update={"resources": {"rdma": 1}, "id": "0000:09:00.0"}),)}
    fold = fold_of(story(("n1", 0, shared(gpu(0), nic)), (POD, 1, observed(node="n1", allocation=held))))
    devices = fold.state.tables()["shared_device"].rows
    assert devices["n1", "rdma", 3] == SharedDeviceUse(
        "n1", "rdma", 3, "0000:09:00.0", None, True, None, None, None, None, 100, 1, 1, POD
    )
    assert devices["n1", "gpu", 0].model == "H100"


def test_a_fold_that_was_stored_and_loaded_goes_on_alike() -> None:
    events = story(
        ("n1", 0, shared(gpu(0))), (POD, 1, reserved()), ("ml/b", 2, reserved("u3", share(0, 25))), (POD, 3, gone())
    )
    whole, begun = fold_of(events), fold_of(events[:2])
    continued = fold_of([])
    for name, table in continued.state.tables().items():
        table.load(begun.state.tables()[name].rows.values())
    for number, one in enumerate(events[2:], 3):
        continued.apply_all(log_of([one], number))
    assert rows_of(continued, positions=False) == rows_of(whole, positions=False)
