"""Stores the setup state on the node's disk, and keeps in memory what need not survive the process."""

from collections.abc import Iterable
from typing import Final

import structlog

from gpuledger.agent.part import StateStore
from gpuledger.agent.setup.state import HeldDevice, Outcome, SetupState, dump, load
from gpuledger.agent.setup.timing import FailedAttempt

STATE_KEY: Final = "setup"

log = structlog.get_logger("gpuledger.agent")


class SetupStore:
    """The state of one agent's setup, with the attempts that failed and the times of withdrawals, all by device."""

    def __init__(self, state_store: StateStore, now: float) -> None:
        self._state_store = state_store
        self.state = _load(state_store)
        self.retries: dict[str, FailedAttempt] = {}
        self.withdrawn_at = {device: now for device, held in self.state.held.items() if not held.offered}

    async def set_held(self, device: str, held: HeldDevice | None) -> None:
        """Store how the device is held; None forgets it."""
        await self._put(self.state.with_held(device, held))

    async def set_outcome(self, device: str, outcome: Outcome | None) -> None:
        """Store the outcome that was reported last; None forgets it."""
        await self._put(self.state.with_outcome(device, outcome))

    async def release(self, device: str, outcome: Outcome | None) -> None:
        """Forget the device, but for the outcome that was reported of its release."""
        self.retries.pop(device, None)
        self.withdrawn_at.pop(device, None)
        await self._put(self.state.with_held(device, None).with_outcome(device, outcome))

    async def retain(self, devices: Iterable[str]) -> None:
        """Forget outcomes and attempts of all devices but these and those that are held."""
        retained = {*devices, *self.state.held}
        for device in (self.state.outcomes.keys() | self.retries.keys()) - retained:
            self.retries.pop(device, None)
            await self.set_outcome(device, None)

    async def _put(self, state: SetupState) -> None:
        if state != self.state:
            self.state = state
            await self._state_store.put(STATE_KEY, dump(state))


def _load(state_store: StateStore) -> SetupState:
    stored = state_store.get(STATE_KEY)
    try:
        return load(stored) if stored is not None else SetupState()
    except ValueError as error:
        log.warning("the stored state of devices cannot be used", reason=str(error))
        return SetupState()
