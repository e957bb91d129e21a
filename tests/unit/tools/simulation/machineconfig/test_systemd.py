"""The units of a simulated host outlive its simulation, and its journal is bounded."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpuledger.configagent.errors import UnitError
from gpuledger.configagent.host import UnitStatus
from gpuledger.tools.simulation.machineconfig.hosts import MachineFolder
from gpuledger.tools.simulation.machineconfig.systemd import JOURNAL, JOURNAL_LINES_MAX, SimulatedSystemd

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)


def systemd(host: MachineFolder) -> SimulatedSystemd:
    return SimulatedSystemd(host, lambda: NOW)


def status(host: MachineFolder, unit: str) -> UnitStatus:
    return systemd(host).observe([unit])[unit]


def put_unit(host: MachineFolder, name: str, program: str) -> None:
    path = host.root / "etc/systemd/system" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"[Service]\nExecStart={program}\n")


def test_units_are_there_for_the_next_start_and_boot(tmp_path: Path) -> None:
    host = MachineFolder(tmp_path, "n1")
    for action in ("enable", "start"):
        systemd(host).run(action, "chronyd.service")
    assert status(host, "chronyd.service") == UnitStatus("loaded", "active", "enabled", "simple")
    systemd(host).run("start", "sshd.service")
    systemd(host).boot()
    assert status(host, "chronyd.service").active == "active"
    assert status(host, "sshd.service").active == "inactive"
    journal = (host.root / JOURNAL).read_text()
    assert journal.startswith("2026-01-02T12:00:00Z systemd[1]: enable chronyd.service: inactive, enabled\n")
    assert journal.count(" boot\n") == 1


def test_a_failing_unit_is_failed_and_an_error_until_its_file_is_mended(tmp_path: Path) -> None:
    host = MachineFolder(tmp_path, "n1")
    put_unit(host, "job.service", "/bin/false")
    with pytest.raises(UnitError, match=r"^Job for job\.service failed"):
        systemd(host).run("start", "job.service")
    assert status(host, "job.service").active == "failed"
    put_unit(host, "job.service", "/usr/bin/sleep")
    systemd(host).run("restart", "job.service")
    assert status(host, "job.service").active == "active"


def test_which_units_there_are(tmp_path: Path) -> None:
    host = MachineFolder(tmp_path, "n1")
    put_unit(host, "job.service", "/bin/false")
    systemd(host).run("mask", "sshd.service")
    found = systemd(host).observe(["chronyd.service", "job.service", "other.service", "sshd.service", "sshd.socket"])
    assert found == {
        "chronyd.service": UnitStatus("loaded", "inactive", "disabled", "simple"),
        "job.service": UnitStatus("loaded", "inactive", "disabled", "simple"),
        "other.service": UnitStatus("not-found"),
        "sshd.service": UnitStatus("masked", "inactive", "masked"),
        "sshd.socket": UnitStatus("not-found"),
    }


def test_other_verbs_are_in_the_journal_alone(tmp_path: Path) -> None:
    host = MachineFolder(tmp_path, "n1")
    systemd(host).run("daemon-reload")
    assert (host.root / JOURNAL).read_text().endswith(" daemon-reload\n")


def test_the_journal_keeps_its_last_lines(tmp_path: Path) -> None:
    host = MachineFolder(tmp_path, "n1")
    for number in range(2 * JOURNAL_LINES_MAX + 1):
        systemd(host).run("mask", f"u{number}.service") if number % 500 == 0 else systemd(host).boot()
    lines = (host.root / JOURNAL).read_text().splitlines()
    assert len(lines) == JOURNAL_LINES_MAX + 1
    assert lines[-1].endswith("mask u2000.service: inactive, masked")


def test_each_boot_has_an_identity_of_its_own(tmp_path: Path) -> None:
    host = MachineFolder(tmp_path, "n1")
    host.prepare()
    assert host.boot_id == MachineFolder(tmp_path, "n1").boot_id == "n1"
    host.request_reboot()
    assert host.has_reboot_request
    first, second = host.boot(), host.boot()
    assert not host.has_reboot_request
    assert len({"n1", first, second}) == 3
    assert MachineFolder(tmp_path, "n1").boot_id == second
