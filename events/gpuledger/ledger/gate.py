"""What calls that publish do while the server acknowledges nothing: one at a time tries, the others wait for it.

A cluster that elects a leader refuses every message, or is silent. Were each of thousands of calls to try again by
itself, they would keep the cluster, and us, from everything else. Nothing here sends anything.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final

SILENCE_MAX_S: Final = 1.0
"""How long nothing at all may be answered before the gate closes."""

PROBE_PAUSE_S: Final = 0.1
"""Between a probe that was not acknowledged and the next one, whoever sends it."""


class PublishGate:
    """Open while the server answers; of what waits before a closed gate, who has the `turn` may try."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.problem = ""
        self._answers = 0

    @property
    def is_open(self) -> bool:
        """Whether everybody may send."""
        return not self.problem

    def open(self) -> None:
        """Something was acknowledged, or refused for a reason of its own."""
        self._answers += 1
        self.problem = ""

    def close(self, problem: str) -> None:
        """Nothing is acknowledged, and this is why."""
        self.problem = problem

    async def wait(self, answered: Callable[[float], Awaitable[bool]], timeout_s: float) -> str:
        """Wait for an answer; if none comes within `timeout_s`, or nobody gets any for so long, the problem.

        `answered` waits for so many seconds, and returns whether the answer is there.
        """
        pause_s = min(SILENCE_MAX_S, timeout_s)
        for _ in range(math.ceil(timeout_s / pause_s)):
            before = self._answers
            if await answered(pause_s):
                return ""
            if self._answers == before:
                self.close("no acknowledgement")
                break
        return "no acknowledgement"
