"""Documents of rules that commands take from a file, or from stdin."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from gpuledger.cli.errors import CliError, ExitCode

STDIN: Final = "-"

T = TypeVar("T")


def document_in(file: str, parse: Callable[[bytes, str], T]) -> T:
    """The document in a file, or in stdin for `-`.

    Raises:
        CliError: it cannot be read.
        RequestError: something is wrong with it.
    """
    return parse(_text(file), "stdin" if file == STDIN else file)


def _text(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
    except OSError as error:
        hint = "Name a file with rules, or - for stdin"
        raise CliError(f"{file} cannot be read: {error.strerror or error}", hint, ExitCode.USAGE) from error
