"""The processes of a story of faults, as those who start and kill them see them.

They are forked from one that has imported what they run and done nothing else, so that a new one costs a few
milliseconds and not the second or two in which an interpreter imports it all.
"""

import asyncio
import multiprocessing
import os
import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from multiprocessing import forkserver
from pathlib import Path

import structlog

from support.paths import ROOT

IMPORTED = ("__main__", "support.fault_runners", "support.fault_agent")

_context = multiprocessing.get_context("forkserver")


class Starter:
    """The other end of a process's lines, in the process itself."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def lines(self) -> AsyncIterator[list[str]]:
        """The words of each line; the process ends at once when whoever started it is gone."""
        async for line in self._reader:
            yield line.decode().split()
        os._exit(0)

    def answer(self, line: str) -> None:
        """Say something in return."""
        self._writer.write(f"{line}\n".encode())


Main = Callable[..., Coroutine[None, None, None]]
"""What a process does, given its starter and its arguments."""


class StoryProcess(ABC):
    """A process that is given lines and answers with lines; its errors go to a log."""

    def __init__(self, main: Main, arguments: tuple[str, ...], log: Path) -> None:
        self._main = main
        self._arguments = arguments
        self._log = log
        self._process: multiprocessing.context.ForkServerProcess
        self._writer: asyncio.StreamWriter
        self._listener: asyncio.Task[None]

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    async def start(self) -> None:
        _fork_from_one()
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = _context.Process(target=_live, args=(self._main, self._arguments, self._log, theirs))
            self._process.start()
        reader, self._writer = await asyncio.open_connection(sock=ours)
        self._listener = asyncio.create_task(self._listen(reader))

    async def kill(self) -> None:
        assert self._process.is_alive(), f"{self._main.__name__} of {self._log} ended unexpectedly"
        self._process.kill()
        await asyncio.to_thread(self._process.join)
        await self._listener
        self._writer.close()

    def say(self, line: str) -> None:
        """Have the process do something."""
        self._writer.write(f"{line}\n".encode())

    @abstractmethod
    def hear(self, line: bytes) -> None:
        """Take in what the process answers."""

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with suppress(ConnectionResetError):  # it was killed with a line that it had not read
            async for line in reader:
                self.hear(line)


def _fork_from_one() -> None:
    """Have the process run that others are forked from; what it imports it finds by the environment."""
    _context.set_forkserver_preload(list(IMPORTED))
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(ROOT / "tests")
    try:
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _live(main: Main, arguments: tuple[str, ...], log: Path, starter: socket.socket) -> None:
    with log.open("a") as errors:
        os.dup2(errors.fileno(), 2)
    structlog.configure(logger_factory=structlog.WriteLoggerFactory(os.fdopen(2, "w", 1)))
    asyncio.run(_run(main, arguments, starter))


async def _run(main: Main, arguments: tuple[str, ...], starter: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=starter)
    await main(Starter(reader, writer), *arguments)
