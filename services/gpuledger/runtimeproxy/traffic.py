"""Counts the calls that pass the proxy, by method; what /metrics shows and what an orderly end waits for."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

METHODS_MAX: Final = 200
"""CRI has some 50 methods; whoever reaches the socket may make up more, which count as one."""

OTHER: Final = "other"


@dataclass(slots=True)
class Traffic:
    """Calls since the start, and those under way, by `/<service>/<method>`."""

    calls: Counter[str] = field(default_factory=Counter)
    under_way: Counter[str] = field(default_factory=Counter)
    refused: int = 0

    @contextmanager
    def call(self, method: str) -> Iterator[None]:
        """Counts a call as under way for the length of the block."""
        name = method if method in self.calls or len(self.calls) < METHODS_MAX else OTHER
        self.calls[name] += 1
        self.under_way[name] += 1
        try:
            yield
        finally:
            self.under_way[name] -= 1
