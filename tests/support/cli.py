"""The real command line: run in this process, with its output and exit code, or watching in a process of its own."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import orjson
import pytest

from gpuledger.cli.main import main
from support.ledgers import DEADLINE_S
from support.up import COMMAND


class Result(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Stdout as JSON."""
        return orjson.loads(self.out)


Run = Callable[..., Awaitable[Result]]
"""Runs a command beside what the test does meanwhile."""


class Cli:
    """Runs commands with captured streams."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture

    def __call__(self, *arguments: str) -> Result:
        """Run `gpuledger` with these arguments."""
        self._capture.readouterr()
        before, sys.argv = sys.argv, ["gpuledger", *arguments]
        try:
            main()
            code: object = 0
        except SystemExit as end:
            code = end.code
        finally:
            sys.argv = before
        out, err = self._capture.readouterr()
        return Result(code if isinstance(code, int) else 0, out, err)


def aside(cli: Cli) -> Run:
    """The commands in a thread of their own, for tests whose servers are in this one."""

    async def command(*arguments: str) -> Result:
        return await asyncio.to_thread(cli, *arguments)

    return command


INTERRUPTED = 130


@asynccontextmanager
async def watching(environ: Mapping[str, str], *arguments: str) -> AsyncIterator[Process]:
    """The command, interrupted at the end as by Ctrl-C."""
    process = await asyncio.create_subprocess_exec(*COMMAND, *arguments, stdout=PIPE, stderr=PIPE, env=dict(environ))
    try:
        yield process
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(DEADLINE_S):
            assert await process.wait() == INTERRUPTED
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def next_line(process: Process) -> str:
    """The next line of stdout, without its end."""
    assert process.stdout is not None
    async with asyncio.timeout(DEADLINE_S):
        return (await process.stdout.readline()).decode().rstrip("\n")
