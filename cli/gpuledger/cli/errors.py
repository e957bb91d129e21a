"""The errors that a user sees, and the exit codes of the commands.

Every failure that a user can meet ends as a `CliError`: one sentence and a next step, never a traceback. All of the
command line imports this module, so that it must not import anything else of the command line.
"""

from enum import IntEnum
from typing import TextIO

from gpuledger.tools.errors import ToolError


class ExitCode(IntEnum):
    """The exit codes, for scripts.

    | code | name        | meaning                                                                          |
    | ---- | ----------- | -------------------------------------------------------------------------------- |
    | 0    | OK          | done                                                                             |
    | 1    | ERROR       | something failed, `verify` found a row that differs, or `doctor` something amiss |
    | 2    | USAGE       | the arguments are wrong; nothing was done                                        |
    | 3    | REJECTS     | the import finished, but some rows were rejected                                 |
    | 4    | UNAVAILABLE | NATS, PostgreSQL or the Kubernetes API cannot be reached                         |
    | 5    | BUSY        | in use by another process: the data directory, or for `log import` a projection  |
    | 130  |             | interrupted, as if ended by SIGINT (128+2): `gpuledger.cli.main.INTERRUPTED`     |
    | 141  | PIPE        | the reader of stdout left early (`| head`), as if ended by SIGPIPE (128+13)      |
    """

    OK = 0
    ERROR = 1
    USAGE = 2
    REJECTS = 3
    UNAVAILABLE = 4
    BUSY = 5
    PIPE = 141


class CliError(ToolError):
    """A command cannot go on: what happened, what the user can do about it, and the exit code."""

    def __init__(self, message: str, hint: str = "", code: ExitCode = ExitCode.ERROR) -> None:
        super().__init__(message, hint)
        self.code = code


def report(error: CliError, stderr: TextIO) -> ExitCode:
    """Print `Error: <sentence> <hint>` as one line on `stderr`; returns the code to exit with."""
    stderr.write(f"Error: {visible(str(error))}\n")
    return error.code


def visible(text: str) -> str:
    r"""Escape what a terminal would obey or hide (`\x1b`, `\n`, `\u202e`); all else stays as it is."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
