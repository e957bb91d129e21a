"""The real command line, run in this process: what it prints and how it exits."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import orjson
import pytest

from gpuledger.cli.main import main


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
