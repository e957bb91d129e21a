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


class Runners:
    """A process with all projections, and what it reported."""

    def __init__(self, nats_url: str, database_url: str, log: Path) -> None:
        self._arguments = (nats_url, database_url)
        self._log = log
        self.stops: list[Stop] = []
        self._process: asyncio.subprocess.Process
        self._listener: asyncio.Task[None]

    async def start(self) -> None:
        with self._log.open("a") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "support.fault_runners", *self._arguments),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                cwd=ROOT / "tests",
            )
        self._listener = asyncio.create_task(self._listen())

    async def kill(self) -> None:
        assert self._process.returncode is None, "the runners ended unexpectedly"
        self._process.kill()
        await self._process.wait()
        await self._listener

    def say(self, line: str) -> None:
        """Have the process do something."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.stops.append(Stop(**json.loads(line)))
