"""The exit codes of the commands are those that the README lists for scripts."""

import re

from gpuledger.cli.errors import ExitCode
from gpuledger.cli.main import INTERRUPTED
from support.paths import ROOT

README = ROOT / "README.md"


def codes(text: str) -> list[int]:
    """The first column of a table of exit codes."""
    return [int(code) for code in re.findall(r"^\s*\| (\d+) +\|", text, re.MULTILINE)]


def test_the_readme_and_the_code_name_every_code_once() -> None:
    every = sorted([*ExitCode, INTERRUPTED])
    assert codes(README.read_text()) == every
    assert codes(ExitCode.__doc__ or "") == every
