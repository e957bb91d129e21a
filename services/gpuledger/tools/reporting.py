"""How a tool keeps the person who waits informed: lines and progress bars, which the command line shows."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Advance(Protocol):
    """Moves a progress bar."""

    def __call__(self, steps: int = 1) -> None:
        """Count so many more as done."""

    def to(self, done: int, total: int | None = None) -> None:
        """Set how many are done in all, of a total that may become known only now."""


class Reporter(Protocol):
    """Where lines and progress go."""

    def message(self, text: str) -> None:
        """Show one line."""

    def progress(
        self, description: str, total: int | None = None, *, unit: str = ""
    ) -> AbstractContextManager[Advance]:
        """Show a bar for the length of the block; without a total it only moves. `unit` is what is counted (plural)."""
        ...


class NoProgress:
    """A bar that nobody sees."""

    def __call__(self, steps: int = 1) -> None:
        """Show nothing."""

    def to(self, done: int, total: int | None = None) -> None:
        """Show nothing."""


class Silent:
    """Reports nothing, for callers without a terminal."""

    def message(self, text: str) -> None:
        """Show nothing."""

    @contextmanager
    def progress(self, description: str, total: int | None = None, *, unit: str = "") -> Iterator[Advance]:  # noqa: ARG002
        """Show nothing."""
        yield NoProgress()


SILENT = Silent()
