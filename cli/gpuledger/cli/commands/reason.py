"""The option with an operator's reason, which is recorded with the operator's name."""

from typing import Annotated

import typer

from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.events.payload import TEXT_LENGTH_MAX

Reason = Annotated[str, typer.Option("--reason", help="The reason, which is recorded with your name.")]


def reason_in(text: str) -> str:
    """The reason without blanks around it.

    Raises:
        CliError: it is empty or too long.
    """
    if not 1 <= len(text.strip()) <= TEXT_LENGTH_MAX:
        what = f"--reason has 1 to {TEXT_LENGTH_MAX} characters"
        raise CliError(what, "Give another --reason", ExitCode.USAGE)
    return text.strip()
