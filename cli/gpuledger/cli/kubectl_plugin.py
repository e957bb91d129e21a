"""Completion for `kubectl gpuledger`: kubectl runs `kubectl_complete-gpuledger` with the words that were typed.

The plugin itself is the command under the name `kubectl-gpuledger`, which kubectl finds on the path.
"""

import os
import shlex
import sys

from gpuledger.cli.main import app

PROGRAM = "gpuledger"
NO_FILES = ":4"
"""What tells kubectl that these are all, and no names of files."""


def complete() -> None:
    """Print what may stand in place of the last word, a line each, as kubectl expects it."""
    words = [PROGRAM, *sys.argv[1:]]
    os.environ |= {
        f"_{PROGRAM.upper()}_COMPLETE": "complete_bash",
        "COMP_WORDS": shlex.join(words),
        "COMP_CWORD": str(max(len(words) - 1, 1)),
    }
    try:
        app(prog_name=PROGRAM)
    except SystemExit:
        sys.stdout.write(f"{NO_FILES}\n")
