"""Keeps what is remembered of devices on the node's disk, and beside it what lasts as long as the process."""

from collections.abc import Iterable
from typing import Final

import structlog

from gpuledger.agent.part import Keep
from gpuledger.agent.setup.state import Held, Memory, Told, dump, load
from gpuledger.agent.setup.timing import Attempt

KEPT: Final = "setup"
"""The name under which it is kept."""

log = structlog.get_logger("gpuledger.agent")


class Remembering:
    """The memory of one agent. `attempts` failed, `withdrawn_at` is when units were withdrawn; both by device."""

    def __init__(self, keep: Keep, now: float) -> None:
        self._keep = keep
        self.memory = _load(keep)
        self.attempts: dict[str, Attempt] = {}
        self.withdrawn_at = {device: now for device, held in self.memory.held.items() if not held.offered}

    async def hold(self, device: str, held: Held | None) -> None:
        """Remember the device so; None forgets it."""
        await self._put(self.memory.holding(device, held))

    async def told(self, device: str, told: Told | None) -> None:
        """Remember that this was told last; None forgets it."""
        await self._put(self.memory.telling(device, told))

    async def released(self, device: str, told: Told | None) -> None:
        """Forget the device, but for what was told of that."""
        self.attempts.pop(device, None)
        self.withdrawn_at.pop(device, None)
        await self._put(self.memory.holding(device, None).telling(device, told))

    async def keep_only(self, devices: Iterable[str]) -> None:
        """Forget what was told of devices that nobody asks for, and that are not held."""
        asked = {*devices, *self.memory.held}
        for device in (self.memory.told.keys() | self.attempts.keys()) - asked:
            self.attempts.pop(device, None)
            await self.told(device, None)

    async def _put(self, memory: Memory) -> None:
        if memory != self.memory:
            self.memory = memory
            await self._keep.put(KEPT, dump(memory))


def _load(keep: Keep) -> Memory:
    kept = keep.get(KEPT)
    try:
        return load(kept) if kept is not None else Memory()
    except ValueError as error:
        log.warning("what was remembered of devices is forgotten", reason=str(error))
        return Memory()
