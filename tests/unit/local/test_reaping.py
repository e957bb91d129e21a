"""The first process of a container lets inherited processes go, and leaves its server to who waits for it."""

import subprocess
import sys

SCRIPT = """
import os, sys
from gpuledger.local.pods.foreground import reap_orphans
own, other = (os.posix_spawn("/bin/true", ["true"], {}) for _ in range(2))
for child in (own, other):
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
reap_orphans(own)
first = reap_orphans(own)
print(first, os.waitpid(own, 0)[0] == own, reap_orphans(own))
try:
    os.waitpid(other, 0)
except ChildProcessError:
    print("gone")
"""


def test_orphans_go_and_the_server_stays() -> None:
    """In a process of its own, because every other test's children would be meant as well."""
    ended = subprocess.run((sys.executable, "-c", SCRIPT), capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout.split("\n")[-2:] == ["gone", ""]
    assert "True" in ended.stdout
