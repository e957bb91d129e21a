"""Setup: the part that prepares devices for pools and clears them again, by reconciling the hardware with the board.

It records only what is so already: it offers units before it reports a device as applied, and withdraws them before it
changes the card behind them.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import structlog

from gpuledger.agent.board import Board
from gpuledger.agent.hardware.api import Survey
from gpuledger.agent.hardware.calls import AsyncHardware
from gpuledger.agent.hardware.errors import HardwareError
from gpuledger.agent.part import BasePart, Recorder, StateStore
from gpuledger.agent.setup import actions
from gpuledger.agent.setup.actions import Action, Wait
from gpuledger.agent.setup.decide import decide
from gpuledger.agent.setup.executor import SetupExecutor
from gpuledger.agent.setup.situation import Situation
from gpuledger.agent.setup.store import SetupStore
from gpuledger.agent.setup.timing import Debounce
from gpuledger.runtime.clock import Clock
from gpuledger.runtime.tasks import end

RECONCILE_PERIOD_S: Final = 15.0
"""How often the part reconciles without a change of the board: only the hardware shows what processes do."""

STUCK_AFTER_S: Final = 180.0
"""Longer than any one call to the hardware takes."""

STEPS_MAX: Final = 4096
"""How many steps are taken without a pause; a node has at most 256 cards, each of which needs fewer than ten."""

log = structlog.get_logger("gpuledger.agent")


class PoolSetup(BasePart):
    """Keeps a node's devices as pools desire them; `now` is the event loop's clock. See `gpuledger.agent.part.Part`."""

    name = "setup"
    stuck_after_s = STUCK_AFTER_S

    def __init__(
        self,
        hardware: AsyncHardware,
        board: Board,
        state_store: StateStore,
        *,
        clock: Clock,
        now: Callable[[], float] | None = None,
    ) -> None:
        self._hardware = hardware
        self._board = board
        self._state_store = state_store
        self._clock = clock
        self._now = now or (lambda: asyncio.get_running_loop().time())
        self._debounce = Debounce()
        self._store: SetupStore | None = None

    async def run(self, record: Recorder) -> None:
        """Reconcile after each change of the board, and periodically, until cancelled."""
        changed = asyncio.Event()
        watching = asyncio.create_task(self._watch_board(changed))
        try:
            while True:
                changed.clear()
                until = await self.reconcile(record)
                pause_s = RECONCILE_PERIOD_S if until is None else min(until - self._now(), RECONCILE_PERIOD_S)
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(pause_s, 0.0)):
                        await changed.wait()
        finally:
            await end([watching])

    async def reconcile(self, record: Recorder) -> float | None:
        """Take all steps that are possible now; returns when the next one is due without a change, or None."""
        store = self._store = self._store or SetupStore(self._state_store, self._now())
        view = _HardwareView(self._hardware)
        executor = SetupExecutor(self._hardware, self._board, store, clock=self._clock, beat=self._beat)
        for _ in range(STEPS_MAX):
            self._beat()
            situation = self._situation(store, view)
            decision = decide(situation)
            if isinstance(decision, Wait):
                self.set_trouble(view.error)
                await self._settle(situation, store, executor)
                return decision.until
            if isinstance(decision, actions.Withdraw) or not await view.survey_once():
                await _execute(decision, situation, executor, view, record)
        log.error("setting devices up makes no progress; it goes on after a pause", next=str(decision))
        return None

    async def _settle(self, situation: Situation, store: SetupStore, executor: SetupExecutor) -> None:
        if situation.board.survey is not None:
            executor.offer()
        if situation.board.desired is not None and situation.now >= situation.debounced_at:
            await store.retain(desired.device for desired in situation.board.desired)

    async def _watch_board(self, changed: asyncio.Event) -> None:
        async for _ in self._board.changes():
            changed.set()

    def _situation(self, store: SetupStore, view: "_HardwareView") -> Situation:
        board, now = self._board.state, self._now()
        return Situation(
            board,
            store.state,
            store.retries,
            store.withdrawn_at,
            now,
            self._debounce.until(board.desired, now),
            view.survey,
            view.error,
            view.processes,
        )

    def _beat(self) -> None:
        self.alive_at = self._now()


class _HardwareView:
    """What the hardware showed since it was last changed; the board may show an earlier state."""

    def __init__(self, hardware: AsyncHardware) -> None:
        self._hardware = hardware
        self.survey: Survey | None = None
        self.error: str | None = None
        self.processes: dict[str, frozenset[str] | None] = {}
        self.changed: set[str] = set()

    async def survey_once(self) -> bool:
        """Survey the cards unless that was done since the last change; returns whether it was done now."""
        if self.survey is not None or self.error is not None:
            return False
        try:
            self.survey = await self._hardware.survey()
        except HardwareError as error:
            self.error = str(error) or type(error).__name__
        return True

    async def query_users(self, address: str) -> None:
        """Query which processes use a card."""
        try:
            self.processes[address] = await self._hardware.users(address)
        except HardwareError as error:
            self.processes[address] = None
            log.warning("it is unknown which processes use a card", card=address, reason=str(error))

    def invalidate(self, device: str) -> None:
        """Forget everything, because a device's card was changed, or may have been."""
        self.changed.add(device)
        self.survey = self.error = None
        self.processes = {}


async def _execute(
    action: Action, situation: Situation, executor: SetupExecutor, view: _HardwareView, record: Recorder
) -> None:
    match action:
        case actions.QueryUsers():
            await view.query_users(action.address)
        case actions.Refresh():
            await executor.refresh(action, situation.now)
        case actions.Withdraw():
            await executor.withdraw(action, situation.now)
        case actions.Adopt():
            await executor.adopt(action)
        case actions.Postpone():
            executor.postpone(action, situation)
        case actions.ReportOutcome():
            await executor.report(action, situation, record)
        case actions.Release():
            await executor.release(action, record)
        case actions.Divide() | actions.Clear():
            await _change_card(action, situation, executor, view, record)


async def _change_card(
    action: actions.Divide | actions.Clear,
    situation: Situation,
    executor: SetupExecutor,
    view: _HardwareView,
    record: Recorder,
) -> None:
    """Change a card, unless that was just done and the card does not show it."""
    if action.device in view.changed:
        await executor.on_unchanged(action, situation, record)
        return
    if isinstance(action, actions.Divide):
        await executor.divide(action, situation, record)
    else:
        await executor.clear(action, situation)
    view.invalidate(action.device)
