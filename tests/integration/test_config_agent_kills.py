"""The agent of machine configuration is killed at every step, and meets full and read-only disks, all of them real."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NoReturn

import pytest

from gpuledger.configagent.apply import apply
from gpuledger.configagent.errors import HostError
from gpuledger.configagent.memory_file import MemoryFile
from gpuledger.configagent.tree import PART_SUFFIX
from gpuledger.domain.machineconfig.desired import DesiredConfig
from support.config_agent import FakeMachine, config, file, unit
from support.paths import ROOT

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")

KILLED: Final = 9
STEPS_MAX: Final = 200
BEFORE: Final = config([file("/etc/a", "old" * 1000), file("/etc/made/c", "x"), file("/etc/kept", "1")], reboot=True)
AFTER: Final = config(
    [
        file("/etc/a", "new" * 2000, mode=0o600),
        file("/etc/kept", "1"),
        file("/etc/new/deep/b", "new"),
        file("/etc/gone", present=False),
        file("/etc/systemd/system/u.service", "[Unit]\n"),
    ],
    [unit("u.service", "restarted", enabled=True), unit("m.service", mask=True)],
    reboot=True,
)


def killed_at(machine: FakeMachine, desired: DesiredConfig, step: int) -> bool:
    """Apply in a process that ends at a step; whether it came so far."""
    child = os.fork()
    if not child:
        run_until(machine, desired, step)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == KILLED


def run_until(machine: FakeMachine, desired: DesiredConfig, step: int) -> NoReturn:
    left = iter(range(step))

    def on_step(_: str) -> None:
        if next(left, None) is None:
            os._exit(KILLED)

    try:
        apply(machine.host, desired, MemoryFile(machine.state).load(), on_step=on_step)
    finally:
        os._exit(0)


def prepared(root: Path) -> FakeMachine:
    root.mkdir()
    machine = FakeMachine(root)
    assert apply(machine.host, BEFORE, MemoryFile(machine.state).load()).error is None
    machine.path("/etc/gone").write_text("old")
    machine.boots += 1
    memory = MemoryFile(machine.state)
    memory.save(memory.load().booted("boot-1"))
    return machine


def contents(machine: FakeMachine) -> Iterator[tuple[str, str]]:
    for path in sorted(machine.root.rglob("*")):
        if path.is_file() and PART_SUFFIX not in path.name:
            yield f"/{path.relative_to(machine.root)}", path.read_text()


def test_killed_at_every_step_each_file_is_the_old_or_the_new_one_and_a_restart_completes(tmp_path: Path) -> None:
    whole = prepared(tmp_path / "whole")
    old = dict(contents(whole))
    expected = apply(whole.host, AFTER, MemoryFile(whole.state).load())
    new = dict(contents(whole))
    for step in range(STEPS_MAX):
        machine = prepared(tmp_path / f"killed-{step}")
        was_killed = killed_at(machine, AFTER, step)
        found = dict(contents(machine))
        for path in {*old, *new}:
            assert found.get(path) in (old.get(path), new.get(path)), (step, path)
        done = apply(machine.host, AFTER, MemoryFile(machine.state).load())
        assert done.error is None
        assert dict(contents(machine)) == new
        assert [*machine.root.rglob(f"*{PART_SUFFIX}")] == []
        assert (done.memory.applied, done.memory.files) == (expected.memory.applied, expected.memory.files)
        assert done.memory.reboot_due == "boot-1", step
        assert {"daemon-reload", "enable u.service", "restart u.service"} <= {*machine.systemd.calls} or not was_killed
        if not was_killed:
            assert step > 30
            return
    pytest.fail(f"it takes more than {STEPS_MAX} steps")


def in_namespace(root: Path, mount: str, code: str) -> str:
    """Run code in a mount namespace of its own, in which `root/host/etc` is another file system."""
    script = f"mount {mount} {root}/host/etc && exec {sys.executable} -c {shlex.quote(code)}"
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "tests"), "PLACE": str(root)}
    command = ("unshare", "--mount", "--propagation", "private", "sh", "-c", script)
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=60, check=False)
    if "unshare failed" in done.stderr or "permission denied" in done.stderr.lower():
        pytest.skip(f"this machine permits no mounts: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return done.stdout


FULL: Final = """
import os
from pathlib import Path
from gpuledger.configagent.apply import apply
from gpuledger.configagent.memory_file import MemoryFile
from support.config_agent import FakeMachine, config, file
machine = FakeMachine(Path(os.environ["PLACE"]))
small = config([file("/etc/a", "1")])
large = config([file("/etc/a", "2" * 100000), file("/etc/b", "3")])
assert apply(machine.host, small, MemoryFile(machine.state).load()).error is None
done = apply(machine.host, large, MemoryFile(machine.state).load())
print([one.outcome for one in done.outcomes], done.error)
print(machine.path("/etc/a").read_text(), sorted(one.name for one in machine.path("/etc").iterdir()))
print(apply(machine.host, small, MemoryFile(machine.state).load()).error)
"""


def test_a_full_disk_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    FakeMachine(tmp_path)
    failed, left, again = in_namespace(tmp_path, "-t tmpfs -o size=32k tmpfs", FULL).splitlines()
    assert failed == "['failed', 'not-applied'] /etc/a: No space left on device. See the host's disk."
    assert left == "1 ['a', 'group', 'passwd']"
    assert again == "None"


READ_ONLY: Final = """
import os
from pathlib import Path
from gpuledger.configagent.apply import apply
from gpuledger.configagent.state import AgentMemory
from gpuledger.configagent.host import Host
from support.config_agent import FakeSystemd, config, file
root = Path(os.environ["PLACE"])
host = Host(root / "host", root / "state", FakeSystemd(), lambda: None, lambda: "boot-0")
print(apply(host, config([file("/etc/a", "1")]), AgentMemory()).error)
"""


def test_a_read_only_disk_is_named(tmp_path: Path) -> None:
    FakeMachine(tmp_path)
    assert in_namespace(tmp_path, "-t tmpfs -o ro tmpfs", READ_ONLY) == (
        "/etc/a: Read-only file system. See the host's disk.\n"
    )


def test_a_memory_that_the_disk_does_not_take_stops_the_work_before_it_begins(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    machine.state.write_text("a file where the folder should be")
    with pytest.raises(HostError, match=r"state\.json"):
        apply(machine.host, AFTER, MemoryFile(tmp_path / "other").load())
    assert not machine.path("/etc/a").exists()
