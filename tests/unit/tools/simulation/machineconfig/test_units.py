"""The systemd of simulated nodes refuses what a real one refuses, and units fail whose programs do."""

import pytest

from gpuledger.configagent.errors import UnitError
from gpuledger.tools.simulation.machineconfig.units import UnitState, after, booted

OF_IMAGE, OF_HOST = "chronyd.service", "job.service"
WORKS = "[Service]\nExecStart=-/usr/bin/sleep 5\n"
FAILS = "[Service]\nExecStart=/bin/false\n"
LACKS = "[Service]\nExecStart = /opt/none/run --now\n"


@pytest.mark.parametrize(
    ("action", "before", "state"),
    [
        ("enable", UnitState(), UnitState(enabled=True)),
        ("disable", UnitState(enabled=True, active="active"), UnitState(active="active")),
        ("start", UnitState(), UnitState(active="active")),
        ("restart", UnitState(active="failed"), UnitState(active="active")),
        ("stop", UnitState(active="active"), UnitState()),
        ("stop", UnitState(active="active", masked=True), UnitState(masked=True)),
        ("reload", UnitState(active="active"), UnitState(active="active")),
        ("mask", UnitState(active="active"), UnitState(active="active", masked=True)),
        ("unmask", UnitState(masked=True), UnitState()),
    ],
)
def test_what_becomes_of_a_unit(action: str, before: UnitState, state: UnitState) -> None:
    assert after(action, OF_IMAGE, before, None) == state
    assert after(action, OF_HOST, before, WORKS) == state


@pytest.mark.parametrize(
    ("action", "unit", "before", "message"),
    [
        ("start", OF_HOST, UnitState(), "Failed to start job.service: Unit job.service not found."),
        ("enable", OF_HOST, UnitState(), "Failed to enable job.service: Unit job.service not found."),
        ("start", OF_IMAGE, UnitState(masked=True), "Failed to start chronyd.service: Unit chronyd.service is masked."),
        ("reload", OF_IMAGE, UnitState(), "chronyd.service is not active, cannot reload."),
    ],
)
def test_what_systemd_refuses(action: str, unit: str, before: UnitState, message: str) -> None:
    with pytest.raises(UnitError) as caught:
        after(action, unit, before, None)
    assert str(caught.value) == message


@pytest.mark.parametrize("file", [FAILS, LACKS])
def test_a_unit_fails_whose_program_does(file: str) -> None:
    assert after("start", OF_HOST, UnitState(), file).active == "failed"


def test_a_one_shot_is_over_once_it_has_run() -> None:
    over, stays = f"{WORKS}Type=oneshot\n", f"{WORKS}Type=oneshot\nRemainAfterExit=yes\n"
    assert [after("start", OF_HOST, UnitState(), file).active for file in (over, stays)] == ["inactive", "active"]


def test_a_boot_starts_what_is_enabled() -> None:
    running = UnitState(enabled=True, active="active")
    assert booted(OF_IMAGE, running, None) == running
    assert booted(OF_IMAGE, UnitState(active="active"), None) == UnitState()
    assert booted(OF_HOST, running, FAILS) == running._replace(active="failed")
    assert booted(OF_HOST, running, None) == running._replace(active="inactive"), "its file is gone"
    assert booted(OF_IMAGE, running._replace(masked=True), None).active == "inactive"
