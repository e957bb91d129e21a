"""Keeps what is remembered of devices on the node's disk, and beside it what lasts as long as the process."""

from collections.abc import Iterable
from typing import Final

import structlog

from gpuledger.agent.part import StateStore
from gpuledger.agent.setup.state import HeldDevice, Outcome, SetupState, dump, load
from gpuledger.agent.setup.timing import FailedAttempt

STATE_KEY: Final = "setup"
"""The name under which it is kept."""

log = structlog.get_logger("gpuledger.agent")


class SetupStore:
    """The memory of one agent. `attempts` failed, `withdrawn_at` is when units were withdrawn; both by device."""

    def __init__(self, keep: StateStore, now: float) -> None:
        self._keep = keep
        self.memory = _load(keep)
        self.retries: dict[str, FailedAttempt] = {}
        self.withdrawn_at = {device: now for device, held in self.memory.held.items() if not held.offered}

    async def hold(self, device: str, held: HeldDevice | None) -> None:
        """Remember the device so; None forgets it."""
        await self._put(self.memory.holding(device, held))

    async def told(self, device: str, told: Outcome | None) -> None:
        """Remember that this was told last; None forgets it."""
        await self._put(self.memory.telling(device, told))

    async def released(self, device: str, told: Outcome | None) -> None:
        """Forget the device, but for what was told of that."""
        self.retries.pop(device, None)
        self.withdrawn_at.pop(device, None)
        await self._put(self.memory.holding(device, None).telling(device, told))

    async def keep_only(self, devices: Iterable[str]) -> None:
        """Forget what was told of devices that nobody asks for, and that are not held."""
        asked = {*devices, *self.memory.held}
        for device in (self.memory.told.keys() | self.retries.keys()) - asked:
            self.retries.pop(device, None)
            await self.told(device, None)

    async def _put(self, memory: SetupState) -> None:
        if memory != self.memory:
            self.memory = memory
            await self._keep.put(STATE_KEY, dump(memory))


def _load(keep: StateStore) -> SetupState:
    kept = keep.get(STATE_KEY)
    try:
        return load(kept) if kept is not None else SetupState()
    except ValueError as error:
        log.warning("what was remembered of devices is forgotten", reason=str(error))
        return SetupState()
