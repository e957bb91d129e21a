"""The help texts of all commands are reflowed to the width of the terminal, and no command imports the others."""

import os
import subprocess
import sys

import orjson
from typer.main import get_command

from gpuledger.cli.app import app
from gpuledger.cli.lazy import reflowed


def test_a_paragraph_is_reflowed_unless_it_is_verbatim() -> None:
    assert reflowed("One\ntwo.\n\n  Three\n  four.\n\n\b\na\n  b") == "One two.\n\nThree four.\n\n\b\na\n  b"


def test_the_help_of_every_command_is_reflowed() -> None:
    found = dict[str, str]()
    pending = [("gpuledger", get_command(app))]
    while pending:
        name, command = pending.pop()
        pending += [(f"{name} {one}", inner) for one, inner in getattr(command, "commands", {}).items()]
        found[name] = command.help or ""
    assert {"gpuledger get", "gpuledger why pod", "gpuledger log tail"} <= found.keys()
    assert [name for name, text in found.items() if text != reflowed(text)] == []


def test_a_command_imports_no_other() -> None:
    script = (
        "import json, sys\n"
        "from gpuledger.cli.app import COMMANDS\n"
        "before = [name for name in sys.modules if name.startswith('gpuledger.cli.commands.')]\n"
        "COMMANDS['permissions']\n"
        "print(json.dumps([before, 'gpuledger.cli.commands.up' in sys.modules]))\n"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, "-c", script], env=environ, capture_output=True, timeout=60, check=True)
    assert orjson.loads(ended.stdout) == [[], False]
