"""Documents of rules that commands take from a file, or from stdin, and put into force."""

import sys
from collections.abc import Awaitable, Callable, Sized
from pathlib import Path
from typing import Annotated, Final, Generic, NamedTuple, TypeVar

import typer

from gpuledger.cli.backend import open_backend
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.render import message
from gpuledger.cli.run import run
from gpuledger.tools.applied_documents import VERSION_SHOWN_CHARS, Applied, RulesDocument, outcome_text
from gpuledger.tools.queries.backend import Backend

STDIN: Final = "-"

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only check the document.")]


T = TypeVar("T")
RulesT = TypeVar("RulesT", bound=RulesDocument)


class RulesCommand(NamedTuple, Generic[RulesT]):
    """The command that puts documents of one kind into force.

    `parse` reads a text with the name of its file, and `apply` records what that gives; `noun` is what `entries` are.
    """

    name: str
    parse: Callable[[bytes, str], RulesT]
    apply: Callable[[Backend, RulesT], Awaitable[Applied]]
    entries: Callable[[RulesT], Sized]
    noun: str

    def put_into_force(self, file: str, data_dir: Path | None, *, dry_run: bool) -> None:
        """Put the document in a file into force, or only check it; raises as `document_in` and `open_backend` do."""
        document = document_in(file, self.parse)
        entries = f"{len(self.entries(document))} {self.noun}"
        if dry_run:
            message(f"{document.file} is valid: {entries}, version {document.digest[:VERSION_SHOWN_CHARS]}.")
            return
        message(outcome_text(run(self._apply(data_dir, document)), entries, document))

    async def _apply(self, data_dir: Path | None, document: RulesT) -> Applied:
        async with open_backend(data_dir, self.name, records=True) as backend:
            return await self.apply(backend, document)


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
