"""A real systemd as the first process of namespaces of its own, on this machine's files with a /run of its own.

Only /run and /etc/systemd are its own file systems, in memory; whatever else a test writes there is written here.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

PROGRAM: Final = "/lib/systemd/systemd"
DEADLINE_S: Final = 20.0
SETUP: Final = """
set -e
mount --rbind / "$PLACE"
mount --make-rslave "$PLACE"
mount -t tmpfs tmpfs "$PLACE/run"
mount -t tmpfs tmpfs "$PLACE/etc/systemd"
mkdir -p "$PLACE/run/systemd/system" "$PLACE/etc/systemd/system"
mount -t proc proc "$PLACE/proc"
mount -t cgroup2 cgroup2 "$PLACE/sys/fs/cgroup" || true
printf '[Unit]\\nDefaultDependencies=no\\n' > "$PLACE/run/systemd/system/test.target"
exec chroot "$PLACE" env -i container=docker PATH=/usr/sbin:/usr/bin:/sbin:/bin \
  /lib/systemd/systemd --system --unit=test.target --log-target=console --show-status=no
"""


class RealSystemd:
    """A systemd that runs: the root of its files as seen from here, and the command that is its systemctl."""

    def __init__(self, pid: int, place: Path) -> None:
        self.root = Path(f"/proc/{pid}/root")
        self.command = ("nsenter", f"--target={pid}", "--mount", "--pid", "--", "chroot", str(place), "systemctl")

    def is_up(self) -> bool:
        """Whether it takes calls."""
        done = subprocess.run((*self.command, "is-system-running"), capture_output=True, text=True, check=False)
        return done.stdout.strip() in ("running", "degraded")


@contextmanager
def real_systemd(place: Path) -> Iterator[RealSystemd]:
    """One for the length of the block; skips the test where there is none, or the kernel lets none run."""
    if os.geteuid() != 0 or not Path(PROGRAM).exists() or shutil.which("unshare") is None:
        pytest.skip("a systemd of one's own needs root, systemd and unshare")
    place.mkdir()
    namespaces = ("--mount", "--pid", "--fork", "--ipc", "--uts", "--cgroup", "--propagation=private")
    log = (place.parent / "systemd.log").open("wb")
    command = ("unshare", *namespaces, "--kill-child", "sh", "-c", SETUP)
    with log, subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "PLACE": str(place)}) as parent:
        try:
            yield _awaited(parent, place)
        finally:
            parent.send_signal(signal.SIGKILL)


def _awaited(parent: "subprocess.Popen[bytes]", place: Path) -> RealSystemd:
    deadline = time.monotonic() + DEADLINE_S
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    while time.monotonic() < deadline and parent.poll() is None:
        if pids := children.read_text().split():
            systemd = RealSystemd(int(pids[0]), place)
            if systemd.is_up():
                return systemd
        time.sleep(0.1)
    log = (place.parent / "systemd.log").read_text(errors="replace")[-500:]
    pytest.skip(f"no systemd comes up in namespaces of this machine: {log}")
