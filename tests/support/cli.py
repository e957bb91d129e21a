"""The real command line, run in this process: what it prints and how it exits."""

import sys
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
