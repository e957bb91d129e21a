"""A configuration with units before a real systemd: what it enables, masks, starts, restarts and stops, and once."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from gpuledger.configagent.apply import Applied, apply
from gpuledger.configagent.host import Host, UnitStatus
from gpuledger.configagent.memory_file import MemoryFile
from gpuledger.configagent.systemctl import Systemctl
from gpuledger.domain.machineconfig.desired import DesiredConfig
from support.config_agent import config, file, unit
from support.real_systemd import RealSystemd, real_systemd

FOLDER: Final = "/etc/systemd/system"
SERVICE: Final = "[Unit]\nDefaultDependencies=no\n[Service]\nExecStart=/bin/sleep {}\nExecReload=/bin/true\n"
INSTALL: Final = "[Install]\nWantedBy=multi-user.target\n"
A, B = "gltest-a.service", "gltest-b.service"


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[RealSystemd]:
    with real_systemd(tmp_path / "root") as systemd:
        yield systemd


class Machine:
    """The host of that systemd."""

    def __init__(self, systemd: RealSystemd, state: Path) -> None:
        self.systemd = systemd
        self.systemctl = Systemctl(systemd.command)
        self.host = Host(systemd.root, state, self.systemctl, lambda: None, lambda: "boot-0")

    def apply(self, desired: DesiredConfig) -> Applied:
        return apply(self.host, desired, MemoryFile(self.host.state_dir).load())

    def status(self, name: str) -> UnitStatus:
        return self.systemctl.observe({name})[name]

    def pid(self, name: str) -> str:
        command = (*self.systemd.command, "show", "--value", "--property=MainPID", name)
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def changed(done: Applied) -> list[str]:
    assert done.error is None
    return [f"{one.step.action} {one.step.subject}" for one in done.outcomes if one.outcome == "changed"]


def test_units_come_and_go_with_their_files(systemd: RealSystemd, tmp_path: Path) -> None:
    machine = Machine(systemd, tmp_path / "state")
    first = config(
        [file(f"{FOLDER}/{A}", SERVICE.format(600) + INSTALL), file(f"{FOLDER}/{B}", SERVICE.format(601) + INSTALL)],
        [unit(A, "started", enabled=True), unit(B, "restarted")],
    )
    assert changed(machine.apply(first))[2:] == [
        "daemon-reload systemd", f"enable {A}", f"start {A}", f"restart {B}",
    ]  # fmt: skip
    assert machine.status(A) == UnitStatus("loaded", "active", "enabled", "simple")
    assert machine.status(B) == UnitStatus("loaded", "active", "disabled", "simple")
    pids = machine.pid(A), machine.pid(B)
    assert changed(machine.apply(first)) == []
    assert (machine.pid(A), machine.pid(B)) == pids

    second = config(
        [file(f"{FOLDER}/{A}", SERVICE.format(602) + INSTALL), file(f"{FOLDER}/{B}", SERVICE.format(601) + INSTALL)],
        [unit(A, "restarted", enabled=False), unit(B, "reloaded")],
    )
    assert changed(machine.apply(second)) == [
        f"write {FOLDER}/{A}", "daemon-reload systemd", f"disable {A}", f"restart {A}", f"reload-or-restart {B}",
    ]  # fmt: skip
    assert machine.status(A) == UnitStatus("loaded", "active", "disabled", "simple")
    assert machine.pid(A) != pids[0]
    assert machine.pid(B) == pids[1]
    assert changed(machine.apply(second)) == []

    stopping = config(second.files, [unit(A, "stopped"), unit(B, "stopped")])
    assert changed(machine.apply(stopping)) == [f"stop {A}", f"stop {B}"]
    assert {machine.status(name).active for name in (A, B)} <= {"inactive", "failed"}
    assert changed(machine.apply(config())) == [
        f"remove {FOLDER}/{A}", f"remove {FOLDER}/{B}", "daemon-reload systemd",
    ]  # fmt: skip
    assert machine.status(A).load == "not-found"


def test_what_is_masked_is_unmasked_when_it_leaves(systemd: RealSystemd, tmp_path: Path) -> None:
    machine = Machine(systemd, tmp_path / "state")
    vendor = systemd.root / "run/systemd/system" / A
    vendor.write_text(SERVICE.format(600))
    machine.systemctl.run("daemon-reload")
    machine.systemctl.run("start", A)
    masking = config(units=[unit(A, "stopped", mask=True)])
    assert changed(machine.apply(masking)) == [f"mask {A}", f"stop {A}"]
    assert machine.status(A)[:3] == ("masked", "inactive", "masked")
    assert changed(machine.apply(masking)) == []
    assert changed(machine.apply(config())) == [f"unmask {A}"]
    assert machine.status(A).load == "loaded"


def test_a_unit_that_does_not_start_is_named(systemd: RealSystemd, tmp_path: Path) -> None:
    machine = Machine(systemd, tmp_path / "state")
    broken = "[Unit]\nDefaultDependencies=no\n[Service]\nType=oneshot\nExecStart=/bin/false\n"
    done = machine.apply(config([file(f"{FOLDER}/{A}", broken)], [unit(A, "started"), unit(B, "restarted")]))
    assert [one.outcome for one in done.outcomes] == ["changed", "changed", "failed", "not-applied"]
    assert done.error is not None
    assert done.error.startswith(f"systemctl start {A} failed with exit code 1: Job for {A} failed")
    none = machine.apply(config(units=[unit("gltest-none.service", "restarted")]))
    assert "exit code 5 (there is no such unit)" in (none.error or "")
