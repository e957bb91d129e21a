"""The base of the embedded servers: a directory, a loopback port that stays the same, and a life cycle.

Everything here blocks and needs no event loop, so a server can outlive the loop that uses it.
"""

import itertools
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

from gpuledger.local.servers.errors import DataDirUnusableError, PortTakenError, ServerStartError
from gpuledger.local.servers.ports import candidate_ports, wait_until_free
from gpuledger.local.servers.privileges import Launch
from gpuledger.local.servers.process import ServerProcess

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 30.0
PORT_RELEASE_TIMEOUT_S = 5.0
SAME_PORT_ATTEMPTS = 3


class EmbeddedServer(ABC):
    """One server in one directory; as a context manager it runs inside the block.

    If the same object starts a server again, it returns to its port, so that clients find it.
    """

    name: str
    stop_signal: signal.Signals

    def __init__(self, directory: Path, *, start_timeout_s: float = START_TIMEOUT_S) -> None:
        self.directory = directory.resolve()
        self._start_timeout_s = start_timeout_s
        self._port: int | None = None
        self._process = ServerProcess(
            self.name, self.directory, stop_signal=self.stop_signal, stop_timeout_s=STOP_TIMEOUT_S
        )

    @property
    @abstractmethod
    def url(self) -> str:
        """The URL for clients, with the password; known once the server was started."""

    @abstractmethod
    def _prepare(self) -> Launch:
        """Put everything that the server needs into the directory; returns the user that it runs as."""

    @abstractmethod
    def _command(self, port: int) -> Sequence[str]:
        """The command line that serves on the port."""

    @abstractmethod
    def _probe(self) -> str | None:
        """None if this server answers on its port, else why not yet."""

    @property
    def port(self) -> int:
        """The loopback port.

        Raises:
            ServerStartError: the server was never started.
        """
        if self._port is None:
            raise ServerStartError(f"{self.name} was not started yet. Call start() first.")
        return self._port

    @property
    def running(self) -> bool:
        """Whether the server's process lives."""
        return self._process.running

    @property
    def pid(self) -> int | None:
        """The pid of the server's process while it lives."""
        return self._process.pid

    @property
    def log_path(self) -> Path:
        """The server's own log."""
        return self._process.log_path

    def start(self, abort: threading.Event | None = None) -> None:
        """Start and wait until the server answers; does nothing if it is already running.

        The calling thread must live as long as the server (see `ServerProcess`).

        Raises:
            ServerStartError: it ended or did not answer in time; `StartAbortedError` if `abort` was set meanwhile.
            ServerBinaryMissingError: its program is not installed.
            PrivilegesError: no account may run it.
            DataDirUnusableError: its directory cannot be written.
        """
        if self.running:
            return
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._process.stop_leftover()
            launch = self._prepare()
        except OSError as error:
            raise DataDirUnusableError(
                f"{self.name} cannot use {self.directory} ({error.strerror}). Choose another --data-dir."
            ) from error
        self._start_on_some_port(launch, abort or threading.Event())

    def _start_on_some_port(self, launch: Launch, abort: threading.Event) -> None:
        taken: PortTakenError | None = None
        for port in self._ports():
            try:
                self._start_on(port, launch, abort)
            except PortTakenError as error:
                taken = error
            else:
                return
        raise taken or PortTakenError(f"{self.name} found no free port on 127.0.0.1. Stop the programs that use them.")

    def _ports(self) -> Iterator[int]:
        if self._port is None:
            return candidate_ports(self.directory)
        return itertools.repeat(self._port, SAME_PORT_ATTEMPTS)

    def _start_on(self, port: int, launch: Launch, abort: threading.Event) -> None:
        if not wait_until_free(port, PORT_RELEASE_TIMEOUT_S):
            raise PortTakenError(f"{self.name} needs port {port}, which another program uses. Stop that program.")
        before, self._port = self._port, port
        try:
            self._process.spawn(self._command(port), launch)
            self._process.wait_until(self._probe, timeout_s=self._start_timeout_s, abort=abort)
        except ServerStartError as error:
            self._port = before
            if "address already in use" in self._process.log().lower():
                raise PortTakenError(str(error)) from error
            raise

    def stop(self) -> None:
        """Stop in an orderly way; does nothing if it is not running."""
        self._process.stop()

    def kill(self) -> None:
        """End the server as a crash would (SIGKILL); `start()` brings it back on the same port."""
        self._process.kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
