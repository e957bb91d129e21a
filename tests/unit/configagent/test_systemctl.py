"""systemctl is run as it has to be, and what it answers is understood: a recorded one, and the real one off line."""

import shutil
import stat
import subprocess
from pathlib import Path
from typing import Final

import pytest

from gpuledger.configagent.errors import UnitError
from gpuledger.configagent.host import UnitStatus
from gpuledger.configagent.systemctl import Systemctl, rebooter

SHOWN: Final = """\
Type=simple
Id=dbus-broker.service
LoadState=loaded
ActiveState=active
UnitFileState=enabled

Id=gone.service
LoadState=not-found
ActiveState=inactive
UnitFileState=

Id=x.timer
LoadState=masked
ActiveState=inactive
UnitFileState=masked
"""
UNIT: Final = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"


def recorded(folder: Path, body: str = "exit 0") -> tuple[str, ...]:
    """A systemctl that writes down its calls."""
    program = folder / "systemctl"
    program.write_text(f'#!/bin/sh\necho "$SYSTEMD_IGNORE_CHROOT $*" >> {folder}/calls\n{body}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return (str(program),)


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines()


def test_units_are_observed_in_one_call(tmp_path: Path) -> None:
    systemctl = Systemctl(recorded(tmp_path, f"cat <<'END'\n{SHOWN}END"))
    assert systemctl.observe({"x.timer", "dbus.service", "gone.service"}) == {
        "dbus.service": UnitStatus("loaded", "active", "enabled", "simple"),
        "gone.service": UnitStatus("not-found", "inactive", "", ""),
        "x.timer": UnitStatus("masked", "inactive", "masked", ""),
    }
    asked = "show --property=Id,LoadState,ActiveState,UnitFileState,Type -- dbus.service gone.service x.timer"
    assert calls(tmp_path) == [f"1 --no-pager --no-ask-password {asked}"]
    assert systemctl.observe(()) == {}
    with pytest.raises(UnitError, match="shows 3 units where 1 were"):
        systemctl.observe({"a.service"})


def test_verbs_are_run_with_their_options(tmp_path: Path) -> None:
    systemctl = Systemctl(recorded(tmp_path))
    systemctl.run("daemon-reload")
    systemctl.run("disable --runtime", "-.mount")
    rebooter((*recorded(tmp_path), "reboot"))()
    options = "1 --no-pager --no-ask-password"
    assert calls(tmp_path) == [f"{options} daemon-reload", f"{options} disable --runtime -- -.mount", "1 reboot"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "echo 'Unit a.service not found.' >&2; exit 5",
            r"exit code 5 \(there is no such unit\): Unit a.service not f",
        ),
        ("exit 4", "exit code 4: it may not do that, or there is no such unit"),
        ("exit 127", "exit code 127: the host has no systemctl"),
        ("echo 'Job failed.\nSee more.' >&2; exit 1", r"exit code 1: Job failed\. See more\."),
        ("exec sleep 60", r"start a.service has not finished within 0\.3 s"),
    ],
)
def test_what_fails_says_what_and_why(tmp_path: Path, body: str, message: str) -> None:
    with pytest.raises(UnitError, match=message):
        Systemctl(recorded(tmp_path, body), timeout_s=0.3).run("start", "a.service")
    if "sleep" not in body:
        with pytest.raises(UnitError, match="failed with exit code"):
            rebooter(recorded(tmp_path, body))()


def test_a_host_without_systemctl_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnitError, match="cannot be run: No such file"):
        Systemctl((str(tmp_path / "none"),)).run("daemon-reload")
    with pytest.raises(UnitError, match="cannot be run"):
        rebooter((str(tmp_path / "none"),))()


def test_a_reboot_that_ends_its_own_command_is_one(tmp_path: Path) -> None:
    killed = recorded(tmp_path, "kill -TERM $$")
    rebooter(killed)()
    with pytest.raises(UnitError, match="exit code -15"):
        Systemctl(killed).run("start", "a.service")


@pytest.mark.skipif(shutil.which("systemctl") is None, reason="there is no systemctl")
def test_the_real_systemctl_enables_and_masks_in_a_root(tmp_path: Path) -> None:
    units = tmp_path / "etc/systemd/system"
    units.mkdir(parents=True)
    vendor = tmp_path / "usr/lib/systemd/system"
    vendor.mkdir(parents=True)
    for name in ("a.service", "b.service"):
        (vendor / name).write_text(UNIT)
    systemctl = Systemctl(("systemctl", f"--root={tmp_path}"))
    systemctl.run("enable", "a.service")
    systemctl.run("mask", "b.service")
    assert (units / "multi-user.target.wants/a.service").is_symlink()
    assert (units / "b.service").readlink() == Path("/dev/null")
    for _ in range(2):
        systemctl.run("disable", "a.service")
        systemctl.run("unmask", "b.service")
    assert not (units / "multi-user.target.wants/a.service").is_symlink()
    assert not (units / "b.service").is_symlink()
    with pytest.raises(UnitError, match=r"exit code 1: .*none\.service"):
        systemctl.run("enable", "none.service")


def systemd_runs() -> bool:
    return Path("/run/systemd/system").is_dir() and shutil.which("systemctl") is not None


@pytest.mark.skipif(not systemd_runs(), reason="no systemd runs on this machine")
def test_a_systemd_that_runs_starts_and_stops_a_unit() -> None:
    name = "gpuledger-test.service"
    file = Path("/run/systemd/system") / name
    file.write_text("[Service]\nExecStart=/bin/sleep 600\n")
    systemctl = Systemctl(("systemctl",))
    try:
        systemctl.run("daemon-reload")
        systemctl.run("start", name)
        assert systemctl.observe({name})[name] == UnitStatus("loaded", "active", "static", "simple")
        systemctl.run("stop", name)
        assert systemctl.observe({name})[name].active == "inactive"
    finally:
        file.unlink()
        subprocess.run(("systemctl", "daemon-reload"), check=False)
