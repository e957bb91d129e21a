"""What gpuledger decided about a GPUDevice is read back from the status that it wrote."""

from typing import Any

import pytest

from gpuledger.domain.bootstrap.state import PreparedDevice
from gpuledger.domain.inventory.state import GpuDevice
from gpuledger.domain.inventory.status import device_status
from gpuledger.domain.pools.pools import Assignment
from gpuledger.tools.present.devices import decisions_of
from support.events import START

ROW = GpuDevice("w1-0", "w1", "c", False, 0, "Discovered", START, None, True, START, False, START, False, START)
READY = PreparedDevice("w1-0", "Ready", "", "", START)
FAULTED = PreparedDevice("w1-0", "Faulted", "Xid", "79", START)


def assignment(phase: str, *, was_assigned: bool = False, pool: str = "team-a/a") -> Assignment:
    return Assignment("w1-0", pool, phase, phase == "Pending", "Reason", "text", START, was_assigned)


@pytest.mark.parametrize("prepared", [READY, FAULTED, PreparedDevice("w1-0", "Validating", "", "", START)])
@pytest.mark.parametrize(
    "held",
    [
        None,
        assignment("Pending"),
        assignment("Assigned"),
        assignment("Assigned", pool="cluster-wide"),
        assignment("Unassigning"),
        assignment("Unassigning", was_assigned=True),
    ],
)
def test_a_status_gives_back_what_it_was_made_of(prepared: PreparedDevice, held: Assignment | None) -> None:
    status = device_status(ROW, prepared, held)
    found = decisions_of({"metadata": {"name": "w1-0"}, "status": status})
    assert found.prepared is not None
    assert found.prepared.state == prepared.state
    assert held is None or found.assignment is not None
    is_hidden = prepared.state != "Ready"  # the state then does not show whether it was assigned before
    assert found.assignment == (held and held._replace(was_assigned=held.was_assigned and not is_hidden))
    if prepared is FAULTED:
        assert found.prepared == FAULTED


@pytest.mark.parametrize(
    "odd", [{}, {"status": 3}, {"status": {"conditions": [3], "poolRef": "x"}}, {"status": {"poolRef": {"name": "a"}}}]
)
def test_a_status_that_nobody_wrote_gives_no_decision(odd: dict[str, Any]) -> None:
    assert decisions_of(odd) == (None, None)
