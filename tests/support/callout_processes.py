"""The auth callout service as processes of their own, which tests start and kill."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from support.auth_callout import Callouts
from support.paths import ROOT
from support.up import COMMAND, DEADLINE_S
from support.waiting import eventually

FAST = (sys.executable, "-m", "support.callout_fast")
GRANTED = "callout.granted"


class ServiceProcess:
    """One service. It is gone when the test is."""

    def __init__(self, here: Callouts, *, is_fast: bool = False) -> None:
        self._environ = {**_plain_environ(), **here.environ()}
        self._command = FAST if is_fast else COMMAND
        self._process: asyncio.subprocess.Process | None = None
        self._reading: list[asyncio.Task[None]] = []
        self.output = ""

    @property
    def granted(self) -> int:
        """How many logins it has granted."""
        return self.output.count(GRANTED)

    async def start(self) -> None:
        """Start it, and return when servers can ask it."""
        pipe = asyncio.subprocess.PIPE
        command, tests = (*self._command, "auth-callout"), ROOT / "tests"
        self._process = await asyncio.create_subprocess_exec(
            *command, env=self._environ, cwd=tests, stdout=pipe, stderr=pipe
        )
        streams = (self._process.stdout, self._process.stderr)
        self._reading = [asyncio.create_task(self._read(stream)) for stream in streams if stream is not None]
        await self.shows(" is up")

    async def shows(self, text: str) -> None:
        """Return when its output has this."""

        async def has() -> bool:
            assert self._process is not None, "it was started"
            assert self._process.returncode is None, self.output
            return text in self.output

        await eventually(has)

    async def kill(self) -> None:
        """End it at once, as a machine that loses its power does."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            async with asyncio.timeout(DEADLINE_S):
                await self._process.wait()
                await asyncio.gather(*self._reading)

    async def _read(self, stream: asyncio.StreamReader) -> None:
        while line := await stream.readline():
            self.output += line.decode()


@asynccontextmanager
async def services(here: Callouts, count: int, *, is_fast: bool = False) -> AsyncIterator[list[ServiceProcess]]:
    """So many services, which are up."""
    started = [ServiceProcess(here, is_fast=is_fast) for _ in range(count)]
    try:
        await asyncio.gather(*(one.start() for one in started))
        yield started
    finally:
        await asyncio.gather(*(one.kill() for one in started))


def _plain_environ() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("GPULEDGER", "NATS"))}
