"""The processes of a story of faults, as those who start and kill them see them."""

import asyncio
import json
import sys
from pathlib import Path
from typing import NamedTuple

from support.paths import ROOT


class Stop(NamedTuple):
    """A projection of one of the processes stopped."""

    projection: str
    error: str
    reason: str


class StoryProcess:
    """A process that is given lines and answers with lines; its errors go to a log."""

    def __init__(self, module: str, arguments: tuple[str, ...], log: Path) -> None:
        self._command = (sys.executable, "-m", f"support.{module}", *arguments)
        self._log = log
        self._process: asyncio.subprocess.Process
        self._listener: asyncio.Task[None]

    @property
    def pid(self) -> int:
        return self._process.pid

    async def start(self) -> None:
        with self._log.open("a") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                cwd=ROOT / "tests",
            )
        self._listener = asyncio.create_task(self._listen())

    async def kill(self) -> None:
        assert self._process.returncode is None, f"{self._command} ended unexpectedly"
        self._process.kill()
        await self._process.wait()
        await self._listener

    def say(self, line: str) -> None:
        """Have the process do something."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())

    def hear(self, line: bytes) -> None:
        """Take in what the process answers."""
        raise NotImplementedError

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.hear(line)


class Runners(StoryProcess):
    """A process with all projections, and what it reported."""

    def __init__(self, nats_url: str, database_url: str, log: Path) -> None:
        super().__init__("fault_runners", (nats_url, database_url), log)
        self.stops: list[Stop] = []

    def hear(self, line: bytes) -> None:
        self.stops.append(Stop(**json.loads(line)))
