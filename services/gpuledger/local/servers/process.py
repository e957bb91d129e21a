"""A child process with a log, a recorded pid and a certain end.

It knows nothing about the program. It must never leave a child behind that nobody can find again: it records the pid as
soon as there is one, and stops a child of an earlier, killed run before it starts a new one.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from gpuledger.local.servers.errors import ServerStartError, StartAbortedError
from gpuledger.local.servers.privileges import Launch

KILL_TIMEOUT_S = 10.0
LOG_LIMIT_BYTES = 8 * 1024 * 1024
LOG_TAIL_LINES = 12
LOG_TAIL_BYTES = 16 * 1024
_POLL_INTERVAL_S = 0.02

Probe = Callable[[], str | None]
"""Asks a server, over its own protocol, whether it is ready: None if it is, else why not yet."""


class ServerProcess:
    """One supervised child, `name` in messages, whose command line names `directory`.

    If the platform supports it, the child gets a signal when the thread that started it ends, so that thread must live
    as long as the server.
    """

    def __init__(self, name: str, directory: Path, *, stop_signal: signal.Signals, stop_timeout_s: float) -> None:
        self.name = name
        self.log_path = directory / "server.log"
        self._directory = directory
        self._pid_path = directory / "server.pid"
        self._stop_signal = stop_signal
        self._stop_timeout_s = stop_timeout_s
        self._child: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def running(self) -> bool:
        """Whether the child lives."""
        return self._child is not None and self._child.poll() is None

    @property
    def pid(self) -> int | None:
        """The pid of the living child."""
        return self._child.pid if self._child is not None and self.running else None

    def spawn(self, command: Sequence[str], launch: Launch) -> None:
        """Start the child in a session of its own, so that Ctrl-C in a terminal reaches only gpuledger.

        Raises:
            ServerStartError: the program cannot be run.
        """
        self._rotate_log()
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            try:
                self._child = subprocess.Popen(
                    (*launch.prefix, *command),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd="/",
                    start_new_session=True,
                    user=launch.user,
                    group=launch.group,
                    extra_groups=launch.extra_groups,
                    env=launch.environment,
                )
            except (OSError, subprocess.SubprocessError) as error:
                raise ServerStartError(f"{self.name} could not be run ({error}). Check {command[0]}.") from error
        self._pid_path.write_text(f"{self._child.pid}\n")

    def wait_until(self, probe: Probe, *, timeout_s: float, abort: threading.Event) -> None:
        """Return when the probe succeeds; otherwise leave no child behind.

        Raises:
            StartAbortedError: `abort` was set.
            ServerStartError: the child ended, or `timeout_s` passed.
        """
        try:
            self._poll(probe, timeout_s, abort)
        except BaseException:
            self.stop()
            raise

    def _poll(self, probe: Probe, timeout_s: float, abort: threading.Event) -> None:
        deadline = time.monotonic() + timeout_s
        while (reason := probe()) is not None:
            if abort.is_set():
                raise StartAbortedError(f"The start of {self.name} was aborted. Start gpuledger again.")
            if time.monotonic() > deadline:
                raise self.start_error(f"did not become ready within {timeout_s:g} s ({reason})")
            if self._ended_within(_POLL_INTERVAL_S):
                break
        if not self.running:
            raise self.start_error(f"ended with status {self._child.returncode if self._child else None}")

    def start_error(self, what: str) -> ServerStartError:
        """An error that quotes the end of this run's log."""
        lines = self.log().splitlines()[-LOG_TAIL_LINES:]
        tail = "\n".join(f"  {line}" for line in lines) or "  (nothing)"
        return ServerStartError(
            f"{self.name} {what}. The end of its log {self.log_path} shows the problem; fix it and start again:\n{tail}"
        )

    def log(self) -> str:
        """The last `LOG_TAIL_BYTES` of the output of this run's child."""
        try:
            with self.log_path.open("rb") as log:
                end = log.seek(0, os.SEEK_END)
                log.seek(max(self._log_start, end - LOG_TAIL_BYTES))
                return log.read().decode(errors="replace")
        except FileNotFoundError:
            return ""

    def stop(self) -> None:
        """End the child in an orderly way, by force if that takes too long; does nothing if there is none."""
        if self._child is None:
            return
        if self.running:
            self._child.send_signal(self._stop_signal)
        if not self._ended_within(self._stop_timeout_s):
            self._child.kill()
            self._child.wait(KILL_TIMEOUT_S)
        self._forget()

    def kill(self) -> None:
        """End the child at once, as a crash would (SIGKILL)."""
        if self._child is None:
            return
        self._child.kill()
        self._child.wait(KILL_TIMEOUT_S)
        self._forget()

    def stop_leftover(self) -> None:
        """Stop the child of an earlier run that was killed before it stopped it."""
        leftover = self._leftover()
        if leftover is not None:
            _end(leftover, self._stop_signal, self._stop_timeout_s)
        self._pid_path.unlink(missing_ok=True)

    def _leftover(self) -> "psutil.Process | None":
        try:
            process = psutil.Process(int(self._pid_path.read_text()))
            ours = any(str(self._directory) in argument for argument in process.cmdline())
        except (FileNotFoundError, ValueError, psutil.Error):
            return None
        return process if ours else None

    def _ended_within(self, timeout_s: float) -> bool:
        assert self._child is not None
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(timeout_s)
        return not self.running

    def _forget(self) -> None:
        self._child = None
        self._pid_path.unlink(missing_ok=True)

    def _rotate_log(self) -> None:
        with suppress(FileNotFoundError):
            if self.log_path.stat().st_size > LOG_LIMIT_BYTES:
                self.log_path.replace(self.log_path.with_suffix(".log.1"))


def _end(process: "psutil.Process", stop_signal: signal.Signals, timeout_s: float) -> None:
    with suppress(psutil.NoSuchProcess):
        process.send_signal(stop_signal)
        try:
            process.wait(timeout_s)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait(KILL_TIMEOUT_S)
