"""The terminal: data goes to stdout, messages to stderr, progress bars and colours only to a person's terminal.

Only rows, pages and documents may be written to stdout; a bar never redirects it.
"""

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Self, TextIO, cast

from gpuledger.cli.errors import ExitCode, visible
from gpuledger.tools.reporting import Advance, NoProgress


@dataclass(frozen=True, slots=True)
class Console:
    """The two streams; whether stdout is a terminal and may show colours, and stderr a moving bar.

    `width` is how many characters a line of the terminal has, None off a terminal.
    """

    out: TextIO
    err: TextIO
    terminal: bool = False
    colour: bool = False
    bars: bool = False
    width: int | None = None

    @classmethod
    def standard(cls) -> Self:
        """The process's own streams, as they are now."""
        return cls.of(sys.stdout, sys.stderr, os.environ)

    @classmethod
    def of(cls, out: TextIO, err: TextIO, environ: Mapping[str, str]) -> Self:
        """Colour needs a terminal that is not dumb and no NO_COLOR (https://no-color.org); bars a terminal."""
        able = environ.get("TERM") != "dumb"
        terminal = out.isatty()
        colour = able and terminal and not environ.get("NO_COLOR")
        width = shutil.get_terminal_size().columns if terminal else None
        return cls(out, err, terminal=terminal, colour=colour, bars=able and err.isatty(), width=width)


def message(text: str, console: Console | None = None) -> None:
    """One line for the person who ran the command, on stderr."""
    (console or Console.standard()).err.write(f"{visible(text)}\n")


def message_unless_closed(text: str) -> None:
    """A line on stderr for servers: that its reader may be gone must not keep them from being stopped."""
    with suppress(OSError):
        message(text)


@contextmanager
def progress(
    description: str, total: int | None = None, *, unit: str = "", console: Console | None = None
) -> Iterator[Advance]:
    """A bar on stderr with rate and time left, gone when the block ends; nothing at all off a terminal.

    Without a total the bar only moves. `unit` is the unit of the count, in the plural (`events`).
    """
    console = console or Console.standard()
    if not console.bars:
        yield NoProgress()
        return
    from gpuledger.cli.render.bars import bar  # noqa: PLC0415 - only a person's terminal needs a library for it

    with bar(visible(description), total, unit, console.err) as advance:
        yield advance


class TerminalReporter:
    """Shows a tool's lines and progress on stderr."""

    def message(self, text: str) -> None:
        """Show one line."""
        message(text)

    def progress(
        self, description: str, total: int | None = None, *, unit: str = ""
    ) -> AbstractContextManager[Advance]:
        """Show a bar for the length of the block."""
        return progress(description, total, unit=unit)


class ReaderLeftError(Exception):
    """The reader of stdout left early (`| head`): nobody sees what else a command has to show.

    It is no OSError, which the command line's framework would end with code 1, and no SystemExit, which would break an
    event loop off instead of letting its work end.
    """


@contextmanager
def quiet_pipe(out: TextIO) -> Iterator[None]:
    """Flush `out` at the end of the block.

    Raises:
        ReaderLeftError: its reader left early.
    """
    try:
        yield
        out.flush()
    except BrokenPipeError:
        raise ReaderLeftError from None


@contextmanager
def ending_with_reader() -> Iterator[None]:
    """Whatever the block writes to stdout: end it quietly when the reader leaves early, with exit code 141.

    That is what a shell shows for programs that SIGPIPE ends, kubectl among them. Raises SystemExit; stdout goes to the
    null device from then on, so that the interpreter's last flush is quiet too.
    """
    before = sys.stdout
    if before is None:  # the process was started without one
        yield
        return
    sys.stdout = out = cast("TextIO", _WatchedOutput(before))
    try:
        try:
            yield
        finally:
            out.flush()
    except ReaderLeftError:
        _discard(before)
        raise SystemExit(ExitCode.PIPE) from None
    finally:
        sys.stdout = before


class _WatchedOutput:
    """A stream that says with an error of its own that its reader left."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - every other attribute of a stream
        return getattr(self._out, name)

    def write(self, text: str) -> int:
        try:
            return self._out.write(text)
        except BrokenPipeError:
            raise ReaderLeftError from None

    def flush(self) -> None:
        with quiet_pipe(self._out):
            pass


def _discard(out: TextIO) -> None:
    with suppress(OSError, ValueError):  # a stream without a descriptor has nothing to redirect
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(null, out.fileno())
        finally:
            os.close(null)
