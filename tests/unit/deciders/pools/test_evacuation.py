"""Pods leave a device that leaves its pool, where its label says so, by the maintenance of its node."""

from typing import Any

import pytest

from gpuledger.api.labels import LABEL_EVACUATE
from gpuledger.events.device import DeviceAssignmentChanged, DeviceWithdrawn, Evacuation
from gpuledger.events.envelope import Decoded
from gpuledger.events.maintenance import NodeDrainChanged, NodeIsolationChanged
from support.maintenance import MaintenanceLog, observed, released
from support.pools import A100, PoolsLog, described, marked, pool
from support.pools import released as released_by_agent

MARK = {LABEL_EVACUATE: "Immediate"}


def held(uuid: str | None = "GPU-a", **labels: Any) -> PoolsLog:
    """A device that a pool has."""
    world = PoolsLog().begin("n1", devices=1)
    world.record("ns/p", pool())
    world.record("n1-0", described(A100.model_copy(update={"uuid": uuid})))
    world.assign("n1-0", "ns/p")
    world.record("n1-0", marked("p", **labels))
    return world


def step(decided: list[Decoded]) -> DeviceAssignmentChanged:
    (found,) = (one.data for one in decided if isinstance(one.data, DeviceAssignmentChanged))
    return found


def test_the_label_says_in_which_mode_pods_leave() -> None:
    world = held(**MARK)
    left = step(world.record("n1-0", marked(**MARK)))
    assert (left.phase, left.evacuation) == ("Unassigning", Evacuation(node="n1", device="GPU-a", mode="Immediate"))
    assert step(world.record("n1-0", released_by_agent("ns/p"))).evacuation is None


@pytest.mark.parametrize(("label", "problem"), [(None, ""), ("now", "is none of Immediate, DeleteAfterTimeout")])
def test_without_a_mode_pods_end_by_themselves(label: str | None, problem: str) -> None:
    labels = {} if label is None else {LABEL_EVACUATE: label}
    left = step(held(**labels).record("n1-0", marked(**labels)))
    assert (left.phase, left.evacuation, problem in left.message) == ("Unassigning", None, True)


def test_a_device_whose_uuid_is_unknown_cannot_be_evacuated() -> None:
    left = step(held(None, **MARK).record("n1-0", marked(**MARK)))
    assert (left.evacuation, "needs a UUID" in left.message) == (None, True)


LEAVES = DeviceAssignmentChanged(
    pool="ns/p", phase="Unassigning", reason="NotAskedFor",
    evacuation=Evacuation(node="n1", device="GPU-a", mode="Immediate"),
)  # fmt: skip
IS_FREE = DeviceAssignmentChanged(reason="NotAskedFor")


def drained(decided: list[Decoded]) -> list[list[tuple[str, tuple[str, ...]]]]:
    """What each intent that was decided drains, and for whom."""
    data = [one.data for one in decided if isinstance(one.data, NodeDrainChanged)]
    return [[(one.owner, one.drain.devices) for one in change.drains] for change in data]


def test_maintenance_drains_the_device_until_its_next_assignment() -> None:
    log = MaintenanceLog()
    log.record("n1", observed(), 0)
    decided = log.record("n1-0", LEAVES, 1)
    assert drained(decided) == [[("pools/n1-0", ("GPU-a",))]]
    assert not [one for one in decided if isinstance(one.data, NodeIsolationChanged)]
    assert drained(log.record("n1-1", IS_FREE, 2)) == [], "another device"
    assert drained(log.record("n1-0", IS_FREE, 3)) == [[]]
    assert drained(log.record("n1-0", IS_FREE, 4)) == []


@pytest.mark.parametrize(
    ("subject", "data"), [("n1-0", DeviceWithdrawn(reason="Retired")), ("n1", released("pools/n1-0"))]
)
def test_it_ends_with_the_device_and_when_a_person_releases_it(subject: str, data: Any) -> None:
    log = MaintenanceLog()
    log.record("n1", observed(), 0)
    log.record("n1-0", LEAVES, 1)
    assert drained(log.record(subject, data, 2)) == [[]]
    assert drained(log.record("n1-0", IS_FREE, 3)) == []


def test_what_was_imported_evicts_nobody() -> None:
    log = MaintenanceLog()
    log.record("n1", observed(), 0)
    assert log.record("n1-0", LEAVES, 1, imported=True) == []
