"""What a command says when it cannot do its work, and the exit code it ends with.

Every failure a user can meet is a `CliError`: one sentence and a next step, never a traceback. This module must
not import anything else of the command line, so that all of it can raise these.
"""

from enum import IntEnum
from typing import TextIO

SENTENCE_ENDS = (".", "?", "!")


class ExitCode(IntEnum):
    """How a command ended, for scripts.

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


class CliError(Exception):
    """A command cannot go on: what happened, and what the user can do about it."""

    def __init__(self, message: str, hint: str = "", code: ExitCode = ExitCode.ERROR) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code

    def __str__(self) -> str:
        return " ".join(_sentence(part) for part in (self.message, self.hint) if part.strip())


def report(error: CliError, stderr: TextIO) -> ExitCode:
    """Print `Error: <sentence> <hint>` as one line on `stderr`; returns the code to exit with."""
    stderr.write(f"Error: {visible(str(error))}\n")
    return error.code


def visible(text: str) -> str:
    r"""Spell out what a terminal would obey or hide (`\x1b`, `\n`, `\u202e`); all else stays as it is."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _sentence(text: str) -> str:
    line = " ".join(text.split())
    return line if line.endswith(SENTENCE_ENDS) else f"{line}."
