"""A host comes to have a configuration, once; what fails leaves the rest alone and is finished later."""

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from gpuledger.configagent.apply import Applied, apply, drift, drift_message
from gpuledger.configagent.errors import RefusedConfigError
from gpuledger.configagent.host import UnitStatus
from gpuledger.configagent.memory_file import MemoryFile
from gpuledger.configagent.state import AgentMemory
from gpuledger.domain.machineconfig.desired import DesiredConfig
from support.config_agent import FakeMachine, config, file, unit

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")

RUNNING = UnitStatus("loaded", "active", "enabled")
UNIT_FILE = "/etc/systemd/system/tuned.service"


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


def applied(machine: FakeMachine, desired: DesiredConfig) -> Applied:
    return apply(machine.host, desired, MemoryFile(machine.state).load())


def changed(done: Applied) -> list[tuple[str, str]]:
    return [(one.step.action, one.step.subject) for one in done.outcomes if one.outcome == "changed"]


def test_files_have_their_content_mode_and_owner_in_folders_that_were_missing(machine: FakeMachine) -> None:
    desired = config([file("/etc/gpu/limits/a.conf", "x = 1\n", mode=0o640, owner="gpu:gpus"), file("/etc/b", "é")])
    assert applied(machine, desired).error is None
    written = machine.path("/etc/gpu/limits/a.conf")
    found = written.stat()
    assert (written.read_text(), stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) == (
        "x = 1\n",
        0o640,
        1234,
        4321,
    )
    assert stat.S_IMODE(written.parent.stat().st_mode) == 0o755
    assert machine.path("/etc/b").read_text() == "é"
    assert [one.name for one in written.parent.iterdir()] == ["a.conf"]


def test_what_is_applied_is_applied_once(machine: FakeMachine) -> None:
    machine.systemd.units = {"a.service": RUNNING, "b.service": RUNNING}
    units = [unit("a.service", "restarted", enabled=True), unit("b.service", "reloaded"), unit("c.service", "started")]
    desired = config([file("/etc/a", "1"), file(UNIT_FILE, "[Unit]\n"), file("/etc/gone", present=False)], units)
    machine.path("/etc/gone").write_text("old")
    first = applied(machine, desired)
    assert machine.systemd.calls == [
        "daemon-reload",
        "start c.service",
        "restart a.service",
        "reload-or-restart b.service",
    ]
    assert not machine.path("/etc/gone").exists()
    machine.systemd.calls.clear()
    inode = machine.path("/etc/a").stat().st_ino
    again = applied(machine, desired)
    assert (again.error, machine.systemd.calls, machine.path("/etc/a").stat().st_ino) == (None, [], inode)
    assert {one.outcome for one in again.outcomes} == {"unchanged"}
    assert again.memory == first.memory


def test_a_file_that_was_put_right_restarts_the_units_of_its_revision(machine: FakeMachine) -> None:
    desired = config([file("/etc/a", "1")], [unit("a.service", "restarted")])
    done = applied(machine, desired)
    machine.path("/etc/a").write_text("by hand")
    assert "content mismatch for /etc/a (hash " in drift_message(drift(machine.host, done.memory))
    assert changed(applied(machine, desired)) == [("write", "/etc/a"), ("restart", "a.service")]
    assert drift(machine.host, done.memory) == []


def test_a_rollback_removes_what_the_later_revision_made_and_nothing_else(machine: FakeMachine) -> None:
    machine.path("/etc/there").write_text("before")
    older = config([file("/etc/a", "1")])
    newer = config(
        [file("/etc/a", "2"), file("/etc/made", "x"), file("/etc/there", "x"), file("/etc/edited", "x")],
        [unit("a.service", mask=True)],
    )
    applied(machine, older)
    applied(machine, newer)
    machine.path("/etc/edited").write_text("by hand")
    back = applied(machine, older)
    assert changed(back) == [("write", "/etc/a"), ("remove", "/etc/made"), ("unmask", "a.service")]
    assert machine.path("/etc/there").read_text() == "x"
    assert machine.path("/etc/edited").read_text() == "by hand"
    stays = {one.step.subject: one.message for one in back.outcomes if one.message.startswith("stays")}
    assert list(stays) == ["/etc/edited", "/etc/there"]
    assert set(back.memory.files) == {"/etc/a"}


def test_nothing_is_done_where_one_thing_cannot_be(machine: FakeMachine) -> None:
    machine.path("/etc/folder").mkdir()
    desired = config([file("/etc/a", "1"), file("/etc/folder", "x"), file("/etc/b", owner="nobody-here:gpus")])
    with pytest.raises(RefusedConfigError, match=r"no user 'nobody-here'.*/etc/folder is a folder"):
        applied(machine, desired)
    assert not machine.path("/etc/a").exists()
    assert MemoryFile(machine.state).load() == AgentMemory()


@pytest.mark.parametrize(
    "refused",
    [
        config([file("/etc/kubernetes/admin.conf", "x")]),
        config([file("/etc/../etc/kubernetes/x", "x")]),
        config([file("/usr/bin/x", "x")]),
        config(units=[unit("kubelet.service", "stopped")]),
        config(units=[unit("reboot.target", "started")]),
        config([file("/etc/a", "x"), file("/etc/a/b", "x")]),
        config([file("/etc/a", "x", owner="root")]),
    ],
    ids=lambda one: str([*one.files, *one.units][0][0]),
)
def test_what_is_refused_is_refused_on_the_node_as_well(machine: FakeMachine, refused: DesiredConfig) -> None:
    with pytest.raises(RefusedConfigError, match="is refused"):
        applied(machine, refused)
    assert {one.name for one in machine.root.rglob("*")} == {"etc", "passwd", "group"}


def test_a_unit_that_fails_ends_the_work_and_is_tried_again_without_the_others(machine: FakeMachine) -> None:
    machine.systemd.failing = {"b.service"}
    units = [unit("a.service", "restarted"), unit("b.service", "restarted"), unit("c.service", "restarted")]
    desired = config([file("/etc/a", "1"), file(UNIT_FILE, "[Unit]\n")], units)
    done = applied(machine, desired)
    assert done.error == "systemctl restart b.service failed with exit code 1: refused"
    assert [one.outcome for one in done.outcomes] == ["changed"] * 4 + ["failed", "not-applied"]
    assert done.memory.applied is None
    machine.systemd.failing, machine.systemd.calls = set(), []
    assert applied(machine, desired).memory.applied is not None
    assert machine.systemd.calls == ["restart b.service", "restart c.service"]


def test_the_work_stops_between_two_steps_when_it_is_to_stop(machine: FakeMachine) -> None:
    answers = iter([True, False])
    desired = config([file("/etc/a", "1"), file("/etc/b", "1")])
    done = apply(machine.host, desired, AgentMemory(), go_on=lambda: next(answers))
    assert [one.outcome for one in done.outcomes] == ["changed", "not-applied"]
    assert done.error is not None
    assert not machine.path("/etc/b").exists()


def test_no_link_leads_out_of_the_host(machine: FakeMachine, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_text("mine")
    machine.path("/etc/linked").symlink_to(outside)
    machine.path("/etc/relative").symlink_to("../../outside")
    for path in ("/etc/linked/x", "/etc/relative/new/x"):
        for present in (True, False):
            with pytest.raises(RefusedConfigError, match=r"/etc/(linked|relative) is a link to .*outside"):
                applied(machine, config([file(path, "x", present=present)]))
    assert [(one.name, one.read_text()) for one in outside.iterdir()] == [("x", "mine")]


def test_a_link_in_the_place_of_a_file_is_replaced_and_its_target_left(machine: FakeMachine, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    machine.path("/etc/a").symlink_to(target)
    machine.path("/etc/b").symlink_to(target)
    done = applied(machine, config([file("/etc/a", "x"), file("/etc/b", present=False)]))
    assert [one.message for one in done.outcomes] == [f"replaces a link to {target}", ""]
    assert machine.path("/etc/a").read_text() == "x"
    assert not machine.path("/etc/a").is_symlink()
    assert not machine.path("/etc/b").is_symlink()
    assert target.read_text() == "mine"


def test_a_folder_that_becomes_a_link_meanwhile_is_not_followed(machine: FakeMachine, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    machine.path("/etc/d").mkdir()

    def exchange(label: str) -> None:
        if label == "write state" and not machine.path("/etc/moved").exists():
            machine.path("/etc/d").rename(machine.path("/etc/moved"))
            machine.path("/etc/d").symlink_to(outside)

    done = apply(machine.host, config([file("/etc/d/x", "x")]), AgentMemory(), on_step=exchange)
    assert done.outcomes[0].outcome == "failed"
    assert "/etc/d is a link to" in done.outcomes[0].message
    assert [*outside.iterdir()] == []


def test_a_reboot_is_due_for_what_lasts_and_for_what_nobody_rebooted_for(machine: FakeMachine) -> None:
    boot = machine.host.boot_id()
    plain, first = config([file("/etc/a", "1")]), config([file("/etc/a", "1")], reboot=True)
    assert applied(machine, plain).memory.reboot_due is None
    memory = applied(machine, first).memory
    assert memory.reboot_due == boot
    machine.boots += 1
    memory = memory.booted(machine.host.boot_id())
    MemoryFile(machine.state).save(memory)
    restarting = config([file("/etc/a", "1")], [unit("a.service", "restarted")], reboot=True)
    assert applied(machine, restarting).memory.reboot_due is None
    assert applied(machine, config([file("/etc/a", "2")], reboot=True)).memory.reboot_due == "boot-1"
    assert applied(machine, config([file("/etc/a", "3")])).memory.reboot_due is None


def test_a_reboot_that_an_interrupted_attempt_made_due_stays_due(machine: FakeMachine) -> None:
    first = config([file("/etc/a", "1")], reboot=True)
    applied(machine, first)
    machine.boots += 1
    MemoryFile(machine.state).save(MemoryFile(machine.state).load().booted("boot-1"))
    machine.systemd.failing = {"a.service"}
    desired = config([file("/etc/a", "2")], [unit("a.service", "started")], reboot=True)
    assert applied(machine, desired).error is not None
    machine.systemd.failing = set()
    assert applied(machine, desired).memory.reboot_due == "boot-1"


def test_where_owners_are_nobodys_matter_they_are_neither_set_nor_compared(machine: FakeMachine) -> None:
    host = replace(machine.host, owned=False)
    desired = config([file("/etc/a", "1", owner="nobody-here:gpus")])
    done = apply(host, desired, AgentMemory())
    os.chown(machine.path("/etc/a"), 77, 77)
    assert drift(host, done.memory) == []
    assert {one.outcome for one in apply(host, desired, done.memory).outcomes} == {"unchanged"}
    assert drift(machine.host, done.memory) != []
