"""What a check sees of the machine that it runs on; tests put others in its place."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from gpuledger.preflight.programs import RunProgram
from gpuledger.runtime.clock import Clock

InstanceType = Callable[[], Awaitable[str | None]]
"""Asks for the node's instance type; None: nobody can tell it."""


async def unknown_instance_type() -> None:
    """No gateway tells the node's instance type."""


class Surroundings(NamedTuple):
    """The environment, programs and clocks of a check. `monotonic` and `sleep` count in seconds."""

    environ: Mapping[str, str]
    run: RunProgram
    clock: Clock
    monotonic: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    instance_type: InstanceType = unknown_instance_type


class Deadline:
    """How much of a check's time is left."""

    def __init__(self, timeout_s: float, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._ends_s = monotonic() + timeout_s

    @property
    def left_s(self) -> float:
        """The seconds left, 0 where it is over."""
        return max(0.0, self._ends_s - self._monotonic())
