"""What the processes of a node have in common: messages on stderr, and metrics for as long as they run."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client.registry import REGISTRY, Collector


class RegisteredCollector(Collector):
    """Metrics that are collected when somebody reads them."""

    @contextmanager
    def registered(self) -> Iterator[None]:
        """Serves the metrics for the length of the block."""
        REGISTRY.register(self)
        try:
            yield
        finally:
            REGISTRY.unregister(self)


def print_message(text: str) -> None:
    """Print a message; the reader of stderr may be gone."""
    try:
        print(text, file=sys.stderr, flush=True)  # noqa: T201 - the program's own message, beside its log
    except OSError:
        return


def print_error(error: Exception, code: int) -> int:
    """Print an error; returns the exit code that it leads to."""
    print_message(f"Error: {error}")
    return code
