"""What a check sees of the machine that it runs on; tests put others in its place."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from gpuledger.preflight.programs import RunProgram
from gpuledger.runtime.clock import Clock

PRODUCT_NAME: Final = Path("/sys/class/dmi/id/product_name")
"""The machine's product, as its firmware names it; containers can read it."""

InstanceType = Callable[[], Awaitable[str | None]]
"""Asks for the node's instance type; None: nobody can tell it."""


async def machine_instance_type(product: Path = PRODUCT_NAME) -> str | None:
    """What the machine calls itself. On AWS that is the instance type; elsewhere it is a name of the maker."""
    return await asyncio.to_thread(_first_line, product)


def _first_line(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").partition("\n")[0].strip() or None
    except OSError:
        return None


class Surroundings(NamedTuple):
    """The environment, programs and clocks of a check. `monotonic` and `sleep` count in seconds."""

    environ: Mapping[str, str]
    run: RunProgram
    clock: Clock
    monotonic: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    instance_type: InstanceType = machine_instance_type


class Deadline:
    """How much of a check's time is left."""

    def __init__(self, timeout_s: float, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._ends_s = monotonic() + timeout_s

    @property
    def left_s(self) -> float:
        """The seconds left, 0 where it is over."""
        return max(0.0, self._ends_s - self._monotonic())
