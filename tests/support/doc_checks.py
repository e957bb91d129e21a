"""Whether a command that a page shows exists as it stands there, without running it.

Only names and options are looked at: what a command would read or change is not there.
"""

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, Final

from typer._click.exceptions import MissingParameter, UsageError
from typer.core import TyperGroup
from typer.main import get_command

from gpuledger.cli.app import app
from support.chart import WITH_SECRET, helm, template
from support.paths import ROOT

COMMAND_S: Final = 30.0
CHART_VERBS: Final = ("install", "upgrade")
_SETS: Final = ("--set", "--set-json")


def gpuledger_problem(words: Sequence[str], *, is_mention: bool = False) -> str:
    """What is wrong with `gpuledger` and its arguments; empty: nothing. A mention may lack arguments."""
    command, rest = get_command(app), [word for word in words[1:] if word != "--help"]
    while isinstance(command, TyperGroup) and rest and not rest[0].startswith("-"):
        found = command.commands.get(rest[0])
        if found is None:
            return f"there is no command {rest[0]}"
        command, rest = found, rest[1:]
    if isinstance(command, TyperGroup):
        options = {option for param in command.params for option in param.opts}
        return "" if is_mention and set(rest) <= options else "which command?"
    try:
        command.make_context(words[0], list(rest))  # it takes words away
    except UsageError as error:
        return "" if _is_open(error, rest, is_mention=is_mention) else error.format_message()
    return ""


def _is_open(error: UsageError, rest: Sequence[str], *, is_mention: bool) -> bool:
    """Whether it is about a file of the reader's, or about what a mention leaves open."""
    message = error.format_message()
    if "Invalid value" in message and "does not exist" in message:
        return True
    lacks_value = isinstance(error, MissingParameter) or "requires an argument" in message
    stands_for_one = "Invalid value" in message and any(word.isupper() for word in rest)
    return is_mention and (lacks_value or stands_for_one)


def kubectl_problem(words: Sequence[str]) -> str:
    """What kubectl itself says about its verb and options."""
    end = words.index("--") if "--" in words else len(words)
    program = shutil.which("kubectl")
    assert program is not None
    asked = subprocess.run(
        (program, *words[1:end], "--help"), capture_output=True, text=True, timeout=COMMAND_S, check=False
    )
    return "" if asked.returncode == 0 and "unknown command" not in asked.stderr else asked.stderr.splitlines()[0]


def helm_problem(words: Sequence[str], values: Mapping[str, Any]) -> str:
    """What helm says about its verb and options, and what the chart says about the values that are set."""
    asked = helm(*words[1:], "--help")
    if asked.code:
        return asked.err
    return chart_problem(words, values) if {*CHART_VERBS} & {*words} else ""


def chart_problem(words: Sequence[str], values: Mapping[str, Any]) -> str:
    """What the chart says about the `--set` among these words, and about values of a file."""
    places = [place for place, word in enumerate(words) if word in _SETS]
    sets = [word for place in places for word in words[place : place + 2]]
    result = template({**WITH_SECRET, **values}, "lab", *sets)
    return "" if result.code == 0 else result.err


def make_problem(words: Sequence[str]) -> str:
    """Whether the Makefile lacks one of the targets."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    missing = [word for word in words[1:] if "=" not in word and word not in targets]
    return f"the Makefile has no target {', '.join(missing)}" if missing else ""


def pytest_problem(words: Sequence[str]) -> str:
    """Whether the folder or file of the tests is missing."""
    return "" if (ROOT / words[1]).exists() else f"{words[1]} does not exist"
