"""`gpuledger` as a person runs it: commands in processes of their own, and `up` beside them."""

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import orjson
import psutil

from gpuledger.local.servers.datadir import RunningServers, read_running

DEADLINE_S = 60.0
SERVERS = frozenset({"NATS_URL", "DATABASE_URL", "KUBECONFIG"})
"""What would make a command use servers of the machine's own."""

COMMAND = (sys.executable, "-c", "from gpuledger.cli.main import main; main()")


class Health(NamedTuple):
    """What `/healthz` answered."""

    status: int
    document: dict[str, object]


class Up(NamedTuple):
    """A running `gpuledger up`."""

    process: subprocess.Popen[str]
    data_dir: Path
    printed: str

    @property
    def running(self) -> RunningServers:
        """Its servers."""
        found = read_running(self.data_dir)
        assert found is not None
        return found

    def get(self, path: str) -> tuple[int, bytes]:
        """Status and body of its HTTP endpoint's answer."""
        base = next(word for word in self.printed.split() if word.endswith("/metrics")).removesuffix("/metrics")
        try:
            with urllib.request.urlopen(f"{base}{path}", timeout=DEADLINE_S) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def health(self) -> Health:
        """Its `/healthz`."""
        status, body = self.get("/healthz")
        return Health(status, orjson.loads(body))

    def becomes(self, status: int) -> Health:
        """Wait until `/healthz` answers with the status."""
        eventually(lambda: self.health().status == status)
        return self.health()

    def server_pids(self) -> set[int]:
        """The pids of its nats-server and its PostgreSQL."""
        return {int((self.data_dir / name / "server.pid").read_text()) for name in ("nats", "postgres")}


def eventually(condition: Callable[[], object]) -> None:
    """Return when the condition holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)


def gpuledger(data_dir: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """One command, run to its end, with more variables in its environment."""
    return subprocess.run(
        (*COMMAND, *arguments),
        env=environment(data_dir) | variables,
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )


def start(data_dir: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    """One command, left running, with more variables in its environment."""
    return subprocess.Popen(
        (*COMMAND, *arguments),
        env=environment(data_dir) | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def running_up(data_dir: Path, *options: str, **variables: str) -> Iterator[Up]:
    """`gpuledger up`, ready; at the end an interrupt, or the signal that the test sent, ends it in order."""
    with start(data_dir, "up", *options, **variables) as process:
        try:
            assert process.stdout is not None
            printed = ""
            while "/healthz" not in printed:
                line = process.stdout.readline()
                assert line, process.stderr and process.stderr.read()
                printed += line
            yield Up(process, data_dir, printed)
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    assert not servers_in(data_dir)
    assert not (data_dir / "run.json").exists()


def servers_in(data_dir: Path) -> list[psutil.Process]:
    """The server processes that run in a data directory."""
    found = []
    for process in psutil.process_iter(["cmdline", "name"]):
        command = process.info["cmdline"] or []
        if "python" not in (process.info["name"] or "") and any(f"{data_dir}/" in word for word in command):
            found.append(process)
    return found


def environment(data_dir: Path) -> dict[str, str]:
    """The environment of a command that works in a data directory."""
    kept = {name: value for name, value in os.environ.items() if name not in SERVERS}
    return kept | {"PYTHONPATH": os.pathsep.join(sys.path), "GPULEDGER_DATA_DIR": str(data_dir)}
