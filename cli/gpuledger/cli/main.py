"""The entry points: `gpuledger`, and the completion that kubectl runs for `kubectl gpuledger`.

This is where errors end as one sentence, and the only place that ends the process.
"""

import os
import shlex
import sys

from gpuledger.cli.app import app
from gpuledger.cli.deferral import defer_imports
from gpuledger.cli.errors import CliError, report
from gpuledger.cli.render.terminal import ReaderLeftError, ending_with_reader
from gpuledger.runtime.garbage import ending_unwalked

PROGRAM = "gpuledger"
INTERRUPTED = 130
NO_FILES = ":4"
"""Tells kubectl that the completions are complete, and that file names are none."""


def main() -> None:
    """Run the command line. kubectl finds it as its plugin, under the name `kubectl-gpuledger`."""
    with ending_unwalked(), ending_with_reader():
        defer_imports()
        _run()


def _run() -> None:
    try:
        app(standalone_mode=True)
    except ReaderLeftError:
        raise
    except CliError as error:
        sys.exit(report(error, sys.stderr))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:
        from gpuledger.cli.run import as_cli_error  # noqa: PLC0415 - the error trees of all packages

        shown = as_cli_error(error)
        if shown is None:
            raise
        sys.exit(report(shown, sys.stderr))


def complete() -> None:
    """Print completions of the last word, one per line; kubectl runs this as `kubectl_complete-gpuledger`."""
    with ending_unwalked():
        defer_imports()
        _complete()


def _complete() -> None:
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
