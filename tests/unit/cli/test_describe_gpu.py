"""The sections of pages about a GPUDevice's preparation and assignment, from the rows of decisions."""

import io

import pytest

from gpuledger.cli.describe.sections import RELEASE, SET_UP, UNDECIDED, Decided, assignment_section, preparation_section
from gpuledger.cli.render import Console
from gpuledger.cli.render.page import Page
from gpuledger.domain.bootstrap.state import PreparedDevice
from gpuledger.domain.inventory.state import GPU_DEVICE, GpuDevice
from gpuledger.domain.pools.pools import Assignment
from gpuledger.tools.queries.rows import row_of
from support.events import START, hour

ROW = GpuDevice("w1-0", "w1", "c", False, 0, "Discovered", START, None, True, START, False, START, False, START)
READY = PreparedDevice("w1-0", "Ready", "Validated", "", hour(1))
FAULTED = PreparedDevice("w1-0", "Faulted", "InfrastructureDegraded", "The driver is missing.", hour(2))
PENDING = Assignment("w1-0", "team/a", "Pending", True, "ApprovedAutomatically", "", hour(3))
NOBODYS = Assignment("w1-0", None, None, False, "AnnotationMismatch", "There is no GPUPool 'x'.", hour(4))


def shown(decided: Decided) -> list[str]:
    page, out = Page(), io.StringIO()
    preparation_section(page, ROW, decided)
    assignment_section(page, decided.assignment)
    page.show(Console(out, io.StringIO()))
    return [" ".join(line.split()) for line in out.getvalue().splitlines()]


def test_a_row_is_made_of_its_columns_by_name() -> None:
    found = dict(reversed(ROW._asdict().items()))
    assert row_of(GPU_DEVICE, found) == ROW


def test_what_nothing_was_decided_of_is_discovered() -> None:
    since = "Since: 2026-01-01T00:00:00Z"
    assert shown(UNDECIDED) == ["Preparation:", "State: Discovered", since, "Assignment: <none>"]


def test_a_fault_and_an_assignment_show_why_and_since_when() -> None:
    assert shown(Decided(FAULTED, PENDING)) == [
        "Preparation:",
        "State: Faulted",
        "Reason: InfrastructureDegraded",
        "Message: The driver is missing.",
        "Since: 2026-01-01T02:00:00Z",
        "Assignment:",
        "Pool: team/a",
        "Phase: Pending",
        "Automatic: true",
        "Reason: ApprovedAutomatically",
        "Since: 2026-01-01T03:00:00Z",
        f"Waits for: {SET_UP}",
    ]


def test_a_device_without_a_pool_shows_why() -> None:
    assert shown(Decided(READY, NOBODYS))[4:] == [
        "Assignment:",
        "Pool: <none>",
        "Reason: AnnotationMismatch",
        "Message: There is no GPUPool 'x'.",
        "Since: 2026-01-01T04:00:00Z",
    ]


@pytest.mark.parametrize(
    ("decided", "phase", "why"),
    [
        (UNDECIDED, None, None),
        (Decided(READY), None, None),
        (Decided(READY, PENDING), "Pending", "ApprovedAutomatically"),
        (Decided(FAULTED, PENDING), "Pending", "InfrastructureDegraded"),
        (Decided(READY, NOBODYS), None, "AnnotationMismatch"),
    ],
)
def test_phase_and_why_on_one_line(decided: Decided, phase: str | None, why: str | None) -> None:
    assert (decided.phase, decided.why) == (phase, why)


def test_a_device_that_leaves_its_pool_shows_what_that_waits_for() -> None:
    leaving = PENDING._replace(phase="Unassigning", reason="Unassigned")
    assert shown(Decided(READY, leaving))[-1] == f"Waits for: {RELEASE}"
    assert shown(Decided(READY, PENDING))[-1] == f"Waits for: {SET_UP}"
    assigned = PENDING._replace(phase="Assigned", reason="ConfirmedByAgent")
    assert not any(line.startswith("Waits for") for line in shown(Decided(READY, assigned)))
