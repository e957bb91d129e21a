"""Notices logins that were granted to one node again and again, as happens where the server does not accept them. Pure.

A server tells nobody but its own log that it has not accepted an answer.
"""

from typing import Final

REPEATS: Final = 4
WITHIN_S: Final = 60
"""A login lasts minutes, so no node has so many within this time."""

NODES_MAX: Final = 20_000
"""More nodes than this are not counted; the oldest are forgotten first."""


class Repeats:
    """When a node was first granted a login, and how often since then."""

    def __init__(self) -> None:
        self._granted: dict[str, tuple[int, int]] = {}

    def is_odd(self, node: str, now_s: int) -> bool:
        """Count a login; whether it is just one too many, which is so at most once in `WITHIN_S`."""
        first_s, times = self._granted.pop(node, (now_s, 0))
        if now_s - first_s >= WITHIN_S:
            first_s, times = now_s, 0
        self._granted[node] = (first_s, times + 1)
        if len(self._granted) > NODES_MAX:
            del self._granted[next(iter(self._granted))]
        return times + 1 == REPEATS
