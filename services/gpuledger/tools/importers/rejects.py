"""Writes rejected rows to a file: one JSON object a line, {file, line, reason, text}."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from gpuledger.tools.importers.draft import Reject
from gpuledger.tools.importers.errors import ImportFileError


@contextmanager
def reject_file(path: Path) -> Iterator[Callable[[Reject], None]]:
    """A function that writes a reject to the file, for the length of the block.

    At the end of a block that succeeds the new file replaces an existing one: it holds the rejects of one whole import.

    Raises:
        ImportFileError: the file cannot be written; so does the function.
    """
    beside = path.with_name(f"{path.name}.part")
    with ExitStack() as stack:
        with _writing(path):
            file = stack.enter_context(beside.open("wb"))
        stack.callback(beside.unlink, missing_ok=True)

        def write(reject: Reject) -> None:
            with _writing(path):
                file.write(reject.to_json() + b"\n")

        yield write
        with _writing(path):
            file.close()
            beside.replace(path)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"The rejects cannot be written to {path}: {error.strerror}. Name another file."
        raise ImportFileError(message) from error
